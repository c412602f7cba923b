"""Records with the state: kept before they are needed, gone when they are not, whatever is cut."""

import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuform.providers.errors import GpuformError
from gpuform.providers.records import Intent
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.records import open_intents, read_all_intents
from gpuform.stacks.engine.records.backend_records import (
    BackendRecords,
    Batches,
    GroupCommit,
    records_for_host,
)
from gpuform.stacks.engine.store import Backend, Files
from gpuform.stacks.engine.store.storage.protocol import Version

FOLDER = "records"


class Cut(Exception):
    """The process ended here."""


class Cutting(Files):
    """Files whose process ends at the operation before which `left` is 0."""

    left: int | None = None

    def _pass(self) -> None:
        if self.left == 0:
            raise Cut
        if self.left is not None:
            self.left -= 1

    def write(self, name: str, data: bytes, replacing: Version | None = None) -> Version:
        self._pass()
        return super().write(name, data, replacing)

    def delete(self, *names: str) -> None:
        for name in names:
            self._pass()
            super().delete(name)


def _there(storage: Files) -> dict[str, Any]:
    batches = Batches(storage, FOLDER)
    batches.read()
    return {name: fields for name, fields in batches.current.items() if fields is not None}


CHANGES = st.dictionaries(
    st.sampled_from("abcde"), st.one_of(st.none(), st.fixed_dictionaries({"n": st.integers(0, 9)}))
)


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(changes=st.lists(st.tuples(CHANGES, st.sampled_from([None, None, 0, 1, 2, 3])), max_size=12))
def test_a_cut_leaves_what_was_or_what_is_to_be(
    changes: list[tuple[dict[str, Any], int | None]],
) -> None:
    """Each change is cut off somewhere, or not; then somebody reads anew and goes on."""
    with TemporaryDirectory() as directory:
        storage = Cutting(Path(directory))
        batches, kept = Batches(storage, FOLDER), dict[str, Any]()
        for change, left in changes:
            after = {k: v for k, v in {**kept, **change}.items() if v is not None}
            storage.left = left
            try:
                batches.write(change)
            except Cut:
                storage.left = None
                batches = Batches(storage, FOLDER)
                batches.read()
                assert _there(storage) == (kept if left == 0 else after)
            else:
                storage.left = None
                assert _there(storage) == after
            kept = _there(storage)
        batches.write(dict.fromkeys(kept))
        batches.write({"last": None})
        assert storage.list_entries(FOLDER) == []


def test_those_who_wait_share_a_write(tmp_path: Path) -> None:
    storage = Cutting(tmp_path)
    batches = Batches(storage, FOLDER)
    commit, meanwhile = GroupCommit(batches), threading.Barrier(2)
    real, written = storage.write, list[Mapping[str, Any]]()

    def write(name: str, data: bytes, replacing: Version | None = None) -> Version:
        written.append(json.loads(data))
        if len(written) == 1:
            meanwhile.wait()  # the others are about to come
            while len(commit._waiting.change) < 8:
                pass
        return real(name, data, replacing)

    storage.write = write  # type: ignore[method-assign]
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(commit.write, {"first": {}})
        meanwhile.wait()
        others = [pool.submit(commit.write, {f"r{n}": {"n": n}}) for n in range(8)]
        for each in (first, *others):
            each.result()
    assert [len(each) for each in written] == [1, 8]
    assert len(_there(storage)) == 9


def test_a_write_that_fails_fails_for_all_who_share_it(tmp_path: Path) -> None:
    storage = Cutting(tmp_path)
    storage.left = 0
    commit = GroupCommit(Batches(storage, FOLDER))
    with pytest.raises(Cut):
        commit.write({"a": {}})
    storage.left = None
    commit.write({"b": {}})
    assert set(_there(storage)) == {"b"}


@pytest.fixture
def backend(tmp_path: Path) -> Backend:
    return Backend.open(f"file://{tmp_path}", {})


def _intent(name: str) -> Intent:
    urn = f"urn:pulumi:dev::demo::gpuform:together:Cluster::{name}"
    return Intent(urn, "together", "Cluster", name, "", 1.0)


def test_another_machine_finds_them(backend: Backend, tmp_path: Path) -> None:
    open_intents(backend, "demo", "dev").record(_intent("train"))
    again = Backend.open(f"file://{tmp_path}", {})
    assert open_intents(again, "demo", "dev").list_all() == [_intent("train")]
    assert open_intents(again, "demo", "prod").list_all() == []
    assert read_all_intents(again) == [_intent("train")]


def test_nothing_is_left_of_what_is_settled(backend: Backend, tmp_path: Path) -> None:
    intents = open_intents(backend, "demo", "dev")
    many = [_intent(f"c{n}") for n in range(20)]
    for each in many:
        intents.record(each)
        intents.record_id(each, each.name)
    intents.forget_all(many)
    assert [path for path in (tmp_path / ".pulumi/gpuform").rglob("*") if path.is_file()] == []


def test_who_has_lost_the_lock_writes_nothing(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_project: str, _stack: str) -> None:
        raise EngineError("the lock was lost", "nothing was written")

    records = BackendRecords(backend, "demo", "dev")
    records.write("a", {})
    monkeypatch.setattr(Backend, "check_lock", lambda _self, *names: lost(*names))
    for change in (lambda: records.write("b", {}), lambda: records.delete("a")):
        with pytest.raises(GpuformError, match="the lock was lost"):
            change()
    assert BackendRecords(backend, "demo", "dev").names() == ["a"]


def test_a_damaged_record_stops_who_needs_it(backend: Backend, tmp_path: Path) -> None:
    open_intents(backend, "demo", "dev").record(_intent("train"))
    (batch,) = (tmp_path / ".pulumi/gpuform/demo/dev.records").iterdir()
    batch.write_text("[]")
    with pytest.raises(GpuformError, match=f"the record {batch} is damaged"):
        open_intents(backend, "demo", "dev").list_all()


def test_a_host_of_pulumis_finds_them_by_the_url(backend: Backend, tmp_path: Path) -> None:
    environ = {"PULUMI_BACKEND_URL": f"file://{tmp_path}"}
    assert records_for_host("demo", "dev", tmp_path, environ) is None  # there is no such stack
    backend.write("demo", "dev", b"{}")
    records = records_for_host("demo", "dev", tmp_path, environ)
    assert records is not None
    records.write("a", {"n": 1})
    assert BackendRecords(backend, "demo", "dev").read("a") == {"n": 1}
    elsewhere = {"PULUMI_BACKEND_URL": "https://api.pulumi.com"}
    assert records_for_host("demo", "dev", tmp_path, elsewhere) is None


@pytest.mark.parametrize("runtime", ["python", "yaml", "go", "{name: nodejs, options: {}}"])
def test_a_host_finds_the_backend_of_a_project_in_any_language(
    runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by the project's file alone: the plugin serves them all."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Pulumi.yaml").write_text(
        f"name: demo\nruntime: {runtime}\nbackend: {{url: 'file://.'}}\n"
    )
    Backend.open(f"file://{tmp_path}").write("demo", "dev", b'{"version": 3, "checkpoint": {}}')
    records = records_for_host("demo", "dev", tmp_path, {"HOME": str(tmp_path / "home")})
    assert records is not None
    assert records.place.startswith(str(tmp_path))


def test_an_answer_is_added_beside_the_records_of_who_took_the_lock_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Backend.open(f"file://{tmp_path}", {})
    slept = open_intents(backend, "demo", "dev")
    intent = Intent("urn:a", "together", "Cluster", "train", "r", 1.0)
    slept.record(intent)
    others = open_intents(Backend.open(f"file://{tmp_path}", {}), "demo", "dev")
    others.forget_all(others.list_all())
    second = replace(intent, started_at=90.0, id="second")
    others.record(second)

    def refuse(*_: object) -> None:
        raise EngineError("the lock is another's")

    monkeypatch.setattr(Backend, "check_lock", refuse)
    with pytest.raises(GpuformError, match="answered with first, which is recorded"):
        slept.record_id(intent, "first")
    late = replace(intent, id="first", is_late=True)
    assert open_intents(Backend.open(f"file://{tmp_path}", {}), "demo", "dev").list_all() == [
        late,
        second,
    ]

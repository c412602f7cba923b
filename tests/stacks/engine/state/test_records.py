"""Test the records beside a state, which stay consistent after any crash."""

import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuform.providers.context.provider_context import RECORDS_ENTRY_POINTS
from gpuform.providers.errors import GpuformError
from gpuform.providers.records import Intent
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.records import (
    BackendRecords,
    Batches,
    GroupCommit,
    open_intents,
    read_all_intents,
    records_for_host,
)
from gpuform.stacks.engine.store import Backend, Files
from gpuform.stacks.engine.store.storage import BlobVersion

FOLDER = "records"


class SimulatedCrash(Exception):
    """The process ended here."""


class CrashingFiles(Files):
    """Files whose process crashes after `remaining_operations` writes and deletes."""

    remaining_operations: int | None = None

    def _count_operation(self) -> None:
        if self.remaining_operations == 0:
            raise SimulatedCrash
        if self.remaining_operations is not None:
            self.remaining_operations -= 1

    def write(self, name: str, data: bytes, replacing: BlobVersion | None = None) -> BlobVersion:
        self._count_operation()
        return super().write(name, data, replacing)

    def delete(self, *names: str) -> None:
        for name in names:
            self._count_operation()
            super().delete(name)


def _read_records(storage: Files) -> dict[str, Any]:
    batches = Batches(storage, FOLDER)
    batches.read()
    return {name: fields for name, fields in batches.current.items() if fields is not None}


CHANGES = st.dictionaries(
    st.sampled_from("abcde"), st.one_of(st.none(), st.fixed_dictionaries({"n": st.integers(0, 9)}))
)


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(changes=st.lists(st.tuples(CHANGES, st.sampled_from([None, None, 0, 1, 2, 3])), max_size=12))
def test_a_crash_leaves_the_records_before_or_after_the_change(
    changes: list[tuple[dict[str, Any], int | None]],
) -> None:
    """Crash during each change, or do not; then read again and continue."""
    with TemporaryDirectory() as directory:
        storage = CrashingFiles(Path(directory))
        batches, records = Batches(storage, FOLDER), dict[str, Any]()
        for change, crash_after in changes:
            after = {k: v for k, v in {**records, **change}.items() if v is not None}
            storage.remaining_operations = crash_after
            try:
                batches.write(change)
            except SimulatedCrash:
                storage.remaining_operations = None
                batches = Batches(storage, FOLDER)
                batches.read()
                assert _read_records(storage) == (records if crash_after == 0 else after)
            else:
                storage.remaining_operations = None
                assert _read_records(storage) == after
            records = _read_records(storage)
        batches.write(dict.fromkeys(records))
        batches.write({"last": None})
        assert storage.list_entries(FOLDER) == []


def test_waiting_threads_share_one_write(tmp_path: Path) -> None:
    storage = CrashingFiles(tmp_path)
    batches = Batches(storage, FOLDER)
    commit, meanwhile = GroupCommit(batches), threading.Barrier(2)
    real, written = storage.write, list[Mapping[str, Any]]()

    def write(name: str, data: bytes, replacing: BlobVersion | None = None) -> BlobVersion:
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
        for write_result in (first, *others):
            write_result.result()
    assert [len(batch) for batch in written] == [1, 8]
    assert len(_read_records(storage)) == 9


def test_a_write_after_a_failed_write_does_not_repeat_the_failed_change(tmp_path: Path) -> None:
    storage = CrashingFiles(tmp_path)
    storage.remaining_operations = 0
    commit = GroupCommit(Batches(storage, FOLDER))
    with pytest.raises(SimulatedCrash):
        commit.write({"a": {}})
    storage.remaining_operations = None
    commit.write({"b": {}})
    assert set(_read_records(storage)) == {"b"}


@pytest.fixture
def backend(tmp_path: Path) -> Backend:
    return Backend.open(f"file://{tmp_path}", {})


def _build_intent(name: str) -> Intent:
    urn = f"urn:pulumi:dev::demo::gpuform:together:Cluster::{name}"
    return Intent(urn, "together", "Cluster", name, "", 1.0)


def test_intents_are_readable_from_another_machine(backend: Backend, tmp_path: Path) -> None:
    open_intents(backend, "demo", "dev").record(_build_intent("train"))
    again = Backend.open(f"file://{tmp_path}", {})
    assert open_intents(again, "demo", "dev").list_all() == [_build_intent("train")]
    assert open_intents(again, "demo", "prod").list_all() == []
    assert read_all_intents(again) == [_build_intent("train")]


def test_forgotten_intents_leave_no_files(backend: Backend, tmp_path: Path) -> None:
    intents = open_intents(backend, "demo", "dev")
    many = [_build_intent(f"c{n}") for n in range(20)]
    for intent in many:
        intents.record(intent)
        intents.record_id(intent, intent.name)
    intents.forget_all(many)
    assert [path for path in (tmp_path / ".pulumi/gpuform").rglob("*") if path.is_file()] == []


def test_records_are_not_written_after_the_lock_was_lost(
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


def test_a_damaged_record_is_an_error_with_its_path(backend: Backend, tmp_path: Path) -> None:
    open_intents(backend, "demo", "dev").record(_build_intent("train"))
    (batch,) = (tmp_path / ".pulumi/gpuform/demo/dev.records").iterdir()
    batch.write_text("[]")
    with pytest.raises(GpuformError, match=f"the record {batch} is damaged"):
        open_intents(backend, "demo", "dev").list_all()


def test_the_entry_point_of_records_leads_to_those_of_the_backend() -> None:
    (entry_point,) = entry_points(group=RECORDS_ENTRY_POINTS)
    assert entry_point.load() is records_for_host


def test_a_plugin_host_finds_the_records_by_the_backend_url(
    backend: Backend, tmp_path: Path
) -> None:
    environ = {"PULUMI_BACKEND_URL": f"file://{tmp_path}"}
    assert records_for_host("demo", "dev", tmp_path, environ) is None  # there is no such stack
    backend.write("demo", "dev", b"{}")
    records = records_for_host("demo", "dev", tmp_path, environ)
    assert records is not None
    records.write("a", {"n": 1})
    assert BackendRecords(backend, "demo", "dev").read("a") == {"n": 1}
    elsewhere = {"PULUMI_BACKEND_URL": "https://api.pulumi.com"}
    assert records_for_host("demo", "dev", tmp_path, elsewhere) is None


def test_stored_objects_are_those_that_the_stack_manages(backend: Backend) -> None:
    resources: list[dict[str, object]] = [
        {"urn": "urn:managed", "id": "c1", "custom": True},
        {"urn": "urn:read", "id": "c1", "custom": True, "external": True},
        {"urn": "urn:replaced", "id": "c2", "custom": True, "pendingReplacement": True},
        {"urn": "urn:component"},
    ]
    checkpoint = {"version": 3, "checkpoint": {"latest": {"resources": resources}}}
    backend.write("demo", "dev", json.dumps(checkpoint).encode())
    stored = BackendRecords(backend, "demo", "dev").list_stored_objects()
    assert stored == [("urn:managed", "c1")]


def test_stored_parts_are_the_nodes_of_pools(backend: Backend) -> None:
    outputs = {"node_ids": ["n1", "n2"]}
    pool = {"type": "gpuform:scp:NodePool", "id": "p", "custom": True, "outputs": outputs}
    resources = [
        {**pool, "urn": "urn:pool"},
        {**pool, "urn": "urn:new", "outputs": {}},
        {**pool, "urn": "urn:gone", "pendingReplacement": True},
        {**pool, "urn": "urn:other", "type": "aws:ec2:Instance"},
    ]
    checkpoint = {"version": 3, "checkpoint": {"latest": {"resources": resources}}}
    backend.write("demo", "dev", json.dumps(checkpoint).encode())
    stored = BackendRecords(backend, "demo", "dev").list_stored_parts()
    assert stored == [("urn:pool", "n1"), ("urn:pool", "n2")]


@pytest.mark.parametrize("runtime", ["python", "yaml", "go", "{name: nodejs, options: {}}"])
def test_a_plugin_host_finds_the_backend_of_a_project_with_any_runtime(
    runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Find the backend from the project file alone: the plugin serves all runtimes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Pulumi.yaml").write_text(
        f"name: demo\nruntime: {runtime}\nbackend: {{url: 'file://.'}}\n"
    )
    Backend.open(f"file://{tmp_path}").write("demo", "dev", b'{"version": 3, "checkpoint": {}}')
    records = records_for_host("demo", "dev", tmp_path, {"HOME": str(tmp_path / "home")})
    assert records is not None
    assert records.place.startswith(str(tmp_path))


def test_a_late_answer_is_recorded_beside_the_records_of_the_new_lock_owner(
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
    with pytest.raises(GpuformError, match="with first, which gpuform has recorded"):
        slept.record_id(intent, "first")
    late = replace(intent, id="first", is_late=True)
    assert open_intents(Backend.open(f"file://{tmp_path}", {}), "demo", "dev").list_all() == [
        late,
        second,
    ]

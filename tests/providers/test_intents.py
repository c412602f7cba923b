"""Test the records of intents: durability, matching, claims and forgetting."""

import json
import os
import re
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.errors import GpuformError, NameTaken
from gpuform.providers.records import (
    INTENT_PREFIX,
    Drains,
    FolderRecords,
    Intent,
    Intents,
    Target,
    compute_digest,
)

TARGET = Target("together", "Cluster", "train", "us-central-8")


def _build_intent(urn: str | None = "urn:a", target: Target = TARGET, **fields: object) -> Intent:
    defaults = {"started_at": 100.0, "present_ids": ("old",), **fields}
    return Intent(urn, target.platform, target.kind, target.name, target.region, **defaults)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "{}", '{"urn": 1}', '{"x": []}', "\udcff", "[" * 99_999]
)
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    """The recorded create may have an object: a damaged record is not treated as missing."""
    records = FolderRecords(tmp_path)
    Intents(records).record(_build_intent())
    (file,) = tmp_path.iterdir()
    damaged = text.encode(errors="surrogateescape")
    file.write_bytes(damaged)
    expected_message = f"the record {re.escape(str(file.with_suffix('')))}(.json)? is damaged"
    with pytest.raises(GpuformError, match=expected_message) as refused:
        Intents(records).list_all()
    assert "compare with the platform" in str(refused.value)
    assert file.read_bytes() == damaged
    (tmp_path / f"drain-{compute_digest('i')}.json").write_bytes(damaged)
    with pytest.raises(GpuformError, match="is damaged"):
        Drains(records).find("i")


def test_an_intent_survives_in_a_file_of_its_own(tmp_path: Path) -> None:
    intents = Intents(FolderRecords(tmp_path / "a" / "b"))
    intent = _build_intent()
    intents.record(intent)
    again = Intents(FolderRecords(tmp_path / "a" / "b"))
    assert again.list_all() == [intent]
    assert again.find("urn:a", TARGET) == intent
    files = list((tmp_path / "a" / "b").iterdir())
    assert [path.suffix for path in files] == [".json"]
    assert json.loads(files[0].read_text())["present_ids"] == ["old"]


def test_a_record_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    records = FolderRecords(tmp_path)
    fields = asdict(_build_intent())
    assert fields.pop("is_refused") is False
    records.write(f"{INTENT_PREFIX}old", fields)
    assert Intents(records).list_all() == [_build_intent()]


def test_an_intent_is_on_disk_before_record_returns(
    intents: Intents, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    intents.record(_build_intent())
    file, directory = synced
    assert file.endswith(".tmp")
    assert directory == Path(intents.records.place).name


def test_an_id_is_added_to_the_intent(intents: Intents) -> None:
    intent = _build_intent()
    intents.record(intent)
    assert intents.record_id(intent, "c1").id == "c1"
    assert [stored_intent.id for stored_intent in intents.list_all()] == ["c1"]


def test_only_the_resources_own_intent_is_found(intents: Intents) -> None:
    intents.record(_build_intent("urn:other"))
    assert intents.find("urn:a", TARGET) is None
    assert intents.find("urn:other", Target("together", "Cluster", "else", "r")) is None


@pytest.mark.parametrize(
    ("written", "queried_urn"), [(None, "urn:a"), ("urn:a", None), (None, None)]
)
def test_a_host_without_urns_is_matched_by_the_object(
    intents: Intents, written: str | None, queried_urn: str | None
) -> None:
    intents.record(_build_intent(written))
    assert intents.find(queried_urn, TARGET) is not None


def test_forgetting_by_urn_by_id_and_by_intent(intents: Intents) -> None:
    by_urn, by_id, itself = (
        _build_intent("urn:a"),
        _build_intent(None, id="c1"),
        _build_intent("urn:c"),
    )
    for intent in (by_urn, by_id, itself):
        intents.record(intent)
    intents.forget(urn="urn:a")
    assert by_urn not in intents.list_all()
    intents.forget(id_="c1")
    assert intents.list_all() == [itself]
    intents.forget(intent=itself)
    intents.forget(urn="urn:never", id_="never")
    assert intents.list_all() == []


def test_a_urn_and_an_id_forget_no_other_resource(intents: Intents) -> None:
    other = _build_intent("urn:b", id="c1")
    intents.record(other)
    intents.forget(urn="urn:a", id_="c1")
    assert intents.list_all() == [other]


@pytest.mark.parametrize(
    ("fields", "is_forgotten"),
    [
        ({"id": "c1"}, True),
        ({"id": "c2"}, False),  # the object of a replacement
        ({"id": "c2", "outcome": "nothing"}, True),
        ({}, True),  # the object was imported
        ({"present_ids": ("c1",)}, False),
        ({"target": replace(TARGET, name="train-2")}, False),
        ({"id": "c2", "outcome": "nothing", "is_late": True}, False),
    ],
)
def test_an_object_resolves_only_the_creates_that_may_have_made_it(
    intents: Intents, fields: dict[str, Any], is_forgotten: bool
) -> None:
    intents.record(_build_intent(**fields))
    intents.forget(urn="urn:a", id_="c1", object_names={"train", "us-central-8"})
    assert bool(intents.list_all()) is not is_forgotten


def test_a_new_store_has_no_intents(intents: Intents) -> None:
    assert intents.list_all() == []
    assert intents.find("urn:a", TARGET) is None
    intents.forget(urn="urn:a")


def test_a_name_is_claimed_once_at_a_time(intents: Intents) -> None:
    with intents.claim(TARGET):
        with pytest.raises(NameTaken, match="'train'"), intents.claim(TARGET):
            pass
        with intents.claim(Target("together", "Cluster", "other", "us-central-8")):
            pass
    with intents.claim(TARGET):
        pass


def test_many_threads_record_intents_at_once(intents: Intents) -> None:
    def work(number: int) -> None:
        intent = _build_intent(f"urn:{number}")
        intents.record(intent)
        intents.record_id(intent, f"id-{number}")
        if number % 2:
            intents.forget(urn=f"urn:{number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(item.id or "" for item in intents.list_all()) == sorted(
        f"id-{number}" for number in range(0, 16, 2)
    )


class TestParts:
    """A create with several parts of one resource."""

    POOL = Target("scp", "NodePool", "train", "POOL001")

    def batch(self, *names: str, urn: str | None = "urn:a", ids: tuple[str, ...] = ()) -> Intent:
        return Intent(
            urn=urn,
            platform="scp",
            kind="NodePool",
            name="train",
            region="POOL001",
            started_at=float(len(names)),
            id="POOL001/fabric/train",
            names=names,
            ids=ids,
        )

    def test_each_part_has_its_own_intent_and_is_read_unchanged(self, intents: Intents) -> None:
        first, second = self.batch("a", ids=("1",)), self.batch("b", "c")
        for intent in (first, second):
            intents.record(intent)
        assert intents.list_for_parts("urn:a", self.POOL) == [first, second]
        assert intents.find("urn:a", self.POOL) is None

    def test_without_a_urn_parts_are_found_by_the_resource(self, intents: Intents) -> None:
        mine, nameless = self.batch("a"), self.batch("a", "b", urn=None)
        theirs = self.batch("c", "d", "e", urn="urn:b")
        for intent in (mine, nameless, theirs):
            intents.record(intent)
        assert intents.list_for_parts("urn:a", self.POOL) == [mine, nameless]
        assert intents.list_for_parts(None, self.POOL) == [mine, nameless, theirs]

    def test_an_intent_is_kept_until_the_state_has_all_parts(self, intents: Intents) -> None:
        created = self.batch("a", "b", ids=("1", "2"))
        unsure = self.batch("c", "d", "e")
        for intent in (created, unsure):
            intents.record(intent)
        intents.forget(urn="urn:a", stored=["1"])
        assert intents.list_all() == [created, unsure]
        intents.forget(urn="urn:a", id_=created.id, stored=["2", "1", "0"])
        assert intents.list_all() == [unsure]
        intents.forget(urn="urn:a")
        assert intents.list_all() == []

    def test_without_a_urn_parts_are_forgotten_by_the_resource(self, intents: Intents) -> None:
        intents.record(self.batch("a", urn=None))
        intents.forget(id_="POOL001/fabric/train")
        assert intents.list_all() == []

"""Test backups of checkpoints and the update history: order, lookup and restore."""

import gzip
import json
import os
import time
from pathlib import Path

import pytest

from gpuform.providers.values import Secret
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import (
    IntegrityError,
    PendingOperation,
    ResourceState,
    Snapshot,
    StateError,
    UnknownFormat,
)
from gpuform.stacks.engine.store import (
    SEALED,
    Backend,
    BackendError,
    DamagedFile,
    HistoryEntry,
    add_backup_hint,
    find_backups,
    find_last_good_backup,
    load_backup,
    read_sealed,
)

STACK = "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"


def state(*names: str, crypter: PassphraseCrypter | None = None, **fields: object) -> bytes:
    entries = [
        ResourceState(
            f"urn:pulumi:dev::demo::lab:index:Machine::{name}", False, "lab:index:Machine"
        )
        for name in names
    ]
    root = ResourceState(STACK, False, "pulumi:pulumi:Stack", **fields)
    provider = crypter.provider if crypter else None
    snapshot = Snapshot("organization/demo/dev", [root, *entries], secrets_provider=provider)
    return snapshot.to_json(crypter)


@pytest.fixture
def backend(tmp_path: Path) -> Backend:
    return Backend.open(f"file://{tmp_path}", {})


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    return tmp_path / ".pulumi" / "stacks" / "demo"


class TestOrder:
    def test_the_order_is_kept_when_the_clock_is_set_back(
        self, backend: Backend, monkeypatch
    ) -> None:
        for number, now in enumerate([5_000, 1_000, 1_000, 9_000]):
            monkeypatch.setattr(time, "time_ns", lambda now=now: now * 10**15)
            backend.write("demo", "dev", state(*map(str, range(number))))
            backend.create_backup("demo", "dev")
            backend.open_history("demo", "dev").add(HistoryEntry("update", "succeeded", number, 9))
        assert [
            entry.start_time for entry in backend.open_history("demo", "dev").list_latest()
        ] == [3, 2, 1, 0]
        backups = [b for b in find_backups(backend, "demo", "dev") if "/backups/" in b.where]
        assert [backup.resources for backup in backups] == [4, 3, 2, 1]
        assert [path.name for path in sorted(Path(b.where) for b in backups)] == [
            f"dev.{at}.json"
            for at in (5_000 * 10**15, 5_000 * 10**15 + 1, 5_000 * 10**15 + 2, 9_000 * 10**15)
        ]

    def test_the_history_is_paged_newest_first(self, backend: Backend) -> None:
        for number in range(5):
            backend.open_history("demo", "dev").add(HistoryEntry("update", "succeeded", number, 9))
        assert [e.start_time for e in backend.open_history("demo", "dev").list_latest(1, 2)] == [
            3,
            2,
        ]
        assert [e.start_time for e in backend.open_history("demo", "dev").list_latest(4, 2)] == [0]
        assert backend.open_history("demo", "dev").list_latest(9, 2) == []
        assert backend.open_history("demo", "prod").list_latest() == []

    def test_gzipped_history_of_the_pulumi_cli_is_read(
        self, backend: Backend, tmp_path: Path
    ) -> None:
        folder = tmp_path / ".pulumi/history/demo/dev"
        folder.mkdir(parents=True)
        entry = HistoryEntry("destroy", "failed", 1, 2, {"delete": 3}, message="bye")
        (folder / "dev-17.history.json.gz").write_bytes(gzip.compress(entry.to_json()))
        (folder / "dev-17.history.json.attrs").write_text("{}")
        (folder / "dev-17.checkpoint.json").write_text("{}")
        assert backend.open_history("demo", "dev").list_latest() == [entry]

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "update", "startTime": "x"}'])
    def test_a_damaged_history_entry_is_an_error_with_its_path(
        self, backend: Backend, tmp_path: Path, text: str
    ) -> None:
        folder = tmp_path / ".pulumi/history/demo/dev"
        folder.mkdir(parents=True)
        (folder / "dev-17.history.json").write_text(text)
        with pytest.raises(DamagedFile, match=r"dev-17\.history\.json is damaged"):
            backend.open_history("demo", "dev").list_latest()


class TestLastGood:
    def test_the_newest_valid_backup_is_found(self, backend: Backend, stacks: Path) -> None:
        assert find_last_good_backup(backend, "demo", "dev") is None
        backend.write("demo", "dev", state("a"))
        backend.create_backup("demo", "dev")
        backend.write("demo", "dev", state("a", "b"))
        (backup,) = [b for b in find_backups(backend, "demo", "dev") if "/backups/" in b.where]
        os.utime(stacks / "dev.json.bak", (1, 1))
        assert find_last_good_backup(backend, "demo", "dev") == backup
        os.utime(stacks / "dev.json.bak")
        last_good_backup = find_last_good_backup(backend, "demo", "dev")
        assert last_good_backup is not None
        assert Path(last_good_backup.where) == stacks / "dev.json.bak"
        assert last_good_backup.resources == 2
        assert "2 resources" in last_good_backup.describe()

    def test_an_invalid_backup_is_listed_with_its_problem(
        self, backend: Backend, stacks: Path
    ) -> None:
        stacks.mkdir(parents=True)
        (stacks / "dev.json.bak").write_bytes(state("a")[:100])
        (stacks / "dev.json.1700000000000000000").write_bytes(state("a", "a"))
        (stacks / "dev.json.gz.bak").write_bytes(gzip.compress(state("a"))[:-9])
        for other in ("dev.json.attrs", "dev.pulumi-tags", "dev.json.bak.attrs", "prod.json.bak"):
            (stacks / other).write_text("{}")
        faults = {Path(b.where).name: b.fault for b in find_backups(backend, "demo", "dev")}
        assert set(faults) == {"dev.json.bak", "dev.json.1700000000000000000", "dev.json.gz.bak"}
        assert "is not JSON" in faults["dev.json.bak"]
        assert "occurs twice" in faults["dev.json.1700000000000000000"]
        assert "not a complete compressed file" in faults["dev.json.gz.bak"]
        assert find_last_good_backup(backend, "demo", "dev") is None

    def test_the_error_of_a_damaged_checkpoint_names_the_newest_valid_backup(
        self, backend: Backend, stacks: Path
    ) -> None:
        backend.write("demo", "dev", state("a"))
        backend.write("demo", "dev", state("b"))
        with (
            pytest.raises(StateError) as caught,
            add_backup_hint(backend, "demo", "dev"),
        ):
            raise StateError("torn", hint="first")
        assert str(stacks / "dev.json.bak") in caught.value.hint
        assert "2 resources" in caught.value.hint
        assert "gpuform state repair --stack dev --from-backup" in caught.value.hint
        with (
            pytest.raises(IntegrityError) as broken,
            add_backup_hint(backend, "demo", "dev"),
        ):
            raise IntegrityError(["x"])
        assert "`gpuform state repair`, which shows" in broken.value.hint
        assert "dev.json.bak" in broken.value.hint

    def test_the_error_of_a_damaged_checkpoint_reports_that_no_valid_backup_exists(
        self, backend: Backend
    ) -> None:
        with pytest.raises(StateError) as caught, add_backup_hint(backend, "demo", "dev"):
            raise StateError("torn")
        assert "No usable earlier state" in caught.value.hint

    def test_a_checkpoint_of_a_newer_format_is_not_reported_as_damaged(
        self, backend: Backend
    ) -> None:
        backend.write("demo", "dev", state("a"))
        backend.write("demo", "dev", state("b"))
        with pytest.raises(UnknownFormat) as caught, add_backup_hint(backend, "demo", "dev"):
            raise UnknownFormat("version 9", hint="a newer gpuform")
        assert caught.value.hint == "a newer gpuform"


class TestRestore:
    def test_a_restore_keeps_a_copy_of_the_damaged_checkpoint(
        self, backend: Backend, stacks: Path
    ) -> None:
        backend.write("demo", "dev", state("a"))
        backend.write("demo", "dev", state("b"))
        (stacks / "dev.json").write_bytes(b"torn")
        copy_path = backend.restore("demo", "dev", state("c"))
        assert copy_path is not None
        assert Path(copy_path).read_bytes() == b"torn"
        assert len(load_backup(backend, str(stacks / "dev.json.bak")).resources) == 2
        assert "::a" in (stacks / "dev.json.bak").read_text()
        assert "::c" in (stacks / "dev.json").read_text()
        assert backend.list_stacks() == ["organization/demo/dev"]

    def test_a_restore_on_a_full_disk_names_the_remaining_copies(
        self, backend: Backend, stacks: Path, monkeypatch
    ) -> None:
        backend.write("demo", "dev", state("a"))
        before = (stacks / "dev.json").read_bytes()

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        for patched in ("os.fsync", "pathlib.Path.replace", "tempfile.mkstemp"):
            with monkeypatch.context() as patch:
                patch.setattr(patched, full)
                with pytest.raises(BackendError, match="No space left on device") as caught:
                    backend.write("demo", "dev", state("b"))
            assert f"{stacks / 'dev.json'} of 20" in caught.value.hint
            assert "last good state" in caught.value.hint
            assert (stacks / "dev.json").read_bytes() == before
            assert {p.name for p in stacks.iterdir()} <= {"dev.json", "dev.json.bak"}


class TestReadSealed:
    def test_a_sealed_state_is_written_back_unchanged_without_the_key(
        self, backend: Backend, crypter: PassphraseCrypter
    ) -> None:
        secrets = {"key": Secret("hunter2"), "deep": {"list": [Secret({"a": 1.0}), 5.0]}}
        data = state("a", crypter=crypter, outputs=secrets)
        backend.write("demo", "dev", data)
        sealed_state = read_sealed(backend, "demo", "dev")
        assert sealed_state.snapshot.to_json(SEALED) == data
        assert sealed_state.recovered == 0
        assert "hunter2" not in repr(sealed_state.snapshot)

    def test_a_state_with_plaintext_secrets_cannot_be_sealed(self, backend: Backend) -> None:
        data = json.loads(state("a"))
        plain = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270"}
        data["checkpoint"]["latest"]["resources"][0]["outputs"] = {
            "key": {**plain, "plaintext": '"hunter2"'}
        }
        backend.write("demo", "dev", json.dumps(data).encode())
        snapshot = read_sealed(backend, "demo", "dev").snapshot
        with pytest.raises(EngineError, match="in plain text") as caught:
            snapshot.to_json(SEALED)
        assert "hunter2" not in str(caught.value)

    def test_a_sealed_state_keeps_its_pending_operations(self, backend: Backend) -> None:
        snapshot = Snapshot(
            "organization/demo/dev",
            [ResourceState(STACK, False, "pulumi:pulumi:Stack")],
            [PendingOperation(ResourceState(f"{STACK}-x", True, "t"), "creating")],
        )
        data = snapshot.to_json(None)
        backend.write("demo", "dev", data)
        assert read_sealed(backend, "demo", "dev").snapshot.to_json(SEALED) == data

    def test_reading_the_sealed_state_of_a_missing_stack_is_an_error(
        self, backend: Backend
    ) -> None:
        with pytest.raises(EngineError, match="no stack named 'dev'"):
            read_sealed(backend, "demo", "dev")


def test_an_unreadable_file_is_an_error_with_its_path(
    backend: Backend, stacks: Path, monkeypatch
) -> None:
    backend.write("demo", "dev", state("a"))

    def broken(_path: Path) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", broken)
    for call in (backend.read, backend.create_backup):
        with pytest.raises(BackendError, match=r"dev\.json cannot be read: Input/output error"):
            call("demo", "dev")
    with pytest.raises(BackendError, match="cannot be read"):
        backend.write("demo", "dev", state("b"))

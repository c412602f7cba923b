"""Test the file backend: Pulumi's layout and formats, and atomic writes."""

import gzip
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from processes.limits import LAST_RESORT

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.store import Backend, BackendError, HistoryEntry, get_backend_url

OLD, NEW = b'{"version":3,"old":1}', b'{"version":3,"new":2}'


@pytest.fixture
def backend(tmp_path: Path) -> Backend:
    return Backend.open(f"file://{tmp_path}", {})


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    return tmp_path / ".pulumi" / "stacks" / "demo"


def test_a_written_stack_can_be_read_back(backend: Backend, stacks: Path) -> None:
    assert backend.read("demo", "dev") is None
    assert not backend.exists("demo", "dev")
    backend.write("demo", "dev", OLD)
    assert (stacks / "dev.json").read_bytes() == OLD
    assert not (stacks / "dev.json.bak").exists()
    backend.write("demo", "dev", NEW)
    assert backend.read("demo", "dev") == NEW
    assert (stacks / "dev.json.bak").read_bytes() == OLD
    assert sorted(path.name for path in stacks.iterdir()) == ["dev.json", "dev.json.bak"]
    assert stat.S_IMODE((stacks / "dev.json").stat().st_mode) == 0o600


def test_reading_creates_no_files_and_writing_creates_the_layout_file(
    backend: Backend, tmp_path: Path
) -> None:
    backend.read("demo", "dev")
    assert backend.list_stacks() == []
    assert list(tmp_path.iterdir()) == []
    backend.write("demo", "dev", OLD)
    assert (tmp_path / ".pulumi" / "meta.yaml").read_text() == "version: 1\n"
    assert Backend.open(f"file://{tmp_path}", {}).read("demo", "dev") == OLD


def test_backups_and_other_side_files_are_not_listed_as_stacks(
    backend: Backend, stacks: Path
) -> None:
    for name in ("dev", "prod"):
        backend.write("demo", name, OLD)
    backend.write("other", "dev", OLD)
    backend.write("demo", "dev", NEW)
    for name in ("dev.json.attrs", "dev.pulumi-tags", ".dev.json.x.tmp", "dev.json.17000"):
        (stacks / name).write_text("{}")
    (stacks / "zipped.json.gz").write_bytes(gzip.compress(OLD))
    assert backend.list_stacks("demo") == [
        "organization/demo/dev",
        "organization/demo/prod",
        "organization/demo/zipped",
    ]
    assert len(backend.list_stacks()) == 4


def test_a_checkpoint_is_rewritten_in_the_format_of_its_file(
    backend: Backend, stacks: Path
) -> None:
    stacks.mkdir(parents=True)
    path = stacks / "dev.json.gz"
    path.write_bytes(gzip.compress(OLD))
    assert backend.read("demo", "dev") == OLD
    backend.write("demo", "dev", NEW)
    assert gzip.decompress(path.read_bytes()) == NEW
    assert gzip.decompress((stacks / "dev.json.gz.bak").read_bytes()) == OLD
    assert not (stacks / "dev.json").exists()


def test_the_newest_of_a_plain_and_a_gzipped_checkpoint_is_read(
    backend: Backend, stacks: Path
) -> None:
    stacks.mkdir(parents=True)
    (stacks / "dev.json").write_bytes(OLD)
    (stacks / "dev.json.gz").write_bytes(gzip.compress(NEW))
    os.utime(stacks / "dev.json", (1, 1))
    assert backend.read("demo", "dev") == NEW
    os.utime(stacks / "dev.json.gz", (0, 0))
    assert backend.read("demo", "dev") == OLD
    assert backend.list_stacks() == ["organization/demo/dev"]


def test_compression_is_detected_by_the_first_bytes_of_the_content(
    backend: Backend, stacks: Path
) -> None:
    stacks.mkdir(parents=True)
    (stacks / "dev.json").write_bytes(gzip.compress(OLD))
    assert backend.read("demo", "dev") == OLD


# Named, because the bytes hold the time: workers that run tests side by side must agree on names.
@pytest.mark.parametrize(
    "data",
    [gzip.compress(OLD)[:-4], gzip.compress(OLD)[:12] + b"junkjunk"],
    ids=["cut short", "damaged"],
)
def test_a_truncated_gzip_checkpoint_is_an_error(
    backend: Backend, stacks: Path, data: bytes
) -> None:
    stacks.mkdir(parents=True)
    (stacks / "dev.json.gz").write_bytes(data)
    with pytest.raises(BackendError, match="not a complete compressed file"):
        backend.read("demo", "dev")


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 has zstd")
def test_a_zstd_checkpoint_is_an_error_on_a_python_without_zstd(
    backend: Backend, stacks: Path
) -> None:
    stacks.mkdir(parents=True)
    (stacks / "dev.json.zst").write_bytes(b"\x28\xb5\x2f\xfd...")
    with pytest.raises(BackendError, match="zstd") as caught:
        backend.read("demo", "dev")
    assert "3.14" in caught.value.hint
    with pytest.raises(BackendError, match="zstd"):
        backend.write("demo", "dev", NEW)
    assert sorted(path.name for path in stacks.iterdir()) == ["dev.json.zst"]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="needs the zstd of Python 3.14")
def test_a_zstd_checkpoint_is_read_and_stays_zstd(backend: Backend, stacks: Path) -> None:
    from compression import zstd

    stacks.mkdir(parents=True)
    (stacks / "dev.json.zst").write_bytes(zstd.compress(OLD))
    assert backend.read("demo", "dev") == OLD
    backend.write("demo", "dev", NEW)
    assert zstd.decompress((stacks / "dev.json.zst").read_bytes()) == NEW
    (stacks / "dev.json.zst").write_bytes(zstd.compress(OLD)[:-3])
    with pytest.raises(BackendError, match="not a complete compressed file"):
        backend.read("demo", "dev")


DIE = """
import os, sys, pathlib
from gpuform.stacks.engine.store.backend import Backend

calls = 0
def dying(function, at):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == at:
            os._exit(9)
        return function(*arguments, **options)
    return call

root, where, at = sys.argv[1:]
backend = Backend.open("file://" + root, {})
holder = pathlib.Path if where == "replace" else os
setattr(holder, where, dying(getattr(holder, where), int(at)))
backend.write("demo", "dev", b'{"version":3,"new":2}')
"""


@pytest.mark.parametrize(
    ("where", "at", "left"),
    [
        ("fsync", "1", (OLD, None)),  # while the backup is written
        ("replace", "2", (OLD, OLD)),  # the new file is written, not yet in place
        ("fsync", "4", (NEW, OLD)),  # in place, not yet known to be on disk
        ("fsync", "5", (NEW, OLD)),  # never reached: the write ends well
    ],
)
def test_a_process_killed_while_writing_leaves_a_complete_checkpoint(
    backend: Backend, tmp_path: Path, stacks: Path, where: str, at: str, left
) -> None:
    content, backup = left
    backend.write("demo", "dev", OLD)
    died = subprocess.run(
        [sys.executable, "-c", DIE, str(tmp_path), where, at], check=False, timeout=LAST_RESORT
    )
    assert died.returncode == (0 if at == "5" else 9)
    assert backend.read("demo", "dev") == content
    assert (stacks / "dev.json.bak").exists() is (backup is not None)
    if backup is not None:
        assert (stacks / "dev.json.bak").read_bytes() == backup
    assert backend.list_stacks() == ["organization/demo/dev"]
    backend.write("demo", "dev", NEW)
    assert backend.read("demo", "dev") == NEW


def test_a_failed_write_keeps_the_old_checkpoint_and_removes_its_temporary_file(
    backend: Backend, stacks: Path, monkeypatch
) -> None:
    backend.write("demo", "dev", OLD)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BackendError, match="No space left on device") as caught:
        backend.write("demo", "dev", NEW)
    assert caught.value.hint
    assert [path.name for path in stacks.iterdir()] == ["dev.json"]
    assert backend.read("demo", "dev") == OLD


def test_a_removed_stack_leaves_a_backup_as_under_the_pulumi_cli(
    backend: Backend, stacks: Path, tmp_path: Path
) -> None:
    backend.write("demo", "dev", OLD)
    (stacks / "dev.json.attrs").write_text("{}")
    (stacks / "dev.pulumi-tags").write_text("{}")
    backend.open_history("demo", "dev").add(HistoryEntry("update", "succeeded", 1, 2))
    backend.remove("demo", "dev")
    assert not backend.exists("demo", "dev")
    assert [path.name for path in stacks.iterdir()] == ["dev.json.bak"]
    assert not list((tmp_path / ".pulumi" / "history" / "demo").rglob("*.json"))
    backend.remove("demo", "dev")


def test_a_backup_is_created_at_the_end_of_an_operation(backend: Backend, tmp_path: Path) -> None:
    backend.write("demo", "dev", OLD)
    backend.create_backup("demo", "dev")
    entry = HistoryEntry(
        "update",
        "succeeded",
        1700000000,
        1700000009,
        {"create": 2, "same": 1},
        {"demo:token": {"secure": "v1:a:b"}},
    )
    backend.open_history("demo", "dev").add(entry)
    (copy,) = (tmp_path / ".pulumi/backups/demo/dev").iterdir()
    assert copy.read_bytes() == OLD
    stack, nanoseconds, kind = copy.name.split(".")
    assert (stack, nanoseconds.isdigit(), kind) == ("dev", True, "json")
    checkpoint, history = sorted((tmp_path / ".pulumi/history/demo/dev").iterdir())
    assert checkpoint.name.removesuffix("checkpoint.json") == history.name.removesuffix(
        "history.json"
    )
    assert history.name.startswith("dev-")
    assert checkpoint.read_bytes() == OLD
    assert json.loads(history.read_bytes()) == {
        "kind": "update",
        "startTime": 1700000000,
        "message": "",
        "environment": {"exec.kind": "cli"},
        "config": {"demo:token": {"secure": "v1:a:b"}},
        "version": 0,
        "result": "succeeded",
        "endTime": 1700000009,
        "resourceChanges": {"create": 2, "same": 1},
    }


def test_no_backups_are_created_when_they_are_disabled(tmp_path: Path) -> None:
    environ = {"PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "true"}
    backend = Backend.open(f"file://{tmp_path}", environ)
    backend.write("demo", "dev", OLD)
    backend.create_backup("demo", "dev")
    assert not (tmp_path / ".pulumi" / "backups").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a b", "x" * 101, "é"])
def test_stack_names_with_path_traversal_are_rejected(backend: Backend, name: str) -> None:
    for call in (
        backend.read,
        backend.exists,
        backend.create_lock,
        backend.remove,
        backend.create_backup,
    ):
        with pytest.raises(BackendError, match="is not a valid stack name"):
            call("demo", name)
    with pytest.raises(BackendError, match="is not a valid project name"):
        backend.write(name, "dev", OLD)


class TestOpen:
    def test_a_file_url_accepts_the_home_directory_and_relative_paths(
        self, tmp_path: Path, monkeypatch
    ) -> None:
        (tmp_path / "a b").mkdir()
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        assert Backend.open("file://~", {}).storage.root == tmp_path
        assert Backend.open("file://~/a%20b?no_tmp_dir=true", {}).storage.root == tmp_path / "a b"
        assert Backend.open("file://./a b", {}).storage.root == tmp_path / "a b"
        assert Backend.open("file://.", {}).storage.root == tmp_path

    def test_a_missing_directory_is_an_error_with_its_path(self, tmp_path: Path) -> None:
        with pytest.raises(BackendError, match=r"absent of the backend .* does not exist"):
            Backend.open(f"file://{tmp_path}/absent", {})

    @pytest.mark.parametrize("url", ["https://u:hunter2@host", "nonsense"])
    def test_an_unsupported_backend_url_is_an_error_that_lists_the_supported_ones(
        self, url: str
    ) -> None:
        with pytest.raises(BackendError, match="gpuform does not support") as caught:
            Backend.open(url, {})
        assert "file://" in caught.value.hint
        assert "hunter2" not in str(caught.value)

    def test_the_legacy_layout_without_projects_is_rejected(self, tmp_path: Path) -> None:
        (tmp_path / ".pulumi" / "stacks").mkdir(parents=True)
        (tmp_path / ".pulumi" / "stacks" / "dev.json").write_text("{}")
        with pytest.raises(BackendError, match="version 0") as caught:
            Backend.open(f"file://{tmp_path}", {})
        assert "pulumi state upgrade" in caught.value.hint

    @pytest.mark.parametrize(
        ("meta", "message"),
        [("version: 2\n", "version 2"), ("version: 0", "version 0"), ("x", "no")],
    )
    def test_an_unknown_layout_version_is_rejected(
        self, tmp_path: Path, meta: str, message: str
    ) -> None:
        (tmp_path / ".pulumi").mkdir()
        (tmp_path / ".pulumi" / "meta.yaml").write_text(meta)
        with pytest.raises(BackendError, match=message):
            Backend.open(f"file://{tmp_path}", {})


def test_the_checkpoint_path_of_a_stack_is_that_of_pulumi(tmp_path: Path) -> None:
    nobody = {"PULUMI_HOME": str(tmp_path)}
    project = Project("demo", Path("/p/Pulumi.yaml"), backend_url="file://state")
    assert get_backend_url({"PULUMI_BACKEND_URL": "file:///x"}, project) == "file:///x"
    assert get_backend_url({"PULUMI_BACKEND_URL": ""}, project) == "file:///p/state"
    assert get_backend_url(nobody, Project("demo", Path("/p/Pulumi.yaml"))) == "file://~"
    assert get_backend_url(nobody, None) == "file://~"


def test_all_backend_errors_share_a_base_class() -> None:
    assert issubclass(BackendError, EngineError)

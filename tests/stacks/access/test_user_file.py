"""Changes of the user's files: complete or not at all, one at a time, and only where allowed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes.limits import LAST_RESORT

from gpuform.schemas.errors import EngineError
from gpuform.stacks.access import user_file
from gpuform.stacks.access.kubeconfig_document import KubeconfigDocument
from gpuform.stacks.access.user_file import UserFile

posix = pytest.mark.skipif(os.name == "nt", reason="modes and links are POSIX's")

WRITER = """
import sys
sys.path[:0] = [{tests!r}]
from pathlib import Path
from support.strategies.kubeconfig_strategies import build_credential
from gpuform.stacks.access.kubeconfig_files import KubeconfigFiles
files = KubeconfigFiles.from_environment(Path({file!r}), {{}})
for number in range(int(sys.argv[2])):
    name = f"{{sys.argv[1]}}-{{number}}"
    files.add_credentials(
        [build_credential(name)], Path({project!r}), make_current=False, replace_foreign=False
    )
    print(name, flush=True)
"""


def start_writer(file: Path, name: str, count: int) -> subprocess.Popen[str]:
    tests, project = Path(__file__).parents[2], file.parent / "project"
    code = WRITER.format(tests=str(tests), file=str(file), project=str(project))
    return subprocess.Popen(
        [sys.executable, "-c", code, name, str(count)], stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def file(tmp_path: Path) -> UserFile:
    return UserFile(tmp_path / "home" / "config", "the kubeconfig")


@posix
def test_only_the_owner_can_read_a_new_file(file: UserFile) -> None:
    assert file.update(lambda text: text + "a: b\n")
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.path.parent.stat().st_mode & 0o777 == 0o700
    assert not file.update(lambda text: text)
    assert [path.name for path in file.path.parent.iterdir()] == ["config"]


@posix
def test_a_change_makes_a_private_file_unreadable_for_others(file: UserFile) -> None:
    file.path.parent.mkdir()
    for is_private, mode in ((False, 0o644), (True, 0o600)):
        file.path.write_text("a: 1\n")
        file.path.chmod(0o644)
        UserFile(file.path, "it", is_private).update(lambda text: text + "b: 2\n")
        assert file.path.stat().st_mode & 0o777 == mode


@posix
def test_a_read_only_file_is_not_changed(file: UserFile) -> None:
    file.path.parent.mkdir()
    file.path.write_text("a: 1\n")
    file.path.chmod(0o444)
    with pytest.raises(EngineError, match="is read-only"):
        file.update(lambda _: "b: 2\n")
    assert file.path.read_text() == "a: 1\n"
    assert list(file.path.parent.iterdir()) == [file.path]


@posix
def test_a_change_follows_links_and_keeps_them(file: UserFile, tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text("a: 1\n")
    file.path.parent.mkdir()
    file.path.symlink_to(real)
    file.update(lambda text: text + "b: 2\n")
    assert file.path.is_symlink()
    assert real.read_text() == "a: 1\nb: 2\n"


@posix
def test_files_inside_a_project_are_refused_through_every_path(
    file: UserFile, tmp_path: Path
) -> None:
    project, link = tmp_path / "project", tmp_path / "link"
    project.mkdir()
    link.symlink_to(project / "config")
    folder_link = tmp_path / "folder-link"
    folder_link.symlink_to(project)
    for path in (
        project / "config",
        link,
        folder_link / "sub" / "config",
        project / "x" / ".." / "y",
    ):
        with pytest.raises(EngineError, match="is inside the project"):
            UserFile(path, "the kubeconfig").refuse_inside(project)
    file.refuse_inside(project)


def test_update_names_files_it_cannot_read_or_write(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\xff\xfe")
    for path, reason in (
        (broken, "not UTF-8"),
        (tmp_path, "cannot be"),
        (broken / "x", "cannot be"),
    ):
        with pytest.raises(EngineError, match=reason):
            UserFile(path, "the kubeconfig").update(lambda text: text + "a")


def test_update_keeps_what_an_editor_writes_at_the_same_time(file: UserFile) -> None:
    file.path.parent.mkdir()
    file.path.write_text("a: 1\n")

    def change(text: str) -> str:
        if "theirs" not in text:
            file.path.write_text(text + "theirs: 1\n")
        return text + "ours: 1\n"

    file.update(change)
    assert file.path.read_text() == "a: 1\ntheirs: 1\nours: 1\n"


def test_lock_file_waits_for_the_lock_of_kubectl(
    file: UserFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = file.path.with_name("config.lock")
    lock.parent.mkdir()
    lock.touch()
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == 3:
            lock.unlink()

    with user_file.lock_file(file.path, sleep):
        assert lock.exists()
    assert not lock.exists()
    lock.touch()
    sleeps.clear()
    with (
        pytest.raises(EngineError, match=r"config\.lock is a lock of kubectl") as refused,
        user_file.lock_file(file.path, sleeps.append),
    ):
        pass
    assert f"delete {lock}" in str(refused.value.hint)
    assert sum(sleeps) >= user_file.LOCK_TIMEOUT_S
    assert lock.exists()


def test_lock_file_does_not_take_over_the_lock_of_a_running_gpuform(file: UserFile) -> None:
    file.path.parent.mkdir()
    sleeps: list[float] = []
    with (
        user_file.lock_file(file.path, sleeps.append),
        pytest.raises(EngineError, match=r"another program .* by gpuform"),
        user_file.lock_file(file.path, sleeps.append),
    ):
        pass


@pytest.mark.slow
def test_concurrent_writers_lose_no_entries(tmp_path: Path) -> None:
    file = tmp_path / "config"
    writers = [start_writer(file, name, 4) for name in ("a", "b", "c")]
    assert [process.wait(LAST_RESORT) for process in writers] == [0, 0, 0]
    expected = {f"{name}-{n}" for name in "abc" for n in range(4)}
    assert set(KubeconfigDocument(file.read_text(), "f").find_labels()) == expected
    assert list(tmp_path.iterdir()) == [file]
    for process in writers:
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.slow
@posix
def test_a_killed_writer_leaves_a_complete_file_and_a_lock_that_is_taken_over(
    tmp_path: Path,
) -> None:
    file = tmp_path / "config"
    file.write_text("# mine\n")
    reported: set[str] = set()
    for n in range(12):
        killed = start_writer(file, f"k{n}", 100)
        assert killed.stdout is not None
        reported |= {killed.stdout.readline().strip() for _ in range(1 + n % 3)}
        os.kill(killed.pid, signal.SIGKILL)
        reported |= {line.strip() for line in killed.stdout}
        killed.wait()
        killed.stdout.close()
        assert reported <= set(KubeconfigDocument(file.read_text(), "f").find_labels())
    assert file.read_text().endswith("# mine\n")
    last = start_writer(file, "last", 1)
    assert last.wait(LAST_RESORT) == 0
    assert last.stdout is not None
    last.stdout.close()
    assert "last-0" in KubeconfigDocument(file.read_text(), "f").find_labels()
    assert not (tmp_path / "config.lock").exists()

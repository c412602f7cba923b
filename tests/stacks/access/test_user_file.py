"""Files of the user: changed whole or not at all, one at a time, and by nobody else's leave."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes.limits import LAST_RESORT

from gpuform.stacks.access import user_file
from gpuform.stacks.access.kubeconfig import marked
from gpuform.stacks.access.user_file import UserFile
from gpuform.stacks.engine.errors import EngineError

posix = pytest.mark.skipif(os.name == "nt", reason="modes and links are POSIX's")

WRITER = """
import sys
sys.path[:0] = [{tests!r}]
from pathlib import Path
from support.strategies.kubeconfig_strategies import build_credential
from gpuform.stacks.access.kubeconfig_files import KubeconfigFiles
files = KubeconfigFiles.of(Path({file!r}), {{}})
for n in range(int(sys.argv[2])):
    name = f"{{sys.argv[1]}}-{{n}}"
    files.put([build_credential(name)], Path({project!r}), use=False, force=False)
    print(name, flush=True)
"""


def writer(file: Path, name: str, count: int) -> subprocess.Popen[str]:
    tests, project = Path(__file__).parents[2], file.parent / "project"
    code = WRITER.format(tests=str(tests), file=str(file), project=str(project))
    return subprocess.Popen(
        [sys.executable, "-c", code, name, str(count)], stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def file(tmp_path: Path) -> UserFile:
    return UserFile(tmp_path / "home" / "config", "the kubeconfig")


@posix
def test_a_new_file_is_its_owners_alone(file: UserFile) -> None:
    assert file.update(lambda text: text + "a: b\n")
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.path.parent.stat().st_mode & 0o777 == 0o700
    assert not file.update(lambda text: text)
    assert [each.name for each in file.path.parent.iterdir()] == ["config"]


@posix
def test_a_file_that_others_could_read_is_closed(file: UserFile) -> None:
    file.path.parent.mkdir()
    for is_private, mode in ((False, 0o644), (True, 0o600)):
        file.path.write_text("a: 1\n")
        file.path.chmod(0o644)
        UserFile(file.path, "it", is_private).update(lambda text: text + "b: 2\n")
        assert file.path.stat().st_mode & 0o777 == mode


@posix
def test_a_read_only_file_stays_as_it_is(file: UserFile) -> None:
    file.path.parent.mkdir()
    file.path.write_text("a: 1\n")
    file.path.chmod(0o444)
    with pytest.raises(EngineError, match="is read-only"):
        file.update(lambda _: "b: 2\n")
    assert file.path.read_text() == "a: 1\n"
    assert list(file.path.parent.iterdir()) == [file.path]


@posix
def test_links_stay_links(file: UserFile, tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text("a: 1\n")
    file.path.parent.mkdir()
    file.path.symlink_to(real)
    file.update(lambda text: text + "b: 2\n")
    assert file.path.is_symlink()
    assert real.read_text() == "a: 1\nb: 2\n"


@posix
def test_no_way_leads_into_a_project(file: UserFile, tmp_path: Path) -> None:
    project, link = tmp_path / "project", tmp_path / "link"
    project.mkdir()
    link.symlink_to(project / "config")
    around = tmp_path / "around"
    around.symlink_to(project)
    for path in (project / "config", link, around / "sub" / "config", project / "x" / ".." / "y"):
        with pytest.raises(EngineError, match="is inside the project"):
            UserFile(path, "the kubeconfig").refuse_inside(project)
    file.refuse_inside(project)


def test_what_cannot_be_read_or_written_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\xff\xfe")
    for path, reason in (
        (broken, "not UTF-8"),
        (tmp_path, "cannot be"),
        (broken / "x", "cannot be"),
    ):
        with pytest.raises(EngineError, match=reason):
            UserFile(path, "the kubeconfig").update(lambda text: text + "a")


def test_what_an_editor_writes_meanwhile_is_not_lost(file: UserFile) -> None:
    file.path.parent.mkdir()
    file.path.write_text("a: 1\n")

    def change(text: str) -> str:
        if "theirs" not in text:
            file.path.write_text(text + "theirs: 1\n")
        return text + "ours: 1\n"

    file.update(change)
    assert file.path.read_text() == "a: 1\ntheirs: 1\nours: 1\n"


def test_kubectls_lock_is_waited_for(file: UserFile, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = file.path.with_name("config.lock")
    lock.parent.mkdir()
    lock.touch()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            lock.unlink()

    with user_file.locked(file.path, sleep):
        assert lock.exists()
    assert not lock.exists()
    lock.touch()
    slept.clear()
    with (
        pytest.raises(EngineError, match=r"config\.lock is there, as kubectl makes it") as refused,
        user_file.locked(file.path, slept.append),
    ):
        pass
    assert f"delete {lock}" in str(refused.value.hint)
    assert sum(slept) >= user_file.PATIENCE
    assert lock.exists()


def test_the_lock_of_a_gpuform_that_lives_is_not_taken(file: UserFile) -> None:
    file.path.parent.mkdir()
    slept: list[float] = []
    with (
        user_file.locked(file.path, slept.append),
        pytest.raises(EngineError, match=r"another program .* by gpuform"),
        user_file.locked(file.path, slept.append),
    ):
        pass


@pytest.mark.slow
def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "config"
    writers = [writer(file, name, 4) for name in ("a", "b", "c")]
    assert [each.wait(LAST_RESORT) for each in writers] == [0, 0, 0]
    wanted = {f"{name}-{n}" for name in "abc" for n in range(4)}
    assert set(marked(file.read_text(), "f")) == wanted
    assert list(tmp_path.iterdir()) == [file]
    for each in writers:
        assert each.stdout is not None
        each.stdout.close()


@pytest.mark.slow
@posix
def test_a_killed_writer_leaves_a_whole_file_and_no_lock_for_ever(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("# mine\n")
    told: set[str] = set()
    for n in range(12):
        killed = writer(file, f"k{n}", 100)
        assert killed.stdout is not None
        told |= {killed.stdout.readline().strip() for _ in range(1 + n % 3)}
        os.kill(killed.pid, signal.SIGKILL)
        told |= {line.strip() for line in killed.stdout}
        killed.wait()
        killed.stdout.close()
        assert told <= set(marked(file.read_text(), "f"))
    assert file.read_text().endswith("# mine\n")
    last = writer(file, "last", 1)
    assert last.wait(LAST_RESORT) == 0
    assert last.stdout is not None
    last.stdout.close()
    assert "last-0" in marked(file.read_text(), "f")
    assert not (tmp_path / "config.lock").exists()

"""Commands as processes of their own: signals, a real terminal, pipes."""

import os
import pty
import signal
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from processes.limits import LAST_RESORT
from processes.patient import GPUFORM, PROGRAM, read_until, started

pytestmark = pytest.mark.slow

Run = Any


def locks(project: Path) -> list[Path]:
    return list((project / ".pulumi/locks").rglob("*.json"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_in_good_order(dev: Run, project: Path, number: int) -> None:
    (project / "__main__.py").write_text(PROGRAM.replace("PROVIDER", "Patient"))
    with started("up", "--yes", "--skip-preview", "--json") as process:
        read_until(process, "in create")
        assert len(locks(project)) == 1
        process.send_signal(number)
        told, _ = process.communicate(timeout=LAST_RESORT)
        assert process.returncode == 1
    assert "Interrupted" in told
    assert '"result":"failed"' in told
    assert locks(project) == []
    (machine,) = dev("stack", "export").json["deployment"]["resources"][2:]
    assert (machine["id"], machine["initErrors"]) == ("m-1", ["interrupted"])


def test_the_second_signal_leaves_at_once(dev: Run, project: Path) -> None:
    (project / "__main__.py").write_text(PROGRAM.replace("PROVIDER", "Deaf"))
    with started("up", "--yes", "--skip-preview", "--json") as process:
        read_until(process, "in create")
        process.send_signal(signal.SIGINT)
        read_until(process, "Interrupt again to exit at once")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LAST_RESORT)
        assert process.returncode == 8
    assert locks(project) == []
    (operation,) = dev("stack", "export").json["deployment"]["pending_operations"]
    assert operation["type"] == "creating"
    assert "was interrupted during 1 operation; the created objects" in dev("preview").out


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, *args: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(sys.executable, [*GPUFORM, *args])
        self.seen = ""

    def expect(self, text: str, times: int = 1) -> None:
        while self.seen.count(text) < times:
            assert self._more(), f"{text!r} never came:\n{self.seen}"

    def type(self, text: str) -> None:
        os.write(self._fd, f"{text}\n".encode())

    def end(self) -> int:
        while self._more():
            pass
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _more(self) -> bool:
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the other end is closed
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_somebody_at_a_terminal(dev: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    terminal = Terminal("up", "--emulate")
    terminal.expect("passphrase that protects")
    terminal.type("")
    terminal.expect("[yes/no/details]")
    terminal.type("details")
    terminal.expect("urn: urn:pulumi:dev")
    terminal.expect("[yes/no/details]", times=2)
    terminal.type("yes")
    assert terminal.end() == 0
    assert "\x1b[32m+  train  together:Cluster\x1b[0m  created in 20m" in terminal.seen
    assert "hunter2" not in terminal.seen


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_what_was_typed_before_a_question_answers_nothing(dev: Run) -> None:
    terminal = Terminal("up", "--emulate")
    terminal.type("yes\nyes")
    terminal.expect("[yes/no/details]")
    terminal.type("no")

    terminal.end()

    assert "Nothing was changed." in terminal.seen
    assert "created" not in terminal.seen
    resources = dev("stack", "export").json["deployment"].get("resources", [])
    assert not [each for each in resources if "dynamic/" in each["type"]]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_at_the_question_gives_the_lock_back(dev: Run, project: Path, number: int) -> None:
    terminal = Terminal("up", "--emulate")
    terminal.expect("[yes/no/details]")
    assert len(locks(project)) == 1
    os.kill(terminal.pid, number)
    assert terminal.end() == 1
    assert "Nothing was changed." in terminal.seen
    assert locks(project) == []


def test_what_was_told_to_ignore_a_hangup_does(dev: Run, project: Path) -> None:
    (project / "__main__.py").write_text(PROGRAM.replace("PROVIDER", "Patient"))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the child inherits it, as under nohup
    try:
        with started("up", "--yes", "--skip-preview", "--json") as process:
            read_until(process, "in create")
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGINT)
            told, _ = process.communicate(timeout=LAST_RESORT)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert process.returncode == 1
    assert told.count("Interrupted") == 1


def test_the_emulator_serves_until_ctrl_c(dev: Run, project: Path) -> None:
    with started("emulator", "--port", "0", "--store", "objects.db") as process:
        url = read_until(process, "The emulator is at").split()[4].rstrip(";")
        told = read_until(process, "gpuform emulator env --port")
        assert url.rpartition(":")[2] in told
        with urllib.request.urlopen(f"{url}/_emulator/health") as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LAST_RESORT)
        assert process.returncode == 0
    assert (project / "objects.db").exists()


def test_a_reader_that_goes_away(dev: Run) -> None:
    with started("stack", "export") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=LAST_RESORT) in (0, 1)

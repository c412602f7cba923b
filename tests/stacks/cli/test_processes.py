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
from processes.patient import GPUFORM, PROGRAM, read_until, start_gpuform

pytestmark = pytest.mark.slow

Run = Any


def list_locks(project: Path) -> list[Path]:
    return list((project / ".pulumi/locks").rglob("*.json"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_a_run_with_its_state_and_lock_in_order(
    dev: Run, project: Path, number: int
) -> None:
    (project / "__main__.py").write_text(PROGRAM.replace("PROVIDER", "Patient"))
    with start_gpuform("up", "--yes", "--skip-preview", "--json") as process:
        read_until(process, "in create")
        assert len(list_locks(project)) == 1
        process.send_signal(number)
        output, _ = process.communicate(timeout=LAST_RESORT)
        assert process.returncode == 1
    assert "Interrupted" in output
    assert '"result":"failed"' in output
    assert list_locks(project) == []
    (machine,) = dev("stack", "export").json["deployment"]["resources"][2:]
    assert (machine["id"], machine["initErrors"]) == ("m-1", ["interrupted"])


def test_the_second_signal_ends_a_run_at_once(dev: Run, project: Path) -> None:
    (project / "__main__.py").write_text(PROGRAM.replace("PROVIDER", "Deaf"))
    with start_gpuform("up", "--yes", "--skip-preview", "--json") as process:
        read_until(process, "in create")
        process.send_signal(signal.SIGINT)
        read_until(process, "Interrupt again to exit at once")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LAST_RESORT)
        assert process.returncode == 8
    assert list_locks(project) == []
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
        self.output = ""

    def expect(self, text: str, times: int = 1) -> None:
        while self.output.count(text) < times:
            assert self._read_more(), f"{text!r} never came:\n{self.output}"

    def type(self, text: str) -> None:
        os.write(self._fd, f"{text}\n".encode())

    def end(self) -> int:
        while self._read_more():
            pass
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read_more(self) -> bool:
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the other end is closed
            return False
        self.output += data.decode(errors="replace")
        return bool(data)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_user_at_a_terminal_answers_passphrase_and_questions(
    dev: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert "\x1b[32m+  train  together:Cluster\x1b[0m  created in 20m" in terminal.output
    assert "hunter2" not in terminal.output


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_input_typed_before_a_question_is_no_answer(dev: Run) -> None:
    terminal = Terminal("up", "--emulate")
    terminal.type("yes\nyes")
    terminal.expect("[yes/no/details]")
    terminal.type("no")

    terminal.end()

    assert "Nothing was changed." in terminal.output
    assert "created" not in terminal.output
    resources = dev("stack", "export").json["deployment"].get("resources", [])
    assert not [resource for resource in resources if "dynamic/" in resource["type"]]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_at_the_question_releases_the_lock(dev: Run, project: Path, number: int) -> None:
    terminal = Terminal("up", "--emulate")
    terminal.expect("[yes/no/details]")
    assert len(list_locks(project)) == 1
    os.kill(terminal.pid, number)
    assert terminal.end() == 1
    assert "Nothing was changed." in terminal.output
    assert list_locks(project) == []


def test_a_run_under_nohup_ignores_hangups(dev: Run, project: Path) -> None:
    (project / "__main__.py").write_text(PROGRAM.replace("PROVIDER", "Patient"))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the child inherits it, as under nohup
    try:
        with start_gpuform("up", "--yes", "--skip-preview", "--json") as process:
            read_until(process, "in create")
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=LAST_RESORT)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert process.returncode == 1
    assert output.count("Interrupted") == 1


def test_the_emulator_serves_until_ctrl_c(dev: Run, project: Path) -> None:
    with start_gpuform("emulator", "--port", "0", "--store", "objects.db") as process:
        url = read_until(process, "The emulator is at").split()[4].rstrip(";")
        env_line = read_until(process, "gpuform emulator env --port")
        assert url.rpartition(":")[2] in env_line
        with urllib.request.urlopen(f"{url}/_emulator/health") as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LAST_RESORT)
        assert process.returncode == 0
    assert (project / "objects.db").exists()


def test_a_closed_pipe_ends_a_command(dev: Run) -> None:
    with start_gpuform("stack", "export") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=LAST_RESORT) in (0, 1)

"""Ctrl-C in the first second, while Python imports modules, ends a command without a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, signal, sys

def interrupt(event, arguments):
    if event == "import" and arguments[0] == {module!r} and not sent:
        sent.append(event)
        os.kill(os.getpid(), signal.SIGINT)

sent = []
from gpuform.stacks.cli import main
sys.addaudithook(interrupt)
sys.argv = ["gpuform", "stack", "ls"]
try:
    main()
finally:
    assert sent, "the module was imported before"
"""
MODULES = (
    "gpuform.stacks.cli.app",
    "click",
    "inspect",
    "gpuform.stacks.cli.terminal.screen",
    "gpuform.stacks.engine.value_json",
    "gpuform.stacks.cli.opening",
    "gpuform.stacks.engine.stack",
    "pydantic",
)
"""Modules whose import the signal interrupts, from the first one to those of the engine."""


def run_interrupted(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, cwd=folder
    )


@pytest.mark.parametrize("module", MODULES)
def test_a_signal_during_an_import_ends_the_command_without_a_traceback(
    tmp_path: Path, module: str
) -> None:
    done = run_interrupted(SCRIPT.format(module=module), tmp_path)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (1, "", "error: interrupted")


def test_a_signal_that_python_would_ignore_interrupts_the_command(tmp_path: Path) -> None:
    """Python prints and forgets an exception of a destructor or of a weak reference's callback."""
    script = """
import os, signal, sys

class Destroyed:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

from gpuform.stacks.cli import main
from gpuform.stacks.cli.app import cli

def run(**_arguments):
    destroyed = Destroyed()
    del destroyed
    while True:
        pass

cli.main = run
main()
"""
    done = run_interrupted(script, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "error: interrupted\n")


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    script = SCRIPT.format(module="click").replace('"stack", "ls"', '"--version"')
    done = run_interrupted(ignoring + script, tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("gpuform ")

"""Runs a command in this process's place."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence

from gpuform.stacks.engine.errors import EngineError


def quoted(words: Sequence[str]) -> str:
    """The command as it is typed into a shell."""
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def run(words: Sequence[str]) -> int:
    """The command's exit code, where this returns at all.

    Where a process can become another one, it does: signals, the terminal and the exit code are
    the command's own. Raises EngineError when it is not installed.
    """
    program = shutil.which(words[0])
    if program is None:
        raise EngineError(
            f"{words[0]} is not installed, or not in PATH",
            hint=f"Install it, or see what would be run with --print:\n  {quoted(words)}",
        )
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":
        return wait_for([program, *words[1:]])
    for name in ("SIGPIPE", "SIGXFSZ"):  # which Python ignores, and programs do not expect it
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    return os.execv(program, list(words))  # noqa: S606 - no shell is wanted


def wait_for(words: Sequence[str]) -> int:
    """Runs it beside this process. Ctrl-C is for both, so that it is the command's to end."""
    child = subprocess.Popen(words)  # noqa: S603 - words, not a shell's text
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return child.wait()
    finally:
        signal.signal(signal.SIGINT, before)

"""Count the files and functions that a change of `num_gpus` passes, from topology to request.

`python -m tools.trace_change` creates a project from a template in a temporary folder, applies it
to the emulator, changes `num_gpus`, and traces `gpuform preview` and `gpuform up` in this process.
It prints how many files of the packages run, how many functions, and how many pairs of files there
are of which one calls the other. Imports, comprehensions and the emulator do not count.
CONTRIBUTING.md has the figures.
"""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from gpuform.stacks.cli.app import cli

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = tuple(f"{ROOT / name}{os.sep}" for name in ("providers", "schemas", "stacks"))
EMULATOR: Final = f"{ROOT / 'providers' / 'emulator'}{os.sep}"
DECLARED: Final = 'num_gpus: "{{ config.gpus }}"'
CHANGED: Final = 'num_gpus: "{{ config.gpus + 8 }}"'


@dataclass(slots=True)
class Trace:
    """What runs: files, functions, and pairs of a calling and a called file."""

    files: set[str] = field(default_factory=set)
    functions: set[CodeType] = field(default_factory=set)
    switches: set[tuple[str, str]] = field(default_factory=set)

    def record(self, frame: FrameType, event: str, _argument: object) -> None:
        """Record a call of a function of the packages; the caller may be a library's callback."""
        code = frame.f_code
        if event != "call" or not _is_function(code) or not _is_counted(code.co_filename):
            return
        self.files.add(code.co_filename)
        self.functions.add(code)
        caller = frame.f_back
        while caller is not None and not _is_counted(caller.f_code.co_filename):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != code.co_filename:
            self.switches.add((caller.f_code.co_filename, code.co_filename))


def _is_function(code: CodeType) -> bool:
    """Return True for `def` and `lambda`, not for comprehensions, modules and classes."""
    # The bodies of modules and classes, which imports run, have no CO_OPTIMIZED.
    is_part = code.co_name.startswith("<") and code.co_name != "<lambda>"
    return bool(code.co_flags & CO_OPTIMIZED) and not is_part


def _is_counted(path: str) -> bool:
    """Return True for files of the packages outside of the emulator."""
    return path.startswith(PACKAGES) and not path.startswith(EMULATOR)


@contextlib.contextmanager
def enter_applied_project() -> Iterator[Path]:
    """Enter a new folder with an applied project, and yield its topology; leave no files behind."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ["PULUMI_HOME"] = str(Path(folder, "home"))
        os.environ["PULUMI_BACKEND_URL"] = f"file://{folder}"
        os.environ["PULUMI_CONFIG_PASSPHRASE"] = ""
        for arguments in (
            ["new", "together-training"],
            ["stack", "init", "dev"],
            ["up", "--emulate", "--yes", "--stack", "dev"],
        ):
            subprocess.run(  # noqa: S603 - this Python and constants
                [sys.executable, "-m", "gpuform.stacks.cli", *arguments],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        yield Path("topology.yaml")


def trace_command(trace: Trace, *arguments: str) -> None:
    """Run a command of gpuform in this process and record it in `trace`.

    Raises:
        RuntimeError: the command failed; has its output.
    """
    output = io.StringIO()
    code: int | str | None = 0
    threading.setprofile(trace.record)
    sys.setprofile(trace.record)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            cli.main([*arguments])
    except SystemExit as ending:
        code = ending.code
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    if code:
        raise RuntimeError(f"gpuform {' '.join(arguments)} failed: {output.getvalue()}")


def trace_change() -> Trace:
    """Return the trace of a preview and an update that change `num_gpus` of a cluster."""
    trace = Trace()
    with enter_applied_project() as topology:
        text = topology.read_text(encoding="utf-8")
        if DECLARED not in text:
            raise RuntimeError(f"the template no longer contains {DECLARED}")
        topology.write_text(text.replace(DECLARED, CHANGED), encoding="utf-8")
        trace_command(trace, "preview", "--emulate", "--stack", "dev")
        trace_command(trace, "up", "--emulate", "--yes", "--stack", "dev")
    return trace


if __name__ == "__main__":
    result = trace_change()
    sys.stdout.write(
        f"{len(result.files)} files, {len(result.functions)} functions, "
        f"{len(result.switches)} pairs of a calling and a called file\n"
    )

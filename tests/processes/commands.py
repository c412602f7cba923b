"""Run `gpuform` and `pulumi` as their users do."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from processes.pinned_pulumi import find_pulumi, has_language_host, search_path
from processes.warm import start_warm_process

IN_NEW_PROCESSES: Final = "TEST_IN_NEW_PROCESSES" in os.environ
"""Every command gets an interpreter of its own: the night plays the slow tests with this."""

RUNNING: Final = ("up", "preview", "refresh", "destroy")
"""The commands of Pulumi that may run a program."""

PASSPHRASE = "recorded"
SALT = "v1:XnFpkizVaUQ=:v1:BryLiXBJG4yyT7ix:Y+41mAishg5jEPFq3d69eA1DfMRKpw=="
"""The stack file's `encryptionsalt` for that passphrase, so that its key is derived once."""


@dataclass(frozen=True)
class Result:
    code: int
    stdout: str
    stderr: str


class Cli(Protocol):
    """A command line with Pulumi's commands and flags."""

    def __call__(self, folder: Path, *arguments: str, **environ: str) -> Result: ...


def run_gpuform(folder: Path, *arguments: str, **environ: str) -> Result:
    """Run `gpuform` in a process forked from the warm one."""
    if IN_NEW_PROCESSES:
        return run_new_process(folder, *arguments, **environ)
    return Result(*start_warm_process().run(arguments, folder, os.environ | environ))


def run_new_process(folder: Path, *arguments: str, **environ: str) -> Result:
    """Run `gpuform` in a new interpreter."""
    return _run_process([sys.executable, "-m", "gpuform.stacks.cli", *arguments], folder, environ)


def pulumi(folder: Path, *arguments: str, **environ: str) -> Result:
    """Run the Pulumi CLI, with programs in this interpreter's environment."""
    return _run_process(
        [*build_pulumi_command(folder, *arguments)], folder, build_pulumi_environment(environ)
    )


def build_pulumi_command(folder: Path, *arguments: str) -> list[str]:
    """Return the command line of `pulumi` with these arguments, and with inline Python programs.

    They are run by the CLI itself where its host of Python programs is on PATH.
    """
    cli = find_pulumi()
    assert cli is not None, "the Pulumi CLI is not there"
    runs_program = bool(arguments) and arguments[0] in RUNNING and not has_language_host()
    if runs_program and _has_python_runtime(folder / "Pulumi.yaml"):
        return [sys.executable, str(Path(__file__).with_name("inline.py")), cli, *arguments]
    return [cli, *arguments]


def _has_python_runtime(file: Path) -> bool:
    return file.exists() and "runtime: python" in file.read_text()


def build_path_with_gpuform() -> str:
    """Return a PATH whose `gpuform` is forked from the warm process."""
    folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
    if not IN_NEW_PROCESSES:
        folders.insert(0, str(start_warm_process().folder))
    return os.pathsep.join(folders)


def build_pulumi_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a `pulumi` whose programs use this interpreter."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{search_path()}"
    quiet = {"PULUMI_SKIP_UPDATE_CHECK": "1", "NO_COLOR": "1"}
    return {**os.environ, "PATH": path, **quiet, **environ}


def _run_process(argv: Sequence[str], folder: Path, environ: dict[str, str]) -> Result:
    done = subprocess.run(
        argv, cwd=folder, env=os.environ | environ, capture_output=True, text=True, check=False
    )
    return Result(done.returncode, done.stdout, done.stderr)

"""`gpuform` and `pulumi` as their users run them, in processes of their own or in a warm one."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from processes.pinned_pulumi import find_pulumi, has_language_host, search_path

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


def in_a_process(folder: Path, *arguments: str, **environ: str) -> Result:
    return _done([sys.executable, "-m", "gpuform.stacks.cli", *arguments], folder, environ)


def pulumi(folder: Path, *arguments: str, **environ: str) -> Result:
    """Run the Pulumi CLI; its programs run in this interpreter's environment."""
    return _done([*pulumi_argv(folder, *arguments)], folder, environment_of_pulumi(environ))


def pulumi_argv(folder: Path, *arguments: str) -> list[str]:
    """Return the command line of `pulumi` with these arguments, its Python programs inline.

    They are run by the CLI itself where its host of Python programs is on PATH.
    """
    cli = find_pulumi()
    assert cli is not None, "the Pulumi CLI is not there"
    runs_program = bool(arguments) and arguments[0] in RUNNING and not has_language_host()
    if runs_program and _is_in_python(folder / "Pulumi.yaml"):
        return [sys.executable, str(Path(__file__).with_name("inline.py")), cli, *arguments]
    return [cli, *arguments]


def _is_in_python(file: Path) -> bool:
    return file.exists() and "runtime: python" in file.read_text()


def environment_of_pulumi(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a `pulumi` whose programs run in this interpreter's environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{search_path()}"
    quiet = {"PULUMI_SKIP_UPDATE_CHECK": "1", "NO_COLOR": "1"}
    return {**os.environ, "PATH": path, **quiet, **environ}


def _done(argv: Sequence[str], folder: Path, environ: dict[str, str]) -> Result:
    done = subprocess.run(
        argv, cwd=folder, env=os.environ | environ, capture_output=True, text=True, check=False
    )
    return Result(done.returncode, done.stdout, done.stderr)


@contextmanager
def in_a_warm_process() -> Iterator[Cli]:
    """Commands whose folder is one of several below a scenario's own."""
    argv: Sequence[str] = [
        sys.executable,
        str(Path(__file__).with_name("warm.py")),
        PASSPHRASE,
        SALT,
    ]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as warm:

        def run(folder: Path, *arguments: str, **environ: str) -> Result:
            assert warm.stdin
            assert warm.stdout
            asked = {"arguments": arguments, "folder": str(folder), "environ": environ}
            print(json.dumps(asked), file=warm.stdin, flush=True)
            code = json.loads(warm.stdout.readline())
            told = [(folder.parent / name).read_text() for name in ("stdout", "stderr")]
            return Result(code, *told)

        yield run
        assert warm.stdin
        warm.stdin.close()

"""Linters of workflows, for those that gpuform writes and for its own."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

FLAGS = {"actionlint": (), "zizmor": ("--offline", "--no-progress")}


@pytest.fixture(params=list(FLAGS))
def lint(request: pytest.FixtureRequest) -> Callable[[Sequence[Path]], str]:
    """Return a function from files to findings; the test is skipped if the linter is missing."""
    name: str = request.param
    program = shutil.which(name) or shutil.which(name, path=Path(sys.executable).parent)
    if program is None:
        pytest.skip(f"{name} is not installed")

    def run(files: Sequence[Path]) -> str:
        # actionlint reads actions only by way of the workflows that use them.
        read = [file for file in files if name == "zizmor" or file.name != "action.yml"]
        command = [program, *FLAGS[name], *map(str, read)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        return ran.stdout + ran.stderr if ran.returncode else ""

    return run

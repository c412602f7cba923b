"""Provide commands that can be stopped in the middle, and a program with slow creates."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

GPUFORM = [sys.executable, "-m", "gpuform.stacks.cli"]

# The first machine waits as gpuform's own resources do, the second hears of nothing.
PROGRAM = """
import time
from gpuform.providers.context import get_current_context
from gpuform.providers.errors import Cancelled
from pulumi.dynamic import CreateResult, Resource, ResourceProvider

class Patient(ResourceProvider):
    def create(self, props):
        call = get_current_context()
        print("in create", flush=True)
        try:
            call.sleep(600)
        except Cancelled as error:
            call.progress.init_errors.append(error.reason)
        return CreateResult("m-1", {})

class Deaf(ResourceProvider):
    def create(self, props):
        print("in create", flush=True)
        time.sleep(600)
        return CreateResult("m-2", {})

class Machine(Resource):
    def __init__(self, name):
        super().__init__(PROVIDER(), name, {})

Machine("a")
"""


@contextlib.contextmanager
def start_gpuform(*args: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*GPUFORM, *args],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if text in line:
            return output
    raise AssertionError(f"{text!r} never came:\n{output}")


def wait_until_gone(pids: Iterable[int]) -> None:
    """Wait until each process has ended, by /proc. A zombie has ended."""
    for pid in pids:
        while " Z " not in _read_process_status(pid):
            time.sleep(0.01)


def _read_process_status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return " Z "

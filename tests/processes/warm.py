"""Start the warm process of a test session, from which `gpuform` commands are forked.

A command in an interpreter of its own takes a second of processor time before it begins.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from processes.warm_client import receive_answer, send_request

HERE: Final = Path(__file__).parent
SOCKET: Final = "socket"
SCRIPT: Final = """\
#!{python} -IS
import sys
sys.path.insert(0, {here!r})
import warm_client
warm_client.run_script({address!r})
"""


@dataclass
class WarmProcess:
    """A server of commands, with the folder of its socket and of the script that asks it."""

    folder: Path
    processor_time_s: float = 0.0
    """What all commands of `run` have taken."""

    def run(
        self, arguments: Sequence[str], folder: Path, environ: Mapping[str, str]
    ) -> tuple[int, str, str]:
        """Run `gpuform` in `folder`, and return the exit code and the output."""
        with (
            Path(os.devnull).open() as nothing,
            tempfile.TemporaryFile("w+", encoding="utf-8") as stdout,
            tempfile.TemporaryFile("w+", encoding="utf-8") as stderr,
        ):
            streams = [opened_file.fileno() for opened_file in (nothing, stdout, stderr)]
            address = str(self.folder / SOCKET)
            code, seconds = receive_answer(
                send_request(address, arguments, str(folder), environ, streams)
            )
            self.processor_time_s += seconds
            for stream in (stdout, stderr):
                stream.seek(0)
            return code, stdout.read(), stderr.read()


def measure_commands() -> float:
    """Return the processor time of this session's commands in seconds."""
    has_started = start_warm_process.cache_info().currsize
    return start_warm_process().processor_time_s if has_started else 0.0


@cache
def start_warm_process() -> WarmProcess:
    """Start the process of this session, and end it with the session."""
    folder = Path(tempfile.mkdtemp(prefix="gpuform-warm-"))
    script = folder / "gpuform"
    script.write_text(
        SCRIPT.format(python=sys.executable, here=str(HERE), address=str(folder / SOCKET))
    )
    script.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, str(HERE / "warm_server.py"), str(folder / SOCKET)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def end() -> None:
        process.communicate()
        shutil.rmtree(folder)

    atexit.register(end)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return WarmProcess(folder)

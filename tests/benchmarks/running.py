"""Provide an emulated platform with a running clock, and measured commands, to the benchmarks.

Run as a program it is the platform, in a process of its own, so that it costs the measured command
nothing: `running.py SPEED` prints the address and serves until its input ends.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import httpx

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.server import Server, environment
from gpuform.providers.emulator.store import Store

CREATE_SECONDS = 1200.0
"""How long the emulator takes to create a cluster, on its own clock."""


class RunningClock(Clock):
    """An emulator's clock that runs by itself, `speed` times as fast as real time."""

    def __init__(self, store: Store, speed: float) -> None:
        super().__init__(store)
        self._start, self._speed, self._began = super().now(), speed, time.monotonic()

    def now(self) -> float:
        return self._start + self._speed * (time.monotonic() - self._began)


@dataclass(frozen=True)
class Measured:
    """Time and processor time in seconds and peak memory in MiB of a command."""

    seconds: float
    peak: float
    work: float


def measure(
    command: Sequence[str], directory: Path | None = None, environ: dict[str, str] | None = None
) -> Measured:
    """Run a command in a process and return the figures; a failure ends the benchmark."""
    began = time.monotonic()
    with TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
        if process.returncode:
            output.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{output.read()}")
    return Measured(seconds, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime)


@dataclass
class Bench:
    """A stack `dev` in a directory of its own, on a platform of its own."""

    directory: Path
    url: str
    speed: float
    process: int

    def declare(self, program: str) -> None:
        (self.directory / "__main__.py").write_text(program)

    def run(self, *arguments: str, by: Sequence[str] = ("-m", "gpuform.stacks.cli")) -> Measured:
        """Run `gpuform ARGUMENTS` and return the figures; end the benchmark if the command fails.

        `by` is what Python runs, with the arguments after it.
        """
        return measure([sys.executable, *by, *arguments], self.directory, self.environ)

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment of a command."""
        variables = environment(self.url)
        del variables["GPUFORM_CLOCK"]  # it waits in real time
        return {
            **os.environ,
            **variables,
            "PULUMI_HOME": str(self.directory / "home"),
            "PULUMI_BACKEND_URL": f"file://{self.directory}",
            "PULUMI_CONFIG_PASSPHRASE": "",
        }

    def read_platform_seconds(self) -> float:
        """Return the platform's processor time so far, in seconds."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def list_requests(self) -> list[dict[str, Any]]:
        """Return the requests since the last `forget_requests`; `time` is in real seconds."""
        log = httpx.get(
            f"{self.url}/_emulator/requests", trust_env=False, timeout=60, verify=False
        ).json()
        return [{**request, "time": request["time"] / self.speed} for request in log]

    def forget_requests(self) -> None:
        httpx.delete(f"{self.url}/_emulator/requests", trust_env=False, verify=False)


@contextmanager
def create_bench(speed: float) -> Iterator[Bench]:
    """Yield an empty stack on an empty platform."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "Pulumi.yaml").write_text("name: bench\nruntime: python\n")
        platform = subprocess.Popen(
            [sys.executable, __file__, str(speed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with platform:
            url = json.loads(platform.stdout.readline())  # type: ignore[union-attr]
            stack = Bench(directory, url, speed, platform.pid)
            try:
                stack.run("stack", "init", "dev")
                yield stack
            finally:
                platform.stdin.close()  # type: ignore[union-attr]


def render_table(rows: Sequence[tuple[str, ...]]) -> str:
    """Return names and values as aligned lines."""
    width = max(len(name) for name, *_ in rows)
    return "".join(
        f"{name:<{width}}" + "".join(f"  {value:>12}" for value in values) + "\n"
        for name, *values in rows
    )


def main() -> None:
    """Serve until standard input ends."""
    store = Store(None)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    with Server(listener, store, RunningClock(store, float(sys.argv[1]))) as server:
        sys.stdout.write(json.dumps(server.url) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()

"""What the benchmarks share: an emulated platform whose time runs, and commands that are measured.

Run as a program it is that platform, in a process of its own so that it costs the measured one
nothing: `running.py SPEED` prints its address and serves until its input ends.
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
"""How long the emulator takes to make a cluster, on its own clock."""


class RunningClock(Clock):
    """An emulator's time that runs by itself, `speed` times as fast as ours."""

    def __init__(self, store: Store, speed: float) -> None:
        super().__init__(store)
        self._start, self._speed, self._began = super().now(), speed, time.monotonic()

    def now(self) -> float:
        return self._start + self._speed * (time.monotonic() - self._began)


@dataclass(frozen=True)
class Measured:
    """One command: its time and its processor time in seconds, its peak memory in MiB."""

    seconds: float
    peak: float
    work: float


def measured(
    command: Sequence[str], directory: Path | None = None, environ: dict[str, str] | None = None
) -> Measured:
    """Runs a command as a process; ends the benchmark when it fails."""
    began = time.monotonic()
    with TemporaryFile("w+") as printed:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - began
        if process.returncode:
            printed.seek(0)
            sys.exit(f"{' '.join(command)} failed:\n{printed.read()}")
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
        """`gpuform ARGUMENTS` as a process; ends the benchmark when it fails.

        `by` is what Python runs, with the arguments after it.
        """
        return measured([sys.executable, *by, *arguments], self.directory, self.environ)

    @property
    def environ(self) -> dict[str, str]:
        """The variables of a command."""
        variables = environment(self.url)
        del variables["GPUFORM_CLOCK"]  # it waits in real time
        return {
            **os.environ,
            **variables,
            "PULUMI_HOME": str(self.directory / "home"),
            "PULUMI_BACKEND_URL": f"file://{self.directory}",
            "PULUMI_CONFIG_PASSPHRASE": "",
        }

    def platform_work(self) -> float:
        """Seconds of processor time that the platform has taken so far."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def requests(self) -> list[dict[str, Any]]:
        """The requests since they were last forgotten; `time` is in seconds of our clock."""
        log = httpx.get(
            f"{self.url}/_emulator/requests", trust_env=False, timeout=60, verify=False
        ).json()
        return [{**each, "time": each["time"] / self.speed} for each in log]

    def forget_requests(self) -> None:
        httpx.delete(f"{self.url}/_emulator/requests", trust_env=False, verify=False)


@contextmanager
def bench(speed: float) -> Iterator[Bench]:
    """An empty stack on an empty platform."""
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
            made = Bench(directory, url, speed, platform.pid)
            try:
                made.run("stack", "init", "dev")
                yield made
            finally:
                platform.stdin.close()  # type: ignore[union-attr]


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Names and values, aligned."""
    width = max(len(name) for name, *_ in rows)
    return "".join(
        f"{name:<{width}}" + "".join(f"  {value:>12}" for value in values) + "\n"
        for name, *values in rows
    )


def main() -> None:
    """Serves until standard input ends."""
    store = Store(None)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    with Server(listener, store, RunningClock(store, float(sys.argv[1]))) as server:
        sys.stdout.write(json.dumps(server.url) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()

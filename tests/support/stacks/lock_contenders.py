"""Processes that want the same lock at the same time."""

import os
import subprocess
import sys
from pathlib import Path

# A process that wants the lock as soon as it is told to, and notes that nobody else is in.
ONE_OF_MANY = """
import os, pathlib, sys
from gpuform.stacks.engine.store.backend import Backend
from gpuform.stacks.engine.store.lock import LockedError, LockTimeout

url, inside, done, seconds = sys.argv[1:]
lock = Backend.open(url).create_lock("demo", "dev", LockTimeout(float(seconds)))
print("ready", flush=True)
sys.stdin.readline()
try:
    lock.acquire()
except LockedError as error:
    print("refused" if "is locked" in str(error) else "odd", flush=True)
    sys.stdin.readline()
    sys.exit(3)
os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
print("in", flush=True)
if float(seconds) == 0:
    sys.stdin.readline()
with open(done, "a") as file:
    file.write("x")
os.unlink(inside)
lock.release()
"""


def ten(url: str, tmp_path: Path, seconds: float, **environ: str) -> list[subprocess.Popen[str]]:
    """Processes that are ready to want the lock, at once or waiting so many seconds."""
    paths = [tmp_path / "inside", tmp_path / "done"]
    command = [sys.executable, "-c", ONE_OF_MANY, url, *map(str, paths), str(seconds)]
    processes = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environ},
        )
        for _ in range(10)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    return processes


def go(processes: list[subprocess.Popen[str]]) -> None:
    """Lets them do the next thing."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()

"""Start processes that compete for one lock."""

import os
import subprocess
import sys
from pathlib import Path

# A process that wants the lock as soon as it is told to, and notes that nobody else is in.
CONTENDER = """
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


def start_contenders(
    url: str, tmp_path: Path, seconds: float, **environ: str
) -> list[subprocess.Popen[str]]:
    """Start ten processes, each ready to acquire the stack's lock.

    They wait up to `seconds` for the lock; with 0 they are refused at once.
    """
    paths = [tmp_path / "inside", tmp_path / "done"]
    command = [sys.executable, "-c", CONTENDER, url, *map(str, paths), str(seconds)]
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


def release_contenders(processes: list[subprocess.Popen[str]]) -> None:
    """Release every process for its next step: acquire the lock, release the lock, or end."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()

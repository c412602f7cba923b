"""Create locks and journals in folders of a test."""

from pathlib import Path

from gpuform.stacks.engine.machine import KernelLock
from gpuform.stacks.engine.state import FileLog, Journal
from gpuform.stacks.engine.store import Files, LockTimeout, StackLock


def create_file_lock(
    folder: Path, lock_file: Path, timeout: LockTimeout | None = None
) -> StackLock:
    """Return a stack's lock with Pulumi's lock folder `folder` and gpuform's lock file `own`."""
    return StackLock(Files(folder.parent), folder.name, KernelLock(lock_file), timeout)


def create_file_journal(path: Path, base: str) -> Journal:
    return Journal(FileLog(path), base)

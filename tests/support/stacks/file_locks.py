"""Locks, logs and journals in folders of a test's own."""

from pathlib import Path

from gpuform.stacks.engine.machine import KernelLock
from gpuform.stacks.engine.state import FileLog, Journal
from gpuform.stacks.engine.store import Files, LockTimeout, StackLock


def file_lock(folder: Path, own: Path, timeout: LockTimeout | None = None) -> StackLock:
    """A stack's lock: `folder` is Pulumi's, `own` gpuform's file."""
    return StackLock(Files(folder.parent), folder.name, KernelLock(own), timeout)


def file_journal(path: Path, base: str) -> Journal:
    return Journal(FileLog(path), base)

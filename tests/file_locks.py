"""Locks, logs and journals in folders of a test's own."""

from pathlib import Path

from gpuform.stacks.engine.journal import Journal
from gpuform.stacks.engine.journal_log import FileLog
from gpuform.stacks.engine.kernel_lock import KernelLock
from gpuform.stacks.engine.lock import Patience, StackLock
from gpuform.stacks.engine.storage.files import Files


def file_lock(folder: Path, own: Path, patience: Patience | None = None) -> StackLock:
    """A stack's lock: `folder` is Pulumi's, `own` gpuform's file."""
    return StackLock(Files(folder.parent), folder.name, KernelLock(own), patience)


def file_journal(path: Path, base: str) -> Journal:
    return Journal(FileLog(path), base)

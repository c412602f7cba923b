"""Write and read the files of the stack dev of project demo in a backend."""

import re
from pathlib import Path

from gpuform.providers.records import Intent
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.store import Backend, HistoryEntry

# Locks, the version of the layout and remains of killed writes do not belong to the stack.
_NOT_MOVED = re.compile(r"\.pulumi/(meta\.yaml|locks/.*|(.*/)?\.[^/]+\.tmp|gpuform/.*\.lock.*)")


def add_history_and_records(folder: Path) -> None:
    """Give the stack a history entry with a log, a backup, a .bak file and a record."""
    backend = Backend.open(f"file://{folder}", {})
    backend.create_backup("demo", "dev")
    backend.open_history("demo", "dev").add(HistoryEntry("update", "succeeded", 1, 2), log=b"{}")
    checkpoint = backend.read("demo", "dev")
    assert checkpoint is not None
    backend.write("demo", "dev", checkpoint)
    backend.write_own("demo", "dev", "expired", b"{}")
    urn = "urn:pulumi:dev::demo::lab:index:Machine::b"
    open_intents(backend, "demo", "dev").record(Intent(urn, "lab", "Machine", "b", "", 1.0))


def read_stack_files(backend: Backend) -> dict[str, bytes]:
    """Return the content of each of the backend's files, without locks."""
    names = [entry.name for entry in backend.storage.list_entries(".pulumi")]
    blobs = {name: backend.storage.read(name) for name in names if not _NOT_MOVED.fullmatch(name)}
    return {
        name: blob.data for name, blob in blobs.items() if blob is not None and "/prod" not in name
    }

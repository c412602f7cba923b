"""Where state is kept: Pulumi's DIY layout in a folder or a bucket, with its locks.

Commands and the other rooms ask `Backend`; the storages beneath know only names and bytes.
"""

from gpuform.stacks.engine.store import credentials, layout
from gpuform.stacks.engine.store.backend import Backend, backend_url, configured_url, full_name
from gpuform.stacks.engine.store.backend_files import MAKE_ROOM, BackendError, DamagedFile
from gpuform.stacks.engine.store.backups import (
    SEALED,
    Backup,
    SealedState,
    doubt,
    find_backups,
    last_good,
    load_backup,
    name_the_last_good,
    read_sealed,
)
from gpuform.stacks.engine.store.lease import OtherStacks, Owners, owners
from gpuform.stacks.engine.store.lock import LockFile, Patience, StackLock, content, user
from gpuform.stacks.engine.store.runs import IN_PROGRESS, HistoryEntry
from gpuform.stacks.engine.store.segments import Part, SegmentLog, Unsaved, refuse_unsaved
from gpuform.stacks.engine.store.storage.addresses import anchor, without_credentials
from gpuform.stacks.engine.store.storage.files import Files
from gpuform.stacks.engine.store.storage.protocol import Storage

__all__ = [
    "IN_PROGRESS",
    "MAKE_ROOM",
    "SEALED",
    "Backend",
    "BackendError",
    "Backup",
    "DamagedFile",
    "Files",
    "HistoryEntry",
    "LockFile",
    "OtherStacks",
    "Owners",
    "Part",
    "Patience",
    "SealedState",
    "SegmentLog",
    "StackLock",
    "Storage",
    "Unsaved",
    "anchor",
    "backend_url",
    "configured_url",
    "content",
    "credentials",
    "doubt",
    "find_backups",
    "full_name",
    "last_good",
    "layout",
    "load_backup",
    "name_the_last_good",
    "owners",
    "read_sealed",
    "refuse_unsaved",
    "user",
    "without_credentials",
]

"""Store states in Pulumi's DIY layout, in a folder or a bucket, with locks and history.

Commands, operations and the other packages of the engine call `Backend`; the storages below it know
only names and bytes.
"""

from gpuform.stacks.engine.store import addresses, layout
from gpuform.stacks.engine.store.addresses import anchor_file_url, strip_credentials
from gpuform.stacks.engine.store.backend import (
    Backend,
    build_full_name,
    get_backend_url,
    get_configured_url,
)
from gpuform.stacks.engine.store.backups import (
    SEALED,
    Backup,
    OtherStacks,
    Owners,
    SealedState,
    add_backup_hint,
    describe_orphaned_journals,
    find_backups,
    find_last_good_backup,
    find_owners,
    load_backup,
    read_sealed,
)
from gpuform.stacks.engine.store.bucket_runs import (
    SegmentLog,
    UnsavedFile,
    UnsavedSegment,
    reject_unsaved_run,
)
from gpuform.stacks.engine.store.layout import (
    ARRIVING,
    IN_PROGRESS,
    MOVED,
    HistoryEntry,
    RunHistory,
    StackMoved,
    build_marker_name,
    build_moved_error,
    read_marker,
    write_marker,
)
from gpuform.stacks.engine.store.lock import LockFile, LockTimeout, StackLock, encode_lock, get_user
from gpuform.stacks.engine.store.storage import MAKE_ROOM, BackendError, DamagedFile, Files, Storage

__all__ = [
    "ARRIVING",
    "IN_PROGRESS",
    "MAKE_ROOM",
    "MOVED",
    "SEALED",
    "Backend",
    "BackendError",
    "Backup",
    "DamagedFile",
    "Files",
    "HistoryEntry",
    "LockFile",
    "LockTimeout",
    "OtherStacks",
    "Owners",
    "RunHistory",
    "SealedState",
    "SegmentLog",
    "StackLock",
    "StackMoved",
    "Storage",
    "UnsavedFile",
    "UnsavedSegment",
    "add_backup_hint",
    "addresses",
    "anchor_file_url",
    "build_full_name",
    "build_marker_name",
    "build_moved_error",
    "describe_orphaned_journals",
    "encode_lock",
    "find_backups",
    "find_last_good_backup",
    "find_owners",
    "get_backend_url",
    "get_configured_url",
    "get_user",
    "layout",
    "load_backup",
    "read_marker",
    "read_sealed",
    "reject_unsaved_run",
    "strip_credentials",
    "write_marker",
]

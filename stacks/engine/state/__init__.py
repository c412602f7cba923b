"""Hold a stack's state as data: the checkpoint, its entries, their graph, the journal and edits.

The step executor records changes with `SnapshotManager`; `stacks.operations` reads, edits and moves
states. Files and buckets belong to `engine.store`.
"""

from gpuform.stacks.engine.state import edits, graph, journal
from gpuform.stacks.engine.state.checkpoint import (
    Checkpoint,
    Manifest,
    SecretsProvider,
    Snapshot,
    format_timestamp,
    load_checkpoint,
    parse_checkpoint,
    reject_unknown_newer_fields,
)
from gpuform.stacks.engine.state.edits import IntegrityError, repair
from gpuform.stacks.engine.state.graph import (
    DroppedReference,
    NothingSelected,
    SelectedResources,
    Selection,
    UrnPatterns,
    find_deletable_urns,
    find_dependency_urns,
    get_entries,
    get_live_entry,
    get_object_entry,
    get_provider_urn,
)
from gpuform.stacks.engine.state.journal import (
    Journal,
    OrphanedJournal,
    RecoveredState,
    compute_digest,
)
from gpuform.stacks.engine.state.journal_log import (
    FileLog,
    JournalError,
    Log,
    ReadableLog,
    WritePacing,
)
from gpuform.stacks.engine.state.resource_state import (
    PendingOperation,
    ResourceState,
    StateError,
    UnknownFormat,
    decode_resource,
    encode_resource,
)
from gpuform.stacks.engine.state.snapshot import SnapshotManager
from gpuform.stacks.engine.state.state_move import Move, move

__all__ = [
    "Checkpoint",
    "DroppedReference",
    "FileLog",
    "IntegrityError",
    "Journal",
    "JournalError",
    "Log",
    "Manifest",
    "Move",
    "NothingSelected",
    "OrphanedJournal",
    "PendingOperation",
    "ReadableLog",
    "RecoveredState",
    "ResourceState",
    "SecretsProvider",
    "SelectedResources",
    "Selection",
    "Snapshot",
    "SnapshotManager",
    "StateError",
    "UnknownFormat",
    "UrnPatterns",
    "WritePacing",
    "compute_digest",
    "decode_resource",
    "edits",
    "encode_resource",
    "find_deletable_urns",
    "find_dependency_urns",
    "format_timestamp",
    "get_entries",
    "get_live_entry",
    "get_object_entry",
    "get_provider_urn",
    "graph",
    "journal",
    "load_checkpoint",
    "move",
    "parse_checkpoint",
    "reject_unknown_newer_fields",
    "repair",
]

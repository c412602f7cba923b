"""A stack's state as data: the checkpoint, its entries, their graph, and edits of them.

Also the journal, which keeps what changed since the checkpoint. Where the bytes lie is the business
of `store`.
"""

from gpuform.stacks.engine.state import edits, graph, journal
from gpuform.stacks.engine.state.checkpoint import (
    Checkpoint,
    Manifest,
    SecretsProvider,
    Snapshot,
    checkpoint_of,
    load_checkpoint,
    refuse_newer,
    timestamp,
)
from gpuform.stacks.engine.state.edits import IntegrityError, repair
from gpuform.stacks.engine.state.graph import DroppedReference, needs, provider_urn
from gpuform.stacks.engine.state.journal import Journal, Overtaken, Recovered, digest
from gpuform.stacks.engine.state.journal_log import FileLog, JournalError, Log, Pace, Readable
from gpuform.stacks.engine.state.moving import Move, move
from gpuform.stacks.engine.state.resource_state import (
    PendingOperation,
    ResourceState,
    StateError,
    UnknownFormat,
    decode_resource,
    encode_resource,
)
from gpuform.stacks.engine.state.snapshot import SnapshotManager
from gpuform.stacks.engine.state.targeting import (
    Chosen,
    NothingSelected,
    Selection,
    UrnPatterns,
    deletable,
    locate,
    locate_live,
    locate_object,
)

__all__ = [
    "Checkpoint",
    "Chosen",
    "DroppedReference",
    "FileLog",
    "IntegrityError",
    "Journal",
    "JournalError",
    "Log",
    "Manifest",
    "Move",
    "NothingSelected",
    "Overtaken",
    "Pace",
    "PendingOperation",
    "Readable",
    "Recovered",
    "ResourceState",
    "SecretsProvider",
    "Selection",
    "Snapshot",
    "SnapshotManager",
    "StateError",
    "UnknownFormat",
    "UrnPatterns",
    "checkpoint_of",
    "decode_resource",
    "deletable",
    "digest",
    "edits",
    "encode_resource",
    "graph",
    "journal",
    "load_checkpoint",
    "locate",
    "locate_live",
    "locate_object",
    "move",
    "needs",
    "provider_urn",
    "refuse_newer",
    "repair",
    "timestamp",
]

"""What a later run must find: the intents of creates, the drains and repairs of nodes, stops
for idleness, the nodes that have failed a certification, and the jobs that test nodes.

Lifecycles, the engine and its state commands use them. Where records are kept is for whoever makes
a `Records`: with the state, or in a folder.
"""

from gpuform.providers.records.batches import Batches, BatchRecords
from gpuform.providers.records.drains import DRAIN_PREFIX, Drain, Drains, digest
from gpuform.providers.records.idle_stops import IdleStop, IdleStops
from gpuform.providers.records.intents import (
    ANEW,
    INTENT_PREFIX,
    NOTHING,
    SETTLE,
    Intent,
    Intents,
    Target,
    in_dynamic_form,
    record_name,
)
from gpuform.providers.records.quiet_looks import Quiet, QuietLooks
from gpuform.providers.records.repairs import Repair, Repairs
from gpuform.providers.records.storing import (
    Fields,
    FolderRecords,
    Records,
    Stored,
    Unkept,
    parsed,
    read_as,
    typed,
)
from gpuform.providers.records.verdicts import Verdict, Verdicts

__all__ = [
    "ANEW",
    "DRAIN_PREFIX",
    "INTENT_PREFIX",
    "NOTHING",
    "SETTLE",
    "BatchRecords",
    "Batches",
    "Drain",
    "Drains",
    "Fields",
    "FolderRecords",
    "IdleStop",
    "IdleStops",
    "Intent",
    "Intents",
    "Quiet",
    "QuietLooks",
    "Records",
    "Repair",
    "Repairs",
    "Stored",
    "Target",
    "Unkept",
    "Verdict",
    "Verdicts",
    "digest",
    "in_dynamic_form",
    "parsed",
    "read_as",
    "record_name",
    "typed",
]

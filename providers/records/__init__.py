"""What a later run must find: the intents of creates, the drains and repairs of nodes, stops
for idleness, the nodes that have failed a certification, and the jobs that test nodes.

Lifecycles, the engine and its state commands use them. Where records are kept is for whoever makes
a `Records`: with the state, or in a folder.
"""

from gpuform.providers.records.certifications import Batches, BatchRecords, Verdict, Verdicts
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
from gpuform.providers.records.node_operations import (
    DRAIN_PREFIX,
    Drain,
    Drains,
    IdleStop,
    IdleStops,
    Quiet,
    QuietLooks,
    Repair,
    Repairs,
    digest,
)
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

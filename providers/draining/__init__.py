"""Drain GPU nodes: choose the nodes to remove, cordon them and wait until their jobs have ended.

Lifecycles call this package before they shrink, replace, stop or delete the machines of a cluster.
The implementations of `Scheduler` are in `kubernetes` and `slurm`.
"""

from gpuform.providers.draining.choosing import (
    DrainTarget,
    NodeEviction,
    Worker,
    find_name_problems,
)
from gpuform.providers.draining.drain_operation import (
    DrainOperation,
    finish_drain,
    undo_drain,
    undo_drain_or_fail,
)
from gpuform.providers.draining.schedulers import (
    ScheduledNode,
    Scheduler,
    SlurmOnKubernetes,
    call_interruptibly,
)

__all__ = [
    "DrainOperation",
    "DrainTarget",
    "NodeEviction",
    "ScheduledNode",
    "Scheduler",
    "SlurmOnKubernetes",
    "Worker",
    "call_interruptibly",
    "find_name_problems",
    "finish_drain",
    "undo_drain",
    "undo_drain_or_fail",
]

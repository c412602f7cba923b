"""Taking nodes away: which ones, and not before their jobs have ended.

Lifecycles that scale down use it; each scheduler is a room of its own (`slurm`, `kubernetes`).
"""

from gpuform.providers.draining.answering import answered
from gpuform.providers.draining.draining import (
    DrainedObject,
    Draining,
    NodeEviction,
    conclude,
    undo,
)
from gpuform.providers.draining.schedulers import ScheduledNode, Scheduler
from gpuform.providers.draining.slurm_on_kubernetes import SlurmOnKubernetes
from gpuform.providers.draining.victims import Worker, problems

__all__ = [
    "DrainedObject",
    "Draining",
    "NodeEviction",
    "ScheduledNode",
    "Scheduler",
    "SlurmOnKubernetes",
    "Worker",
    "answered",
    "conclude",
    "problems",
    "undo",
]

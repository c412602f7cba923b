"""Slurm, the scheduler of a cluster, through its own commands."""

from gpuform.providers.slurm.declared import Condition, declared_conditions, declared_scheduler
from gpuform.providers.slurm.reading import Node
from gpuform.providers.slurm.scheduler import SlurmScheduler, slurm_scheduler

__all__ = [
    "Condition",
    "Node",
    "SlurmScheduler",
    "declared_conditions",
    "declared_scheduler",
    "slurm_scheduler",
]

"""Slurm, the scheduler of a cluster, through its own commands."""

from gpuform.providers.slurm.batch import Batch, BatchJobs, exit_code_of
from gpuform.providers.slurm.reading import BatchRun, Node
from gpuform.providers.slurm.results import SlurmTester, result_of
from gpuform.providers.slurm.scheduler import (
    Condition,
    SlurmScheduler,
    declared_conditions,
    declared_scheduler,
    slurm_commands,
    slurm_scheduler,
)

__all__ = [
    "Batch",
    "BatchJobs",
    "BatchRun",
    "Condition",
    "Node",
    "SlurmScheduler",
    "SlurmTester",
    "declared_conditions",
    "declared_scheduler",
    "exit_code_of",
    "result_of",
    "slurm_commands",
    "slurm_scheduler",
]

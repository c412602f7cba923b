"""Slurm, the scheduler of a cluster, through its own commands."""

from gpuform.providers.slurm.scheduler import SlurmScheduler, slurm_scheduler

__all__ = ["SlurmScheduler", "slurm_scheduler"]

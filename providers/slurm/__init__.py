"""Slurm, the scheduler of a cluster, through its own commands."""

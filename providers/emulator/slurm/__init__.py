"""Emulate the Slurm of the emulated Together clusters, as far as clients use it.

`controls` runs commands for `kubectl exec` and for tests, `commands` and `formatting` are Slurm's
programs, `scheduler` schedules and ends jobs, `jobs` models a job.
"""

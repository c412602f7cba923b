"""Emulate the Slurm of the emulated Together clusters, as far as clients use it.

`commands` runs Slurm's programs for `kubectl exec` and for tests, `formatting` writes their output,
`scheduler` models, schedules and ends jobs.
"""

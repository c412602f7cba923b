"""Use a cluster's Slurm through its own commands: drain nodes, and run batch jobs.

`scheduler` is what draining calls, `results` what certifications call. Both send commands by a
`CommandRunner`: on this machine, over SSH, or in a pod.
"""

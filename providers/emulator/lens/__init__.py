"""Emulate Lens, which monitors the GPU nodes of the other emulated platforms. Nobody needs a key.

`routes` speaks HTTP, `views` finds the nodes, counts them and their GPUs, and has the settings:
workloads, failures, replaced values.
"""

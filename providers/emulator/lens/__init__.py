"""Lens, which monitors the GPU nodes that the other emulated platforms have at work.

`routes` speaks HTTP, `sources` finds the nodes, `views` counts them and their GPUs, `settings` has
workloads and whatever else is to be seen. Nobody needs a key.
"""

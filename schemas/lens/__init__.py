"""Lens, which monitors clusters: what it tells of nodes, GPUs and who uses them."""

"""Declares a planned topology to gpuform's own engine, in place of a program with the SDK."""

from gpuform.stacks.topology.declaring.topologies import declare, declare_nothing

__all__ = ["declare", "declare_nothing"]

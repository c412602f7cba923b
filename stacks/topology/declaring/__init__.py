"""Declare a planned topology to gpuform's own engine, in place of a program with the SDK."""

from gpuform.stacks.topology.declaring.topologies import declare_nothing, prepare

__all__ = ["declare_nothing", "prepare"]

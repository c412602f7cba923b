"""Write a topology as a Python program; `program` is the entry point."""

from gpuform.stacks.convert.python.program import render_program_of_topology

__all__ = ["render_program_of_topology"]

"""A Python program out of a topology."""

from gpuform.stacks.convert.python.program import program_of

__all__ = ["program_of"]

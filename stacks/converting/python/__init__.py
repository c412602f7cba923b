"""A Python program out of a topology."""

from gpuform.stacks.converting.python.program import program_of

__all__ = ["program_of"]

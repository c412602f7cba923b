"""What agents may do: read, check, simulate, and save a plan that a person applies.

`gpuform mcp` serves it by the Model Context Protocol. Nothing here changes a platform, a state or a
secret: each look at a stack is a command in a process that may only read.
"""

from gpuform.stacks.mcp.server import serve

__all__ = ["serve"]

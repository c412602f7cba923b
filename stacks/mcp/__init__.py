"""Let agents read, check and simulate stacks, and save plans for a person to apply.

`gpuform mcp` serves the tools over the Model Context Protocol. Nothing here changes a platform, a
state or a secret: each tool runs gpuform commands in processes that may only read.
"""

from gpuform.stacks.mcp.server import serve

__all__ = ["serve"]

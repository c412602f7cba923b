"""The tools as a server of the Model Context Protocol, on stdin and stdout."""

import os
import shutil
import signal
import tempfile
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from gpuform.stacks.engine.errors import EngineError


def serve(root: Path, *, runs_programs: bool) -> None:
    """Serves the projects below a folder until the client has gone.

    With `runs_programs` projects that are Python programs are planned as well, which runs them.
    Raises EngineError where the packages for it are missing.
    """
    if find_spec("mcp") is None:
        from gpuform.stacks.engine.machine import get_pip_requirement  # noqa: PLC0415 - not for the server

        raise EngineError(
            "`gpuform mcp` needs a package that is not installed: mcp",
            f"Install it: pip install '{get_pip_requirement('mcp')}'",
        )
    from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 - an extra
    from mcp.types import ToolAnnotations  # noqa: PLC0415 - as above

    from gpuform.stacks.mcp.commands import Commands  # noqa: PLC0415 - as above
    from gpuform.stacks.mcp.projects import INSTRUCTIONS, Projects  # noqa: PLC0415 - as above
    from gpuform.stacks.mcp.tools import Tools  # noqa: PLC0415 - as above

    tools = Tools(Projects(root.resolve()), Commands(runs_programs=runs_programs))
    server = MCPServer(
        "gpuform", instructions=INSTRUCTIONS, version=version("gpuform"), log_level="ERROR"
    )
    looks = (
        *(tools.list_stacks, tools.read_stack, tools.read_resource, tools.read_file),
        *(tools.list_kinds, tools.read_schema, tools.search_docs, tools.read_page),
        *(tools.validate, tools.simulate),
    )
    reading = ToolAnnotations(readOnlyHint=True, destructiveHint=False, openWorldHint=False)
    for tool in looks:
        server.tool(annotations=reading)(tool)
    # It writes one file into the project, and asks platforms.
    saving = ToolAnnotations(readOnlyHint=False, destructiveHint=False, openWorldHint=True)
    server.tool(annotations=saving)(tools.save_plan)
    with tempfile.TemporaryDirectory(prefix="gpuform-", ignore_cleanup_errors=True) as folder:
        # What is copied for proposals and simulations goes with the server, however that ends.
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        for each in ("SIGTERM", "SIGHUP", "SIGINT"):
            number = getattr(signal, each, None)
            if number is not None:
                signal.signal(number, partial(_end, folder))
        server.run("stdio")


def _end(folder: str, number: int, _frame: FrameType | None) -> None:
    """Ends at once: who waits for a client that says no more is not waited for."""
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(128 + number)

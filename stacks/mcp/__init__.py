"""Let agents read, check and simulate stacks, and save plans for a person to apply.

`gpuform mcp` serves the tools over the Model Context Protocol, on stdin and stdout. Nothing here
changes a platform, a state or a secret: each tool runs gpuform commands in processes that may only
read.
"""

import os
import shutil
import signal
import tempfile
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from gpuform.schemas.errors import EngineError


def serve(root: Path, *, runs_programs: bool) -> None:
    """Serve the projects below a folder until the client disconnects.

    With `runs_programs`, planning also runs projects that are Python programs. Temporary files and
    signals of this process are handled by the server from then on.

    Raises:
        EngineError: the packages for the protocol are missing.
    """
    if find_spec("mcp") is None:
        from gpuform.stacks.engine.machine import get_pip_requirement  # noqa: PLC0415 - not for the server

        raise EngineError(
            "`gpuform mcp` needs a package that is not installed: mcp",
            f"Install it: pip install '{get_pip_requirement('mcp')}'",
        )
    from mcp.server.mcpserver import MCPServer  # noqa: PLC0415 - an extra
    from mcp.types import ToolAnnotations  # noqa: PLC0415 - as above

    from gpuform.stacks.mcp.commands import AgentCommandRunner  # noqa: PLC0415 - as above
    from gpuform.stacks.mcp.projects import INSTRUCTIONS, Projects  # noqa: PLC0415 - as above
    from gpuform.stacks.mcp.tools import Tools  # noqa: PLC0415 - as above

    tools = Tools(Projects(root.resolve()), AgentCommandRunner(runs_programs=runs_programs))
    server = MCPServer(
        "gpuform", instructions=INSTRUCTIONS, version=version("gpuform"), log_level="ERROR"
    )
    reading_tools = (
        *(tools.list_stacks, tools.read_stack, tools.read_resource, tools.read_file),
        *(tools.list_kinds, tools.read_schema, tools.search_docs, tools.read_page),
        *(tools.validate, tools.simulate),
    )
    reading_annotations = ToolAnnotations(
        readOnlyHint=True, destructiveHint=False, openWorldHint=False
    )
    for tool in reading_tools:
        server.tool(annotations=reading_annotations)(tool)
    # It writes one file into the project, and asks platforms.
    saving_annotations = ToolAnnotations(
        readOnlyHint=False, destructiveHint=False, openWorldHint=True
    )
    server.tool(annotations=saving_annotations)(tools.save_plan)
    with tempfile.TemporaryDirectory(prefix="gpuform-", ignore_cleanup_errors=True) as folder:
        # Copies for proposals and simulations are removed with the server, however it ends.
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        # The operating system has not every signal: Windows has no SIGHUP.
        for signal_name in ("SIGTERM", "SIGHUP", "SIGINT"):
            number = getattr(signal, signal_name, None)
            if number is not None:
                signal.signal(number, partial(_exit_now, folder))
        server.run("stdio")


def _exit_now(folder: str, number: int, _frame: FrameType | None) -> None:
    """Handle a signal: remove the temporary folder, and exit without a wait for stdin."""
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(128 + number)

"""`gpuform lsp`: topology files in editors."""

from importlib.util import find_spec

import click

from gpuform.stacks.cli.session import common_flags, session


@click.command()
@common_flags
def lsp() -> None:
    """Serve an editor by the Language Server Protocol, on stdin and stdout.

    It checks topology files as they are typed, as `gpuform validate` does, completes and explains
    what can be written, leads from a reference to what it names, and renames. An editor starts this
    command; it is nothing for a terminal.

    \b
    Examples:
      gpuform lsp
    """
    from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - not for help
    from gpuform.stacks.engine.machine import requirement  # noqa: PLC0415 - as above

    with session():
        if find_spec("pygls") is None:
            raise EngineError(
                "`gpuform lsp` needs a package that is not installed: pygls",
                f"Install it: pip install '{requirement('lsp')}'",
            )
        from gpuform.stacks.lsp.server import serve  # noqa: PLC0415 - an extra

        serve()

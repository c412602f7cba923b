"""`gpuform emulator`: the platforms' APIs for any client on this machine."""

import shlex
from pathlib import Path

import click

from gpuform.stacks.cli.session import common_flags, flag

DEFAULT_PORT = 8787

_PORT = click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port on the loopback interface; 0 takes a free one.",
)


@click.group(invoke_without_command=True)
@_PORT
@click.option(
    "--store",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the objects in this file; in memory when not given.",
)
@common_flags
@click.pass_context
def emulator(context: click.Context, port: int, store: Path | None) -> None:
    """Serve the platforms' APIs on this machine.

    Runs until Ctrl-C. Nothing outside of this machine is touched, and no account is needed.

    \b
    Examples:
      gpuform emulator --store emulator.db
      eval "$(gpuform emulator env)"
    """
    if context.invoked_subcommand is not None:
        context.meta["gpuform.emulator.port"] = port
        return
    from gpuform.providers.emulator.server import serve  # noqa: PLC0415 - loads Flask

    try:
        server = serve(port, store if store is None else Path(flag("cwd") or ".") / store)
    except OSError as error:
        raise click.ClickException(
            f"port {port} cannot be used: {error.strerror}; choose another with --port"
        ) from error
    click.echo(f"The emulator is at {server.url}; Ctrl-C stops it.")
    click.echo(f'Point clients at it: eval "$(gpuform emulator env --port {_port(server.url)})"')
    server.run_forever()


@emulator.command("env")
@_PORT
@common_flags
@click.pass_context
def env(context: click.Context, port: int) -> None:
    """Print the variables that point any client at the emulator.

    \b
    Example:
      eval "$(gpuform emulator env)"
    """
    from gpuform.providers.emulator.server import environment  # noqa: PLC0415 - loads Flask

    given = context.get_parameter_source("port") is not click.core.ParameterSource.DEFAULT
    chosen = port if given else context.meta.get("gpuform.emulator.port", port)
    for name, value in environment(f"http://127.0.0.1:{chosen}").items():
        click.echo(f"export {name}={shlex.quote(value)}")


def _port(url: str) -> str:
    return url.rpartition(":")[2]

"""`gpuform emulator`: the platforms' APIs for any client on this machine."""

import shlex
from contextlib import suppress
from pathlib import Path

import click

from gpuform.stacks.cli.session import common_flags, flag
from gpuform.stacks.operations.opening.emulating import require_emulator, share

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
@click.option(
    "--speed",
    type=click.FloatRange(0, 1_000_000),
    default=0.0,
    metavar="N",
    help="Let the clock run, N of its seconds in a real one. Otherwise it stands still, and "
    "gpuform moves it when it waits.",
)
@common_flags
@click.pass_context
def emulator(context: click.Context, port: int, store: Path | None, speed: float) -> None:
    """Serve the platforms' APIs on this machine.

    Runs until Ctrl-C. Nothing outside of this machine is touched, and no account is needed. Clients
    that wait in real time, and cannot move the clock, need one that runs: with --speed 60 a create
    of 20 minutes takes them 20 seconds.

    \b
    Examples:
      gpuform emulator --store emulator.db
      gpuform emulator --speed 60
      eval "$(gpuform emulator env)"
    """
    require_emulator()
    if context.invoked_subcommand is not None:
        context.meta["gpuform.emulator.port"] = port
        return
    from gpuform.providers.emulator.server import serve  # noqa: PLC0415 - loads Flask

    try:
        file = store if store is None else Path(flag("cwd") or ".") / store
        server = serve(port, file, speed=speed)
    except OSError as error:
        raise click.ClickException(
            f"port {port} cannot be used: {error.strerror}; choose another with --port"
        ) from error
    with server, suppress(KeyboardInterrupt):  # Ctrl-C may come as soon as it is told
        runs = f" Its clock runs {speed:g} times as fast as the real one." if speed else ""
        click.echo(f"The emulator is at {server.url}; Ctrl-C stops it.{runs}")
        there = _port(server.url)
        click.echo(f'Point clients at it: eval "$(gpuform emulator env --port {there})"')
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


@emulator.command("share")
@click.argument("folder", type=click.Path(file_okay=False, exists=True, path_type=Path))
@common_flags
def share_store(folder: Path) -> None:
    """Let all projects in a folder share their emulated objects.

    What their commands do with --emulate is kept in FOLDER/.gpuform/emulator.db from now on, as if
    all used one account. A project that has emulated objects already goes on with those.

    \b
    Example:
      gpuform emulator share .
    """
    click.echo(f"Projects in {folder} share their emulated objects, in {share(folder)}.")


def _port(url: str) -> str:
    return url.rpartition(":")[2]

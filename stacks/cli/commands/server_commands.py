"""Run `gpuform emulator`, `lsp` and `mcp`: commands that serve a protocol."""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import click

from gpuform.providers.context import EMULATOR_VARIABLE
from gpuform.schemas.errors import EngineError
from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.flags import AliasedGroup
from gpuform.stacks.cli.session import add_common_flags, get_flag, open_session
from gpuform.stacks.operations.opening.emulator import (
    create_shared_store,
    find_emulator_at,
    get_emulator_address,
    require_emulator,
    require_emulator_at,
    run_emulator,
    start_emulator,
    stop_emulator,
)

DEFAULT_PORT = 8787

_PORT = click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port on the loopback interface; 0 chooses a free one.",
)
_STORE = click.option(
    "--store",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Store the objects in this file; default: in memory.",
)
_SPEED = click.option(
    "--speed",
    type=click.FloatRange(0, 1_000_000),
    default=0.0,
    metavar="N",
    help="Let the clock run N times as fast as real time. By default the clock stands still, and "
    "gpuform advances the clock while it waits.",
)
_PORT_CHOICE = click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="The emulator on this port, instead of the one that the shell's variables name.",
)


@click.group(cls=AliasedGroup, invoke_without_command=True)
@_PORT
@_STORE
@_SPEED
@add_common_flags
@click.pass_context
def emulator(context: click.Context, port: int, store: Path | None, speed: float) -> None:
    """Serve the platforms' APIs on this machine.

    Runs until Ctrl-C; `start` runs it in the background. The emulator sends no requests to other
    machines, and requires no account. Clients that wait in real time, and cannot advance the
    emulator's clock, need a running clock: with --speed 60 a create of 20 minutes takes 20 seconds.

    \b
    Examples:
      eval "$(gpuform emulator start)"
      gpuform emulator --store emulator.db
      gpuform emulator --speed 60
    """
    require_emulator()
    if context.invoked_subcommand is not None:
        if context.invoked_subcommand != "env" and _is_given(context, "port", "store", "speed"):
            raise click.UsageError(f"write the flags after `{context.invoked_subcommand}`")
        # `gpuform emulator --port N env` is as good as `gpuform emulator env --port N`.
        context.meta["gpuform.emulator.port"] = port
        return
    from gpuform.providers.emulator.server import serve  # noqa: PLC0415 - loads Flask

    try:
        server = serve(port, _get_path(store), speed=speed)
    except OSError as error:
        raise click.ClickException(
            f"port {port} cannot be used: {error.strerror}; choose another port with --port"
        ) from error
    with server, suppress(KeyboardInterrupt):  # Ctrl-C may come as soon as the hint is printed
        runs = f" Its clock runs {speed:g} times as fast as the real one." if speed else ""
        click.echo(f"The emulator is at {server.url}; Ctrl-C stops it.{runs}")
        served_port = server.url.rpartition(":")[2]
        click.echo(f'Point clients at it: eval "$(gpuform emulator env --port {served_port})"')
        server.run_forever()


@emulator.command("start")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port on the loopback interface; default: a free one.",
)
@_STORE
@_SPEED
@add_common_flags
def start(port: int, store: Path | None, speed: float) -> None:
    """Start an emulator in the background, and print the variables that point any client at it.

    Returns when the emulator answers. The variables contain the identity of this emulator: commands
    refuse another emulator that answers at the same address. When the start fails, the shell's
    `eval` fails, too.

    \b
    Examples:
      eval "$(gpuform emulator start)"
    """
    with _print_false_on_error():
        running = start_emulator(port, _get_path(store), speed)
    # Alone on stdout, for `eval`: everything else goes to stderr.
    _print_variables(running.url, running.identity)
    click.echo(
        f"Emulator {running.identity} serves at {running.url}. To stop it: "
        'eval "$(gpuform emulator stop)"',
        err=True,
    )


@emulator.command("stop")
@_PORT_CHOICE
@add_common_flags
def stop(port: int | None) -> None:
    """Stop an emulator that runs in the background, and print what unsets its variables.

    \b
    Example:
      eval "$(gpuform emulator stop)"
    """
    with _print_false_on_error():
        url = _get_address(port)
        expected_identity = "" if port else os.environ.get(EMULATOR_VARIABLE, "")
        stopped = stop_emulator(url, expected_identity)
    from gpuform.providers.emulator.server import environment  # noqa: PLC0415 - loads Flask

    own_variables = environment(url, os.environ.get(EMULATOR_VARIABLE, ""))
    # Other programs of the shell may rely on these.
    shared_names = {"NO_PROXY", "no_proxy"}
    if get_emulator_address(os.environ) == url:
        # Only variables that name this emulator: the shell may have others by now.
        names = [
            name
            for name in own_variables
            if name not in shared_names and os.environ.get(name) == own_variables[name]
        ]
        click.echo(f"unset {' '.join(names)}")
    if stopped is None:
        click.echo(f"No emulator answers at {url}: it has already ended.", err=True)
    else:
        click.echo(f"Stopped emulator {stopped.identity} at {url}.", err=True)


@emulator.command("status")
@_PORT_CHOICE
@click.option("--json", "-j", "as_json", is_flag=True, help="Print JSON instead of text.")
@add_common_flags
def show_status(port: int | None, as_json: bool) -> None:
    """Show which emulator answers, and the time of its clock; exit with 1 if none does.

    \b
    Example:
      gpuform emulator status
    """
    url = _get_address(port)
    running = find_emulator_at(url)
    if running is None:
        raise EngineError(
            f"no emulator answers at {url}", hint='start one: eval "$(gpuform emulator start)"'
        )
    clock = f"{datetime.fromtimestamp(running.now, UTC):%Y-%m-%dT%H:%M:%SZ}"
    if as_json:
        click.echo(format_json({"id": running.identity, "url": url, "now": clock}, indent=2))
        return
    click.echo(f"Emulator {running.identity} serves at {url}; its clock shows {clock}.")


@emulator.command("env")
@_PORT
@add_common_flags
@click.pass_context
def print_environment(context: click.Context, port: int) -> None:
    """Print the variables that point any client at the emulator which listens on a port.

    Waits a few seconds for an emulator that is starting. When none answers, the shell's `eval`
    fails.

    \b
    Example:
      eval "$(gpuform emulator env)"
    """
    chosen_port = port if _is_given(context, "port") else context.meta["gpuform.emulator.port"]
    with _print_false_on_error():
        running = require_emulator_at(f"http://127.0.0.1:{chosen_port}")
    _print_variables(running.url, running.identity)


@emulator.command("share")
@click.argument("folder", type=click.Path(file_okay=False, exists=True, path_type=Path))
@add_common_flags
def share_store(folder: Path) -> None:
    """Let all projects in a folder share their emulated objects.

    From now on, the commands of these projects with --emulate store their objects in
    FOLDER/.gpuform/emulator.db, as if all projects used one account. A project that already has
    emulated objects keeps its own.

    \b
    Example:
      gpuform emulator share .
    """
    click.echo(
        f"Projects in {folder} now share their emulated objects, in {create_shared_store(folder)}."
    )


def _get_path(store: Path | None) -> Path | None:
    """Return the path of the store from the folder of --cwd, or None."""
    # These commands open no session: --cwd is applied here.
    return store if store is None else Path(get_flag("cwd") or ".") / store


def _is_given(context: click.Context, *names: str) -> bool:
    """Return True if the user gave at least one of the named flags."""
    default = click.core.ParameterSource.DEFAULT
    return any(context.get_parameter_source(name) is not default for name in names)


def _get_address(port: int | None) -> str:
    """Return the address of the emulator on a port, else of the one in the shell's variables.

    Raises:
        EngineError: there is no port, and no variable names an emulator.
    """
    url = f"http://127.0.0.1:{port}" if port else get_emulator_address(os.environ)
    if url is None:
        raise EngineError(
            "no variable names an emulator",
            hint='start one: eval "$(gpuform emulator start)"; or pass its port: --port PORT',
        )
    return url


def _print_variables(url: str, identity: str) -> None:
    """Print a shell's `export` lines with which programs use the emulator as `identity`."""
    from gpuform.providers.emulator.server import environment  # noqa: PLC0415 - loads Flask

    for name, value in environment(url, identity).items():
        click.echo(f"export {name}={shlex.quote(value)}")


@contextmanager
def _print_false_on_error() -> Iterator[None]:
    """Print `false` for an EngineError, and raise the error again: `eval` of nothing succeeds."""
    try:
        yield
    except EngineError:
        click.echo("false")
        raise


@click.command()
@add_common_flags
def lsp() -> None:
    """Serve an editor by the Language Server Protocol, on stdin and stdout.

    The server checks topology files while you type, as `gpuform validate` does. It completes and
    explains keys and values, finds the definition of a reference, and renames entries. An editor
    starts this command; you do not run it in a terminal.

    \b
    Examples:
      gpuform lsp
    """
    from gpuform.stacks.engine.machine import get_pip_requirement  # noqa: PLC0415 - not for help

    with open_session():
        # An extra of the package: most installations serve no editor.
        if find_spec("pygls") is None:
            raise EngineError(
                "`gpuform lsp` requires a package that is not installed: pygls",
                f"Install it: pip install '{get_pip_requirement('lsp')}'",
            )
        from gpuform.stacks.lsp.server import serve  # noqa: PLC0415 - an extra

        serve()


@click.command()
@click.option(
    "--run-programs",
    is_flag=True,
    help="Also plan projects that are Python programs, which runs the programs with your "
    "permissions.",
)
@click.option(
    "--emulate", is_flag=True, help="Use an emulator of the platforms, to try the command."
)
@add_common_flags
def mcp(run_programs: bool, emulate: bool) -> None:
    """Serve agents by the Model Context Protocol, on stdin and stdout.

    An agent reads the stacks below the folder, with secrets masked, reads the documentation, checks
    and simulates changes, and saves plans with their reviews. It changes no platform, no state and
    no secret: a person reviews a plan, and applies it by its digest. An MCP client starts this
    command; you do not run it in a terminal.

    \b
    Examples:
      gpuform mcp
      gpuform mcp --cwd clusters
    """
    from gpuform.stacks.mcp import serve  # noqa: PLC0415 - not for help

    with open_session():
        # Agents simulate changes on the emulator.
        require_emulator()
        folder = Path.cwd()
        with run_emulator(folder, emulate=emulate):
            serve(folder, runs_programs=run_programs)

"""`gpuform stack export` and `gpuform stack import`: the state as Pulumi's deployment JSON."""

import sys
from pathlib import Path

import click

from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.flags import lock_flag
from gpuform.stacks.cli.opening import chosen_stack, workspace_of
from gpuform.stacks.cli.session import session, stack_flags
from gpuform.stacks.cli.terminal.stopping import unwinding
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.operations.transfer import export_deployment, import_deployment


@click.command()
@click.option(
    "--file",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file instead of stdout.",
)
@click.option("--show-secrets", is_flag=True, help="Show secret values in the clear.")
@stack_flags
def export(file: Path | None, show_secrets: bool) -> None:
    """Write the stack's state as Pulumi's deployment JSON.

    Secrets stay encrypted unless --show-secrets is given.

    \b
    Example:
      gpuform stack export --file dev.json
    """
    with session() as current:
        selected = chosen_stack(current, workspace_of(current, runs_program=False))
        tell = current.screen.warn
        document = export_deployment(selected, tell, show_secrets=show_secrets)
        text = format_json(document, indent=4)
        if file is None:
            current.screen.print(text)
            return
        _write(file, text + "\n", private=show_secrets)


@click.command("import")
@click.option(
    "--file",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Read this file instead of stdin.",
)
@click.option("--force", "-f", is_flag=True, help="Also what breaks rules, or is of another stack.")
@lock_flag
@stack_flags
def import_state(file: Path | None, force: bool) -> None:
    """Replace the stack's state by an exported one.

    It is checked first: version, integrity, and whether its resources are this stack's. Secrets
    are encrypted for this stack, plain ones too. Pending operations are dropped: an export and an
    import settle them. The state that was there stays as a .bak file.

    \b
    Example:
      gpuform stack import --file dev.json
    """
    with session() as current:
        selected = chosen_stack(current, workspace_of(current, runs_program=False))
        text, where = _read(file)
        with unwinding():
            count = import_deployment(selected, text, where, current.screen.warn, force=force)
        entries = "1 entry" if count == 1 else f"{count} entries"
        current.screen.print(f"Stack {selected.name} has the state of {where}: {entries}.")


def _write(file: Path, text: str, *, private: bool) -> None:
    try:
        with file.open("w", encoding="utf-8") as stream:
            if private:
                file.chmod(0o600)
            stream.write(text)
    except OSError as error:
        raise EngineError(f"{file} cannot be written: {error.strerror}") from error


def _read(file: Path | None) -> tuple[bytes, str]:
    """The text, and what it is called in messages."""
    if file is None:
        return sys.stdin.buffer.read(), "stdin"
    try:
        return file.read_bytes(), str(file)
    except OSError as error:
        raise EngineError(f"{file} cannot be read: {error.strerror}") from error

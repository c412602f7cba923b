"""`gpuform stack export` and `gpuform stack import`: the state as Pulumi's deployment JSON."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from gpuform.schemas.json_text import json_text
from gpuform.stacks.cli.locking import lock_flag
from gpuform.stacks.cli.opening import locked, read_for_showing, workspace_of
from gpuform.stacks.cli.session import Session, session, stack_flags
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.stack import StackImport, Workspace
from gpuform.stacks.engine.state import load_checkpoint
from gpuform.stacks.engine.store import SEALED, name_the_last_good
from gpuform.stacks.operations.opening.passphrase import passphrase_of


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
        workspace = workspace_of(current)
        document = _deployment(workspace, current, show_secrets=show_secrets)
        text = json_text(document, indent=4)
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
        workspace = workspace_of(current)
        name = workspace.resolve(current.stack)
        text, where = _read(file)
        with locked(current, workspace, name):
            passphrase = passphrase_of(workspace, current.screen.passphrase())
            run = StackImport(workspace, name, passphrase, current.screen.warn, force=force)
            count = run.run(text, where)
        entries = "1 entry" if count == 1 else f"{count} entries"
        current.screen.print(f"Stack {name} has the state of {where}: {entries}.")


def _deployment(workspace: Workspace, current: Session, *, show_secrets: bool) -> dict[str, Any]:
    """With what the journal of an interrupted run tells."""
    name = workspace.resolve(current.stack)
    with name_the_last_good(workspace.backend, workspace.project.name, name):
        found = read_for_showing(current.screen, workspace, name)
    if show_secrets or found.snapshot.has_plain_secrets():
        opened = workspace.open(
            name,
            passphrase_of(workspace, current.screen.passphrase()),
            with_journal=found.fault is None,
        )
        data = opened.snapshot.to_json(opened.crypter, show_secrets=show_secrets)
    else:
        data = found.snapshot.to_json(SEALED) if found.recovered else found.data
    document = json.loads(data)
    made = {"version": document["version"], "deployment": load_checkpoint(data).latest}
    if document.get("features"):
        made["features"] = document["features"]
    return made


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

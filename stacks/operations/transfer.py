"""A stack's state as Pulumi's deployment JSON: exported, and imported from it."""

import json
from collections.abc import Callable
from typing import Any

from gpuform.stacks.engine.stack import StackImport
from gpuform.stacks.engine.state import load_checkpoint
from gpuform.stacks.engine.store import SEALED, add_backup_hint
from gpuform.stacks.operations.opening.selecting import (
    SelectedStack,
    passphrase_of,
    read_for_showing,
)


def export_deployment(
    selected: SelectedStack, tell: Callable[[str], None], *, show_secrets: bool
) -> dict[str, Any]:
    """With what an interrupted run's journal tells; secrets encrypted unless `show_secrets`."""
    workspace, name = selected.workspace, selected.name
    with add_backup_hint(workspace.backend, workspace.project.name, name):
        found = read_for_showing(workspace, name, tell)
    if show_secrets or found.snapshot.has_plain_secrets():
        opened = selected.open(with_journal=found.fault is None)
        data = opened.snapshot.to_json(opened.crypter, show_secrets=show_secrets)
    else:
        data = found.snapshot.to_json(SEALED) if found.recovered else found.data
    document = json.loads(data)
    made = {"version": document["version"], "deployment": load_checkpoint(data).latest}
    if document.get("features"):
        made["features"] = document["features"]
    return made


def import_deployment(
    selected: SelectedStack,
    text: bytes,
    where: str,
    tell: Callable[[str], None],
    *,
    force: bool,
) -> int:
    """Replaces the state by an exported one; how many entries it has.

    `where` names the text in messages. Raises EngineError for what breaks rules or is of another
    stack; with `force` it is taken.
    """
    workspace, name = selected.workspace, selected.name
    lock = workspace.backend.lock(workspace.project.name, name, selected.patience(tell))
    with lock:
        passphrase = passphrase_of(workspace, selected.ask_passphrase)
        return StackImport(workspace, name, passphrase, tell, force=force).run(text, where)

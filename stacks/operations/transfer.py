"""Export and import a stack's state as Pulumi's deployment JSON.

`gpuform stack export`, `gpuform stack import` and the Python API call this module.
"""

import json
from collections.abc import Callable
from typing import Any

from gpuform.stacks.engine.stack import StackImport
from gpuform.stacks.engine.state import load_checkpoint
from gpuform.stacks.engine.store import SEALED, add_backup_hint
from gpuform.stacks.operations.opening.selected_stack import (
    SelectedStack,
    create_passphrase_finder,
    read_sealed_state,
)


def export_deployment(
    selected: SelectedStack, tell: Callable[[str], None], *, show_secrets: bool
) -> dict[str, Any]:
    """Return the stack's state, with the entries of an interrupted run's journal.

    Secrets stay encrypted unless `show_secrets` is set. `tell` receives warnings.
    """
    workspace, name = selected.workspace, selected.name
    with add_backup_hint(workspace.backend, workspace.project.name, name):
        state = read_sealed_state(workspace, name, tell)
    if show_secrets or state.snapshot.has_plain_secrets():
        opened = selected.open(with_journal=state.fault is None)
        data = opened.snapshot.to_json(opened.crypter, show_secrets=show_secrets)
    else:
        data = state.snapshot.to_json(SEALED) if state.recovered else state.data
    document = json.loads(data)
    deployment = {"version": document["version"], "deployment": load_checkpoint(data).latest}
    if document.get("features"):
        deployment["features"] = document["features"]
    return deployment


def import_deployment(
    selected: SelectedStack,
    text: bytes,
    where: str,
    tell: Callable[[str], None],
    *,
    force: bool,
) -> int:
    """Replace the stack's state by an exported one, and return its number of resources.

    Args:
        text: the deployment JSON.
        where: the name of the text's source, for messages.
        tell: receives warnings, and who holds the lock.
        force: import a deployment that breaks a rule or belongs to another stack.

    Raises:
        EngineError: the deployment breaks a rule or belongs to another stack.
    """
    workspace, name = selected.workspace, selected.name
    lock = workspace.backend.lock(workspace.project.name, name, selected.build_lock_timeout(tell))
    with lock:
        passphrase = create_passphrase_finder(workspace, selected.ask_passphrase)
        return StackImport(workspace, name, passphrase, tell, force=force).run(text, where)

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
    selected: SelectedStack, report: Callable[[str], None], *, show_secrets: bool
) -> dict[str, Any]:
    """Return the stack's state as a deployment, including the journal of an interrupted run.

    Unless `show_secrets` is set, secrets are encrypted, also those that the state has in plain
    text. The passphrase is needed only to show secrets or to encrypt plain ones. `report` receives
    warnings.
    """
    workspace, name = selected.workspace, selected.name
    with add_backup_hint(workspace.backend, workspace.project.name, name):
        # Sealed secrets are copied as they are: an export works without the passphrase.
        state = read_sealed_state(workspace, name, report)
    if show_secrets or state.snapshot.has_plain_secrets():
        # Secrets that the state has in plain text are encrypted with the stack's key on the way
        # out.
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
    deployment_json: bytes,
    source: str,
    report: Callable[[str], None],
    *,
    force: bool,
) -> int:
    """Replace the stack's state by an exported deployment, and return the number of resources.

    Pending operations are dropped, with a warning.

    Args:
        deployment_json: the deployment JSON.
        source: the name of the deployment's source, for messages.
        report: receives warnings, and who holds the lock.
        force: import a deployment that breaks a rule or belongs to another stack.

    Raises:
        EngineError: the JSON is not a deployment, or without `force` breaks a rule or belongs to
            another stack.
    """
    workspace, name = selected.workspace, selected.name
    lock = workspace.backend.create_lock(
        workspace.project.name, name, selected.build_lock_timeout(report)
    )
    # Held until the import is written: its checks compare with the present state.
    with lock:
        passphrase = create_passphrase_finder(workspace, selected.ask_passphrase)
        return StackImport(workspace, name, passphrase, report, force=force).run(
            deployment_json, source
        )

"""Refuse a `pulumi destroy` that would leave objects of interrupted creates on a platform.

The Pulumi CLI does not ask a provider about interrupted creates: a destroy would delete their
records with the stack, and leave the objects running. `servicer` and the lifecycles call this
module before the first change; `gpuform status` lists such creates with the same functions.
"""

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpuform.providers.errors import GpuformError
from gpuform.providers.records import Intent, Intents, StoredObjects, to_dynamic_urn

_DESTROY_COMMANDS = frozenset({"destroy", "down", "dn"})
_CLI_NAMES = frozenset({"pulumi", "pulumi-wrapped"})
_MAX_ANCESTORS = 4
"""How many processes may be between this one and the CLI: shells, a launcher, a wrapper."""
_COMMANDS = _DESTROY_COMMANDS | {"up", "update", "preview", "pre", "refresh", "import", "watch"}


def refuse_incomplete_destroy(intents: Intents) -> None:
    """Raise GpuformError if a `pulumi destroy` would leave objects of interrupted creates behind.

    Does nothing if another command runs, or if the state cannot be read from here.

    Raises:
        GpuformError: the command is a destroy, and the state lacks an object that a create may have
            made.
    """
    stored_resources = intents.records.list_stored_objects()
    leftover_intents = (
        find_leftover_intents(intents.list_all(), stored_resources)
        if stored_resources is not None
        else []
    )
    if leftover_intents and is_destroy_command(_find_cli_arguments()):
        raise GpuformError(
            "\n".join(
                f"{describe_leftover(intent)}: a destroy would not delete the object"
                for intent in leftover_intents
            ),
            hint="`pulumi up` resumes the create, and then `pulumi destroy` deletes the object; "
            "`gpuform destroy` does both, whatever language the program is in",
        )


def find_leftover_intents(
    intents: Iterable[Intent], stored_resources: StoredObjects
) -> list[Intent]:
    """Return the intents of creates whose objects, known or possible, are not in the state.

    An intent with an outcome, which is decided, is left out. Objects that are parts of a resource
    count as stored with the resource.

    Args:
        intents: The recorded creates of the stack.
        stored_resources: URN and id of each resource in the state.
    """
    stored_ids = {id_ for _, id_ in stored_resources}
    stored_urns = {to_dynamic_urn(urn) for urn, _ in stored_resources}

    def is_stored(intent: Intent) -> bool:
        # These objects are parts of a resource: its lifecycle deletes them with the resource.
        if intent.names:
            return to_dynamic_urn(intent.urn or "") in stored_urns
        return bool(intent.made) and stored_ids.issuperset(intent.made)

    return [intent for intent in intents if not intent.outcome and not is_stored(intent)]


def is_destroy_command(arguments: Sequence[str]) -> bool:
    """Return True if the Pulumi CLI's arguments request a destroy, by name or alias."""
    # The first command word decides: `pulumi refresh --target destroy` is no destroy.
    return (
        next((argument for argument in arguments if argument in _COMMANDS), "") in _DESTROY_COMMANDS
    )


def _find_cli_arguments() -> list[str]:
    """Return the arguments of the Pulumi CLI above this process, directly or through scripts.

    Returns the arguments of the parent if none of the nearest ancestors is a `pulumi`.
    """
    process_id = os.getppid()
    parent_arguments = _read_process_arguments(process_id)
    arguments = parent_arguments
    for _ in range(_MAX_ANCESTORS):
        if arguments and Path(arguments[0]).stem.strip(".") in _CLI_NAMES:
            return arguments
        process_id = _get_parent_id(process_id)
        arguments = _read_process_arguments(process_id) if process_id > 1 else []
    return parent_arguments


def _get_parent_id(process_id: int) -> int:
    """Return the id of the parent process; 0 if the system does not report the id."""
    try:
        # The name in parentheses may have spaces: what follows it is the state and the parent.
        return int(Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        pass
    try:
        command = ["ps", "-o", "ppid=", "-p", str(process_id)]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed
        return int(completed.stdout)
    except (OSError, ValueError):
        return 0


def _read_process_arguments(process_id: int) -> list[str]:
    """Return the command line of a process; empty if the system does not report one."""
    try:
        # Linux has /proc; macOS has only `ps`.
        return Path(f"/proc/{process_id}/cmdline").read_text().split("\0")
    except OSError:
        pass
    try:
        command = ["ps", "-o", "args=", "-p", str(process_id)]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed
        return completed.stdout.split()
    except OSError:
        return []


def describe_leftover(intent: Intent) -> str:
    """Return a sentence about an interrupted create whose object is missing in the state."""
    label = f"{intent.kind} {intent.name!r} on {intent.platform}"
    if intent.made:
        outcome = f"created {', '.join(intent.made)}, which is not in the state"
    else:
        outcome = "may have created an object that is not in the state"
    return f"an interrupted create of {label} {outcome}"

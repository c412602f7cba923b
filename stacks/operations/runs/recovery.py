"""Recover interrupted runs, check the rights of API keys, and forget deleted objects.

Every run calls this module; it calls the engine's recovery, and edits the user's SSH and kubeconfig
files.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from gpuform.providers import permissions
from gpuform.providers.catalog import list_kinds, load_lifecycle_class
from gpuform.providers.context import RunContext
from gpuform.providers.operations import Settings
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import PlanAction, ResourceChange
from gpuform.stacks.access.cluster_access import get_state_location
from gpuform.stacks.access.ssh_files import (
    find_deleted_ids,
    remove_deleted_contexts,
    remove_deleted_hosts,
)
from gpuform.stacks.engine.deployment import Outcome, recover_creates
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.stack import Stack, Workspace, has_local_records, move_local_records
from gpuform.stacks.engine.state import Snapshot
from gpuform.stacks.engine.store import StackLock
from gpuform.stacks.engine.urn import name_of, type_of
from gpuform.stacks.operations.opening.selected_stack import (
    SelectedStack,
    enter_environment,
    read_config,
)
from gpuform.stacks.operations.runs.callbacks import OperationCallbacks
from gpuform.stacks.resource_rules import find_lifecycle, find_write_refusal


def add_adoption_answers(
    run_context: RunContext, adopt: Sequence[str], *, create_anew: bool
) -> RunContext:
    """Return the context with the user's answers to an AdoptionQuestion."""
    variables = {permissions.ADOPT_VARIABLE: ",".join(adopt)} if adopt else {}
    anew_variables = {permissions.ANEW_VARIABLE: "1"} if create_anew else {}
    return run_context.with_variables({**variables, **anew_variables})


def recover_earlier_runs(
    selected: SelectedStack,
    stack: Stack,
    callbacks: OperationCallbacks,
    lock: StackLock | None,
    *,
    creates_objects: bool = False,
) -> Stack:
    """Return the stack with the objects created by interrupted runs; unchanged if there are none.

    Under its lock the state is saved, and the stack opened again; without a `lock` the stack is
    only shown as recovered, and unchanged while another run works. `creates_objects` says that the
    run creates objects, and finds some of the interrupted creates itself.

    Raises:
        UnresolvedCreate: an object may have been created, and nothing can tell (without a `lock` a
            warning says so instead), or the search was cancelled.
    """
    if lock is not None:
        # Earlier releases kept intents beside the project; only the lock's holder may move them.
        move_local_records(stack)
    # A preview during another run leaves the intents alone: they are of creates in progress.
    if not (stack.get_intents().list_all() or stack.orphaned_journals) or (
        lock is None and _has_active_run(selected.workspace, stack)
    ):
        return stack
    cancelled = threading.Event()
    # A second signal ends the process: the lock must be released first.
    terminate = lock.release if lock is not None else cancelled.set
    with callbacks.interruptions.register(cancelled.set, terminate):
        save = None if lock is None else stack.save
        recovered = recover_creates(
            stack.build_target(),
            save,
            callbacks.warn,
            cancelled,
            stack.orphaned_journals,
            creates_follow=creates_objects,
        )
    if stack.orphaned_journals and lock is not None:
        callbacks.warn(
            "a run was interrupted, and another program has written the state since; the "
            f"journal of that run is kept in {stack.set_journal_aside()}"
        )
    if recovered is not None and lock is not None:
        # The saved state has a digest and a journal that the open stack does not know.
        return selected.reopen(stack)
    if recovered is not None:
        stack.snapshot = recovered
    return stack


def forget_pending_creates(
    selected: SelectedStack, stack: Stack, callbacks: OperationCallbacks
) -> Stack:
    """Remove all pending creates from the state, warn of each, and return the stack opened again.

    The caller holds the stack's lock, and has recovered interrupted runs: only creates that no
    provider can look for are left.
    """
    pending = stack.snapshot.pending_operations
    pending_urns = [operation.resource.urn for operation in pending if operation.type == "creating"]
    if not pending_urns:
        return stack
    remaining_operations = [operation for operation in pending if operation.type != "creating"]
    stack.save(replace(stack.snapshot, pending_operations=remaining_operations))
    for urn in pending_urns:
        callbacks.warn(f"removed the record of the interrupted create of {name_of(urn)}")
    return selected.reopen(stack)


def recover_leftovers(
    selected: SelectedStack, callbacks: OperationCallbacks, lock: StackLock, *, emulate: bool
) -> None:
    """Recover interrupted runs under the stack's lock; without any the stack is not opened."""
    workspace, name = selected.workspace, selected.name
    backend, project = workspace.backend, workspace.project.name
    # Looked for without opening the stack, which may ask for a passphrase.
    leftovers = (
        open_intents(backend, project, name).list_all()
        or backend.open_journal(project, name).read()
    )
    if leftovers or has_local_records(workspace.project):
        stack = selected.open(exclusive=True)
        with enter_environment(stack, emulate=emulate):
            recover_earlier_runs(selected, stack, callbacks, lock)


def _has_active_run(workspace: Workspace, stack: Stack) -> bool:
    """Return True if a run in progress may be creating the recorded objects."""
    holders = workspace.backend.create_lock(workspace.project.name, stack.name).list_holders()
    return any(not holder.has_ended for holder in holders)


def forget_deleted_objects(stack: Stack, after: Snapshot, report: Callable[[str], None]) -> None:
    """Remove deleted clusters and machines from the user's kubeconfig and SSH files.

    `stack` is as it was before the run, `after` the state after it. A failure is a warning with the
    command that does it: the run itself has succeeded by now.
    """
    deleted = find_deleted_ids(stack.snapshot, after)
    if not deleted:
        return

    def remove_contexts() -> None:
        for context in remove_deleted_contexts(deleted, stack.run_context.environ):
            report(
                f"context {context.context}: removed from {context.path}, because its cluster "
                "is deleted"
            )

    def remove_hosts() -> None:
        state_location = get_state_location(stack.backend, stack.project.name, stack.name)
        path = remove_deleted_hosts(deleted, stack.project.name, stack.name, state_location)
        if path is not None:
            report(f"{path}: removed the hosts of deleted machines")

    _try_removal(remove_contexts, "gpuform kubeconfig --remove", report)
    _try_removal(remove_hosts, "gpuform ssh-config", report)


def _try_removal(remove: Callable[[], None], command: str, report: Callable[[str], None]) -> None:
    """Call `remove`; report an error, with the command for removing the rest.

    A user without a home folder has nothing to remove.
    """
    try:
        remove()
    except EngineError as error:
        report(f"warning: could not remove the entries of deleted clusters: {error.message}")
        report(f"  To remove them, run `{command}`")
    except RuntimeError:  # an account without a home has no such files
        return


_CHANGING_EFFECTS: Final = frozenset({"create", "update", "replace", "delete"})
"""The effects of steps that send a platform a request to change something."""

_SHOWN_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class KeyRights:
    """What the API keys of a run may change."""

    settings: Settings

    @classmethod
    def for_stack(cls, stack: Stack) -> Self:
        """Build the rights of the API keys of the stack's configuration and the environment."""
        return cls(Settings(config=read_config(stack).get, environ=stack.run_context.environ))

    @property
    def are_limited(self) -> bool:
        """Return True if an API key may not change some kind, and each run needs a preview."""
        return any(
            find_write_refusal(load_lifecycle_class(*kind), self.settings) for kind in list_kinds()
        )

    def require_allowed(self, outcome: Outcome) -> None:
        """Raise EngineError when the preview has a change which the API keys do not allow.

        Previews are possible with any key, as in a pull request: only runs that apply call this
        method.
        """
        refused: dict[str, list[str]] = {}
        unsent = {change.urn for change in outcome.planned if _is_unsent(change)}
        for urn, effects in outcome.effects.items():
            if urn in unsent or not _CHANGING_EFFECTS & set(effects):
                continue
            lifecycle = find_lifecycle(type_of(urn))
            if lifecycle is not None and (reason := find_write_refusal(lifecycle, self.settings)):
                refused.setdefault(reason, []).append(name_of(urn))
        if refused:
            raise EngineError("; ".join(_describe_refusals(refused)), hint="nothing was started")


def _describe_refusals(refused: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield each reason with the sorted names of the resources, at most `_SHOWN_NAMES`."""
    for reason, names in refused.items():
        omitted_count = len(names) - _SHOWN_NAMES
        listed = ", ".join(sorted(names)[:_SHOWN_NAMES]) + (
            f" and {omitted_count} more" if omitted_count > 0 else ""
        )
        yield f"{reason}. The run would change {listed}"


def _is_unsent(change: ResourceChange) -> bool:
    """Return True for an update of the state alone, or one which only waits."""
    is_update = change.action is PlanAction.UPDATE
    return is_update and not any(property_change.is_sent for property_change in change.changes)

"""Recover interrupted runs, check the rights of keys, and forget deleted objects.

Every run calls this module; it calls the engine's recovery, and edits the user's SSH and kubeconfig
files.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from gpuform.providers import permissions
from gpuform.providers.catalog import list_kinds, load_lifecycle_class
from gpuform.providers.operations import Settings
from gpuform.schemas.plan import PlanAction, ResourceChange
from gpuform.stacks.access.connecting import state_of
from gpuform.stacks.access.ssh_files import deleted_ids, forget_contexts, forget_hosts
from gpuform.stacks.engine.deployment import Outcome, settle
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.stack import Stack, Workspace, has_local_records, move_local_records
from gpuform.stacks.engine.state import Snapshot
from gpuform.stacks.engine.store import StackLock
from gpuform.stacks.engine.urn import name_of, type_of
from gpuform.stacks.operations.opening.environments import enter_environment, read_config
from gpuform.stacks.operations.opening.selected_stack import SelectedStack
from gpuform.stacks.operations.runs.callbacks import OperationCallbacks
from gpuform.stacks.resource_rules import lifecycle_of, write_refusal


def build_adoption_variables(adopt: Sequence[str], *, create_anew: bool) -> Mapping[str, str]:
    """Return the variables from which both engines read the answers to an AdoptionQuestion."""
    variables = {permissions.ADOPT_VARIABLE: ",".join(adopt)} if adopt else {}
    return {**variables, permissions.ANEW_VARIABLE: "1"} if create_anew else variables


def recover_earlier_runs(
    selected: SelectedStack,
    stack: Stack,
    callbacks: OperationCallbacks,
    lock: StackLock | None,
    *,
    makes: bool = False,
) -> Stack:
    """Return the stack with the objects that interrupted runs have created.

    Under its lock the state is saved; without a `lock` the stack is only as it would be. `makes`
    says that the run creates objects, and may recreate some of these.

    Raises:
        Unsettled: an object may have been created, and nothing can tell.
    """
    if lock is not None:
        move_local_records(stack)
    if not (stack.intents().list_all() or stack.overtaken) or (
        lock is None and _has_active_run(selected.workspace, stack)
    ):
        return stack
    cancelled = threading.Event()
    leave = lock.release if lock is not None else cancelled.set
    with callbacks.interruptions.register(cancelled.set, leave):
        save = None if lock is None else stack.save
        recovered = settle(
            stack.subject(), save, callbacks.warn, cancelled, stack.overtaken, makes=makes
        )
    if stack.overtaken and lock is not None:
        callbacks.warn(
            "another program has written the state since a run was interrupted; the journal of "
            f"that run is kept in {stack.set_journal_aside()}"
        )
    if recovered is not None and lock is not None:
        return selected.open(exclusive=True)
    if recovered is not None:
        stack.snapshot = recovered
    return stack


def forget_pending_creates(
    selected: SelectedStack, stack: Stack, callbacks: OperationCallbacks
) -> Stack:
    """Remove interrupted creates that nothing can look for from the state, and return the stack.

    The caller holds the stack's lock.
    """
    pending = stack.snapshot.pending_operations
    pending_urns = [operation.resource.urn for operation in pending if operation.type == "creating"]
    if not pending_urns:
        return stack
    remaining_operations = [operation for operation in pending if operation.type != "creating"]
    stack.save(replace(stack.snapshot, pending_operations=remaining_operations))
    for urn in pending_urns:
        callbacks.warn(f"the interrupted create of {name_of(urn)} is forgotten")
    return selected.open(exclusive=True)


def recover_leftovers(
    selected: SelectedStack, callbacks: OperationCallbacks, lock: StackLock, *, emulate: bool
) -> None:
    """Recover interrupted runs under the stack's lock; open the stack only if there are any."""
    workspace, name = selected.workspace, selected.name
    backend, project = workspace.backend, workspace.project.name
    leftovers = (
        open_intents(backend, project, name).list_all() or backend.journal(project, name).read()
    )
    if leftovers or has_local_records(workspace.project):
        stack = selected.open(exclusive=True)
        with enter_environment(stack, emulate=emulate):
            recover_earlier_runs(selected, stack, callbacks, lock)


def _has_active_run(workspace: Workspace, stack: Stack) -> bool:
    """Return True if a run in progress may be creating the recorded objects."""
    holders = workspace.backend.lock(workspace.project.name, stack.name).holders()
    return any(not holder.has_ended for holder in holders)


def forget_deleted_objects(stack: Stack, after: Snapshot, tell: Callable[[str], None]) -> None:
    """Remove deleted clusters and machines from the user's kubeconfig and SSH files.

    `stack` is as it was before the run. A failure is a warning with the command that does it: the
    run itself has succeeded by now.
    """
    gone = deleted_ids(stack.snapshot, after)
    if not gone:
        return

    def remove_contexts() -> None:
        for context in forget_contexts(gone, os.environ):
            tell(f"context {context.context}: taken out of {context.path}, its cluster is gone")

    def remove_hosts() -> None:
        state_location = state_of(stack.backend, stack.project.name, stack.name)
        path = forget_hosts(gone, stack.project.name, stack.name, state_location)
        if path is not None:
            tell(f"{path}: without the hosts that are gone")

    _try_removal(remove_contexts, "gpuform kubeconfig --remove", tell)
    _try_removal(remove_hosts, "gpuform ssh-config", tell)


def _try_removal(task: Callable[[], None], command: str, tell: Callable[[str], None]) -> None:
    try:
        task()
    except EngineError as error:
        tell(f"warning: what is left of deleted clusters could not be taken out: {error.message}")
        tell(f"  `{command}` does it")
    except RuntimeError:  # an account without a home has no such files
        return


_WRITING: Final = frozenset({"create", "update", "replace", "delete"})
"""The effects of steps that send a platform a request to change something."""

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class KeyRights:
    """What the API keys of a run may change."""

    settings: Settings

    @classmethod
    def for_stack(cls, stack: Stack, environ: Mapping[str, str]) -> Self:
        return cls(Settings(config=read_config(stack).get, environ=environ))

    @property
    def are_limited(self) -> bool:
        """Return True if a key may not change some kind: then every run needs a preview."""
        return any(
            write_refusal(load_lifecycle_class(*kind), self.settings) for kind in list_kinds()
        )

    def require_allowed(self, outcome: Outcome) -> None:
        """Raise EngineError when the preview has a change that the keys do not allow.

        Previews are possible with any key, as in a pull request: only runs that apply call this
        method.
        """
        refused: dict[str, list[str]] = {}
        unsent = {change.urn for change in outcome.planned if _is_unsent(change)}
        for urn, effects in outcome.effects.items():
            if urn in unsent or not _WRITING & set(effects):
                continue
            lifecycle = lifecycle_of(type_of(urn))
            if lifecycle is not None and (because := write_refusal(lifecycle, self.settings)):
                refused.setdefault(because, []).append(name_of(urn))
        if refused:
            raise EngineError(
                "; ".join(_describe_refusals(refused)), hint="nothing of it was begun"
            )


def _describe_refusals(refused: Mapping[str, list[str]]) -> Iterator[str]:
    for because, names in refused.items():
        more = len(names) - _SHOWN
        listed = ", ".join(sorted(names)[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
        yield f"{because}. This changes {listed}"


def _is_unsent(change: ResourceChange) -> bool:
    """Return True for an update that changes the state alone, or continues to wait."""
    is_update = change.action is PlanAction.UPDATE
    return is_update and not any(each.is_sent for each in change.changes)

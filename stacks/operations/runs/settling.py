"""What every command does first that works on a stack's objects: settle what earlier runs left."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuform.providers import permissions
from gpuform.stacks.engine.deployment import settle
from gpuform.stacks.engine.records import intents_of
from gpuform.stacks.engine.stack import Stack, Workspace, is_anything_beside, move_records_into
from gpuform.stacks.engine.store import StackLock
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.operations.opening.selecting import SelectedStack
from gpuform.stacks.operations.opening.worlds import world_for
from gpuform.stacks.operations.runs.caller import Caller


def answers(adopt: Sequence[str], *, create_anew: bool) -> Mapping[str, str]:
    """The variables by which both engines take the user's answers to an AdoptionQuestion."""
    given = {permissions.ADOPT_VARIABLE: ",".join(adopt)} if adopt else {}
    return {**given, permissions.ANEW_VARIABLE: "1"} if create_anew else given


def settle_earlier_runs(
    selected: SelectedStack,
    stack: Stack,
    caller: Caller,
    lock: StackLock | None,
    *,
    makes: bool = False,
) -> Stack:
    """The stack with what interrupted runs have made, under its lock or as it would be.

    What `makes` objects afterwards may have to make some of them anew. Raises Unsettled.
    """
    if lock is not None:
        move_records_into(stack)
    if not (stack.intents().all() or stack.overtaken) or (
        lock is None and _is_in_use(selected.workspace, stack)
    ):
        return stack
    cancelled = threading.Event()
    leave = lock.release if lock is not None else cancelled.set
    with caller.interruptions.around(cancelled.set, leave):
        save = None if lock is None else stack.save
        found = settle(stack.subject(), save, caller.warn, cancelled, stack.overtaken, makes=makes)
    if stack.overtaken and lock is not None:
        caller.warn(
            "another program has written the state since a run was interrupted; the journal of "
            f"that run is kept in {stack.set_journal_aside()}"
        )
    if found is not None and lock is not None:
        return selected.open(exclusive=True)
    if found is not None:
        stack.snapshot = found
    return stack


def forget_pending_creates(selected: SelectedStack, stack: Stack, caller: Caller) -> Stack:
    """The stack, under its lock, without the interrupted creates that nothing can look for."""
    pending = stack.snapshot.pending_operations
    begun = [each.resource.urn for each in pending if each.type == "creating"]
    if not begun:
        return stack
    kept = [each for each in pending if each.type != "creating"]
    stack.save(replace(stack.snapshot, pending_operations=kept))
    for urn in begun:
        caller.warn(f"the interrupted create of {name_of(urn)} is forgotten")
    return selected.open(exclusive=True)


def settle_left(selected: SelectedStack, caller: Caller, lock: StackLock, *, emulate: bool) -> None:
    """Settles what is left of a stack under its lock; opens it only if there is anything."""
    workspace, name = selected.workspace, selected.name
    backend, project = workspace.backend, workspace.project.name
    left = intents_of(backend, project, name).all() or backend.journal(project, name).read()
    if left or is_anything_beside(workspace.project):
        stack = selected.open(exclusive=True)
        with world_for(stack, emulate=emulate):
            settle_earlier_runs(selected, stack, caller, lock)


def _is_in_use(workspace: Workspace, stack: Stack) -> bool:
    """Whether somebody is making what the records tell of."""
    holders = workspace.backend.lock(workspace.project.name, stack.name).holders()
    return any(not holder.has_ended for holder in holders)

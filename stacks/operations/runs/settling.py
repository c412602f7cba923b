"""Recover what interrupted runs have left before a run begins, with its permissions, and remove it
from the user's files after it ends.
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
from gpuform.stacks.engine.records import intents_of
from gpuform.stacks.engine.stack import Stack, Workspace, is_anything_beside, move_records_into
from gpuform.stacks.engine.state import Snapshot
from gpuform.stacks.engine.store import StackLock
from gpuform.stacks.engine.urn import name_of, type_of
from gpuform.stacks.operations.opening.selecting import SelectedStack
from gpuform.stacks.operations.opening.worlds import config_of, world_for
from gpuform.stacks.operations.runs.caller import Caller
from gpuform.stacks.resource_rules import lifecycle_of, write_refusal


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
    if not (stack.intents().list_all() or stack.overtaken) or (
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
    left = intents_of(backend, project, name).list_all() or backend.journal(project, name).read()
    if left or is_anything_beside(workspace.project):
        stack = selected.open(exclusive=True)
        with world_for(stack, emulate=emulate):
            settle_earlier_runs(selected, stack, caller, lock)


def _is_in_use(workspace: Workspace, stack: Stack) -> bool:
    """Whether somebody is making what the records tell of."""
    holders = workspace.backend.lock(workspace.project.name, stack.name).holders()
    return any(not holder.has_ended for holder in holders)


def forget_deleted(stack: Stack, after: Snapshot, tell: Callable[[str], None]) -> None:
    """Tells what it took out, or how to, where that failed: the run is done by now.

    `stack` is as it was before the run.
    """
    gone = deleted_ids(stack.snapshot, after)
    if not gone:
        return

    def contexts() -> None:
        for each in forget_contexts(gone, os.environ):
            tell(f"context {each.context}: taken out of {each.path}, its cluster is gone")

    def hosts() -> None:
        where = state_of(stack.backend, stack.project.name, stack.name)
        path = forget_hosts(gone, stack.project.name, stack.name, where)
        if path is not None:
            tell(f"{path}: without the hosts that are gone")

    _try(contexts, "gpuform kubeconfig --remove", tell)
    _try(hosts, "gpuform ssh-config", tell)


def _try(task: Callable[[], None], command: str, tell: Callable[[str], None]) -> None:
    try:
        task()
    except EngineError as error:
        tell(f"warning: what is left of deleted clusters could not be taken out: {error.message}")
        tell(f"  `{command}` does it")
    except RuntimeError:  # an account without a home has no such files
        return


_WRITING: Final = frozenset({"create", "update", "replace", "delete"})
"""The effects of steps that a platform is asked for."""

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Rights:
    """The keys of one run."""

    settings: Settings

    @classmethod
    def of(cls, stack: Stack, environ: Mapping[str, str]) -> Self:
        return cls(Settings(config=config_of(stack).get, environ=environ))

    @property
    def are_limited(self) -> bool:
        """Whether some kind of resource may not be changed: then nothing is done without a plan."""
        return any(
            write_refusal(load_lifecycle_class(*each), self.settings) for each in list_kinds()
        )

    def require(self, outcome: Outcome) -> None:
        """Raises EngineError when what a preview found may not be done.

        Plans alone can be made with any key, as in a pull request: then nothing is asked.
        """
        refused: dict[str, list[str]] = {}
        unsent = {each.urn for each in outcome.planned if _is_unsent(each)}
        for urn, effects in outcome.effects.items():
            if urn in unsent or not _WRITING & set(effects):
                continue
            lifecycle = lifecycle_of(type_of(urn))
            if lifecycle is not None and (because := write_refusal(lifecycle, self.settings)):
                refused.setdefault(because, []).append(name_of(urn))
        if refused:
            raise EngineError("; ".join(_told(refused)), hint="nothing of it was begun")


def _told(refused: Mapping[str, list[str]]) -> Iterator[str]:
    for because, names in refused.items():
        more = len(names) - _SHOWN
        listed = ", ".join(sorted(names)[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
        yield f"{because}. This changes {listed}"


def _is_unsent(change: ResourceChange) -> bool:
    """Whether an update only records something, or goes on waiting."""
    is_update = change.action is PlanAction.UPDATE
    return is_update and not any(each.is_sent for each in change.changes)

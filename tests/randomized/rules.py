"""Check what must hold after every run, on any state and after any failure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from randomized.memory_platform import MUTATING, TYPE, MemoryPlatform, ProviderCall
from randomized.operations import Run
from randomized.programs import Program

from gpuform.stacks.engine.planning import (
    Diagnostic,
    Event,
    Op,
    Step,
    StepDone,
    StepFailed,
    StepStarted,
)
from gpuform.stacks.engine.state import ResourceState, Snapshot, graph
from gpuform.stacks.engine.urn import is_provider

Operation = tuple[str, str, str]
"""The operation of a step, the result of a refresh or "", and the URN."""


@dataclass(frozen=True)
class ObservedRun:
    """One run: the state before and after it, its provider calls and its events.

    `planned` are the steps of its preview, if there was one.
    """

    program: Program
    run: Run
    before: Snapshot
    after: Snapshot
    calls: Sequence[ProviderCall]
    events: Sequence[Event]
    succeeded: bool
    planned: Sequence[Step] = ()

    @property
    def all_steps(self) -> list[Step]:
        """Return the started and the planned steps: the run may have been stopped halfway."""
        return [*self.list_steps(StepStarted, StepDone, StepFailed), *self.planned]

    def list_steps(self, *kinds: type) -> list[Step]:
        return [e.step for e in self.events if isinstance(e, kinds)]

    @property
    def operations(self) -> Counter[Operation]:
        """Count the operations done or tried, each step once, without provider entries."""
        steps = {id(s): s for s in self.list_steps(StepStarted, StepDone, StepFailed)}
        failed = {id(step) for step in self.list_steps(StepFailed)}
        return Counter(
            (str(step.op), "" if id(step) in failed else str(step.result_op or ""), step.urn)
            for step in steps.values()
            if not is_provider(step.state.type)
        )

    @property
    def has_skipped_read(self) -> bool:
        """Return whether a read was skipped, as one of a resource that is not created."""
        urns = self.program.declarations_by_urn
        return any(
            step.op is Op.SAME and step.urn in urns and urns[step.urn].kind == "read"
            for step in self.list_steps(StepStarted)
        )

    @property
    def deleted_ids(self) -> set[str]:
        """Return the ids that the platform was asked to delete."""
        return {call.id for call in self.calls if call.verb == "delete"}

    @property
    def errors(self) -> list[str]:
        return [
            e.message for e in self.events if isinstance(e, Diagnostic) and e.severity == "error"
        ]


def list_machines(snapshot: Snapshot) -> list[ResourceState]:
    """Return the entries of objects that the stack manages, pending deletion or not."""
    return [
        entry
        for entry in snapshot.resources
        if entry.type == TYPE and not entry.external and not entry.pending_replacement
    ]


@dataclass
class OwnedObjects:
    """The objects that the stack manages: created or imported, not deleted or forgotten."""

    platform: MemoryPlatform
    owned_ids: set[str] = field(default_factory=set)
    lost_ids: set[str] = field(default_factory=set)
    """Ids of objects that were removed outside of the stack, which the state cannot know."""

    def remove_outside(self, id_: str) -> None:
        """Remove an object outside of the stack."""
        del self.platform.objects[id_]
        self.lost_ids.add(id_)

    def check(self, observed: ObservedRun) -> None:
        """Check that each object has one entry, each entry an object, and no other was touched."""
        entry_ids = [entry.id for entry in list_machines(observed.after)]
        duplicate_ids = [id_ for id_, count in Counter(entry_ids).items() if count > 1]
        assert not duplicate_ids, f"kept twice: {duplicate_ids}"
        missing_ids = set(entry_ids) - self.platform.objects.keys() - self.lost_ids
        assert not missing_ids, f"in the state, and not on the platform: {missing_ids}"
        creates = [call for call in observed.calls if call.verb == "made"]
        assert max(Counter(call.urn for call in creates).values(), default=1) == 1, creates
        self.owned_ids |= {call.id for call in creates}
        declared = {d.options.get("import_", "").strip("'") for d in observed.program.declared}
        foreign = {c.id for c in observed.calls if c.verb in ("update", "delete")}
        foreign -= self.owned_ids | self.lost_ids | declared
        assert not foreign, f"not the stack's, and touched: {foreign}"
        self.owned_ids |= set(entry_ids)
        self.owned_ids &= self.platform.objects.keys()
        self.owned_ids -= _find_forgotten_ids(observed)
        lost = self.owned_ids - set(entry_ids)
        assert not lost, f"on the platform, and not in the state: {lost}"


_DELETING = (
    Op.DELETE,
    Op.DELETE_REPLACED,
    Op.DISCARD,
    Op.DISCARD_REPLACED,
    Op.REMOVE_PENDING_REPLACE,
)


def _find_forgotten_ids(observed: ObservedRun) -> set[str]:
    """Return the ids that the state may forget: retained, now only read, or deleted with another.

    A resource with `deleted_with` is forgotten before that other one is deleted, as under Pulumi.
    """
    entry_ids = {entry.id for entry in list_machines(observed.after)}
    read = {entry.id for entry in observed.after.resources if entry.external}
    deleted_urns = {
        (step.old or step.state).urn for step in observed.all_steps if step.op in _DELETING
    }
    deleted_urns |= {entry.urn for entry in observed.before.resources if entry.pending_replacement}
    return {
        entry.id
        for entry in list_machines(observed.before)
        if entry.id not in entry_ids
        and (entry.retain_on_delete or entry.id in read or entry.deleted_with in deleted_urns)
    }


def check_entries_leave_by_steps(observed: ObservedRun) -> None:
    """Check that no entry leaves the state without a step, and that pending deletions stay."""
    steps = [step for step in observed.list_steps(StepStarted, StepDone) if step.op is not Op.SAME]
    handled_ids = {step.old.id for step in steps if step.old is not None}
    after = {entry.id: entry for entry in observed.after.resources if not entry.external}
    for entry in observed.before.resources:
        if entry.type != TYPE or entry.external or entry.id in handled_ids:
            continue
        entry_after = after.get(entry.id)
        assert entry_after is not None, f"gone without a step: {entry.urn} {entry.id}"
        marks = (entry_after.delete, entry_after.pending_replacement)
        assert marks == (entry.delete, entry.pending_replacement), f"{entry.urn} {entry.id}"


def check_protection(observed: ObservedRun) -> None:
    """Check that no protected or retained object was deleted."""
    urns = observed.program.declarations_by_urn
    for entry in list_machines(observed.before):
        if entry.id not in observed.deleted_ids:
            continue
        assert not entry.retain_on_delete, f"retained, and deleted: {entry.urn} {entry.id}"
        if not entry.protect or entry.delete:
            continue
        declared = urns.get(entry.urn)
        renamed = any("aliases" in declaration.options for declaration in urns.values())
        freed = declared is not None and not observed.program.has_inherited_option(
            "protect", declared
        )
        assert observed.run.operation == "update", f"protected, and deleted: {entry.urn}"
        assert freed or (renamed and declared is None), f"protected, and deleted: {entry.urn}"


def check_selection(observed: ObservedRun) -> None:
    """Check that resources outside of the selection stayed unchanged."""
    selection = observed.run.selection
    if not selection.is_limited:
        return
    new_states = [step.new for step in observed.all_steps if step.new is not None]
    states = [*observed.before.resources, *observed.after.resources, *new_states]
    urns = {entry.urn for entry in states} | observed.program.declarations_by_urn.keys()
    if selection.targets:
        named = {urn for urn in urns if urn in selection.targets}
        reached = add_old_urns(observed, graph.add_dependents(states, named))
        direct = reached if selection.target_dependents else add_old_urns(observed, named)
    else:
        excluded = {urn for urn in urns if urn in selection.excludes}
        direct = reached = urns - excluded
        # What falls with a resource that is not excluded is replaced.
        reached = add_old_urns(observed, graph.add_dependents(states, reached))
    replaced = {step.urn for step in observed.list_steps(StepStarted) if step.op is Op.REPLACE}
    for call in observed.calls:
        if call.verb in MUTATING:
            assert call.urn in reached, f"not among the targets: {call}"
        if call.verb in ("create", "update") and call.urn not in replaced:
            assert call.urn in direct, f"not among the targets: {call}"
    if observed.run.operation == "update" and not observed.run.options.get("refresh"):
        check_unselected_entries(observed, reached)


def add_old_urns(observed: ObservedRun, urns: set[str]) -> set[str]:
    old_urns = {
        step.old.urn for step in observed.all_steps if step.old is not None and step.urn in urns
    }
    return urns | old_urns


def check_unselected_entries(observed: ObservedRun, reached: set[str]) -> None:
    after = {(entry.urn, entry.id): entry for entry in observed.after.resources}
    # What belongs to somebody else is read in any case.
    reached = reached | {
        urn
        for urn, declaration in observed.program.declarations_by_urn.items()
        if declaration.kind == "read"
    }
    for entry in observed.before.resources:
        if entry.type != TYPE or entry.external or entry.urn in reached:
            continue
        entry_after = after.get((entry.urn, entry.id))
        assert entry_after is not None, f"not among the targets, and gone: {entry.urn} {entry.id}"
        assert (entry_after.inputs, entry_after.outputs) == (entry.inputs, entry.outputs), (
            entry_after.urn
        )


def check_preview(observed: ObservedRun) -> None:
    """Check that a preview called no provider method that changes something."""
    verbs = {call.verb for call in observed.calls}
    assert verbs <= {"check", "diff", "read"}, verbs


_MILDER = {
    str(Op.UPDATE): (Op.REPLACE,),
    str(Op.SAME): (Op.UPDATE, Op.REPLACE, Op.READ),
}


def check_plan(plan: ObservedRun, observed: ObservedRun, *, exact: bool) -> None:
    """Check that a run did what its preview planned, and no more.

    What the preview could not know may come out milder: an update or nothing for a replacement.
    """
    planned, done = plan.operations, observed.operations
    for urn in _find_released_urns(plan):
        for operations in (planned, done):
            for operation in [
                operation_key for operation_key in operations if operation_key[2] == urn
            ]:
                del operations[operation]
    if exact:
        assert done == planned, f"done, not planned: {done - planned}; not done: {planned - done}"
        return
    for (op, result, urn), count in done.items():
        allowed = planned[op, result, urn] if result or op != Op.REFRESH else count
        allowed += sum(planned[str(other), "", urn] for other in _MILDER.get(op, ()))
        assert count <= allowed, f"done, and not planned: {op} {result} {urn}"


def _find_released_urns(plan: ObservedRun) -> set[str]:
    """Return the URNs of resources that no longer depend on what a replaced resource needed.

    They register before the replaced resource or after it; only then are they replaced with it.
    """
    steps = plan.list_steps(StepStarted)
    if not any(step.op is Op.REPLACE for step in steps):
        return set()
    before = [entry for entry in plan.before.resources if not entry.delete]
    after = [step.new for step in steps if step.new is not None]
    freed = {
        new.urn
        for new in after
        for old in before
        if old.urn == new.urn
        and not graph.add_dependencies(before, [old.urn])
        <= graph.add_dependencies(after, [new.urn])
    }
    return graph.add_dependents([*before, *after], freed) if freed else set()

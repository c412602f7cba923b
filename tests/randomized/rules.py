"""What must hold after every run, whatever was run on whatever state and whatever failed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from randomized.operations import Run
from randomized.programs import Program
from randomized.world import MUTATING, TYPE, Called, World

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
"""What a step did: its operation, a refresh's result, and its URN."""


@dataclass(frozen=True)
class Seen:
    """One run: the state before and after it, what it called and what it told.

    `planned` are the steps of its preview, if there was one.
    """

    program: Program
    run: Run
    before: Snapshot
    after: Snapshot
    calls: Sequence[Called]
    events: Sequence[Event]
    succeeded: bool
    planned: Sequence[Step] = ()

    @property
    def meant(self) -> list[Step]:
        """What it did and what it was to do: it may have been stopped halfway."""
        return [*self.steps(StepStarted, StepDone, StepFailed), *self.planned]

    def steps(self, *kinds: type) -> list[Step]:
        return [e.step for e in self.events if isinstance(e, kinds)]

    @property
    def operations(self) -> Counter[Operation]:
        """What was done or tried, each step once; the engine's own entries are not counted."""
        steps = {id(s): s for s in self.steps(StepStarted, StepDone, StepFailed)}
        failed = {id(step) for step in self.steps(StepFailed)}
        return Counter(
            (str(step.op), "" if id(step) in failed else str(step.result_op or ""), step.urn)
            for step in steps.values()
            if not is_provider(step.state.type)
        )

    @property
    def left_unread(self) -> bool:
        """Whether a read came to nothing, as one does whose id is that of what is not created."""
        urns = self.program.urns
        return any(
            step.op is Op.SAME and step.urn in urns and urns[step.urn].kind == "read"
            for step in self.steps(StepStarted)
        )

    @property
    def deleted(self) -> set[str]:
        """The ids that the platform was asked to delete."""
        return {call.id for call in self.calls if call.verb == "delete"}

    @property
    def errors(self) -> list[str]:
        return [
            e.message for e in self.events if isinstance(e, Diagnostic) and e.severity == "error"
        ]


def machines(snapshot: Snapshot) -> list[ResourceState]:
    """The entries that stand for objects of the stack's own, waiting for deletion or not."""
    return [
        entry
        for entry in snapshot.resources
        if entry.type == TYPE and not entry.external and not entry.pending_replacement
    ]


@dataclass
class Books:
    """The objects that the stack answers for: made or imported, neither gone nor given up."""

    world: World
    ours: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    """Objects that somebody else removed, and of which the state cannot know."""

    def lose(self, id_: str) -> None:
        """Somebody else removes an object."""
        del self.world.objects[id_]
        self.lost.add(id_)

    def check(self, seen: Seen) -> None:
        """Every object of the stack is an entry, once; every entry an object; no other touched."""
        held = [entry.id for entry in machines(seen.after)]
        twice = [id_ for id_, count in Counter(held).items() if count > 1]
        assert not twice, f"kept twice: {twice}"
        imagined = set(held) - self.world.objects.keys() - self.lost
        assert not imagined, f"in the state, and not on the platform: {imagined}"
        made = [call for call in seen.calls if call.verb == "made"]
        assert max(Counter(call.urn for call in made).values(), default=1) == 1, made
        self.ours |= {call.id for call in made}
        declared = {d.options.get("import_", "").strip("'") for d in seen.program.declared}
        foreign = {c.id for c in seen.calls if c.verb in ("update", "delete")}
        foreign -= self.ours | self.lost | declared
        assert not foreign, f"not the stack's, and touched: {foreign}"
        self.ours |= set(held)
        self.ours &= self.world.objects.keys()
        self.ours -= _given_up(seen)
        lost = self.ours - set(held)
        assert not lost, f"on the platform, and not in the state: {lost}"


_GOING = (Op.DELETE, Op.DELETE_REPLACED, Op.DISCARD, Op.DISCARD_REPLACED, Op.REMOVE_PENDING_REPLACE)


def _given_up(seen: Seen) -> set[str]:
    """The ids of objects that the state may forget: retained, now only read, or gone with another.

    What has `deleted_with` is forgotten before that other one is deleted, as under Pulumi.
    """
    held = {entry.id for entry in machines(seen.after)}
    read = {entry.id for entry in seen.after.resources if entry.external}
    going = {(step.old or step.state).urn for step in seen.meant if step.op in _GOING}
    going |= {entry.urn for entry in seen.before.resources if entry.pending_replacement}
    return {
        entry.id
        for entry in machines(seen.before)
        if entry.id not in held
        and (entry.retain_on_delete or entry.id in read or entry.deleted_with in going)
    }


def check_accounted(seen: Seen) -> None:
    """Nothing leaves the state without a step, and what waits for its deletion goes on waiting."""
    steps = [step for step in seen.steps(StepStarted, StepDone) if step.op is not Op.SAME]
    dealt = {step.old.id for step in steps if step.old is not None}
    after = {entry.id: entry for entry in seen.after.resources if not entry.external}
    for entry in seen.before.resources:
        if entry.type != TYPE or entry.external or entry.id in dealt:
            continue
        kept = after.get(entry.id)
        assert kept is not None, f"gone without a step: {entry.urn} {entry.id}"
        marks = (kept.delete, kept.pending_replacement)
        assert marks == (entry.delete, entry.pending_replacement), f"{entry.urn} {entry.id}"


def check_guarded(seen: Seen) -> None:
    """What is protected or retained is never deleted."""
    urns = seen.program.urns
    for entry in machines(seen.before):
        if entry.id not in seen.deleted:
            continue
        assert not entry.retain_on_delete, f"retained, and deleted: {entry.urn} {entry.id}"
        if not entry.protect or entry.delete:
            continue
        declared = urns.get(entry.urn)
        renamed = any("aliases" in each.options for each in urns.values())
        freed = declared is not None and not seen.program.inherited("protect", declared)
        assert seen.run.operation == "update", f"protected, and deleted: {entry.urn}"
        assert freed or (renamed and declared is None), f"protected, and deleted: {entry.urn}"


def check_selection(seen: Seen) -> None:
    """What a run was not to touch is as it was."""
    selection = seen.run.selection
    if not selection.is_limited:
        return
    meant = [step.new for step in seen.meant if step.new is not None]
    both = [*seen.before.resources, *seen.after.resources, *meant]
    urns = {entry.urn for entry in both} | seen.program.urns.keys()
    if selection.targets:
        named = {urn for urn in urns if urn in selection.targets}
        reached = _with_old_names(seen, graph.add_dependents(both, named))
        direct = reached if selection.target_dependents else _with_old_names(seen, named)
    else:
        kept = {urn for urn in urns if urn in selection.excludes}
        direct = reached = urns - kept
        # What falls with a resource that is not excluded is replaced.
        reached = _with_old_names(seen, graph.add_dependents(both, reached))
    replaced = {step.urn for step in seen.steps(StepStarted) if step.op is Op.REPLACE}
    for call in seen.calls:
        if call.verb in MUTATING:
            assert call.urn in reached, f"not among the targets: {call}"
        if call.verb in ("create", "update") and call.urn not in replaced:
            assert call.urn in direct, f"not among the targets: {call}"
    if seen.run.operation == "update" and not seen.run.options.get("refresh"):
        _check_kept(seen, reached)


def _with_old_names(seen: Seen, urns: set[str]) -> set[str]:
    found = {step.old.urn for step in seen.meant if step.old is not None and step.urn in urns}
    return urns | found


def _check_kept(seen: Seen, reached: set[str]) -> None:
    after = {(entry.urn, entry.id): entry for entry in seen.after.resources}
    # What belongs to somebody else is read in any case.
    reached = reached | {urn for urn, each in seen.program.urns.items() if each.kind == "read"}
    for entry in seen.before.resources:
        if entry.type != TYPE or entry.external or entry.urn in reached:
            continue
        kept = after.get((entry.urn, entry.id))
        assert kept is not None, f"not among the targets, and gone: {entry.urn} {entry.id}"
        assert (kept.inputs, kept.outputs) == (entry.inputs, entry.outputs), kept.urn


def check_preview(seen: Seen) -> None:
    """A preview asks, and changes nothing."""
    verbs = {call.verb for call in seen.calls}
    assert verbs <= {"check", "diff", "read"}, verbs


_MILDER = {
    str(Op.UPDATE): (Op.REPLACE,),
    str(Op.SAME): (Op.UPDATE, Op.REPLACE, Op.READ),
}


def check_plan(plan: Seen, seen: Seen, *, exact: bool) -> None:
    """A run does what its preview said, and no more.

    What the preview could not know may come out milder: an update or nothing for a replacement.
    """
    planned, done = plan.operations, seen.operations
    for urn in _let_go(plan):
        for operations in (planned, done):
            for operation in [each for each in operations if each[2] == urn]:
                del operations[operation]
    if exact:
        assert done == planned, f"done, not planned: {done - planned}; not done: {planned - done}"
        return
    for (op, result, urn), count in done.items():
        allowed = planned[op, result, urn] if result or op != Op.REFRESH else count
        allowed += sum(planned[str(other), "", urn] for other in _MILDER.get(op, ()))
        assert count <= allowed, f"done, and not planned: {op} {result} {urn}"


def _let_go(plan: Seen) -> set[str]:
    """The URNs of resources that do not need any more what a replaced one was needed for.

    They register before it or after, in any order; only then do they fall with it.
    """
    steps = plan.steps(StepStarted)
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

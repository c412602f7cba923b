"""Decides what to do about each registration: Pulumi's step rules.

The generator is serial: the monitor calls it under one lock, as Pulumi's does. It asks providers to
check and to compare, never to change anything.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuform.schemas.plan import ResourceChange
from gpuform.stacks.engine import graph, importing, property_paths, resource_diff
from gpuform.stacks.engine.aliases import Named, alias_urns
from gpuform.stacks.engine.cascade import Cascade
from gpuform.stacks.engine.checking import checked
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.events import Diagnostic, EventBus
from gpuform.stacks.engine.input_diff import changed_keys
from gpuform.stacks.engine.presentation import describe
from gpuform.stacks.engine.provider_host import Diff, ProviderHost
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.steps import Op, Step
from gpuform.stacks.engine.targeting import Chosen, Selection
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.engine.values import PropertyMap

Tell = Callable[[str, EngineError], None]
UNPROTECT = "remove `protect` from its options first, in an `up` of its own"


@dataclass(slots=True)
class StepGenerator:
    """Turns registrations into steps, over the state that the last run left.

    `base` is that state in its order. `seen` holds the registrations and reads of this run by URN,
    `doomed` the old entries whose replacement is created first. Problems of a preview that do not
    keep the others from being planned go to `tell`.
    """

    stack: str
    project: str
    base: Sequence[ResourceState]
    host: ProviderHost
    preview: bool
    events: EventBus
    tell: Tell
    selection: Selection = field(default_factory=Selection)
    seen: dict[str, Registration | Read] = field(default_factory=dict)
    doomed: list[ResourceState] = field(default_factory=list)
    _olds: dict[str, ResourceState] = field(default_factory=dict)
    _recreating: dict[str, Sequence[str]] = field(default_factory=dict)
    _replaced: set[str] = field(default_factory=set)
    _renamed: dict[str, str] = field(default_factory=dict)
    _used_aliases: dict[str, str] = field(default_factory=dict)
    _skipped: set[str] = field(default_factory=set)
    _stepped: set[str] = field(default_factory=set)
    _cascade: Cascade = field(init=False)
    _chosen: Chosen = field(init=False)

    def __post_init__(self) -> None:
        self._olds = {r.urn: r for r in self.base if not r.delete}
        self._cascade = Cascade(self.base, self.host)
        self._chosen = Chosen(self.selection)

    def generate(self, registration: Registration, provider: str) -> list[Step]:
        """The steps of one registration, to be done in this order.

        `provider` is the reference of the provider resource, empty for components.
        Raises CheckFailed, or EngineError when the resource cannot be planned.
        """
        self._note(registration)
        old = self._old(registration)
        goal = self._goal(registration, provider)
        targeted = goal.type == STACK_TYPE or self._chosen.includes(goal)
        if not targeted and not (old and old.urn in self._recreating):
            steps = self._untargeted(registration, old, goal)
        elif importing.is_wanted(registration, old):
            steps = importing.steps(self.host, registration, old, goal)
        else:
            steps = self._steps(
                registration if targeted else _as_before(registration, old), old, goal
            )
        self._refuse_missing_needs(steps)
        self._stepped.add(registration.urn)
        return steps

    def generate_read(self, read: Read, provider: str) -> list[Step]:
        """The steps of one read: what is read belongs to somebody else.

        An object of the stack that the program only reads from now on is given up, not deleted;
        one of another id is replaced.
        """
        self._note(read)
        self._stepped.add(read.urn)
        old = self._olds.get(read.urn)
        new = ResourceState(
            urn=read.urn,
            custom=True,
            type=read.type,
            id=read.id,
            inputs=read.inputs,
            parent=read.parent,
            external=True,
            dependencies=list(read.dependencies),
            provider=provider,
            additional_secret_outputs=list(read.additional_secret_outputs),
            source_position=read.source_position,
            stack_trace=list(read.stack_trace),
        )
        if old is None or old.external or old.id == read.id:
            change = describe(self.host, Op.READ, old, new)
            return [Step(Op.READ, new.urn, old, new, change=change)]
        self._replaced.add(new.urn)
        self.doomed.append(old)
        change = describe(self.host, Op.REPLACE, old, new)
        return [
            Step(Op.READ_REPLACEMENT, new.urn, old, new),
            Step(Op.REPLACE, new.urn, old, new, change=change),
        ]

    def fallen_with(self, urn: str) -> list[str]:
        """The URNs that a deletion of this one takes along, as the providers say."""
        root = self._olds.get(urn)
        if root is None:
            return []
        return [each.resource.urn for each in self._cascade.of(root, self._stepped)]

    @property
    def kept(self) -> set[str]:
        """The URNs that no delete phase may delete: what the program has, and what that needs."""
        return {*self.seen, *self._renamed, *self._stepped}

    def leftovers(self) -> list[ResourceState]:
        """The old entries, marked as the steps would leave those that they replace."""
        doomed = set(map(id, self.doomed))
        return [
            replace(
                entry,
                delete=entry.delete or id(entry) in doomed,
                pending_replacement=entry.pending_replacement or entry.urn in self._recreating,
            )
            for entry in self.base
        ]

    @property
    def renamed(self) -> Mapping[str, str]:
        """Old URN -> new URN of the entries that were found by an alias."""
        return self._renamed

    def _note(self, registration: Registration | Read) -> None:
        first = self.seen.get(registration.urn)
        if first is not None:
            raise EngineError(
                f"two resources have the URN {registration.urn}: one from {first.place}, one from "
                f"{registration.place}",
                hint="give one of them another name",
            )
        self.seen[registration.urn] = registration

    def _old(self, registration: Registration) -> ResourceState | None:
        taker = self._renamed.get(registration.urn)
        if taker is not None:
            raise EngineError(
                f"{registration.urn} is declared at {registration.place}, and {taker} already "
                "has it as an alias",
                hint="remove the alias, or give the new resource another name",
            )
        named = Named(
            self.stack, self.project, registration.parent, registration.type, registration.name
        )
        for urn in (registration.urn, *alias_urns(named, registration.aliases, self._used_aliases)):
            if urn in self._olds:
                if urn != registration.urn:
                    self._rename(urn, registration)
                return self._olds[urn]
        return None

    def _rename(self, alias: str, registration: Registration) -> None:
        taker = alias if alias in self.seen else self._renamed.get(alias)
        if taker is not None:
            raise EngineError(
                f"{registration.urn} has the alias {alias}, which {taker} in this program stands "
                "for already",
                hint="remove the alias, or that other resource",
            )
        self._renamed[alias] = registration.urn
        self._used_aliases[registration.urn] = alias

    def _goal(self, registration: Registration, provider: str) -> ResourceState:
        inherited = self._inheriting(registration)
        return ResourceState(
            urn=inherited.urn,
            custom=inherited.custom,
            type=inherited.type,
            inputs=inherited.inputs,
            outputs={},
            parent=inherited.parent,
            protect=bool(inherited.protect),
            retain_on_delete=bool(inherited.retain_on_delete),
            dependencies=list(inherited.dependencies),
            property_dependencies={
                key: list(urns) for key, urns in (inherited.property_dependencies or {}).items()
            },
            provider=provider,
            additional_secret_outputs=list(inherited.additional_secret_outputs),
            custom_timeouts=dict(inherited.custom_timeouts or {}),
            ignore_changes=list(inherited.ignore_changes),
            replace_on_changes=list(inherited.replace_on_changes),
            hide_diff=list(inherited.hide_diff),
            source_position=inherited.source_position,
            stack_trace=list(inherited.stack_trace),
            deleted_with=inherited.deleted_with,
            replace_with=list(inherited.replace_with),
            replacement_trigger=inherited.replacement_trigger,
        )

    def _inheriting(self, registration: Registration) -> Registration:
        """The registration with what it leaves to its parent; its children ask it in turn."""
        parent = self.seen.get(registration.parent)
        if not isinstance(parent, Registration):
            return registration
        protect, retain = registration.protect, registration.retain_on_delete
        inherited = replace(
            registration,
            protect=parent.protect if protect is None else protect,
            retain_on_delete=parent.retain_on_delete if retain is None else retain,
            deleted_with=registration.deleted_with or parent.deleted_with,
        )
        self.seen[registration.urn] = inherited
        return inherited

    def _steps(
        self, registration: Registration, old: ResourceState | None, goal: ResourceState
    ) -> list[Step]:
        keys = self._recreating.get(old.urn) if old else None
        is_named = goal.urn in self.selection.replace
        goal.inputs = self._inputs(registration, old, fresh=is_named or keys is not None)
        if old is None:
            return [Step(Op.CREATE, goal.urn, None, goal, change=self._described(Op.CREATE, goal))]
        if keys is not None:
            return self._replacement(old, goal, resource_diff.fallen(keys), deleted=True)
        if old.external:
            return self._replacement(old, goal, None)
        diff = resource_diff.requested() if is_named else self._diff(old, goal)
        if old.pending_replacement or (diff.changes and diff.replaces):
            if not is_named:
                # The second check is for the new object, which has no old inputs.
                goal.inputs = self._inputs(registration, old, fresh=True)
            return self._replace(registration, old, goal, diff)
        op = Op.UPDATE if diff.changes or old.init_errors else Op.SAME
        if not goal.custom:
            return [Step(op, goal.urn, old, goal, diffs=changed_keys(old.inputs, goal.inputs))]
        change = self._described(op, goal, old, diff)
        diffs = _changed(diff, old, goal) if op is Op.UPDATE else ()
        return [Step(op, goal.urn, old, goal, diffs=diffs, change=change)]

    def _inputs(
        self, registration: Registration, old: ResourceState | None, *, fresh: bool
    ) -> PropertyMap:
        """The inputs to use: checked, for an object without a past when it is `fresh`."""
        given = registration.inputs
        if old is not None and not fresh and registration.ignore_changes:
            given, lost = property_paths.ignoring(old.inputs, given, registration.ignore_changes)
            for path in lost:
                text = f"ignore_changes: {path} is ignored nowhere, a part of it is missing"
                self.events.emit(Diagnostic("info", text, registration.urn))
        if not registration.custom:
            return given
        olds = {} if fresh or old is None or old.external else old.inputs
        return checked(self.host, registration, olds, given)

    def _untargeted(
        self, registration: Registration, old: ResourceState | None, goal: ResourceState
    ) -> list[Step]:
        if old is None:
            self._skipped.add(goal.urn)
            return [Step(Op.SAME, goal.urn, None, goal, skipped=True)]
        if old.urn != goal.urn:
            # It keeps the name that it has in the state, until it is touched.
            del self._renamed[old.urn]
            self.seen[old.urn] = registration
        return list(self._as_they_are(old))

    def _as_they_are(self, old: ResourceState) -> list[Step]:
        """Steps that keep an entry, after those that keep what it needs: that may not be declared
        any more, and has to come before it in the state."""
        self._stepped.add(old.urn)
        steps: list[Step] = []
        for urn in sorted(graph.needs(old, provider=False) - self._stepped):
            if urn in self._olds:
                steps += self._as_they_are(self._olds[urn])
        return [*steps, Step(Op.SAME, old.urn, old, replace(old, id="", outputs={}))]

    def _refuse_missing_needs(self, steps: Sequence[Step]) -> None:
        """What is created now may not need what is not created because it is no target."""
        for step in steps:
            if step.new is None or step.skipped:
                continue
            for urn in sorted(graph.needs(step.new) & self._skipped):
                error = EngineError(
                    f"{step.urn} depends on {urn}, which does not exist yet and is not among the "
                    "targets",
                    hint=f"add it: --target '{urn}'",
                )
                if not self.preview:
                    raise error
                self.tell(step.urn, error)
                self._skipped.discard(urn)

    def _diff(self, old: ResourceState, goal: ResourceState) -> Diff:
        if not self.preview:
            resource_diff.refuse_unknown_trigger(goal)
        found = resource_diff.forced(old, goal, self._replaced)
        return found or resource_diff.compare(self.host, old, goal)

    def _replace(
        self, registration: Registration, old: ResourceState, goal: ResourceState, diff: Diff
    ) -> list[Step]:
        self._refuse_replacement(registration, old, goal, diff)
        first = registration.delete_before_replace
        delete_first = diff.delete_before_replace if first is None else first
        steps = self._falling(old) if delete_first and not old.pending_replacement else []
        return steps + self._replacement(
            old, goal, diff, delete_first=delete_first, deleted=old.pending_replacement
        )

    def _refuse_replacement(
        self, registration: Registration, old: ResourceState, goal: ResourceState, diff: Diff
    ) -> None:
        because = ", ".join(diff.replaces) or "a replacement begun earlier"
        if registration.import_id:
            raise EngineError(
                f"{goal.urn}: {because} would replace the object that import_ names",
                hint="remove import_ if it is to be replaced",
            )
        if old.protect and goal.protect and not old.pending_replacement:
            error = EngineError(
                f"{goal.urn} is protected, and this change replaces it (because of {because})",
                hint=UNPROTECT,
            )
            if not self.preview:
                raise error
            self.tell(goal.urn, error)

    def _replacement(
        self,
        old: ResourceState,
        goal: ResourceState,
        diff: Diff | None,
        *,
        delete_first: bool = False,
        deleted: bool = False,
    ) -> list[Step]:
        self._replaced.add(goal.urn)
        keys = list(diff.replaces) if diff else []
        diffs = _changed(diff, old, goal)
        change = self._described(Op.REPLACE, goal, old, diff)
        create = Step(Op.CREATE_REPLACEMENT, goal.urn, old, goal, keys, diffs)
        logical = Step(Op.REPLACE, goal.urn, old, goal, keys, diffs, change)
        if deleted:
            return [logical, create]
        if delete_first:
            return [_delete_replaced(old, keys), logical, create]
        self.doomed.append(old)
        return [create, logical]

    def _falling(self, root: ResourceState) -> list[Step]:
        """Deletions of the dependents that cannot outlive `root`, the farthest first."""
        fallen = self._cascade.of(root, {*self._stepped, *self._recreating})
        protected = [each.resource.urn for each in fallen if each.resource.protect]
        if protected:
            raise EngineError(
                f"replacing {root.urn} needs the deletion of protected resources: "
                + ", ".join(protected),
                hint=UNPROTECT,
            )
        self._recreating.update({each.resource.urn: each.keys for each in fallen})
        falling = {root.urn, *(each.resource.urn for each in fallen)}
        return [
            _delete_replaced(each.resource, gone=each.resource.deleted_with in falling)
            for each in reversed(fallen)
        ]

    def _described(
        self,
        op: Op,
        goal: ResourceState,
        old: ResourceState | None = None,
        diff: Diff | None = None,
    ) -> ResourceChange | None:
        return describe(self.host, op, old, goal, diff) if goal.custom else None


def _as_before(registration: Registration, old: ResourceState | None) -> Registration:
    """An untargeted resource that falls with a target comes back as it was."""
    return replace(registration, inputs=old.inputs) if old else registration


def _delete_replaced(old: ResourceState, keys: Sequence[str] = (), *, gone: bool = False) -> Step:
    return Step(Op.DELETE_REPLACED, old.urn, old, None, keys, retain=old.retain_on_delete or gone)


def _changed(diff: Diff | None, old: ResourceState, goal: ResourceState) -> list[str]:
    if diff is not None and diff.fields is not None:
        return property_paths.top_level(change.path for change in diff.fields)
    return changed_keys(old.inputs, goal.inputs)

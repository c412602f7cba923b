"""Decides what to do about each registration: Pulumi's step rules.

The generator is serial: the monitor calls it under one lock, as Pulumi's does. It asks providers to
check and to compare, never to change anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuform.stacks.engine import graph, importing, input_diff
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.presentation import describe
from gpuform.stacks.engine.provider_host import Diff, Failure, ProviderHost
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.steps import Op, Step
from gpuform.stacks.engine.values import UNKNOWN, PropertyMap, unwrap_secrets


class CheckFailed(EngineError):
    """A resource's inputs were refused; one message for each property."""

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("\n".join(messages))
        self.messages = tuple(messages)


@dataclass(slots=True)
class StepGenerator:
    """Turns registrations into steps, over the state that the last run left.

    `base` is that state in its order. `seen` holds the registrations of this run by URN, `doomed`
    the old entries whose replacement is created first.
    """

    base: Sequence[ResourceState]
    host: ProviderHost
    seen: dict[str, Registration] = field(default_factory=dict)
    doomed: list[ResourceState] = field(default_factory=list)
    _olds: dict[str, ResourceState] = field(default_factory=dict)
    _recreating: set[str] = field(default_factory=set)
    _renamed: dict[str, str] = field(default_factory=dict)
    _users: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._olds = {r.urn: r for r in self.base if not r.delete}

    def generate(self, registration: Registration, provider: str) -> list[Step]:
        """The steps of one registration, to be done in this order.

        `provider` is the reference of the provider resource, empty for components.
        Raises CheckFailed, or EngineError when the resource cannot be planned.
        """
        self._note(registration)
        old = self._old(registration)
        goal = self._goal(registration, provider)
        if old and registration.ignore_changes:
            goal.inputs = input_diff.ignoring(old.inputs, goal.inputs, registration.ignore_changes)
        if not registration.custom:
            return [self._component(old, goal)]
        return self._custom(registration, old, goal)

    def _note(self, registration: Registration) -> None:
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
        for urn in (registration.urn, *registration.aliases):
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

    def _goal(self, registration: Registration, provider: str) -> ResourceState:
        parent = self.seen.get(registration.parent)
        protect = registration.protect
        retain = registration.retain_on_delete
        if parent is not None:
            protect = parent.protect if protect is None else protect
            retain = parent.retain_on_delete if retain is None else retain
        if (protect, retain) != (registration.protect, registration.retain_on_delete):
            self.seen[registration.urn] = replace(
                registration, protect=protect, retain_on_delete=retain
            )
        return ResourceState(
            urn=registration.urn,
            custom=registration.custom,
            type=registration.type,
            inputs=registration.inputs,
            outputs={},
            parent=registration.parent,
            protect=bool(protect),
            retain_on_delete=bool(retain),
            dependencies=list(registration.dependencies),
            property_dependencies={
                key: list(urns) for key, urns in (registration.property_dependencies or {}).items()
            },
            provider=provider,
            additional_secret_outputs=list(registration.additional_secret_outputs),
            custom_timeouts=dict(registration.custom_timeouts or {}),
            ignore_changes=list(registration.ignore_changes),
            replace_on_changes=list(registration.replace_on_changes),
            hide_diff=list(registration.hide_diff),
            source_position=registration.source_position,
            stack_trace=list(registration.stack_trace),
        )

    def _component(self, old: ResourceState | None, goal: ResourceState) -> Step:
        if old is None:
            return Step(Op.CREATE, goal.urn, None, goal)
        diffs = input_diff.changed_keys(old.inputs, goal.inputs)
        op = Op.UPDATE if diffs else Op.SAME
        return Step(op, goal.urn, old, goal, diffs=diffs)

    def _custom(
        self, registration: Registration, old: ResourceState | None, goal: ResourceState
    ) -> list[Step]:
        if importing.is_wanted(registration, old):
            goal.inputs = self._check(registration, {}, goal.inputs)
            return [importing.import_step(self.host, registration, goal)]
        recreating = old is not None and old.urn in self._recreating
        fresh = old is None or recreating or old.external
        given = goal.inputs
        olds: PropertyMap = {} if fresh or old is None else old.inputs
        goal.inputs = self._check(registration, olds, given)
        if old is None:
            return [
                Step(
                    Op.CREATE,
                    goal.urn,
                    None,
                    goal,
                    change=describe(self.host, Op.CREATE, None, goal),
                )
            ]
        if recreating:
            return self._replacement(old, goal, keys=(), delete_first=False, deleted=True)
        if old.external:
            return self._replacement(old, goal, keys=(), delete_first=False, deleted=False)
        diff = self._diff(old, goal, registration)
        if old.pending_replacement or (_differs(diff) and diff.replaces):
            # The second check is for the new object, which has no old inputs.
            goal.inputs = self._check(registration, {}, given)
            return self._replace(registration, old, goal, diff)
        if _differs(diff) or old.init_errors:
            change = describe(self.host, Op.UPDATE, old, goal, diff)
            diffs = _changed(diff, old, goal)
            return [Step(Op.UPDATE, goal.urn, old, goal, diffs=diffs, change=change)]
        change = describe(self.host, Op.SAME, old, goal, diff)
        return [Step(Op.SAME, goal.urn, old, goal, change=change)]

    def _check(
        self, registration: Registration, olds: PropertyMap, news: PropertyMap
    ) -> PropertyMap:
        inputs, failures = self.host.check(registration.urn, olds, news)
        if failures:
            raise CheckFailed([_failure_text(registration, news, f) for f in failures])
        return inputs

    def _diff(self, old: ResourceState, goal: ResourceState, registration: Registration) -> Diff:
        if old.pending_replacement:
            return Diff(changes=True, replaces=(), delete_before_replace=False)
        if old.taint:
            return Diff(changes=True, replaces=("id",), delete_before_replace=False)
        diff = self.host.diff(goal.urn, old.id, old.outputs, goal.inputs)
        if diff.changes is None:
            changed = input_diff.changed_keys(old.inputs, goal.inputs)
            forced = [key for key in changed if key in registration.replace_on_changes]
            replaces = [*diff.replaces, *forced]
            diff = replace(diff, changes=bool(changed), replaces=replaces)
        return diff

    def _replace(
        self, registration: Registration, old: ResourceState, goal: ResourceState, diff: Diff
    ) -> list[Step]:
        if old.protect and goal.protect and not old.pending_replacement:
            raise EngineError(
                f"{goal.urn} is protected, and this change replaces it "
                f"(because of {', '.join(diff.replaces) or 'a replacement begun earlier'})",
                hint="remove `protect` from its options first, in an `up` of its own",
            )
        first = registration.delete_before_replace
        delete_first = diff.delete_before_replace if first is None else first
        steps = self._cascade(old) if delete_first and not old.pending_replacement else []
        return steps + self._replacement(
            old, goal, diff.replaces, delete_first, old.pending_replacement, diff
        )

    def _replacement(
        self,
        old: ResourceState,
        goal: ResourceState,
        keys: Sequence[str],
        delete_first: bool,
        deleted: bool,
        diff: Diff | None = None,
    ) -> list[Step]:
        keys = list(keys)
        diffs = _changed(diff, old, goal)
        change = describe(self.host, Op.REPLACE, old, goal, diff)
        create = Step(Op.CREATE_REPLACEMENT, goal.urn, old, goal, keys, diffs)
        logical = Step(Op.REPLACE, goal.urn, old, goal, keys, diffs, change)
        if deleted:
            return [logical, create]
        if delete_first:
            return [self._delete_replaced(old, keys), logical, create]
        self.doomed.append(old)
        return [create, logical]

    def _delete_replaced(self, old: ResourceState, keys: Sequence[str] = ()) -> Step:
        return Step(Op.DELETE_REPLACED, old.urn, old, None, keys, retain=bool(old.retain_on_delete))

    def _cascade(self, root: ResourceState) -> list[Step]:
        """Deletions of the dependents that cannot outlive `root`, the farthest first."""
        doomed = {root.urn}
        found: list[ResourceState] = []
        if not self._users:
            self._users = graph.users(self.base)
        for dependent in graph.dependents(self.base, self._users, root.urn):
            if self._falls_with(dependent, doomed):
                doomed.add(dependent.urn)
                found.append(dependent)
        protected = [resource.urn for resource in found if resource.protect]
        if protected:
            raise EngineError(
                f"replacing {root.urn} needs the deletion of protected resources: "
                + ", ".join(protected),
                hint="remove `protect` from their options first, in an `up` of its own",
            )
        self._recreating.update(resource.urn for resource in found)
        return [self._delete_replaced(resource) for resource in reversed(found)]

    def _falls_with(self, dependent: ResourceState, doomed: set[str]) -> bool:
        if not dependent.custom or dependent.external or dependent.urn in self.seen:
            return False
        if dependent.deleted_with in doomed:
            return True
        touched = [
            key
            for key, urns in dependent.property_dependencies.items()
            if doomed.intersection(urns)
        ]
        if not touched:
            return False
        unknown_inputs: PropertyMap = {**(dependent.inputs), **dict.fromkeys(touched, UNKNOWN)}
        diff = self.host.diff(dependent.urn, dependent.id, dependent.outputs, unknown_inputs)
        return _differs(diff) and bool(diff.replaces)


def _differs(diff: Diff) -> bool:
    return bool(diff.changes)


def _changed(diff: Diff | None, old: ResourceState, goal: ResourceState) -> list[str]:
    if diff is not None and diff.fields is not None:
        return input_diff.top_level(change.path for change in diff.fields)
    return input_diff.changed_keys(old.inputs, goal.inputs)


def _failure_text(registration: Registration, news: PropertyMap, failure: Failure) -> str:
    root = input_diff.split_path(failure.property)[:1]
    value = news.get(root[0]) if root else None
    plain = unwrap_secrets(value)
    shown = ""
    if plain == value and isinstance(value, str | float | int | bool):
        shown = f" value {{{value:g}}}" if isinstance(value, float) else f" value {{{value}}}"
    return problem_text(registration, f"{failure.property}{shown}", failure.reason)


def problem_text(registration: Registration, subject: str, reason: str) -> str:
    """A refused property in Pulumi's words; `subject` is its path, and its value if it is shown."""
    return (
        f"{registration.type} resource '{registration.name}': property {subject} "
        f"has a problem: {reason}"
    )

"""Decides what to do about each registration: Pulumi's step rules.

The generator is serial: the monitor calls it under one lock, as Pulumi's does. It asks providers to
check and to compare, never to change anything.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gpuform.schemas.plan import ResourceChange
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.planning import importing
from gpuform.stacks.engine.planning import steps as goal_state
from gpuform.stacks.engine.planning import steps as resource_diff
from gpuform.stacks.engine.planning.constraints import check_inputs
from gpuform.stacks.engine.planning.dependent_replacements import DependentReplacements, OldEntries
from gpuform.stacks.engine.planning.events import Diagnostic, EventBus, describe
from gpuform.stacks.engine.planning.steps import Op, Step
from gpuform.stacks.engine.provider_host import Diff, ProviderHost
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import ResourceState, SelectedResources, Selection, graph
from gpuform.stacks.engine.store import OtherStacks
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider, name_of
from gpuform.stacks.engine.values import (
    UNKNOWN_TEXT,
    PropertyMap,
    find_changed_keys,
    property_paths,
)

Tell = Callable[[str, EngineError], None]
Holding = Literal["refresh", "destroy"]
UNPROTECT = "remove `protect` from its options first, in an `up` of its own"


@dataclass(slots=True)
class StepGenerator:
    """Turns registrations into steps, over the state that the last run left.

    `base` is that state in its order. Problems of a preview that do not keep the others from being
    planned go to `tell`. `others` are the other stacks of the backend. `holding` names an operation
    whose program is run for its components and providers alone: a refresh reads each other resource
    when it is declared, a destroy leaves it as it is, and neither makes any. `held` has what the
    program of a destroy says of these, by the `id()` of their old entries.
    """

    stack: str
    project: str
    base: Sequence[ResourceState]
    host: ProviderHost
    preview: bool
    events: EventBus
    tell: Tell
    selection: Selection = field(default_factory=Selection)
    others: OtherStacks | None = None
    deletes_first: Callable[[str, Mapping[str, Any]], bool] = lambda _type, _inputs: False
    holding: Holding | None = None
    held: dict[int, ResourceState] = field(default_factory=dict)
    _old: OldEntries = field(init=False)
    _dependents: DependentReplacements = field(init=False)
    chosen: SelectedResources = field(init=False)
    _owned: importing.Owned = field(init=False)
    _began: float = field(default_factory=time.monotonic)
    # id() of entries that are deleted after their replacement exists
    _replaced_first: set[int] = field(default_factory=set)
    # URN of a dependent that is deleted -> the properties that say why
    _dependent_keys: dict[str, Sequence[str]] = field(default_factory=dict)
    # id() of a dependent's entry -> its deletion
    _dependent_deletions: dict[int, Step] = field(default_factory=dict)
    _replaced: set[str] = field(default_factory=set)
    _goals: dict[str, ResourceState] = field(default_factory=dict)  # what this run has stepped
    _skipped: set[str] = field(default_factory=set)
    _stepped: set[str] = field(default_factory=set)
    _needed: set[str] = field(default_factory=set)  # by what is left as it is

    def __post_init__(self) -> None:
        self._old = OldEntries.among(self.stack, self.project, self.base)
        self._dependents = DependentReplacements(self.base, self.host)
        self.chosen = SelectedResources(self.selection)
        self._owned = importing.Owned(self.host, self.base, self.others, self.preview)

    def generate(self, registration: Registration, provider: str) -> list[Step]:
        """The steps of one registration, to be done in this order.

        `provider` is the reference of the provider resource, empty for components.
        Raises CheckFailed, or EngineError when the resource cannot be planned.
        """
        old = self._old.take(registration)
        registration = goal_state.inherit_options(
            registration, self._old.seen.get(registration.parent)
        )
        self._old.seen[registration.urn] = registration
        goal = goal_state.goal_of_registration(registration, provider)
        held = self._held(registration, old, goal) if self.holding else None
        if held is not None:
            self._stepped.add(registration.urn)
            return [held]
        always = goal.type == STACK_TYPE or is_provider(goal.type)
        targeted = always or self.chosen.includes(goal)
        if not targeted and not (old and old.urn in self._dependent_keys):
            steps = self._untargeted(registration, old, goal)
        else:
            self._refuse_circle(old, goal)
            as_before = registration if targeted else _as_before(registration, old)
            steps = self._steps(as_before, old, goal)
        self._goals[goal.urn] = steps[-1].state
        self._refuse_missing_needs(steps)
        self._stepped.add(registration.urn)
        read_first = [_refresh(old)] if self.holding == "refresh" and old and targeted else []
        return self._in_turn(old, [*read_first, *steps])

    def leave(self, registration: Registration) -> None:
        """Keep the entry of a resource that is skipped because something that it needs has failed.

        No provider is asked, as under the Pulumi CLI: the inputs lack what the failed resource
        would have given.
        """
        old = self._old.take(registration)
        registration = goal_state.inherit_options(
            registration, self._old.seen.get(registration.parent)
        )
        self._old.seen[registration.urn] = registration
        self._goals[registration.urn] = old or goal_state.goal_of_registration(registration, "")
        self._stepped.add(registration.urn)

    def _held(
        self, registration: Registration, old: ResourceState | None, goal: ResourceState
    ) -> Step | None:
        """The step of what the program of a refresh or destroy does not change; None of others."""
        is_made = not goal.custom or is_provider(goal.type)
        waits = bool(graph.find_dependency_urns(goal) & self._skipped)
        if is_made and not waits:
            return None
        if old is None or (waits and self.holding == "destroy"):
            self._skipped.add(goal.urn)
        if old is None:
            return Step(Op.SAME, goal.urn, None, goal, skipped=True)
        if waits or self.holding == "refresh":
            self._old.keep_name(old, registration)
            is_read = self.holding == "refresh" and self.chosen.includes(old)
            return _refresh(old) if is_read else unchanged(old)
        # Its deletion goes by the options that the program says, and by what is true of the object.
        goal.inputs, goal.external = old.inputs, old.external
        goal.pending_replacement = old.pending_replacement
        self.held[id(old)] = goal
        return Step(Op.SAME, goal.urn, old, goal)

    def generate_read(self, read: Read, provider: str) -> list[Step]:
        """The steps of one read: what is read belongs to somebody else.

        An object of the stack that the program only reads from now on is given up, not deleted;
        one of another id is replaced. What needs something that is not created is not read.
        """
        old = self._old.take(read)
        self._stepped.add(read.urn)
        new = goal_state.goal_of_read(read, provider)
        nameless = read.id == UNKNOWN_TEXT and not self.preview
        if nameless or graph.find_dependency_urns(new) & self._skipped or self._circle(old, new):
            return self._untargeted(read, old, new)
        self._goals[new.urn] = new
        if old is None or old.external or old.id == read.id:
            change = describe(self.host, Op.READ, old, new)
            return self._in_turn(old, [Step(Op.READ, new.urn, old, new, change=change)])
        self._replaced.add(new.urn)
        if not self._is_gone(old):
            self._replaced_first.add(id(old))
        change = describe(self.host, Op.REPLACE, old, new)
        read_first = Step(Op.READ_REPLACEMENT, new.urn, old, new)
        logical = Step(Op.REPLACE, new.urn, old, new, change=change)
        return self._in_turn(old, [read_first, logical])

    def _in_turn(self, old: ResourceState | None, steps: list[Step]) -> list[Step]:
        """The steps; the first one waits until the resource is deleted as a dependent, if it is."""
        steps[0].after = self._dependent_deletions.get(id(old))
        return steps

    @property
    def declared(self) -> set[str]:
        """The URNs that the program has, and the old ones of what it has under another."""
        return {*self._old.seen, *self._old.renamed}

    @property
    def kept(self) -> set[str]:
        """The URNs that no delete phase may delete: what the program has, and what that needs."""
        return self.declared | self._needed

    def compare_dependents(self, targets: Collection[str]) -> None:
        """Asks what would be replaced with the targets, as the Pulumi CLI does before deletions.

        A provider that cannot tell keeps them all.
        """
        entries = (entry for entry in self.base if entry.urn in targets)
        spared = {*self._stepped, *self._dependent_keys}
        for urn, error in self._dependents.compare(entries, spared):
            self.tell(urn, error)

    def leftovers(self) -> list[ResourceState]:
        """The old entries, marked as the steps would leave those that they replace."""
        return [
            replace(
                entry,
                delete=entry.delete or id(entry) in self._replaced_first,
                pending_replacement=entry.pending_replacement
                or id(entry) in self._dependent_deletions,
            )
            for entry in self.base
            if not (entry.delete and id(entry) in self._dependent_deletions)
        ]

    def _steps(
        self, registration: Registration, old: ResourceState | None, goal: ResourceState
    ) -> list[Step]:
        if importing.is_wanted(registration, old):
            self._owned.take(registration)
            began = self._began
            steps = importing.steps(self.host, registration, old, goal, as_of=began)
            self._owned.take_parts(steps[0].state)
            return steps
        recreated = goal.urn in self._dependent_keys
        asked = goal.urn in self.selection.replace or (old is not None and old.taint)
        fresh, provider = asked or recreated, goal.provider
        goal.inputs, compared = self._inputs(registration, old, provider, fresh=fresh)
        if old is None:
            return [Step(Op.CREATE, goal.urn, None, goal, change=self._describe(Op.CREATE, goal))]
        if recreated:
            self._replaced.add(goal.urn)
            diff = resource_diff.dependent_diff(self._dependent_keys[goal.urn])
            fields = self.host.field_changes(goal.urn, old.outputs, goal.inputs, goal.provider)
            return self._replacement(old, goal, replace(diff, fields=fields))
        if old.external:
            # The object stays where it is: nothing that goes with it has to be replaced.
            return self._replacement(old, goal, None, create_first=True)
        diff = self._diff(old, replace(goal, inputs=compared), asked=asked)
        if self._is_gone(old) or (diff.changes and diff.replaces):
            self._refuse_replacement(registration, old, goal, diff)
            if not asked:
                # The second check is for the new object, which has no old inputs.
                goal.inputs, _ = self._inputs(registration, old, provider, fresh=True)
            return self._replace(registration, old, goal, diff)
        op = Op.UPDATE if diff.changes or old.init_errors else Op.SAME
        if not goal.custom:
            return [Step(op, goal.urn, old, goal, diffs=find_changed_keys(old.inputs, compared))]
        change = self._describe(op, goal, old, diff)
        diffs = _changed(diff, old, goal) if op is Op.UPDATE else ()
        return [Step(op, goal.urn, old, goal, diffs=diffs, change=change)]

    def _inputs(
        self, registration: Registration, old: ResourceState | None, provider: str, *, fresh: bool
    ) -> tuple[PropertyMap, PropertyMap]:
        """The inputs to keep and those to compare: checked, for an object without a past when it
        is `fresh`. A component keeps what it was given, also what it ignores."""
        given = registration.inputs
        compared = given
        if old is not None and not fresh and registration.ignore_changes:
            compared, lost = property_paths.ignore_changes(
                old.inputs, given, registration.ignore_changes
            )
            for path in lost:
                text = f"ignore_changes: {path} is ignored nowhere, a part of it is missing"
                self.events.emit(Diagnostic("info", text, registration.urn))
        if not registration.custom:
            return given, compared
        known = old is not None and not fresh and not old.external
        olds, news = (old.inputs, compared) if old is not None and known else ({}, given)
        inputs = check_inputs(self.host, registration, olds, news, provider)
        return inputs, inputs

    def _untargeted(
        self, declared: Registration | Read, old: ResourceState | None, goal: ResourceState
    ) -> list[Step]:
        if old is None or id(old) in self._dependent_deletions:
            self._skipped.add(goal.urn)
            return [Step(Op.SAME, goal.urn, None, goal, skipped=True)]
        self._old.keep_name(old, declared)
        self._keep_needs(old)
        return [unchanged(old)]

    def _keep_needs(self, old: ResourceState) -> None:
        """What an entry needs that is left as it is stays, whether it is declared or not."""
        waiting = [old]
        while waiting:
            urns = graph.find_dependency_urns(waiting.pop(), provider=False) - self._needed
            self._needed |= urns
            waiting += [self._old.entries[urn] for urn in urns if urn in self._old.entries]

    def _refuse_missing_needs(self, steps: Sequence[Step]) -> None:
        """What is created now may not need what is not created because it is no target."""
        for step in steps:
            if step.new is None or step.skipped:
                continue
            for urn in sorted(graph.find_dependency_urns(step.new) & self._skipped):
                error = EngineError(
                    f"{step.urn} depends on {urn}, which does not exist yet and {self._left_out}",
                    hint=f"add it: --target '{urn}'"
                    if self.selection.targets
                    else f"exclude what depends on it, too: --exclude '{step.urn}', or "
                    "--exclude-dependents",
                )
                if not self.preview:
                    raise error
                self.tell(step.urn, error)
                self._skipped.discard(urn)

    def _refuse_circle(self, old: ResourceState | None, goal: ResourceState) -> None:
        """What is changed may not need what is left as it is and needs it in turn."""
        circle = self._circle(old, goal)
        if circle:
            raise EngineError(
                f"{goal.urn} comes to depend on {circle}, which {self._left_out} and, in the "
                "state, depends on it",
                hint=f"change both in one run: --target '{circle}'"
                if self.selection.targets
                else f"change both in one run: without --exclude '{circle}'",
            )

    @property
    def _left_out(self) -> str:
        return "is not among the targets" if self.selection.targets else "is excluded"

    def _circle(self, old: ResourceState | None, goal: ResourceState) -> str:
        """What the resource needs and cannot come before it in the state; empty when all can."""
        if old is None or old.urn not in self._needed:
            return ""
        for first in sorted(graph.find_dependency_urns(goal, provider=False)):
            reached, waiting = set[str](), [first]
            while waiting:
                urn = waiting.pop()
                urn = self._old.renamed.get(urn, urn)
                entry = self._goals.get(urn) or self._old.entries.get(urn)
                if urn == goal.urn:
                    return first
                if entry is not None and urn not in reached:
                    reached.add(urn)
                    waiting += graph.find_dependency_urns(entry, provider=False)
        return ""

    def _diff(self, old: ResourceState, goal: ResourceState, *, asked: bool) -> Diff:
        if not self.preview:
            resource_diff.refuse_unknown_trigger(goal)
        if asked:
            return resource_diff.find_requested_replacement()
        found = resource_diff.find_forced_replacement(old, goal, self._replaced)
        return found or resource_diff.compare(self.host, old, goal)

    def _is_gone(self, old: ResourceState) -> bool:
        """Whether the object was deleted to be replaced, by an earlier run or by this one."""
        return old.pending_replacement or id(old) in self._dependent_deletions

    def _replace(
        self, registration: Registration, old: ResourceState, goal: ResourceState, diff: Diff
    ) -> list[Step]:
        self._replaced.add(goal.urn)
        first = registration.delete_before_replace
        if (
            first is None
            and not diff.delete_before_replace
            and self.deletes_first(goal.type, goal.inputs)
        ):
            self._refuse_unnamed_dependents(old)
            first = True
        if not (diff.delete_before_replace if first is None else first):
            return self._replacement(old, goal, diff, create_first=not self._is_gone(old))
        steps = self._delete_dependents(old)
        if not self._is_gone(old):
            steps.append(_delete_replaced(old, diff.replaces))
        return steps + self._replacement(old, goal, diff)

    def _refuse_replacement(
        self, registration: Registration, old: ResourceState, goal: ResourceState, diff: Diff
    ) -> None:
        because = ", ".join(diff.replaces) or "a replacement begun earlier"
        if registration.import_id:
            raise EngineError(
                f"{goal.urn}: {because} would replace the object that import_ names",
                hint="remove import_ if it is to be replaced",
            )
        if old.protect and goal.protect and not self._is_gone(old):
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
        create_first: bool = False,
    ) -> list[Step]:
        keys = list(diff.replaces) if diff else []
        diffs = _changed(diff, old, goal)
        change = self._describe(Op.REPLACE, goal, old, diff)
        create = Step(Op.CREATE_REPLACEMENT, goal.urn, old, goal, keys, diffs)
        logical = Step(Op.REPLACE, goal.urn, old, goal, keys, diffs, change)
        if create_first:
            self._replaced_first.add(id(old))
            return [create, logical]
        return [logical, create]

    def _refuse_unnamed_dependents(self, root: ResourceState) -> None:
        """Raises EngineError where a replacement would take along what the user did not name."""
        if not self.selection.is_limited:
            return
        for each in self._dependents.of(root, {*self._stepped, *self._dependent_keys}):
            if not self.chosen.includes(each.resource):
                raise EngineError(
                    f"{root.urn} cannot be replaced alone: {name_of(each.resource.urn)} cannot "
                    "stay without it, and is not among the targets",
                    hint="add --target-dependents, or name it as well",
                )

    def _delete_dependents(self, root: ResourceState) -> list[Step]:
        """Deletions of the dependents that cannot outlive `root`, the farthest first."""
        spared = {*self._stepped, *self._dependent_keys}
        found = self._dependents.of(root, spared)
        dependents = [each for each in found if not self._is_gone(each.resource)]
        protected = [each.resource.urn for each in dependents if each.resource.protect]
        if protected:
            raise EngineError(
                f"replacing {root.urn} needs the deletion of protected resources: "
                + ", ".join(protected),
                hint=UNPROTECT,
            )
        for each in dependents:
            if not each.resource.delete:
                self._dependent_keys[each.resource.urn] = each.keys
        replaced = {root.urn, *(self._dependent_keys.keys() - self._stepped)}
        deletions = {
            id(each.resource): replace(
                _delete_replaced(each.resource, gone=each.resource.deleted_with in replaced),
                change=describe(self.host, Op.DELETE, each.resource, None),
            )
            for each in reversed(dependents)
        }
        self._dependent_deletions |= deletions
        return list(deletions.values())

    def _describe(
        self,
        op: Op,
        goal: ResourceState,
        old: ResourceState | None = None,
        diff: Diff | None = None,
    ) -> ResourceChange | None:
        return describe(self.host, op, old, goal, diff) if goal.custom else None


def unchanged(old: ResourceState) -> Step:
    """Leaves an entry as it is, with all that it holds."""
    return Step(Op.SAME, old.urn, old, replace(old))


def _refresh(old: ResourceState) -> Step:
    return Step(Op.REFRESH, old.urn, old, old, result_op=Op.SAME)


def _as_before(registration: Registration, old: ResourceState | None) -> Registration:
    """An untargeted dependent that is replaced with a target is made again as it was."""
    return replace(registration, inputs=old.inputs) if old else registration


def _delete_replaced(old: ResourceState, keys: Sequence[str] = (), *, gone: bool = False) -> Step:
    # What waited for its deletion already is none of the stack's resources any more.
    op = Op.DELETE if old.delete else Op.DELETE_REPLACED
    return Step(op, old.urn, old, None, keys, retain=old.retain_on_delete or gone)


def _changed(diff: Diff | None, old: ResourceState, goal: ResourceState) -> list[str]:
    if diff is not None and diff.fields is not None:
        return property_paths.top_level(change.path for change in diff.fields)
    return find_changed_keys(old.inputs, goal.inputs)

"""Decide the steps of each registration, by Pulumi's step rules.

The resource monitor calls the generator under one lock, as Pulumi's engine does, so that decisions
are serial. The generator asks the provider host to check inputs and to compare them, never to
change an object. `existing_objects` matches entries, plans imports and finds replaced dependents.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gpuform.providers.values import UNKNOWN_TEXT, PropertyMap, find_changed_keys
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import PlanReason, ResourceChange
from gpuform.stacks.engine import property_paths
from gpuform.stacks.engine.planning.constraints import check_inputs
from gpuform.stacks.engine.planning.events import Diagnostic, EventBus, describe_change
from gpuform.stacks.engine.planning.existing_objects import (
    DependentReplacements,
    OldEntries,
    OwnedObjects,
    build_import_steps,
    should_import,
)
from gpuform.stacks.engine.planning.steps import (
    Op,
    Step,
    build_replacement_diff,
    compare_with_goal,
    find_forced_replacement,
    inherit_options,
    read_to_goal,
    refuse_unknown_trigger,
    registration_to_goal,
)
from gpuform.stacks.engine.provider_host import Diff, ProviderHost
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import ResourceState, SelectedResources, Selection, graph
from gpuform.stacks.engine.store import OtherStacks
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider, name_of

ErrorReporter = Callable[[str, EngineError], None]
RunProgramOperation = Literal["refresh", "destroy"]
UNPROTECT = "first run `up` once with `protect` removed from its options"


@dataclass(slots=True)
class StepGenerator:
    """Turns registrations into steps, given the state that the last run left.

    `base` is this state in its order. Problems of a preview that do not stop other resources from
    being planned go to `report_error`. `others` are the other stacks of the backend.
    `run_program_operation` names an operation that runs the program for its components and
    providers alone: a refresh reads each other resource when it is declared, a destroy leaves it as
    it is, and neither creates any. `destroy_goals` holds the goal states of a destroy's program, by
    the URNs of their old entries.
    """

    stack: str
    project: str
    base: Sequence[ResourceState]
    host: ProviderHost
    preview: bool
    events: EventBus
    report_error: ErrorReporter
    selection: Selection = field(default_factory=Selection)
    others: OtherStacks | None = None
    should_delete_first: Callable[[str, Mapping[str, Any]], bool] = lambda _type, _inputs: False
    run_program_operation: RunProgramOperation | None = None
    destroy_goals: dict[str, ResourceState] = field(default_factory=dict)
    _old_entries: OldEntries = field(init=False)
    _dependents: DependentReplacements = field(init=False)
    selected: SelectedResources = field(init=False)
    _owned_objects: OwnedObjects = field(init=False)
    _started_at: float = field(default_factory=time.monotonic)
    # URNs of live entries that are deleted after their replacement exists
    _replaced_first: set[str] = field(default_factory=set)
    # URN of a dependent that is deleted -> the properties that say why
    _dependent_keys: dict[str, Sequence[str]] = field(default_factory=dict)
    # position of a dependent's entry in the old state -> its deletion
    _dependent_deletions: dict[int, Step] = field(default_factory=dict)
    _replaced_urns: set[str] = field(default_factory=set)
    # URN -> the entry that the steps of this run leave
    _goals: dict[str, ResourceState] = field(default_factory=dict)
    _skipped_urns: set[str] = field(default_factory=set)
    _handled_urns: set[str] = field(default_factory=set)
    # URNs that untouched entries depend on
    _needed_urns: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._old_entries = OldEntries.from_state(self.stack, self.project, self.base)
        self._dependents = DependentReplacements(self.base, self.host)
        self.selected = SelectedResources(self.selection)
        self._owned_objects = OwnedObjects(self.host, self.base, self.others, self.preview)

    def generate_steps(self, registration: Registration, provider: str) -> list[Step]:
        """Return the steps of one registration, in execution order.

        Call in the order of registrations: each is remembered for the next ones. `provider` is the
        provider reference, empty for components. A resource outside the selection also gets a step,
        which keeps the old entry or skips the create.

        Raises:
            CheckFailed: the provider refused the inputs.
            EngineError: the resource cannot be planned.
        """
        registration, old = self._match_registration(registration)
        goal = registration_to_goal(registration, provider)
        program_step = (
            self._build_program_step(registration, old, goal)
            if self.run_program_operation
            else None
        )
        if program_step is not None:
            self._handled_urns.add(registration.urn)
            return [program_step]
        # Pulumi includes the stack and providers in every selection.
        is_always_included = goal.type == STACK_TYPE or is_provider(goal.type)
        is_targeted = is_always_included or self.selected.includes(goal)
        # A dependent that a replacement has deleted is created again, targeted or not.
        if not is_targeted and not (old and old.urn in self._dependent_keys):
            steps = self._keep_untargeted(registration, old, goal)
        else:
            self._refuse_cycle(old, goal)
            if old is not None and not is_targeted:
                registration = replace(registration, inputs=old.inputs)
            steps = self._generate_registration_steps(registration, old, goal)
        self._goals[goal.urn] = steps[-1].state
        for step in steps:
            self.host.add_planned_repairs(step.change)
        self._refuse_missing_dependencies(steps)
        self._handled_urns.add(registration.urn)
        read_first = (
            [_build_refresh_step(old)]
            if self.run_program_operation == "refresh" and old and is_targeted
            else []
        )
        return self._wait_for_dependent_deletion(old, [*read_first, *steps])

    def keep_skipped_resource(self, registration: Registration) -> None:
        """Keep the old entry of a resource skipped after the failure of a dependency.

        The resource counts as declared, so that the run does not delete it. No provider is asked,
        as under the Pulumi CLI: the inputs lack the values of the failed resource.
        """
        registration, old = self._match_registration(registration)
        self._goals[registration.urn] = old or registration_to_goal(registration, "")
        self._handled_urns.add(registration.urn)

    def _match_registration(
        self, registration: Registration
    ) -> tuple[Registration, ResourceState | None]:
        """Return the registration with inherited options, and the old entry or None.

        Raises EngineError as `OldEntries.match_entry`.
        """
        old, declared = self._old_entries.match_entry(registration), self._old_entries.declared
        # Children inherit options from the parent's inherited ones, as in Pulumi's
        # inheritFromParent.
        registration = inherit_options(registration, declared.get(registration.parent))
        declared[registration.urn] = registration
        return registration, old

    def _build_program_step(
        self, registration: Registration, old: ResourceState | None, goal: ResourceState
    ) -> Step | None:
        """Return the step of a resource in a refresh or destroy with the program, or None.

        Returns None for components and providers, which are planned as usual, unless a dependency
        is skipped. A refresh reads a selected entry; a destroy records the program's options for
        the deletion. A resource without an entry is skipped.
        """
        is_planned_as_usual = not goal.custom or is_provider(goal.type)
        has_skipped_dependency = bool(graph.find_dependency_urns(goal) & self._skipped_urns)
        if is_planned_as_usual and not has_skipped_dependency:
            return None
        if old is None or (has_skipped_dependency and self.run_program_operation == "destroy"):
            self._skipped_urns.add(goal.urn)
        if old is None:
            return Step(Op.SAME, goal.urn, None, goal, skipped=True)
        if has_skipped_dependency or self.run_program_operation == "refresh":
            self._old_entries.keep_old_urn(old, registration)
            is_read = self.run_program_operation == "refresh" and self.selected.includes(old)
            return _build_refresh_step(old) if is_read else build_same_step(old)
        # The delete phase follows the options in the program (protect, retain_on_delete,
        # deleted_with), but only the state knows inputs and condition of the object.
        goal.inputs, goal.external = old.inputs, old.external
        goal.pending_replacement = old.pending_replacement
        self.destroy_goals[old.urn] = goal
        return Step(Op.SAME, goal.urn, old, goal)

    def generate_read_steps(self, read: Read, provider: str) -> list[Step]:
        """Return the steps of one read of an external object.

        An entry that the program managed with the same id becomes external: its object is not
        deleted. A managed object with another id is replaced. After a skipped dependency or, in a
        real run, with an unknown id, the old entry stays unchanged; without an old entry the read
        is skipped.
        """
        old = self._old_entries.match_entry(read)
        self._handled_urns.add(read.urn)
        new = read_to_goal(read, provider)
        # In a real run an unknown id belongs to a resource that failed or was skipped.
        is_id_missing = read.id == UNKNOWN_TEXT and not self.preview
        if (
            is_id_missing
            or graph.find_dependency_urns(new) & self._skipped_urns
            or self._find_cycle(old, new)
        ):
            return self._keep_untargeted(read, old, new)
        self._goals[new.urn] = new
        if old is None or old.external or old.id == read.id:
            change = describe_change(self.host, Op.READ, old, new)
            return self._wait_for_dependent_deletion(
                old, [Step(Op.READ, new.urn, old, new, change=change)]
            )
        self._replaced_urns.add(new.urn)
        if not self._is_deleted_for_replacement(old):
            self._replaced_first.add(old.urn)
        change = describe_change(self.host, Op.REPLACE, old, new)
        read_first = Step(Op.READ_REPLACEMENT, new.urn, old, new)
        logical = Step(Op.REPLACE, new.urn, old, new, change=change)
        return self._wait_for_dependent_deletion(old, [read_first, logical])

    def _wait_for_dependent_deletion(
        self, old: ResourceState | None, steps: list[Step]
    ) -> list[Step]:
        """Make the first step wait for the deletion of `old` as a dependent; return the steps."""
        if old is not None:
            steps[0].after = self._find_dependent_deletion(old)
        return steps

    @property
    def declared_urns(self) -> set[str]:
        """URNs declared by the program, and the old URNs matched by aliases."""
        return {*self._old_entries.declared, *self._old_entries.new_urns}

    @property
    def undeletable_urns(self) -> set[str]:
        """URNs excluded from the delete phase: declared resources and their dependencies."""
        return self.declared_urns | self._needed_urns

    @property
    def _planned_urns(self) -> set[str]:
        """URNs of entries planned in this run, no longer treated as dependents of others."""
        return {*self._handled_urns, *self._dependent_keys}

    def compare_dependents(self, targets: Collection[str]) -> None:
        """Ask providers to compare the dependents of the targets of a deletion.

        The Pulumi CLI asks the same before deletions. The answers are not used; an error of a
        provider is reported for its URN.
        """
        entries = (entry for entry in self.base if entry.urn in targets)
        for urn, error in self._dependents.find_incomparable_roots(entries, self._planned_urns):
            self.report_error(urn, error)

    def list_remaining_entries(self) -> list[ResourceState]:
        """Return the old entries, marked as left by the planned steps.

        An entry whose replacement exists first has `delete`, a dependent that is deleted first has
        `pending_replacement`. An entry that had `delete` before is left out if the steps delete it.
        The entries of the state itself are not changed.
        """
        return [
            replace(
                entry,
                delete=entry.delete or entry.urn in self._replaced_first,
                pending_replacement=entry.pending_replacement
                or position in self._dependent_deletions,
            )
            for position, entry in enumerate(self.base)
            if not (entry.delete and position in self._dependent_deletions)
        ]

    def _generate_registration_steps(
        self, registration: Registration, old: ResourceState | None, goal: ResourceState
    ) -> list[Step]:
        """Return the steps of a selected registration: import, create, update or replacement.

        A tainted resource is replaced; init errors alone ask for an update. An object that was only
        read so far stays, and a new one is created. Raises EngineError for a replacement that is
        not allowed.
        """
        # The order of the following decisions is the order of Pulumi's generateSteps.
        if should_import(registration, old):
            self._owned_objects.claim_object(registration)
            started_at = self._started_at
            steps = build_import_steps(self.host, registration, old, goal, as_of=started_at)
            self._owned_objects.claim_parts(steps[0].state)
            return steps
        is_recreated = goal.urn in self._dependent_keys
        # The CLI writes `taint` into the state; it asks for a replacement as `--replace` does.
        is_requested = goal.urn in self.selection.replace or (old is not None and old.taint)
        is_fresh, provider = is_requested or is_recreated, goal.provider
        goal.inputs, compared = self._check_inputs(registration, old, provider, fresh=is_fresh)
        if old is None:
            return [
                Step(Op.CREATE, goal.urn, None, goal, change=self._describe_change(Op.CREATE, goal))
            ]
        if is_recreated:
            self._replaced_urns.add(goal.urn)
            diff = build_replacement_diff(
                self._dependent_keys[goal.urn], PlanReason.DEPENDENCY_REPLACED
            )
            fields = self.host.find_field_changes(goal.urn, old.outputs, goal.inputs, goal.provider)
            return self._build_replacement_steps(old, goal, replace(diff, fields=fields))
        if old.external:
            # An external object that becomes a managed one is not deleted, so that nothing that
            # depends on it has to be replaced either.
            return self._build_replacement_steps(old, goal, None, create_first=True)
        diff = self._diff_resource(old, replace(goal, inputs=compared), is_requested=is_requested)
        if self._is_deleted_for_replacement(old) or (diff.changes and diff.replaces):
            self._refuse_replacement(registration, old, goal, diff)
            if not is_requested:
                # Pulumi checks a second time for the new object, which has no old inputs.
                goal.inputs, _ = self._check_inputs(registration, old, provider, fresh=True)
            return self._plan_replacement(registration, old, goal, diff)
        # Init errors ask for an update without a difference, so that the provider tries again.
        op = Op.UPDATE if diff.changes or old.init_errors else Op.SAME
        if not goal.custom:
            return [Step(op, goal.urn, old, goal, diffs=find_changed_keys(old.inputs, compared))]
        change = self._describe_change(op, goal, old, diff)
        diffs = _list_changed_keys(diff, old, goal) if op is Op.UPDATE else ()
        return [Step(op, goal.urn, old, goal, diffs=diffs, change=change)]

    def _check_inputs(
        self, registration: Registration, old: ResourceState | None, provider: str, *, fresh: bool
    ) -> tuple[PropertyMap, PropertyMap]:
        """Return the checked inputs to keep, and the inputs to compare with the old inputs.

        The two differ only for a component: its inputs are not checked, and the declared ones are
        kept. With `fresh`, and for an object that was only read so far, old inputs and
        `ignore_changes` do not count. Without `fresh` each path in `ignore_changes` that matches
        nothing is reported.
        """
        declared_inputs = registration.inputs
        compared = declared_inputs
        if old is not None and not fresh and registration.ignore_changes:
            compared, unmatched_paths = property_paths.ignore_changes(
                old.inputs, declared_inputs, registration.ignore_changes
            )
            for path in unmatched_paths:
                message = f"ignore_changes: {path} does not exist and has no effect"
                self.events.emit(Diagnostic("info", message, registration.urn))
        if not registration.custom:
            return declared_inputs, compared
        # As in Pulumi: what was only read so far, or is recreated, is checked like a new object.
        has_old_inputs = old is not None and not fresh and not old.external
        olds, news = (
            (old.inputs, compared) if old is not None and has_old_inputs else ({}, declared_inputs)
        )
        replaced_inputs = old.inputs if old is not None and fresh and not old.external else None
        inputs = check_inputs(
            self.host, registration, olds, news, provider, existing=replaced_inputs
        )
        return inputs, inputs

    def _keep_untargeted(
        self, declared: Registration | Read, old: ResourceState | None, goal: ResourceState
    ) -> list[Step]:
        """Return a step to keep the entry of a resource outside the targets.

        A resource without an entry, or with an entry that a replacement deletes, is skipped: the
        run does not create it.
        """
        # Pulumi's skipped create: the program continues with unknown outputs, in a real run too.
        if old is None or self._find_dependent_deletion(old):
            self._skipped_urns.add(goal.urn)
            return [Step(Op.SAME, goal.urn, None, goal, skipped=True)]
        self._old_entries.keep_old_urn(old, declared)
        self._keep_dependencies(old)
        return [build_same_step(old)]

    def _keep_dependencies(self, old: ResourceState) -> None:
        """Protect the dependencies of an untouched entry from the delete phase, declared or not."""
        waiting = [old]
        while waiting:
            urns = graph.find_dependency_urns(waiting.pop(), provider=False) - self._needed_urns
            self._needed_urns |= urns
            waiting += [
                self._old_entries.entries[urn] for urn in urns if urn in self._old_entries.entries
            ]

    def _refuse_missing_dependencies(self, steps: Sequence[Step]) -> None:
        """Refuse steps with a dependency on a new resource skipped by this run.

        The run skips a resource without an entry in the state if the resource is not among the
        targets, or is excluded. Raises EngineError in a real run. A preview reports the error once
        for each missing dependency, continues, and fails at its end.
        """
        for step in steps:
            if step.new is None or step.skipped:
                continue
            for urn in sorted(graph.find_dependency_urns(step.new) & self._skipped_urns):
                error = EngineError(
                    f"{step.urn} depends on {urn}, which does not exist yet and "
                    f"{self._exclusion_reason}",
                    hint=f"add: --target '{urn}'"
                    if self.selection.targets
                    else f"exclude its dependents, too: --exclude '{step.urn}', or "
                    "--exclude-dependents",
                )
                if not self.preview:
                    raise error
                self.report_error(step.urn, error)
                # The preview reports each missing dependency once.
                self._skipped_urns.discard(urn)

    def _refuse_cycle(self, old: ResourceState | None, goal: ResourceState) -> None:
        """Raise EngineError if the goal and an untouched entry would depend on each other."""
        blocking_urn = self._find_cycle(old, goal)
        if blocking_urn:
            raise EngineError(
                f"{goal.urn} newly depends on {blocking_urn}, which {self._exclusion_reason} "
                "and depends on it in the state",
                hint=f"change both in one run: --target '{blocking_urn}'"
                if self.selection.targets
                else f"change both in one run: without --exclude '{blocking_urn}'",
            )

    @property
    def _exclusion_reason(self) -> str:
        """Return why a resource is not part of the run, as the end of a sentence."""
        return "is not among the targets" if self.selection.targets else "is excluded"

    def _find_cycle(self, old: ResourceState | None, goal: ResourceState) -> str:
        """Return the URN of a dependency of `goal` which depends on `goal`, too, or "".

        Returns "" also if no kept entry depends on `old`: then there can be no cycle.
        """
        if old is None or old.urn not in self._needed_urns:
            return ""
        for first in sorted(graph.find_dependency_urns(goal, provider=False)):
            reached, waiting = set[str](), [first]
            while waiting:
                urn = waiting.pop()
                # An old entry names its dependencies by the URNs before an alias renamed them.
                urn = self._old_entries.new_urns.get(urn, urn)
                entry = self._goals.get(urn) or self._old_entries.entries.get(urn)
                if urn == goal.urn:
                    return first
                if entry is not None and urn not in reached:
                    reached.add(urn)
                    waiting += graph.find_dependency_urns(entry, provider=False)
        return ""

    def _diff_resource(
        self, old: ResourceState, goal: ResourceState, *, is_requested: bool
    ) -> Diff:
        """Return the difference between the entry `old` and the goal.

        It demands a replacement if `is_requested`, or if something other than an input forces one;
        otherwise the provider compares the inputs. Raises EngineError in a real run if the
        replacement trigger is unknown.
        """
        if not self.preview:
            refuse_unknown_trigger(goal)
        if is_requested:
            return build_replacement_diff(["id"], PlanReason.REPLACEMENT_REQUESTED)
        forced_replacement = find_forced_replacement(old, goal, self._replaced_urns)
        return forced_replacement or compare_with_goal(self.host, old, goal)

    def _is_deleted_for_replacement(self, old: ResourceState) -> bool:
        """Return True if this or an earlier run deletes the object ahead of a replacement."""
        return old.pending_replacement or self._find_dependent_deletion(old) is not None

    def _find_dependent_deletion(self, old: ResourceState) -> Step | None:
        """Return the deletion of the live entry `old` as a dependent, or None."""
        return self._dependent_deletions.get(self._old_entries.positions[old.urn])

    def _plan_replacement(
        self, registration: Registration, old: ResourceState, goal: ResourceState, diff: Diff
    ) -> list[Step]:
        """Return the steps to replace the old object.

        By default the new object is created first: no deletion is among the steps, because the run
        deletes the old object at its end. The old object is deleted first if the option
        `delete_before_replace` is True, or if the option is not set and the diff of the provider or
        `should_delete_first` demands it. Then the steps delete the dependents that must be replaced
        too, then the old object, and then create the new one.

        Raises:
            EngineError: a dependent to delete is protected, or `should_delete_first` demands the
                deletion of a dependent that is not among the targets.
        """
        self._replaced_urns.add(goal.urn)
        # Pulumi's rule: the option where it is set, else the answer of the provider's diff.
        delete_first = registration.delete_before_replace
        if (
            delete_first is None
            and not diff.delete_before_replace
            and self.should_delete_first(goal.type, goal.inputs)
        ):
            self._refuse_unnamed_dependents(old)
            delete_first = True
        if not (diff.delete_before_replace if delete_first is None else delete_first):
            return self._build_replacement_steps(
                old, goal, diff, create_first=not self._is_deleted_for_replacement(old)
            )
        steps = self._delete_dependents(old)
        if not self._is_deleted_for_replacement(old):
            steps.append(_build_replaced_deletion(old, diff.replaces))
        return steps + self._build_replacement_steps(old, goal, diff)

    def _refuse_replacement(
        self, registration: Registration, old: ResourceState, goal: ResourceState, diff: Diff
    ) -> None:
        """Raise EngineError if the resource has an `import_` id, or is and stays protected.

        A preview reports a protected resource instead, and continues. If the old object is deleted
        already, its protection does not count.
        """
        reason = ", ".join(diff.replaces) or "an unfinished replacement"
        if registration.import_id:
            raise EngineError(
                f"{goal.urn}: {reason} would replace the object named by import_",
                hint="to replace the object, remove import_",
            )
        # As in Pulumi, one run may unprotect and replace: both sides have to be protected.
        if old.protect and goal.protect and not self._is_deleted_for_replacement(old):
            error = EngineError(
                f"{goal.urn} is protected, but this change forces its replacement (because of "
                f"{reason})",
                hint=UNPROTECT,
            )
            # A preview reports all protected resources and fails at its end, as the CLI does.
            if not self.preview:
                raise error
            self.report_error(goal.urn, error)

    def _build_replacement_steps(
        self,
        old: ResourceState,
        goal: ResourceState,
        diff: Diff | None,
        *,
        create_first: bool = False,
    ) -> list[Step]:
        """Return the steps to create the new object and show the replacement.

        With `create_first` the old object still exists, and is deleted at the end of the run.
        """
        keys = list(diff.replaces) if diff else []
        diffs = _list_changed_keys(diff, old, goal)
        change = self._describe_change(Op.REPLACE, goal, old, diff)
        create = Step(Op.CREATE_REPLACEMENT, goal.urn, old, goal, keys, diffs)
        logical = Step(Op.REPLACE, goal.urn, old, goal, keys, diffs, change)
        # Pulumi's orders: create-replacement, replace; or, after a deletion, replace, create-
        # replacement.
        if create_first:
            self._replaced_first.add(old.urn)
            return [create, logical]
        return [logical, create]

    def _refuse_unnamed_dependents(self, root: ResourceState) -> None:
        """Raise EngineError if a replacement would also replace a dependent outside the targets."""
        if not self.selection.is_limited:
            return
        for dependent in self._dependents.find_dependents(root, self._planned_urns):
            if not self.selected.includes(dependent.resource):
                raise EngineError(
                    f"{root.urn} cannot be replaced alone: {name_of(dependent.resource.urn)} "
                    "depends on it and must be replaced too, but is not among the targets",
                    hint="add --target-dependents, or add the dependent to the targets",
                )

    def _delete_dependents(self, root: ResourceState) -> list[Step]:
        """Return deletion steps for the dependents replaced with `root`, the farthest first.

        The deletions are recorded, so that the registrations of the dependents create them again.
        Raises EngineError if a dependent is protected.
        """
        replacements = self._dependents.find_dependents(root, self._planned_urns)
        dependents = [
            dependent
            for dependent in replacements
            if not dependent.resource.pending_replacement
            and dependent.position not in self._dependent_deletions
        ]
        protected = [
            dependent.resource.urn for dependent in dependents if dependent.resource.protect
        ]
        if protected:
            raise EngineError(
                f"replacing {root.urn} requires the deletion of protected resources: "
                + ", ".join(protected),
                hint=UNPROTECT,
            )
        for dependent in dependents:
            # An entry with `delete: true` has its replacement already: nothing creates it again.
            if not dependent.resource.delete:
                self._dependent_keys[dependent.resource.urn] = dependent.keys
        replaced = {root.urn, *(self._dependent_keys.keys() - self._handled_urns)}
        deletions = {
            dependent.position: replace(
                _build_replaced_deletion(
                    dependent.resource, ends_with_other=dependent.resource.deleted_with in replaced
                ),
                change=describe_change(self.host, Op.DELETE, dependent.resource, None),
            )
            for dependent in reversed(dependents)
        }
        self._dependent_deletions |= deletions
        return list(deletions.values())

    def _describe_change(
        self,
        op: Op,
        goal: ResourceState,
        old: ResourceState | None = None,
        diff: Diff | None = None,
    ) -> ResourceChange | None:
        """Return the change of a step for plans and displays; None for components."""
        return describe_change(self.host, op, old, goal, diff) if goal.custom else None


def build_same_step(old: ResourceState) -> Step:
    """Return a step keeping the entry unchanged."""
    return Step(Op.SAME, old.urn, old, replace(old))


def _build_refresh_step(old: ResourceState) -> Step:
    """Build the step to read the entry's object and update the entry."""
    return Step(Op.REFRESH, old.urn, old, old, result_op=Op.SAME)


def _build_replaced_deletion(
    old: ResourceState, keys: Sequence[str] = (), *, ends_with_other: bool = False
) -> Step:
    """Build the step to delete a replaced object; `keys` are the inputs behind the replacement.

    With `ends_with_other` (the object ends with another object) or `retain_on_delete` the object is
    only forgotten. An entry already marked for deletion gets a plain DELETE.
    """
    # The replacement of an entry with `delete: true` exists already: this is a plain deletion.
    op = Op.DELETE if old.delete else Op.DELETE_REPLACED
    return Step(op, old.urn, old, None, keys, retain=old.retain_on_delete or ends_with_other)


def _list_changed_keys(diff: Diff | None, old: ResourceState, goal: ResourceState) -> list[str]:
    """List the changed inputs, by the provider's fields or else by a comparison."""
    if diff is not None and diff.fields is not None:
        return property_paths.list_roots(change.path for change in diff.fields)
    return find_changed_keys(old.inputs, goal.inputs)

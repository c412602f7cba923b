"""Define steps, the goal state of a registration and the diff between state and goal.

The step generator, imports and dependent replacements build steps with these functions; `executing`
runs the steps. Comparisons ask the provider host.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from gpuform.providers import values
from gpuform.providers.values import are_equal
from gpuform.schemas.changes import Action
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import PlanAction, PlanReason, PropertyChange, ResourceChange
from gpuform.schemas.values import UNKNOWN, is_equal
from gpuform.stacks.engine import property_paths
from gpuform.stacks.engine.property_paths import Path
from gpuform.stacks.engine.provider_host import Diff, ProviderHost
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider


class Op(StrEnum):
    """Pulumi's names of the step operations."""

    SAME = "same"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    REPLACE = "replace"
    CREATE_REPLACEMENT = "create-replacement"
    DELETE_REPLACED = "delete-replaced"
    READ = "read"
    READ_REPLACEMENT = "read-replacement"
    DISCARD = "discard"
    DISCARD_REPLACED = "discard-replaced"
    IMPORT = "import"
    REFRESH = "refresh"
    REMOVE_PENDING_REPLACE = "remove-pending-replace"

    @property
    def is_logical(self) -> bool:
        """True if plans count the operation: a replacement is one change, not three."""
        return self not in _PHYSICAL_ONLY


# Pulumi's event log marks these as `logical: false`, and its summary does not count them.
_PHYSICAL_ONLY = frozenset(
    {
        Op.CREATE_REPLACEMENT,
        Op.DELETE_REPLACED,
        Op.READ_REPLACEMENT,
        Op.DISCARD_REPLACED,
        Op.REMOVE_PENDING_REPLACE,
    }
)


_EFFECTS = {
    Op.CREATE: "create",
    Op.UPDATE: "update",
    Op.IMPORT: "import",
    Op.REPLACE: "replace",
    Op.CREATE_REPLACEMENT: "replace",
    Op.READ_REPLACEMENT: "replace",
    Op.DELETE: "delete",
    Op.DELETE_REPLACED: "delete",
    Op.DISCARD: "forget",
    Op.DISCARD_REPLACED: "forget",
    Op.REMOVE_PENDING_REPLACE: "forget",
}
_REFRESH_EFFECTS = {Op.UPDATE: "refresh", Op.DELETE: "forget"}
"""Effects of a refresh on the state, by its result operation."""

_step_numbers = itertools.count(1)


@dataclass(slots=True)
class Step:
    """One operation on one resource.

    `old` is the resource's entry in the last state, `new` the entry that the step leaves; a delete
    has no `new`, a create no `old`. `keys` are the top-level properties that force a replacement,
    `diffs` the top-level properties that change. `change` is the description for people.
    `result_op` is the result of a refresh (same, update or delete). `retain` keeps the object on
    the platform, because of `retain_on_delete` or because the object ends with the resource of its
    `deleted_with`. `skipped` marks a create that is not done because no target names the resource;
    the program sees unknown outputs. `after` is a step of another resource that must be finished
    first. `number` is the step's identity in this process: a copy of the step is the same step.
    """

    op: Op
    urn: str
    old: ResourceState | None = None
    new: ResourceState | None = None
    keys: Sequence[str] = ()
    diffs: Sequence[str] = ()
    change: ResourceChange | None = None
    result_op: Op | None = None
    retain: bool = False
    skipped: bool = False
    after: "Step | None" = None
    number: int = field(default_factory=_step_numbers.__next__, compare=False, repr=False)

    @property
    def state(self) -> ResourceState:
        """The entry of the resource: the new entry if there is one, else the old entry."""
        state = self.new or self.old
        if state is None:
            raise AssertionError("a step has an old or a new state")
        return state

    @property
    def shown_op(self) -> Op:
        """The operation to show and count: the result of a refresh, else the operation itself."""
        return self.result_op or self.op

    @property
    def is_forget_only(self) -> bool:
        """True if this deletion only removes the entry from the state, without a provider call."""
        old = self.state
        return self.retain or old.external or not old.custom or is_provider(old.type)

    @property
    def effect(self) -> str:
        """The effect on an object of the stack, as saved plans count effects; empty for none.

        The stack and providers have none; a removal from the state alone is "forget". A replacement
        has the effect "replace" and, for the old object, "delete".
        """
        if self.state.type == STACK_TYPE or is_provider(self.state.type):
            return ""
        if self.op in (Op.DELETE, Op.DELETE_REPLACED) and self.is_forget_only:
            return "forget"
        if self.op is Op.REFRESH:
            return _REFRESH_EFFECTS.get(self.shown_op, "")
        return _EFFECTS.get(self.op, "")

    @property
    def is_unchanged_read(self) -> bool:
        """True if a read returned outputs equal to the outputs of the last read."""
        return (
            self.op is Op.READ
            and self.old is not None
            and are_equal(self.old.outputs, self.state.outputs)
        )


def inherit_options(registration: Registration, parent: Registration | Read | None) -> Registration:
    """Return the registration with options inherited from the parent, as in Pulumi.

    These are `protect`, `retain_on_delete` and `deleted_with`, where the registration leaves them
    open.
    """
    if not isinstance(parent, Registration):
        return registration
    protect, retain = registration.protect, registration.retain_on_delete
    return replace(
        registration,
        protect=parent.protect if protect is None else protect,
        retain_on_delete=parent.retain_on_delete if retain is None else retain,
        deleted_with=registration.deleted_with or parent.deleted_with,
    )


def registration_to_goal(registration: Registration, provider: str) -> ResourceState:
    """Return the goal state of a registration; `provider` is a provider reference, or empty."""
    return ResourceState(
        urn=registration.urn,
        custom=registration.custom,
        type=registration.type,
        inputs=registration.inputs,
        parent=registration.parent,
        protect=bool(registration.protect),
        retain_on_delete=bool(registration.retain_on_delete),
        dependencies=list(registration.dependencies),
        property_dependencies={
            key: list(urns) for key, urns in (registration.property_dependencies or {}).items()
        },
        provider=provider,
        additional_secret_outputs=list(registration.additional_secret_outputs),
        custom_timeouts=dict(registration.custom_timeouts or {}),
        import_id=registration.import_id,
        ignore_changes=list(registration.ignore_changes),
        replace_on_changes=list(registration.replace_on_changes),
        hide_diff=list(registration.hide_diff),
        source_position=registration.source_position,
        stack_trace=list(registration.stack_trace),
        deleted_with=registration.deleted_with,
        replace_with=list(registration.replace_with),
        replacement_trigger=registration.replacement_trigger,
    )


def read_to_goal(read: Read, provider: str) -> ResourceState:
    """Return the goal state of a read resource, an external object."""
    return ResourceState(
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


WRITING_ACTIONS: Final = frozenset(
    {PlanAction.CREATE, PlanAction.UPDATE, PlanAction.REPLACE, PlanAction.IMPORT}
)
"""Plan actions that set property values of a resource."""


def find_unplanned_changes(
    planned: Mapping[str, Sequence[PropertyChange]], change: ResourceChange
) -> Iterator[str]:
    """Yield a message for each property change of `change` outside the planned changes.

    `planned` maps URNs to the property changes of the saved plan, where a secret or unknown value
    allows any value. Deletions and reads yield nothing.
    """
    if change.action not in WRITING_ACTIONS:
        return
    planned_changes = list(filter(_is_change, planned.get(change.urn, ())))
    for property_change in filter(_is_change, change.changes):
        path = property_change.path
        covering_changes = [
            planned_change
            for planned_change in planned_changes
            if f"{path}.".startswith((f"{planned_change.path}.", f"{planned_change.path}["))
        ]
        if not covering_changes:
            yield (
                f"{change.urn} would change {property_change.path}, which the plan does not contain"
            )
        elif not any(
            _allows(planned_change, property_change) for planned_change in covering_changes
        ):
            yield f"{change.urn} would set {property_change.path} to another value than planned"


def _is_change(change: PropertyChange) -> bool:
    """Return True unless the property's action is to keep the value."""
    return change.action is not Action.KEEP


def _allows(planned: PropertyChange, change: PropertyChange) -> bool:
    """Return True if a property gets the planned value, as far as the plan contains one.

    A property inside of the planned one passes without a comparison.
    """
    # The plan file has no value to compare with.
    is_open = planned.secret or (planned.unknown and planned.after is None)
    if is_open or change.path != planned.path:
        return True
    return _matches_planned(planned.after, change.model_dump(mode="json")["after"])


def _matches_planned(planned: Any, value: Any) -> bool:
    """Return True if the value is the planned one, in which unknown parts match anything."""
    # Plans are saved as JSON, where an unknown inside a list or map is its repr.
    if planned == repr(UNKNOWN):
        return True
    if isinstance(planned, dict) and isinstance(value, dict):
        return planned.keys() == value.keys() and all(
            _matches_planned(planned[k], value[k]) for k in value
        )
    if isinstance(planned, list) and isinstance(value, list) and len(planned) == len(value):
        return all(map(_matches_planned, planned, value))
    return is_equal(planned, value)


# Pulumi's special path in replace_on_changes: replaces an object whose initialization failed.
_INIT_ERROR = "#initerror"


def find_forced_replacement(
    old: ResourceState, goal: ResourceState, replaced: AbstractSet[str]
) -> Diff | None:
    """Return the diff of a replacement forced by options of the goal, or None.

    These are a replacement trigger that is unknown or changed between two values, `replace_with`,
    `deleted_with`, and getting or losing a provider. No provider is asked. `replaced` holds the
    URNs that this run replaces.
    """
    if _is_replacement_triggered(old, goal):
        return build_replacement_diff(["replacement_trigger"], PlanReason.REPLACEMENT_REQUESTED)
    if replaced & set(goal.replace_with):
        return build_replacement_diff(["replace_with"], PlanReason.DEPENDENCY_REPLACED)
    if goal.deleted_with in replaced:
        return build_replacement_diff(["deleted_with"], PlanReason.DEPENDENCY_REPLACED)
    # A changed provider reference alone replaces nothing; getting or losing one does.
    if bool(old.provider) != bool(goal.provider):
        return build_replacement_diff(["provider"], PlanReason.FIELD_FORCES_REPLACEMENT)
    return None


def build_replacement_diff(keys: Sequence[str], reason: PlanReason) -> Diff:
    """Build a diff which replaces the resource because of `keys`, by default create first."""
    return Diff(changes=True, replaces=keys, delete_before_replace=False, reason=reason)


def _is_replacement_triggered(old: ResourceState, goal: ResourceState) -> bool:
    """Return True if the trigger changed between two values, or is unknown."""
    before = values.unwrap_secrets(old.replacement_trigger)
    after = values.unwrap_secrets(goal.replacement_trigger)
    # As in Pulumi, an unknown trigger counts as a different one.
    if values.contains_unknown(after):
        return True
    return before is not None and after is not None and not values.are_equal(before, after)


def refuse_unknown_trigger(goal: ResourceState) -> None:
    """Raise EngineError if the replacement trigger is unknown.

    Only real runs call this function: a preview permits an unknown trigger.
    """
    if values.contains_unknown(goal.replacement_trigger):
        raise EngineError(
            f"{goal.urn}: replacement_trigger is unknown because one of its dependencies failed"
        )


def compare_with_goal(host: ProviderHost, old: ResourceState, goal: ResourceState) -> Diff:
    """Return the provider's diff between state and goal, or the engine's own diff of the inputs.

    As in Pulumi, `replace_on_changes` works only where the provider leaves the comparison to the
    engine: the stock host does not pass on which properties changed. Raises EngineError for an
    invalid path.
    """
    # A component has no provider to ask.
    if not goal.custom:
        changed_paths = list(property_paths.find_differences(old.inputs, goal.inputs))
        return Diff(changes=bool(changed_paths), replaces=(), delete_before_replace=False)
    diff = host.diff(goal.urn, old.id, old.outputs, goal.inputs, goal.provider)
    changed: list[Path] = []
    # DIFF_UNKNOWN, the answer of Pulumi's base class: the engine compares the inputs itself.
    if diff.changes is None:
        inputs, _ = property_paths.ignore_changes(old.inputs, goal.inputs, goal.ignore_changes)
        changed = list(property_paths.find_differences(old.inputs, inputs))
        diff = replace(diff, changes=bool(changed))
    return _add_requested_replacement(
        diff, changed, goal.replace_on_changes, has_init_errors=bool(old.init_errors)
    )


def _add_requested_replacement(
    diff: Diff, changed: Sequence[Path], replace_on_changes: Sequence[str], *, has_init_errors: bool
) -> Diff:
    """Return the diff, extended by a replacement if a path in `replace_on_changes` changed.

    The path `#initerror` counts as changed with `has_init_errors`. Raises EngineError for an
    invalid path.
    """
    try:
        patterns = [property_paths.parse(raw_path) for raw_path in replace_on_changes]
    except property_paths.PathError as error:
        raise EngineError(f"replace_on_changes: {error}") from error
    keys = [
        str(path[0])
        for path in changed
        if any(property_paths.covers(pattern, path) for pattern in patterns)
    ]
    # `#initerror` is Pulumi's path for an object with init errors.
    is_unfinished = has_init_errors and any(
        property_paths.covers(pattern, (_INIT_ERROR,)) for pattern in patterns
    )
    if is_unfinished:
        keys.append(_INIT_ERROR)
    if not keys:
        return diff
    replaces = list(dict.fromkeys([*diff.replaces, *keys]))
    return replace(diff, changes=diff.changes or is_unfinished, replaces=replaces)

"""Define the steps that the step generator decides and the executor runs, and the diff and goal
state that each step carries.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PlanAction, PlanReason, PropertyChange, ResourceChange
from gpuform.schemas.values import UNKNOWN, is_equal
from gpuform.stacks.engine import values
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.provider_host import Diff, ProviderHost
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider
from gpuform.stacks.engine.values import Path, PropertyMap, are_equal, property_paths


class Op(StrEnum):
    """Pulumi's names of the operations."""

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
        """Whether people count it: a replacement is one change, not three."""
        return self not in _PHYSICAL_ONLY


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
_FOUND = {Op.UPDATE: "refresh", Op.DELETE: "forget"}
"""What a refresh does to the state, by what it turned out to be."""


@dataclass(slots=True)
class Step:
    """One operation on one resource.

    `old` is its entry in the last state, `new` the entry that the step will leave; a delete has no
    `new`, a create no `old`. `keys` are the properties that force a replacement, `diffs` those
    that change, both top-level. `change` is what people are shown. `result_op` is what a refresh
    turned out to be (same, update or delete). `retain`: its object is not deleted, because of
    `retain_on_delete` or because it goes with the resource of its `deleted_with`. `skipped`: a
    create that is not done, because it is not among the targets; the program sees unknown outputs.
    `after`: a step of another resource's that comes first, and without which this one may not be.
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

    @property
    def state(self) -> ResourceState:
        """The entry that stands for the resource: the new one where there is one."""
        state = self.new or self.old
        if state is None:
            raise AssertionError("a step has an old or a new state")
        return state

    @property
    def shown_op(self) -> Op:
        """The operation that people are told and that is counted."""
        return self.result_op or self.op

    @property
    def is_spared(self) -> bool:
        """Whether this deletion only forgets the entry: no provider is called."""
        old = self.state
        return self.retain or old.external or not old.custom or is_provider(old.type)

    @property
    def effect(self) -> str:
        """What it does to an object of the stack's, as a plan's bound counts it; empty: nothing.

        A replacement is "replace" and, of the old object, "delete".
        """
        if self.state.type == STACK_TYPE or is_provider(self.state.type):
            return ""
        if self.op in (Op.DELETE, Op.DELETE_REPLACED) and self.is_spared:
            return "forget"
        if self.op is Op.REFRESH:
            return _FOUND.get(self.shown_op, "")
        return _EFFECTS.get(self.op, "")

    @property
    def says_nothing_new(self) -> bool:
        """Whether a read found what the last one had found."""
        return (
            self.op is Op.READ
            and self.old is not None
            and are_equal(self.old.outputs, self.state.outputs)
        )


def inherit_options(registration: Registration, parent: Registration | Read | None) -> Registration:
    """The registration with what it leaves to its parent, as that has it in turn."""
    if not isinstance(parent, Registration):
        return registration
    protect, retain = registration.protect, registration.retain_on_delete
    return replace(
        registration,
        protect=parent.protect if protect is None else protect,
        retain_on_delete=parent.retain_on_delete if retain is None else retain,
        deleted_with=registration.deleted_with or parent.deleted_with,
    )


def goal_of_registration(registration: Registration, provider: str) -> ResourceState:
    """The entry of a resource; `provider` is a reference, empty for components."""
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


def goal_of_read(read: Read, provider: str) -> ResourceState:
    """The entry of an object that belongs to somebody else."""
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


WRITTEN: Final = frozenset(
    {PlanAction.CREATE, PlanAction.UPDATE, PlanAction.REPLACE, PlanAction.IMPORT}
)
"""The actions that give a resource values."""


def other_changes(
    planned: Mapping[str, Sequence[PropertyChange]], change: ResourceChange
) -> Iterator[str]:
    """What the change does to properties that is not planned; `planned` is by URN."""
    if change.action not in WRITTEN:
        return
    allowed = list(filter(_is_one, planned.get(change.urn, ())))
    for found in filter(_is_one, change.changes):
        covering = [each for each in allowed if _covers(each.path, found.path)]
        if not covering:
            yield f"{change.urn} would change {found.path}, which is not planned"
        elif not any(_allows(each, found) for each in covering):
            yield f"{change.urn} would give {found.path} another value than planned"


def _is_one(change: PropertyChange) -> bool:
    return change.action is not Action.KEEP


def _covers(planned: str, path: str) -> bool:
    return path == planned or path.startswith((f"{planned}.", f"{planned}["))


def _allows(planned: PropertyChange, found: PropertyChange) -> bool:
    """Whether a property of the same path gets the value that was planned, as far as known."""
    is_open = planned.secret or (planned.unknown and planned.after is None)
    if is_open or found.path != planned.path:
        return True
    return _fits(planned.after, found.model_dump(mode="json")["after"])


def _fits(planned: Any, found: Any) -> bool:
    if planned == repr(UNKNOWN):
        return True
    if isinstance(planned, dict) and isinstance(found, dict):
        return planned.keys() == found.keys() and all(_fits(planned[k], found[k]) for k in found)
    if isinstance(planned, list) and isinstance(found, list) and len(planned) == len(found):
        return all(map(_fits, planned, found))
    return is_equal(planned, found)


_INIT_ERROR = "#initerror"


def find_forced_replacement(
    old: ResourceState, goal: ResourceState, replaced: AbstractSet[str]
) -> Diff | None:
    """The replacement that no provider is asked about; None when there is no such reason.

    `replaced` holds the URNs that this run replaces.
    """
    if _is_triggered(old, goal):
        return _replacement("replacement_trigger", PlanReason.REPLACEMENT_REQUESTED)
    if replaced & set(goal.replace_with):
        return dependent_diff(["replace_with"])
    if goal.deleted_with in replaced:
        return dependent_diff(["deleted_with"])
    if bool(old.provider) != bool(goal.provider):
        return _replacement("provider", PlanReason.FIELD_FORCES_REPLACEMENT)
    return None


def find_requested_replacement() -> Diff:
    """The replacement that the user asks for."""
    return _replacement("id", PlanReason.REPLACEMENT_REQUESTED)


def dependent_diff(keys: Sequence[str]) -> Diff:
    """The replacement of what cannot outlive another resource, because of these properties."""
    reason = PlanReason.DEPENDENCY_REPLACED
    return Diff(changes=True, replaces=keys, delete_before_replace=False, reason=reason)


def _replacement(key: str, reason: PlanReason) -> Diff:
    return Diff(changes=True, replaces=[key], delete_before_replace=False, reason=reason)


def _is_triggered(old: ResourceState, goal: ResourceState) -> bool:
    before = values.unwrap_secrets(old.replacement_trigger)
    after = values.unwrap_secrets(goal.replacement_trigger)
    if values.contains_unknown(after):
        return True
    return before is not None and after is not None and not values.are_equal(before, after)


def refuse_unknown_trigger(goal: ResourceState) -> None:
    """In a real run a trigger must be known. Raises EngineError."""
    if values.contains_unknown(goal.replacement_trigger):
        raise EngineError(
            f"{goal.urn}: replacement_trigger is not known, because what it depends on has failed"
        )


def compare(
    host: ProviderHost, old: ResourceState, goal: ResourceState, *, urn: str | None = None
) -> Diff:
    """What the provider says of the inputs of `goal`, else what the engine sees itself.

    As in Pulumi, `replace_on_changes` works only where the provider leaves the comparison to the
    engine: the stock host does not pass on which properties changed.
    """
    if not goal.custom:
        found = list(property_paths.differences(old.inputs, goal.inputs))
        return Diff(changes=bool(found), replaces=(), delete_before_replace=False)
    diff = host.diff(urn or goal.urn, old.id, old.outputs, goal.inputs, goal.provider)
    changed: list[Path] = []
    if diff.changes is None:
        changed = _differences(old.inputs, goal.inputs, goal.ignore_changes)
        diff = replace(diff, changes=bool(changed))
    return _replacing(diff, changed, goal.replace_on_changes, broken=bool(old.init_errors))


def _differences(olds: PropertyMap, news: PropertyMap, ignored: Sequence[str]) -> list[Path]:
    compared, _ = property_paths.ignore_changes(olds, news, ignored)
    return list(property_paths.differences(olds, compared))


def _replacing(
    diff: Diff, changed: Sequence[Path], replace_on_changes: Sequence[str], *, broken: bool
) -> Diff:
    """The diff with a replacement for what the program wants replaced when it changes."""
    try:
        patterns = [property_paths.parse(text) for text in replace_on_changes]
    except property_paths.PathError as error:
        raise EngineError(f"replace_on_changes: {error}") from error
    keys = [
        str(path[0])
        for path in changed
        if any(property_paths.covers(pattern, path) for pattern in patterns)
    ]
    unfinished = broken and any(property_paths.covers(each, (_INIT_ERROR,)) for each in patterns)
    if unfinished:
        keys.append(_INIT_ERROR)
    if not keys:
        return diff
    replaces = list(dict.fromkeys([*diff.replaces, *keys]))
    return replace(diff, changes=diff.changes or unfinished, replaces=replaces)

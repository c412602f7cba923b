"""Compare old outputs with new inputs, field by field, without a request.

`Lifecycle.diff` decides by the result, and plans show it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gpuform.providers import lifetime
from gpuform.providers.context import ProviderContext
from gpuform.providers.lifecycle.traits import Properties, Traits
from gpuform.providers.lifetime import Power
from gpuform.providers.permissions import Permission
from gpuform.providers.platform import PROVIDER_KEY
from gpuform.providers.records import Drains
from gpuform.providers.repairing import build_repair_changes
from gpuform.schemas.changes import RESUME_PREFIX, Action, FieldChange, requires_action
from gpuform.schemas.changes import compute_changes as field_changes
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.values import is_equal


def find_changes(
    kind: Traits,
    context: ProviderContext,
    object_id: str,
    old: Properties,
    declared: Properties,
    *,
    is_unclaimed: bool,
) -> list[FieldChange]:
    """Return the changes that a plan of this resource shows and that decide about an update.

    Beside the changes of `compare_inputs` these are: the claim of an unclaimed resource; the
    resumption of a resource that is not ready, unless a change replaces the resource or another
    change already acts (a stuck resource is always resumed); and, only if no other change acts, the
    end of an interrupted removal of nodes or of an interrupted create of parts.

    Args:
        kind: the kind of the resource.
        context: has the stack's records of interrupted operations.
        object_id: the id of the object; empty: no records count.
        old: the stored outputs.
        declared: the new inputs in their declared types.
        is_unclaimed: the program names a provider for the resource, and the state does not.

    Raises:
        GpuformError: a node that a person requests to repair cannot be repaired as requested.
    """
    changes = compare_inputs(kind, old, declared)
    if is_unclaimed:
        reason = "the state does not record which program manages the resource"
        changes.append(_create_recorded_change(PROVIDER_KEY, Action.ADD, None, None, reason))
    # An update that acts also waits until the object is ready: one entry of the plan is enough.
    shows_resumption = not requires_action(changes) or kind.hooks.is_stuck(old)
    if (
        old.get("ready") is False
        and shows_resumption
        and not any(change.replaces for change in changes)
    ):
        reason = f"{RESUME_PREFIX}{old.get('not_ready_reason') or 'not ready yet'}"
        changes.append(_create_recorded_change("ready", Action.UPDATE, False, True, reason))
    # Any update ends the removal: an entry of its own is needed only if nothing else acts.
    if not requires_action(changes) and was_interrupted(context, object_id):
        reason = "the removal of nodes was interrupted: the remaining nodes are uncordoned"
        changes.append(FieldChange("drain", Action.UPDATE, "begun", "ended", because=reason))
    begun_parts = find_begun_parts(kind, context, object_id, old)
    if begun_parts and not requires_action(changes):
        reason = (
            f"an interrupted update may have created {', '.join(begun_parts)}: gpuform "
            "looks for the object, and deletes it if it is not declared"
        )
        changes.append(
            FieldChange(kind.parts_field, Action.UPDATE, "begun", "ended", because=reason)
        )
    return changes


def was_interrupted(context: ProviderContext, object_id: str) -> bool:
    """Return True if the stack's records have an unfinished removal of the object's nodes."""
    return bool(object_id) and Drains.from_intents(context.intents).find(object_id) is not None


def find_begun_parts(
    kind: Traits, context: ProviderContext, object_id: str, old: Properties
) -> Sequence[str]:
    """Return the names of nodes or other parts possibly created by an interrupted update."""
    if not kind.parts_field or not object_id:
        return ()
    stored = old.get(kind.parts_field) or ()
    return context.intents.find_begun_parts(context.urn, object_id, stored)


def _create_recorded_change(
    path: str, action: Action, before: Any, after: Any, because: str
) -> FieldChange:
    """Return a change for the state alone, of which nothing is sent to the platform."""
    return FieldChange(path, action, before, after, because=because, state_only=True)


def compare_inputs(kind: Traits, old: Properties, declared: Properties) -> list[FieldChange]:
    """Return the changes from stored to declared inputs, the kind's own changes and due repairs.

    A stopped object that stays off adds an entry that is not a change (KEEP), with the reason. If a
    change replaces the object, values that are no longer declared count as removed.

    Some changes are only recorded in the state: of gpuform's own fields; of a required field (or
    the kind's import field) that the platform never returns and an import has left out, whose
    declaration is believed; and of a field whose declared value an output already shows. The last
    two replace nothing.

    Raises:
        GpuformError: a node that a person requests to repair cannot be repaired as requested.
    """
    stored_inputs = extract_inputs(kind, old)
    current = apply_running_hours(kind, old, declared)
    # Parsing is expensive, and most often the old declaration equals the new one.
    previous = declared if stored_inputs == declared else parse_inputs(kind, stored_inputs)
    planned = {*kind.planned_fields, *kind.hooks.list_planned_fields(current)}
    before, after = (
        {name: value for name, value in values.items() if name not in planned}
        for values in (previous, current)
    )
    resting = (
        [_describe_rest(kind.power, old, declared)]
        if kind.power and current is not declared
        else []
    )
    repairs = list(
        build_repair_changes(
            kind.hooks.decide_repairs(old, current), replaces=kind.is_recreated_by_repair
        )
    )
    visible_changes = [
        *(
            _mark_recorded(kind, old, stored_inputs, change)
            for change in field_changes(kind.inputs, before, after)
        ),
        *kind.hooks.find_planned_changes(old, current),
    ]
    # A new object has no values of the old one, so undeclared values mean something else now.
    if any(change.replaces for change in (*visible_changes, *repairs)):
        before, after = (
            {name: value for name, value in values.items() if name in planned}
            for values in (previous, current)
        )
        visible_changes = list(
            _adjust_for_replacement(visible_changes, field_changes(kind.inputs, before, after))
        )
    return [*visible_changes, *resting, *repairs]


def _mark_recorded(
    kind: Traits, old: Properties, stored_inputs: Properties, change: FieldChange
) -> FieldChange:
    """Return the change of a field, with a reason if the change is only recorded in the state.

    `compare_inputs` says which changes these are.
    """
    rules = get_field_rules(kind.inputs)
    only_recorded = partial(replace, change, state_only=True)
    if rules[change.path.split(".")[0].split("[")[0]].state_only:
        return only_recorded(because="a setting of gpuform: not sent to the platform")
    field = kind.inputs.model_fields.get(change.path)
    is_needed = field is not None and (field.is_required() or change.path == kind.import_field)
    # An import cannot read the value: a replacement because of it would destroy the imported
    # object.
    if is_needed and rules[change.path].write_only and change.path not in stored_inputs:
        because = "recorded in the state: the platform does not return the value"
        return only_recorded(replaces=False, because=because)
    observed_output = rules[change.path].observed_as if change.path in rules else ""
    if observed_output and change.after is not None and change.after == old.get(observed_output):
        return only_recorded(
            replaces=False, because="recorded in the state: the platform already has the value"
        )
    return change


def _adjust_for_replacement(
    visible_changes: Iterable[FieldChange], declared_otherwise: Iterable[FieldChange]
) -> Iterator[FieldChange]:
    """Yield the changes of a replacement: a new object has the declared values and no others.

    Args:
        visible_changes: the changes of an object that stays, whose platform keeps undeclared
            values.
        declared_otherwise: the changes of values that a kind compares with its parts. Parts that
            stay show some of these changes; the parts of a new object are created as declared.
    """
    visible_changes = list(visible_changes)
    reported_paths = {change.path for change in visible_changes if change.action is not Action.KEEP}
    others = (replace(change, replaces=False) for change in declared_otherwise)
    for change in (
        *visible_changes,
        *(other_change for other_change in others if other_change.path not in reported_paths),
    ):
        if change.action is not Action.KEEP:
            yield change
        # KEEP is the platform's value of the old object; the new one begins without it.
        elif change.path not in reported_paths:
            reported_paths.add(change.path)
            reason = "no longer declared: the new object has no value for it"
            yield replace(change, action=Action.DELETE, after=None, because=reason)


def _describe_rest(power: Power, old: Properties, declared: Properties) -> FieldChange:
    """Return the plan's entry with the reason why a stopped object stays off; not a change."""
    if declared.get("schedule") is not None:
        return lifetime.describe_rest(power, declared)
    reason = f"stopped by {old.get('stopped_by')}; --allow {Permission.START_TERMINATED} starts it"
    return FieldChange(power.field, Action.KEEP, power.off, power.off, because=reason)


def apply_running_hours(kind: Traits, old: Properties, declared: Properties) -> Properties:
    """Return `declared`, with the power field set to off if the stopped object has to stay stopped.

    With a declared schedule, the object stays stopped outside of its running hours; without one, if
    `should_stay_off` of the kind says so. If the object runs, or is to be started, the result is
    `declared` itself.
    """
    if kind.power is None or not kind.hooks.is_off(old):
        return declared
    if declared.get("schedule") is not None:
        stays_off = lifetime.is_out_of_hours(declared)
    else:
        stays_off = kind.hooks.should_stay_off(old, declared)
    return {**declared, kind.power.field: kind.power.off} if stays_off else declared


def extract_inputs(kind: Traits, values: Mapping[str, Any]) -> Properties:
    """Return the properties of stored outputs that are inputs and no outputs of the kind.

    Former names of inputs are replaced by the present ones. An input with the name of an output is
    left out: there the state has the platform's value, not the declared one.
    """
    rules, computed = get_field_rules(kind.inputs), kind.outputs.model_fields
    # A state that an older version wrote has fields under their former names.
    values = kind.inputs.rename_former_fields(values)
    return {
        name: value
        for name, value in values.items()
        if name in rules and not rules[name].spelling and name not in computed
    }


def parse_inputs(kind: Traits, values: Properties) -> Properties:
    """Return these inputs in their declared types, without names that the kind does not have.

    Invalid values stay as they are; with one of them, nothing is normalized.
    """
    return validate_inputs(kind.inputs, values)[0]


def parse_stored_inputs(kind: Traits, stored: Mapping[str, Any]) -> Properties:
    """Return the inputs in stored outputs, in their declared types."""
    return parse_inputs(kind, extract_inputs(kind, stored))


def select_import_inputs(kind: Traits, observed: Mapping[str, Any]) -> Properties:
    """Return the inputs that a program has to declare for an imported object.

    Required inputs stay, unless they are None; False, zeros, empty values and defaults are left
    out.
    """
    rules, fields = get_field_rules(kind.inputs), kind.inputs.model_fields

    def is_worth_declaring(key: str, value: Any) -> bool:
        # A documented default holds without a declaration, too, and would only lengthen the
        # program.
        default = rules[key].default
        return bool(value) and not (default and is_equal(default.value, value))

    return {
        key: value
        for key, value in observed.items()
        if (fields[key].is_required() and value is not None) or is_worth_declaring(key, value)
    }

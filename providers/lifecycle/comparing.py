"""What has to change: old outputs against new inputs, field by field. Nobody is asked."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gpuform.providers import lifetime
from gpuform.providers.forms import PROVIDER_KEY
from gpuform.providers.lifecycle.traits import Traits
from gpuform.providers.lifetime import Power
from gpuform.providers.permissions import Permission
from gpuform.providers.properties import Properties
from gpuform.providers.repairing import changes_of
from gpuform.schemas.changes import RESUME_PREFIX, Action, FieldChange, requires_action
from gpuform.schemas.changes import compute_changes as field_changes
from gpuform.schemas.checking import check
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.values import is_equal


def changes(
    kind: Traits,
    old: Properties,
    declared: Properties,
    *,
    is_interrupted: bool,
    is_unclaimed: bool,
    begun: Sequence[str] = (),
) -> list[FieldChange]:
    """What a plan of this resource shows, and what decides about an update.

    `declared` is typed. `is_interrupted` says that a removal of nodes has begun and not ended,
    `is_unclaimed` that the state, unlike the program, has no provider for the resource. `begun` are
    the names of parts that an interrupted update may have created.
    """
    found = compare(kind, old, declared)
    if is_unclaimed:
        because = "the state does not say which program manages the resource"
        found.append(_recorded(PROVIDER_KEY, Action.ADD, None, None, because))
    is_news = not requires_action(found) or kind.is_stuck(old)
    if old.get("ready") is False and is_news and not any(change.replaces for change in found):
        because = f"{RESUME_PREFIX}{old.get('not_ready_reason') or 'not ready yet'}"
        found.append(_recorded("ready", Action.UPDATE, False, True, because))
    if is_interrupted and not requires_action(found):
        because = "a removal of nodes was interrupted: those that stay are uncordoned"
        found.append(FieldChange("drain", Action.UPDATE, "begun", "ended", because=because))
    if begun and not requires_action(found):
        because = (
            f"an interrupted update may have created {', '.join(begun)}: it is looked for, and "
            "deleted where it is not declared"
        )
        found.append(
            FieldChange(kind.parts_field, Action.UPDATE, "begun", "ended", because=because)
        )
    return found


def _recorded(path: str, action: Action, before: Any, after: Any, because: str) -> FieldChange:
    return FieldChange(path, action, before, after, because=because, state_only=True)


def compare(kind: Traits, old: Properties, declared: Properties) -> list[FieldChange]:
    """The changes of the inputs, `declared` typed. A change that sends nothing replaces nothing.

    Nothing is sent for three kinds of fields: for gpuform's own; for a required one (or
    the kind's `asked`) that the platform never returns and that an import has left out, whose
    declaration is believed; and for
    one whose declared value an output already shows.
    """
    echoed, rules = echo(kind, old), get_field_rules(kind.inputs)
    unread = {
        name
        for name, field in kind.inputs.model_fields.items()
        if (field.is_required() or name == kind.import_field)
        and rules[name].write_only
        and name not in echoed
    }

    def judged(change: FieldChange) -> FieldChange:
        only_recorded = partial(replace, change, state_only=True)
        if rules[change.path.split(".")[0].split("[")[0]].state_only:
            return only_recorded(because="gpuform's own: nothing is sent")
        if change.path in unread:
            because = "recorded: the platform does not return it"
            return only_recorded(replaces=False, because=because)
        shown = rules[change.path].observed_as if change.path in rules else ""
        if shown and change.after is not None and change.after == old.get(shown):
            return only_recorded(replaces=False, because="recorded: it is there already")
        return change

    now = at_this_hour(kind, old, declared)
    # What was declared before is most often what is declared now, and was checked with it.
    recorded = declared if echoed == declared else typed(kind, echoed)
    planned = kind.get_planned_fields(now)
    before, after = (_without(each, planned) for each in (recorded, now))
    found = field_changes(kind.inputs, before, after)
    resting = [_resting(kind.power, old, declared)] if kind.power and now is not declared else []
    repairs = list(changes_of(kind.decide_repairs(old, now), replaces=kind.is_recreated_by_repair))
    shown = [*map(judged, found), *kind.find_planned_changes(old, now)]
    if any(change.replaces for change in (*shown, *repairs)):
        before, after = (_only(each, planned) for each in (recorded, now))
        shown = list(_of_a_new_object(shown, field_changes(kind.inputs, before, after)))
    return [*shown, *resting, *repairs]


def _of_a_new_object(
    shown: Iterable[FieldChange], declared_otherwise: Iterable[FieldChange]
) -> Iterator[FieldChange]:
    """Yield what a plan shows of a replacement: the new object has what is declared, no more.

    Args:
        shown: the changes as of an object that stays, whose platform keeps what is not declared.
        declared_otherwise: the changes of what a kind compares with its parts. Parts that stay
            show some of these; the parts of a new object are made as declared.
    """
    shown = list(shown)
    told = {change.path for change in shown if change.action is not Action.KEEP}
    others = (replace(change, replaces=False) for change in declared_otherwise)
    for change in (*shown, *(each for each in others if each.path not in told)):
        if change.action is not Action.KEEP:
            yield change
        elif change.path not in told:
            told.add(change.path)
            because = "no longer declared: the new one is made without it"
            yield replace(change, action=Action.DELETE, after=None, because=because)


def _only(values: Properties, names: Collection[str]) -> Properties:
    return {name: value for name, value in values.items() if name in names}


def _resting(power: Power, old: Properties, declared: Properties) -> FieldChange:
    """For a plan to say why it does not start what is off; it is no change."""
    if declared.get("schedule") is not None:
        return lifetime.resting(power, declared)
    because = f"stopped by {old.get('stopped_by')}; --allow {Permission.START_TERMINATED} starts it"
    return FieldChange(power.field, Action.KEEP, power.off, power.off, because=because)


def _without(values: Properties, names: Collection[str]) -> Properties:
    return {name: value for name, value in values.items() if name not in names}


def at_this_hour(kind: Traits, old: Properties, declared: Properties) -> Properties:
    """The declaration as it holds now: what is off outside of its running hours stays so.

    So does what its kind leaves off.
    """
    if kind.power is None or not kind.is_off(old):
        return declared
    if declared.get("schedule") is not None:
        stays_off = lifetime.is_out_of_hours(declared)
    else:
        stays_off = kind.should_stay_off(old, declared)
    return {**declared, kind.power.field: kind.power.off} if stays_off else declared


def echo(kind: Traits, values: Mapping[str, Any]) -> Properties:
    """The inputs in a property map.

    An input that shares its name with an output is left out: there the map has the platform's
    value, and not what was declared.
    """
    rules, computed = get_field_rules(kind.inputs), kind.outputs.model_fields
    values = kind.inputs.rename_former_fields(values)
    return {
        name: value
        for name, value in values.items()
        if name in rules and not rules[name].spelling and name not in computed
    }


def typed(kind: Traits, values: Properties) -> Properties:
    """Inputs in their declared types; those that are not valid are left out."""
    return check(kind.inputs, values)[0]


def importable(kind: Traits, observed: Mapping[str, Any]) -> Properties:
    """What a program would declare: what it must, and no zero, nothing off and no default."""
    rules, fields = get_field_rules(kind.inputs), kind.inputs.model_fields

    def is_worth_it(key: str, value: Any) -> bool:
        default = rules[key].default
        return bool(value) and not (default and is_equal(default.value, value))

    return {
        key: value
        for key, value in observed.items()
        if (fields[key].is_required() and value is not None) or is_worth_it(key, value)
    }

"""Whether a resource stays, changes or is replaced: Pulumi's reasons, in Pulumi's order."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from gpuform.schemas.plan import PlanReason
from gpuform.stacks.engine import values
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.provider_host import Diff, ProviderHost
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.values import Path, PropertyMap, property_paths

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
    return before is not None and after is not None and not values.equal(before, after)


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

"""The properties that a change gives values to, against those that a plan gives values to."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PlanAction, PropertyChange, ResourceChange
from gpuform.schemas.values import UNKNOWN, is_equal

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

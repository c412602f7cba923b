"""Find what makes a planned change dangerous, and format why a resource changes.

Every review view (terminal text, Markdown, HTML, JSON) calls these functions, so that all of them
order and describe changes alike.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PlanAction, PlanReason, PropertyChange, ResourceChange
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.stacks.engine.urn import is_noise
from gpuform.stacks.review.value_text import PROVIDER_PROPERTY, counted, short_type

_DESTROYING: Final = (PlanAction.REPLACE, PlanAction.DELETE)
_VOLUME_KINDS: Final = ("SharedVolume", "VolumeClaim")
"""Kinds that store people's data."""
_KINDS_WITHOUT_OBJECT: Final = ("HealthGate",)
"""Kinds without an object on a platform: replacing one destroys nothing."""


class Risk(StrEnum):
    """Name the kind of loss that a change causes; the JSON review has these values."""

    DESTROYS_CAPACITY = "destroys_capacity"
    DESTROYS_DATA = "destroys_data"
    DESTROYS_OTHERS = "destroys_others"
    REPLACES = "replaces"
    DELETES = "deletes"
    REDUCES_CAPACITY = "reduces_capacity"
    ENDS_JOBS = "ends_jobs"
    RETAINS = "retains"
    GONE = "gone"
    WEAKENS_GATES = "weakens_gates"


@dataclass(frozen=True, slots=True)
class Danger:
    """Describe what one change loses.

    `text` is the loss in words (`destroys 16 GPUs`); `loses_data` is True where stored data is
    lost.
    """

    risk: Risk
    text: str
    loses_data: bool = False


def find_danger(change: ResourceChange) -> Danger | None:
    """Return the loss caused by `change`, or None for a harmless change.

    A resource that leaves the state while its object stays is dangerous, and so is a vanished
    object.
    """
    # The object is lost already: the plan only reports the loss.
    if change.reason is PlanReason.GONE:
        with_gpus = "" if change.gpus_removed == 0 else f", with {_format_gpu_count(change)}"
        return Danger(Risk.GONE, f"no longer exists on the platform{with_gpus}")
    # A resource that stays can lose capacity, too.
    if change.action not in _DESTROYING:
        return _find_reduction(change)
    # `retainOnDelete`: the resource leaves the state only.
    if change.retained:
        loss = "is removed from the stack: it stays on the platform and keeps costing money"
        return Danger(Risk.RETAINS, loss)
    return _find_destruction(change)


def rank_change(change: ResourceChange) -> tuple[float, bool, bool, bool]:
    """Return a sort key for `change`: most removed GPUs first, then lost data, then dangers.

    An unknown number of GPUs comes first if the change is dangerous, and else counts as 0.
    """
    danger, lost = find_danger(change), change.gpus_removed
    # An unknown number of GPUs may be any number: it sorts before every known one.
    lost_first = (float("inf") if danger else 0) if lost is None else lost
    is_data = danger is not None and danger.loses_data
    return -lost_first, not is_data, danger is None, change.action is PlanAction.SAME


def sort_by_danger(changes: Iterable[ResourceChange]) -> list[ResourceChange]:
    """Sort `changes` by danger, then by name. The stack's own entry and providers are left out."""
    visible_changes = [change for change in changes if not is_noise(change.type)]
    return sorted(visible_changes, key=lambda item: (rank_change(item), _get_name_sort_key(item)))


def _find_destruction(change: ResourceChange) -> Danger | None:
    """Return the danger of a deletion or replacement: lost GPUs or data, or the object itself.

    An unknown number of GPUs counts as lost. None for kinds without an object on the platform.
    """
    kind, data = short_type(change.type).rpartition(":")[2], _describe_lost_data(change)
    lost = [f"destroys {_format_gpu_count(change)}"] if change.gpus_removed != 0 else []
    if data:
        lost.append(f"and {data}" if lost else f"destroys {data}")
    if lost:
        risk = Risk.DESTROYS_CAPACITY if change.gpus_removed != 0 else Risk.DESTROYS_DATA
        return Danger(risk, _describe_loss(" ".join(lost), change), loses_data=bool(data))
    # The platform deletes what other people created inside the object together with it.
    if change.others:
        return Danger(Risk.DESTROYS_OTHERS, _describe_loss("is deleted for good", change))
    if kind in _KINDS_WITHOUT_OBJECT:
        return None
    if change.action is PlanAction.DELETE:
        return Danger(Risk.DELETES, _describe_loss("is deleted for good", change))
    return Danger(Risk.REPLACES, _describe_loss("deletes and recreates it", change))


def _find_reduction(change: ResourceChange) -> Danger | None:
    """Return the danger of a change to a kept resource, or None.

    Dangers are removed GPUs or nodes, use that stops, and jobs that are ended.
    """
    is_shrinking = change.leaving is not None and change.leaving.is_shrinking
    if change.gpus_removed or (change.gpus_removed is None and is_shrinking):
        return Danger(
            Risk.REDUCES_CAPACITY, _describe_loss(f"removes {_format_gpu_count(change)}", change)
        )
    if change.in_use:
        return Danger(
            Risk.REDUCES_CAPACITY, _describe_loss("stops a resource that is in use", change)
        )
    if change.leaving is not None and change.leaving.evicts_jobs:
        return Danger(Risk.ENDS_JOBS, _describe_jobs(change.leaving))
    return None


def _describe_loss(lost: str, change: ResourceChange) -> str:
    """Join `lost` with the affected jobs, foreign objects, use and prepaid time of the change."""
    parts = [lost]
    if change.leaving is not None and change.leaving.busy:
        parts.append(_describe_jobs(change.leaving))
    if change.others:
        names = ", ".join(change.others)
        parts.append(f"also deletes {names}, which others created in {change.name}")
    parts += [change.in_use] if change.in_use else []
    if change.before is not None and change.before.reserved and change.action in _DESTROYING:
        until = f" until {change.before.paid_until}" if change.before.paid_until else ""
        parts.append(f"the prepaid time{until} is lost")
    return "; ".join(parts)


def _describe_jobs(removed_nodes: RemovedNodes) -> str:
    """Describe the future of the jobs on removed nodes."""
    # A job on several nodes is one job.
    count = len({job.id for node in removed_nodes.busy for job in node.jobs})
    busy_count = len(removed_nodes.busy)
    nodes = counted(busy_count, "removed node")
    if removed_nodes.evicts_jobs:
        return f"ends {counted(count, 'job')} on {nodes}"
    return f"{counted(count, 'job')} {'runs' if count == 1 else 'run'} on {nodes}"


def _describe_lost_data(change: ResourceChange) -> str:
    """Describe the stored data lost by the change; empty for no data or surviving data."""
    if change.before is not None and change.before.keeps_data:
        return ""
    # A volume of unknown size still has data.
    is_volume = short_type(change.type).rpartition(":")[2] in _VOLUME_KINDS
    expenses = change.before.expenses if change.before else ()
    storage = (
        expense for expense in expenses if expense.what == "storage" and not expense.outlives
    )
    sizes = [str(expense) for expense in storage if expense.amount != 0]
    size = " and ".join(sizes)
    if is_volume:
        return f"a volume of {size} and its data" if size else "a volume and its data"
    return f"{size} of storage with its data" if size else ""


_DIGITS: Final = re.compile(r"(\d+)")


def _get_name_sort_key(change: ResourceChange) -> tuple[list[tuple[bool, int, str]], str]:
    """Return a key for sorting names by number: node-2 before node-10."""
    parts = _DIGITS.split(change.name)
    is_number = [
        # `split` with a group puts the digits at the odd places.
        index % 2 == 1 and len(part) < _MAX_NUMBER_DIGITS
        for index, part in enumerate(parts)
    ]
    numbered_parts = zip(is_number, parts, strict=True)
    return [
        (not is_digits, int(part) if is_digits else 0, part) for is_digits, part in numbered_parts
    ], change.urn


_MAX_NUMBER_DIGITS: Final = 18
"""Longer runs of digits are compared as text: they are ids, not counters."""


def _format_gpu_count(change: ResourceChange) -> str:
    """Format how many GPUs the change removes; None is an unknown number."""
    if change.gpus_removed is None:
        return "an unknown number of GPUs"
    maximum = "up to " if change.may_remove_fewer_gpus else ""
    return f"{maximum}{counted(change.gpus_removed, 'GPU')}"


_REASONS = {
    PlanReason.DEPENDENCY_REPLACED: "a dependency is replaced",
    PlanReason.REPLACEMENT_REQUESTED: "requested",
    PlanReason.NOT_READY: "not ready yet: the run waits again",
    PlanReason.NOT_IN_PROGRAM: "no longer in the program",
    PlanReason.REPLACED_EARLIER: "an earlier run has replaced this object, but not deleted it",
    PlanReason.IMPORTED: "the stack takes over the existing object unchanged",
    PlanReason.READ_BY_PROGRAM: "the program reads it and does not own it",
    PlanReason.DRIFT: "changed outside of this stack",
    PlanReason.GONE: "no longer exists on the platform",
    PlanReason.EXPIRED: "it has expired",
}
_FORCES = "forces it"


def format_reason(change: ResourceChange) -> str:
    """Format the reason of `change` with the fields forcing a replacement; empty for no reason."""
    reasons = [
        f"{_join_paths(paths)} {cause}" if paths else cause for paths, cause in list_causes(change)
    ]
    return "; ".join(reasons)


def list_causes(change: ResourceChange) -> list[tuple[list[str], str]]:
    """List the causes of `change`, each with the paths of fields whose change forces a replacement.

    Any other cause has no paths.
    """
    paths_by_cause: dict[str, list[str]] = {}
    is_dependency_replaced = change.reason is PlanReason.DEPENDENCY_REPLACED
    if is_dependency_replaced and change.replace_paths:
        paths_by_cause["depends on a replaced resource"] = [*change.replace_paths]
    elif change.reason is not PlanReason.FIELD_FORCES_REPLACEMENT:
        cause = _REASONS.get(change.reason, "")
        return [([], cause)] if cause else []
    for property_change in change.changes:
        if property_change.forces_replacement and not (
            is_dependency_replaced and property_change.path in change.replace_paths
        ):
            paths_by_cause.setdefault(property_change.because or _FORCES, []).append(
                property_change.path
            )
    # A preview's JSON names the fields, but does not say which of them changed.
    if not paths_by_cause and change.replace_paths:
        paths_by_cause = {_FORCES: [*change.replace_paths]}
    return [(paths, cause) for cause, paths in paths_by_cause.items()]


def list_forcing_paths(change: ResourceChange) -> tuple[str, ...]:
    """List the changed properties of `change` which force replacement, else its `replace_paths`."""
    own = tuple(
        property_change.path
        for property_change in change.changes
        if property_change.forces_replacement
    )
    # A preview's JSON has only the second list.
    return own or change.replace_paths


def select_visible_changes(change: ResourceChange) -> tuple[PropertyChange, ...]:
    """Select the property changes shown in a plan. The SDK's pickled provider is left out.

    Of an unchanged resource only the properties whose value the platform keeps are shown.
    """
    visible_changes = (
        property_change
        for property_change in change.changes
        if property_change.path != PROVIDER_PROPERTY
    )
    # An unchanged resource shows only what the platform keeps in spite of the program.
    if change.action is PlanAction.SAME:
        visible_changes = (
            property_change
            for property_change in visible_changes
            if property_change.action is Action.KEEP
        )
    return tuple(visible_changes)


def is_visible(change: ResourceChange) -> bool:
    """Return True if the resource changes, or has a property change to show."""
    return change.action is not PlanAction.SAME or bool(select_visible_changes(change))


def format_gpu_delta(change: ResourceChange) -> str:
    """Format removed and added GPUs: `-16 GPUs, +64 GPUs`; empty if none is known."""
    parts = []
    if change.gpus_removed:
        maximum = "up to " if change.may_remove_fewer_gpus else ""
        parts.append(f"{maximum}-{counted(change.gpus_removed, 'GPU')}")
    if change.gpus_added:
        parts.append(f"+{counted(change.gpus_added, 'GPU')}")
    return ", ".join(parts)


def _join_paths(paths: list[str]) -> str:
    """Join one or more paths in words: `a, b and c`."""
    return paths[0] if len(paths) == 1 else f"{', '.join(paths[:-1])} and {paths[-1]}"

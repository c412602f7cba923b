"""Find what is dangerous about a change, and why a resource changes.

What a reviewer has to see first, comes first.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PlanAction, PlanReason, PropertyChange, ResourceChange
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.stacks.engine.urn import is_noise
from gpuform.stacks.review.value_text import PROVIDER_PROPERTY, counted, short_type

_DESTROYING: Final = (PlanAction.REPLACE, PlanAction.DELETE)
_VOLUMES: Final = ("SharedVolume", "VolumeClaim")
"""The kinds whose objects are there to hold people's data."""
_RECORDS: Final = ("HealthGate",)
"""The kinds that are nothing on a platform: replacing one destroys nothing."""


class Risk(StrEnum):
    """Why a change is dangerous."""

    DESTROYS_CAPACITY = "destroys_capacity"
    DESTROYS_DATA = "destroys_data"
    DESTROYS_OTHERS = "destroys_others"
    REPLACES = "replaces"
    DELETES = "deletes"
    REDUCES_CAPACITY = "reduces_capacity"
    ENDS_JOBS = "ends_jobs"
    RETAINS = "retains"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Danger:
    """`text` says what will be lost: `destroys 16 GPUs`. `loses_data`: what people stored is."""

    risk: Risk
    text: str
    loses_data: bool = False


def danger_of(change: ResourceChange) -> Danger | None:
    """What is dangerous about the change; None when nothing is."""
    if change.reason is PlanReason.GONE:
        with_gpus = "" if change.gpus_removed == 0 else f", with {_gpus(change)}"
        return Danger(Risk.GONE, f"is gone from the platform{with_gpus}")
    if change.action not in _DESTROYING:
        return _reduction(change)
    if change.retained:
        text = "is no longer the stack's: it stays on the platform, and goes on costing"
        return Danger(Risk.RETAINS, text)
    return _destruction(change)


def rank(change: ResourceChange) -> tuple[float, bool, bool, bool]:
    """The place in a review: what takes most GPUs away first, then data, then other dangers."""
    danger, lost = danger_of(change), change.gpus_removed
    lost_first = (float("inf") if danger else 0) if lost is None else lost
    is_data = danger is not None and danger.loses_data
    return -lost_first, not is_data, danger is None, change.action is PlanAction.SAME


def ranked(changes: Iterable[ResourceChange]) -> list[ResourceChange]:
    """The changes by `rank`, then by name, without the stack's own entry and providers."""
    shown = [change for change in changes if not is_noise(change.type)]
    return sorted(shown, key=lambda each: (rank(each), _by_name(each)))


def _destruction(change: ResourceChange) -> Danger | None:
    kind, data = short_type(change.type).rpartition(":")[2], _data(change)
    lost = [f"destroys {_gpus(change)}"] if change.gpus_removed != 0 else []
    if data:
        lost.append(f"and {data}" if lost else f"destroys {data}")
    if lost:
        risk = Risk.DESTROYS_CAPACITY if change.gpus_removed != 0 else Risk.DESTROYS_DATA
        return Danger(risk, _told(" ".join(lost), change), loses_data=bool(data))
    if change.others:
        return Danger(Risk.DESTROYS_OTHERS, _told("is deleted for good", change))
    if kind in _RECORDS:
        return None
    if change.action is PlanAction.DELETE:
        return Danger(Risk.DELETES, _told("is deleted for good", change))
    return Danger(Risk.REPLACES, _told("deletes it and makes it anew", change))


def _reduction(change: ResourceChange) -> Danger | None:
    """Capacity that goes though the resource stays."""
    if change.gpus_removed:
        return Danger(Risk.REDUCES_CAPACITY, _told(f"takes {_gpus(change)} away", change))
    if change.in_use:
        return Danger(Risk.REDUCES_CAPACITY, _told("stops what is in use", change))
    if change.leaving is not None and change.leaving.evicts_jobs:
        return Danger(Risk.ENDS_JOBS, _jobs(change.leaving))
    return None


def _told(lost: str, change: ResourceChange) -> str:
    """What is lost, and what else people lose by it."""
    parts = [lost]
    if change.leaving is not None and change.leaving.busy:
        parts.append(_jobs(change.leaving))
    if change.others:
        names = ", ".join(change.others)
        parts.append(f"{names}, which others have put into it, {_go(change.others)} with it")
    parts += [change.in_use] if change.in_use else []
    if change.before is not None and change.before.reserved and change.action in _DESTROYING:
        until = f" until {change.before.paid_until}" if change.before.paid_until else ""
        parts.append(f"what is prepaid{until} is lost")
    return "; ".join(parts)


def _go(names: Sequence[str]) -> str:
    return "goes" if len(names) == 1 else "go"


def _jobs(leaving: RemovedNodes) -> str:
    """What becomes of the jobs on the nodes that go."""
    count = len({job.id for node in leaving.busy for job in node.jobs})
    nodes = (
        f"{counted(len(leaving.busy), 'node')} that {'goes' if len(leaving.busy) == 1 else 'go'}"
    )
    if leaving.evicts_jobs:
        return f"ends {counted(count, 'job')} on {nodes}"
    return f"{counted(count, 'job')} {'runs' if count == 1 else 'run'} on {nodes}"


def _data(change: ResourceChange) -> str:
    """Return what people stored on it, in words; empty where that is nothing, or stays."""
    if change.before is not None and change.before.keeps_data:
        return ""
    is_volume = short_type(change.type).rpartition(":")[2] in _VOLUMES
    expenses = change.before.expenses if change.before else ()
    storage = (each for each in expenses if each.what == "storage" and not each.outlives)
    sizes = [str(each) for each in storage if each.amount != 0]
    size = " and ".join(sizes)
    if is_volume:
        return f"a volume of {size} and its data" if size else "a volume and its data"
    return f"{size} of storage with its data" if size else ""


_DIGITS: Final = re.compile(r"(\d+)")


def _by_name(change: ResourceChange) -> tuple[list[tuple[bool, int, str]], str]:
    """node-2 before node-10."""
    parts = _DIGITS.split(change.name)
    is_number = [at % 2 == 1 and len(part) < _LONGEST for at, part in enumerate(parts)]
    found = zip(is_number, parts, strict=True)
    return [(not yes, int(part) if yes else 0, part) for yes, part in found], change.urn


_LONGEST: Final = 18
"""Digits of a number that is compared as one."""


def _gpus(change: ResourceChange) -> str:
    if change.gpus_removed is None:
        return "an unknown number of GPUs"
    return counted(change.gpus_removed, "GPU")


_REASONS = {
    PlanReason.DEPENDENCY_REPLACED: "what it depends on is replaced",
    PlanReason.REPLACEMENT_REQUESTED: "asked for",
    PlanReason.NOT_READY: "go on waiting until it is ready",
    PlanReason.NOT_IN_PROGRAM: "no longer in the program",
    PlanReason.IMPORTED: "the object becomes the stack's, as it is",
    PlanReason.READ_BY_PROGRAM: "the program reads it and does not own it",
    PlanReason.DRIFT: "changed outside of this stack",
    PlanReason.GONE: "no longer exists on the platform",
    PlanReason.EXPIRED: "it has expired",
}
_FORCES = "forces it"


def why(change: ResourceChange) -> str:
    """The reason, with the fields that force a replacement; empty when there is nothing to say."""
    said = [f"{_listed(paths)} {text}" if paths else text for paths, text in causes(change)]
    return "; ".join(said)


def causes(change: ResourceChange) -> list[tuple[list[str], str]]:
    """The reasons one by one: the fields that each is about, if any, and its text."""
    found: dict[str, list[str]] = {}
    fell = change.reason is PlanReason.DEPENDENCY_REPLACED
    if fell and change.replace_paths:
        found["depends on what is replaced"] = [*change.replace_paths]
    elif change.reason is not PlanReason.FIELD_FORCES_REPLACEMENT:
        text = _REASONS.get(change.reason, "")
        return [([], text)] if text else []
    for each in change.changes:
        if each.forces_replacement and not (fell and each.path in change.replace_paths):
            found.setdefault(each.because or _FORCES, []).append(each.path)
    if not found and change.replace_paths:
        found = {_FORCES: [*change.replace_paths]}
    return [(paths, text) for text, paths in found.items()]


def forcing(change: ResourceChange) -> tuple[str, ...]:
    """The properties that force a replacement."""
    own = tuple(found.path for found in change.changes if found.forces_replacement)
    return own or change.replace_paths


def shown_properties(change: ResourceChange) -> tuple[PropertyChange, ...]:
    """The property changes that people want to read."""
    found = (p for p in change.changes if p.path != PROVIDER_PROPERTY)
    if change.action is PlanAction.SAME:
        found = (p for p in found if p.action is Action.KEEP)
    return tuple(found)


def is_shown(change: ResourceChange) -> bool:
    """Whether there is anything to tell of the resource."""
    return change.action is not PlanAction.SAME or bool(shown_properties(change))


def gpus_note(change: ResourceChange) -> str:
    """`-16 GPUs, +64 GPUs`; empty when none comes or goes, as far as it is known."""
    parts = []
    if change.gpus_removed:
        parts.append(f"-{counted(change.gpus_removed, 'GPU')}")
    if change.gpus_added:
        parts.append(f"+{counted(change.gpus_added, 'GPU')}")
    return ", ".join(parts)


def _listed(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{', '.join(paths[:-1])} and {paths[-1]}"

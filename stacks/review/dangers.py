"""What is dangerous about a change: the one place that every view, question and log tells it from.

What a reviewer has to see first, comes first.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gpuform.schemas.drain import Leaving
from gpuform.schemas.plan import PlanAction, PlanReason, ResourceChange
from gpuform.stacks.engine.urn import is_noise
from gpuform.stacks.review.names import counted, short_type

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
    if change.leaving is not None and change.leaving.evicts:
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


def _jobs(leaving: Leaving) -> str:
    """What becomes of the jobs on the nodes that go."""
    count = len({job.id for node in leaving.busy for job in node.jobs})
    nodes = (
        f"{counted(len(leaving.busy), 'node')} that {'goes' if len(leaving.busy) == 1 else 'go'}"
    )
    if leaving.evicts:
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

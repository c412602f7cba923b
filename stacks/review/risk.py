"""What is dangerous about a change, and what a reviewer has to see first."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gpuform.schemas.plan import PlanAction, PlanReason, ResourceChange
from gpuform.stacks.review.names import counted, is_noise, short_type

_DESTROYING: Final = (PlanAction.REPLACE, PlanAction.DELETE)
_DATA: Final = ("SharedVolume", "VolumeClaim")
"""The kinds whose objects hold people's data."""
_RECORDS: Final = ("HealthGate",)
"""The kinds that are nothing on a platform: replacing one destroys nothing."""


class Risk(StrEnum):
    """Why a change is dangerous."""

    DESTROYS_CAPACITY = "destroys_capacity"
    DESTROYS_DATA = "destroys_data"
    REPLACES = "replaces"
    DELETES = "deletes"
    REDUCES_CAPACITY = "reduces_capacity"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Danger:
    """`text` says what will be lost: `destroys 16 GPUs`."""

    risk: Risk
    text: str


def danger_of(change: ResourceChange) -> Danger | None:
    """What is dangerous about the change; None when nothing is."""
    kind = short_type(change.type).rpartition(":")[2]
    lost = change.gpus_removed
    if change.reason is PlanReason.GONE:
        with_gpus = "" if lost == 0 else f", with {_gpus(change)}"
        return Danger(Risk.GONE, f"is gone from the platform{with_gpus}")
    if change.action not in _DESTROYING:
        return _reduction(change)
    if lost != 0:
        return Danger(Risk.DESTROYS_CAPACITY, f"destroys {_gpus(change)}")
    if kind in _DATA:
        return Danger(Risk.DESTROYS_DATA, "destroys a volume and its data")
    if kind in _RECORDS:
        return None
    if change.action is PlanAction.DELETE:
        return Danger(Risk.DELETES, "is deleted for good")
    return Danger(Risk.REPLACES, "deletes it and makes it anew")


def rank(change: ResourceChange) -> tuple[float, bool, bool, bool]:
    """The place in a review: what takes most GPUs away first, then data, then other dangers."""
    danger, lost = danger_of(change), change.gpus_removed
    lost_first = (float("inf") if danger else 0) if lost is None else lost
    is_data = danger is not None and danger.risk is Risk.DESTROYS_DATA
    return -lost_first, not is_data, danger is None, change.action is PlanAction.SAME


def ranked(changes: Iterable[ResourceChange]) -> list[ResourceChange]:
    """The changes by `rank`, without the stack's own entry and providers."""
    return sorted((change for change in changes if not is_noise(change.type)), key=rank)


def _reduction(change: ResourceChange) -> Danger | None:
    """Capacity that goes though the resource stays."""
    if change.gpus_removed:
        return Danger(Risk.REDUCES_CAPACITY, f"takes {_gpus(change)} away")
    return None


def _gpus(change: ResourceChange) -> str:
    if change.gpus_removed is None:
        return "an unknown number of GPUs"
    return counted(change.gpus_removed, "GPU")

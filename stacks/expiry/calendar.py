"""What is due of a resource now: its end, a stop or a start."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.providers import permissions
from gpuform.providers.idleness import Verdict
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.lifetime import written
from gpuform.providers.permissions import Permission
from gpuform.schemas.lifetime import FIELDS, ends_at, hours_of
from gpuform.stacks.engine.executing import Due
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.values import PropertyMap
from gpuform.stacks.lifecycles import lifecycle_of
from gpuform.stacks.pricing.footprints import told


def timed(entries: Iterable[ResourceState]) -> list[ResourceState]:
    """Those that declare an end, running hours or idleness."""
    return [
        entry
        for entry in entries
        if entry.custom
        and not (entry.delete or entry.external or entry.pending_replacement)
        and any(entry.inputs.get(name) is not None for name in (*FIELDS, "idle"))
        and lifecycle_of(entry.type) is not None
    ]


@dataclass(frozen=True, slots=True)
class TimeTable:
    """A calendar of the engine's at one moment, `now` in Unix seconds.

    Once something was `shown` (by URN, and whether it ends), nothing else is due.
    """

    now: float
    shown: Mapping[str, bool] | None = None
    idle: Callable[[ResourceState], Verdict | None] = lambda _: None
    """What is idle, by whoever asks the platforms."""

    def __call__(self, entry: ResourceState) -> Due | None:
        due = self._due(entry)
        if due is None or self.shown is None:
            return due
        return due if self.shown.get(entry.urn) is (due.inputs is None) else None

    def _due(self, entry: ResourceState) -> Due | None:
        lifecycle = lifecycle_of(entry.type)
        if lifecycle is None:
            return None
        values, seen = told(entry.inputs), told(entry.outputs)
        end = ends_at(values, lifecycle.created_at(seen))
        if end is not None and end <= self.now:
            return Due(f"expired at {written(end)}")
        return _by_hours(lifecycle, entry.inputs, values, seen, self.now) or _by_idleness(
            lifecycle, entry.inputs, self.idle(entry)
        )


def _by_idleness(
    lifecycle: type[Lifecycle[Any, Any]], inputs: PropertyMap, verdict: Verdict | None
) -> Due | None:
    """A stop and never anything else."""
    power = lifecycle.power
    if power is None or verdict is None or not verdict.is_idle:
        return None
    return Due(f"idle: {verdict.because}", {**inputs, power.field: power.off})


def end_is_unknown(entry: ResourceState) -> bool:
    """Whether a time to live counts from a creation that the platform does not tell."""
    lifecycle = lifecycle_of(entry.type)
    if lifecycle is None or entry.inputs.get("ttl") is None:
        return False
    return lifecycle.created_at(told(entry.outputs)) is None


def _by_hours(
    lifecycle: type[Lifecycle[Any, Any]],
    inputs: PropertyMap,
    values: Mapping[str, Any],
    seen: Mapping[str, Any],
    now: float,
) -> Due | None:
    power, hours = lifecycle.power, hours_of(values)
    if power is None or hours is None:
        return None
    others = {name: value for name, value in inputs.items() if name != power.field}
    if not hours.covers(now):
        return Due("outside of its running hours", {**others, power.field: power.off})
    if seen.get("stopped_by") and Permission.START_TERMINATED not in permissions.given():
        return None
    return Due("its running hours have begun", others)

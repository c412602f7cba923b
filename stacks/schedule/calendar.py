"""What is due of a resource now: its end, a stop or a start."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.providers import permissions
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.lifetime import Verdict, find_creation_time, written
from gpuform.providers.permissions import Permission
from gpuform.schemas.policies.lifetime import FIELDS, ends_at, hours_of
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

    Once something was `shown` (by URN, and whether it ends), nothing else is due. By time only that
    is due which is due at the moment `later`, too: a person may have taken hours to say yes, and a
    clock may have jumped.
    """

    now: float
    shown: Mapping[str, bool] | None = None
    idle: Callable[[ResourceState], Verdict | None] = lambda _: None
    """What is idle, by whoever asks the platforms."""
    later: float | None = None
    is_emulated: bool = False
    """Whether the times are by an emulator's clock, which the state's own times are not."""

    def __call__(self, entry: ResourceState) -> Due | None:
        due = self.by_time(entry, self.now)
        if due is None:
            due = self._by_idleness(entry)
        elif self.later is not None and not self.is_due_at(entry, due, self.later):
            return None
        if due is None or self.shown is None:
            return due
        return due if self.shown.get(entry.urn) is (due.inputs is None) else None

    def _by_idleness(self, entry: ResourceState) -> Due | None:
        """A stop and never anything else."""
        lifecycle = lifecycle_of(entry.type)
        power = lifecycle.power if lifecycle else None
        verdict = self.idle(entry) if power else None
        if power is None or verdict is None or not verdict.is_idle:
            return None
        return Due(f"idle: {verdict.because}", {**entry.inputs, power.field: power.off})

    def is_due_at(self, entry: ResourceState, due: Due, moment: float) -> bool:
        """Whether the same is due by time at another moment."""
        then = self.by_time(entry, moment)
        return then is not None and then.because == due.because

    def by_time(self, entry: ResourceState, now: float) -> Due | None:
        """Return what is due at a moment by an end or by running hours; None for nothing."""
        lifecycle = lifecycle_of(entry.type)
        if lifecycle is None:
            return None
        values, seen = told(entry.inputs), told(entry.outputs)
        start = find_start(entry, entry.outputs, now, is_emulated=self.is_emulated)
        end = ends_at(values, start)
        if end is not None and end <= now:
            return Due(f"expired at {written(end)}")
        return _by_hours(lifecycle, entry.inputs, values, seen, now)


def find_start(
    entry: ResourceState, outputs: PropertyMap, now: float, *, is_emulated: bool
) -> float | None:
    """Return when the object of an entry was created, in Unix seconds; None if nobody knows.

    `outputs` are what was last seen of the object: those of the entry, or newer ones.
    """
    lifecycle = lifecycle_of(entry.type)
    if lifecycle is None:
        return None
    reported = lifecycle.created_at(told(outputs))
    return find_creation_time(reported, "" if is_emulated else entry.created, now)


def end_is_unknown(entry: ResourceState, now: float, *, is_emulated: bool = False) -> bool:
    """Whether a time to live counts from a creation that nobody knows."""
    if lifecycle_of(entry.type) is None or entry.inputs.get("ttl") is None:
        return False
    return find_start(entry, entry.outputs, now, is_emulated=is_emulated) is None


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

"""Decide what is due of a resource now: its end, a stop, a start, or the idle limit that it
declares.

Of an end that is a moment, the declaration itself tells that it is over. A time to live starts anew
with each object: that one has ended is kept beside the stack's state, until something else is
declared or its return is allowed.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.providers.context import Clock, ProviderContext, use_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.lifetime import Verdict, find_creation_time, format_moment
from gpuform.providers.operations import Settings
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Intents
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.lifetime import (
    LIFETIME_FIELDS,
    compute_expiry,
    read_idleness,
    read_running_hours,
)
from gpuform.stacks.engine.executing import DueChange
from gpuform.stacks.engine.registration import Registered, Registration
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.engine.values import PropertyMap, unwrap_secrets
from gpuform.stacks.pricing.footprints import told
from gpuform.stacks.resource_rules import lifecycle_of


def timed(entries: Iterable[ResourceState]) -> list[ResourceState]:
    """Those that declare an end, running hours or idleness."""
    return [
        entry
        for entry in entries
        if entry.custom
        and not (entry.delete or entry.external or entry.pending_replacement)
        and any(entry.inputs.get(name) is not None for name in (*LIFETIME_FIELDS, "idle"))
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

    def __call__(self, entry: ResourceState) -> DueChange | None:
        due = self.by_time(entry, self.now)
        if due is None:
            due = self._by_idleness(entry)
        elif self.later is not None and not self.is_due_at(entry, due, self.later):
            return None
        if due is None or self.shown is None:
            return due
        return due if self.shown.get(entry.urn) is (due.inputs is None) else None

    def _by_idleness(self, entry: ResourceState) -> DueChange | None:
        """A stop and never anything else."""
        lifecycle = lifecycle_of(entry.type)
        power = lifecycle.power if lifecycle else None
        verdict = self.idle(entry) if power else None
        if power is None or verdict is None or not verdict.is_idle:
            return None
        return DueChange(f"idle: {verdict.because}", {**entry.inputs, power.field: power.off})

    def is_due_at(self, entry: ResourceState, due: DueChange, moment: float) -> bool:
        """Whether the same is due by time at another moment."""
        then = self.by_time(entry, moment)
        return then is not None and then.reason == due.reason

    def by_time(self, entry: ResourceState, now: float) -> DueChange | None:
        """Return what is due at a moment by an end or by running hours; None for nothing."""
        lifecycle = lifecycle_of(entry.type)
        if lifecycle is None:
            return None
        values, seen = told(entry.inputs), told(entry.outputs)
        start = find_start(entry, entry.outputs, now, is_emulated=self.is_emulated)
        end = compute_expiry(values, start)
        if end is not None and end <= now:
            return DueChange(f"expired at {format_moment(end)}")
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
    reported = lifecycle.get_creation_time(told(outputs))
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
) -> DueChange | None:
    power, hours = lifecycle.power, read_running_hours(values)
    if power is None or hours is None:
        return None
    others = {name: value for name, value in inputs.items() if name != power.field}
    if not hours.contains_moment(now):
        return DueChange("outside of its running hours", {**others, power.field: power.off})
    if seen.get("stopped_by") and Permission.START_TERMINATED not in permissions.get_permissions():
        return None
    return DueChange("its running hours have begun", others)


@dataclass(slots=True)
class IdleWatch:
    """Asks by `settings`, and keeps by URN what was last told.

    Looks that are remembered are kept beside `intents`.
    """

    settings: Settings
    clock: Clock
    intents: Intents
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def __call__(self, entry: ResourceState) -> Verdict | None:
        """None where nothing is declared, or the resource is off already.

        What cannot be asked is not idle, and the verdict says so.
        """
        lifecycle, idleness = lifecycle_of(entry.type), read_idleness(told(entry.inputs))
        if lifecycle is None or idleness is None or lifecycle.is_off(told(entry.outputs)):
            return None
        try:
            known = told(entry.outputs)
            with use_context(
                ProviderContext(clock=self.clock, intents=self.intents, stored_properties=known)
            ):
                verdict = lifecycle.judge_idleness(self.settings, entry.id, idleness)
        except GpuformError as error:
            verdict = Verdict(is_idle=False, because=f"it cannot be told: {error.message}")
        if verdict is not None:
            self.verdicts[entry.urn] = verdict
        return verdict

    def lines(self) -> Iterator[str]:
        """Why what was asked about is not stopped."""
        for urn, verdict in self.verdicts.items():
            if not verdict.is_idle:
                yield f"{name_of(urn)} is not stopped as idle: {verdict.because}"


KIND: Final = "expired"
"""The name under which the backend keeps it."""


@dataclass(slots=True)
class Expired:
    """The URNs of what has expired, each with its `ttl` and when that was; read when asked for."""

    stack: Stack
    _known: dict[str, dict[str, Any]] | None = field(default=None)

    def refused(self, registration: Registration, _others: Registered) -> Iterator[Problem]:
        """A rule of the engine's: what expired by this `ttl` is made again only if allowed."""
        ttl = unwrap_secrets(registration.inputs.get("ttl"))
        if not isinstance(ttl, str) or registration.urn in self._there():
            return
        ended = self._read().get(_key(registration.urn))
        if ended is None or ended.get("ttl") != ttl:
            return
        if Permission.RENEW_EXPIRED not in permissions.get_permissions():
            yield Problem(
                "ttl",
                f"`gpuform expire` destroyed it at {ended.get('at')}, when its ttl of {ttl} was "
                "over: remove the resource, declare another ttl, or make it again for "
                f"{ttl} with --allow {Permission.RENEW_EXPIRED}",
            )

    def add(self, entries: Iterable[ResourceState], now: float) -> None:
        """Remembers what is about to expire: what is there is never taken for expired."""
        ended = {
            _key(entry.urn): {"ttl": ttl, "at": format_moment(now)}
            for entry in entries
            if isinstance(ttl := unwrap_secrets(entry.inputs.get("ttl")), str)
        }
        if ended:
            self._write({**self._read(), **ended})

    def settle(self, there: Collection[str]) -> None:
        """After a run: what is there again has not expired. Asks nobody if nothing was asked."""
        keys = set(map(_key, there))
        if self._known is not None and keys & self._known.keys():
            self._write({key: each for key, each in self._known.items() if key not in keys})

    def _there(self) -> set[str]:
        return {entry.urn for entry in self.stack.snapshot.resources if not entry.delete}

    def _read(self) -> Mapping[str, dict[str, Any]]:
        if self._known is None:
            stack = self.stack
            kept = stack.backend.read_own(stack.project.name, stack.name, KIND)
            try:
                found = json.loads(kept) if kept else {}
            except ValueError:
                found = {}
            self._known = found if isinstance(found, dict) else {}
        return self._known

    def _write(self, known: dict[str, dict[str, Any]]) -> None:
        self._known, stack = known, self.stack
        data = json.dumps(known, indent=2, sort_keys=True).encode() if known else None
        stack.backend.write_own(stack.project.name, stack.name, KIND, data)


def _key(urn: str) -> str:
    """The URN without the name of the stack, which may get another one."""
    return urn.partition("::")[2]

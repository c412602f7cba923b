"""Decide which change of a resource is due, and list what begins or ends at a known time.

`gpuform expire` calls this module through `noticing.ProvenCalendar`: a change is the end, a stop, a
start, or a stop by the idle limit. An end that is a moment stands in the declaration. A time to
live starts again with each object: an expired one is recorded beside the stack's state, until
something else is declared or its return is allowed. `gpuform calendar` lists the times of states,
and plans show what they change in the calendar.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpuform.providers.context import Clock, ProviderContext, get_run_context, use_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.lifetime import IdlenessVerdict, find_creation_time, format_moment
from gpuform.providers.operations import Settings
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Intents
from gpuform.providers.values import PropertyMap, unwrap_secrets
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.lifetime import (
    LIFETIME_FIELDS,
    WEEKDAYS,
    ScheduleInputs,
    compute_expiry,
    read_idleness,
    read_running_hours,
)
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.schemas.timeline import AgendaEntry, WeeklyHours
from gpuform.stacks.engine.digests import RegistrationIndex
from gpuform.stacks.engine.executing import DueChange
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.pricing import to_plain_properties
from gpuform.stacks.resource_rules import find_lifecycle
from gpuform.stacks.review.value_text import counted


def select_timed(entries: Iterable[ResourceState]) -> list[ResourceState]:
    """Select the entries with an end, running hours or an idle limit.

    Objects that are only looked up, or wait for deletion or replacement, are left out.
    """
    return [
        entry
        for entry in entries
        if entry.custom
        and not (entry.delete or entry.external or entry.pending_replacement)
        and any(entry.inputs.get(name) is not None for name in (*LIFETIME_FIELDS, "idle"))
        and find_lifecycle(entry.type) is not None
    ]


@dataclass(frozen=True, slots=True)
class TimeTable:
    """Decide what is due at one moment; implements the engine's calendar.

    Args:
        now: the moment, in Unix seconds.
        approved: what a person has confirmed (by URN, and whether it ends); nothing else is due
            then.
        later: a second moment at which a due change must be due, too: a person may have taken hours
            to confirm, and a clock may have jumped.
    """

    now: float
    approved: Mapping[str, bool] | None = None
    idle: Callable[[ResourceState], IdlenessVerdict | None] = lambda _: None
    """Returns the idle verdict of an entry, from whoever asks the platforms."""
    later: float | None = None
    is_emulated: bool = False
    """Whether the times are those of an emulator's clock, unlike the times in the state."""

    def __call__(self, entry: ResourceState) -> DueChange | None:
        due = self.find_due_by_time(entry, self.now)
        if due is None:
            due = self._find_due_by_idleness(entry)
        elif self.later is not None and not self.is_due_at(entry, due, self.later):
            return None
        if due is None or self.approved is None:
            return due
        # A confirmed stop must not become a deletion meanwhile.
        return due if self.approved.get(entry.urn) is (due.inputs is None) else None

    def _find_due_by_idleness(self, entry: ResourceState) -> DueChange | None:
        """Return the change to stop an idle resource; None for one in use or of unknown use."""
        lifecycle = find_lifecycle(entry.type)
        power = lifecycle.power if lifecycle else None
        verdict = self.idle(entry) if power else None
        if power is None or verdict is None or not verdict.is_idle:
            return None
        return DueChange(f"idle: {verdict.because}", {**entry.inputs, power.field: power.off})

    def is_due_at(self, entry: ResourceState, due: DueChange, moment: float) -> bool:
        """Return True if `due` is also due by time at `moment`."""
        due_then = self.find_due_by_time(entry, moment)
        return due_then is not None and due_then.reason == due.reason

    def find_due_by_time(self, entry: ResourceState, now: float) -> DueChange | None:
        """Return the change due at `now` by an end or by running hours, or None.

        Running hours give a change even if the object is already stopped or started. An object that
        was stopped outside of gpuform is started only with the permission `start-terminated`.
        """
        lifecycle = find_lifecycle(entry.type)
        if lifecycle is None:
            return None
        values, observed = to_plain_properties(entry.inputs), to_plain_properties(entry.outputs)
        start = find_start(entry, entry.outputs, now, is_emulated=self.is_emulated)
        end = compute_expiry(values, start)
        if end is not None and end <= now:
            return DueChange(f"expired at {format_moment(end)}")
        return _find_due_by_hours(lifecycle, entry.inputs, values, observed, now)


def find_start(
    entry: ResourceState, outputs: PropertyMap, now: float, *, is_emulated: bool
) -> float | None:
    """Return when the object of an entry was created, in Unix seconds; None if unknown.

    Args:
        entry: the resource in the state.
        outputs: the last observed outputs of the object: those of the entry, or newer ones.
        now: the present time in Unix seconds; a creation time after it is ignored.
        is_emulated: whether `now` is the time of an emulator's clock. Then the creation time in the
            state, which is a real time, is ignored.
    """
    lifecycle = find_lifecycle(entry.type)
    if lifecycle is None:
        return None
    reported = lifecycle.hooks.get_creation_time(to_plain_properties(outputs))
    # The state has real times, which an emulator's clock does not follow.
    return find_creation_time(reported, "" if is_emulated else entry.created, now)


def is_end_unknown(entry: ResourceState, now: float, *, is_emulated: bool = False) -> bool:
    """Return True if the entry has a `ttl` but no known creation time.

    Then nobody knows when the `ttl` ends. `now` and `is_emulated` are as for `find_start`.
    """
    if find_lifecycle(entry.type) is None or entry.inputs.get("ttl") is None:
        return False
    return find_start(entry, entry.outputs, now, is_emulated=is_emulated) is None


def _find_due_by_hours(
    lifecycle: type[Lifecycle[Any, Any]],
    inputs: PropertyMap,
    values: Mapping[str, Any],
    observed: Mapping[str, Any],
    now: float,
) -> DueChange | None:
    """Return the change to stop a resource outside of running hours, or to start it inside.

    Returns None for a resource without running hours, and for one that was stopped outside of
    gpuform, unless the run has the permission to start it. A resource that is already stopped or
    started gets a change, too: the engine then finds nothing to do.
    """
    power, hours = lifecycle.power, read_running_hours(values)
    if power is None or hours is None:
        return None
    others = {name: value for name, value in inputs.items() if name != power.field}
    if not hours.contains_moment(now):
        return DueChange("outside its running hours", {**others, power.field: power.off})
    if (
        observed.get("stopped_by")
        and Permission.START_TERMINATED not in get_run_context().permissions
    ):
        return None
    return DueChange("its running hours have begun", others)


@dataclass(slots=True)
class IdleWatch:
    """Ask platforms for idleness, and keep the last verdict by URN.

    Observations that must survive the run are stored beside `intents`.
    """

    settings: Settings
    clock: Clock
    intents: Intents
    verdicts: dict[str, IdlenessVerdict] = field(default_factory=dict)

    def __call__(self, entry: ResourceState) -> IdlenessVerdict | None:
        """Return whether the resource is idle; None without an idle limit, or if it is off already.

        If the platform does not answer, the verdict is "not idle", with the reason.
        """
        lifecycle, outputs = find_lifecycle(entry.type), to_plain_properties(entry.outputs)
        idleness = read_idleness(to_plain_properties(entry.inputs))
        if lifecycle is None or idleness is None or lifecycle.hooks.is_off(outputs):
            return None
        try:
            with use_context(
                ProviderContext(clock=self.clock, intents=self.intents, stored_properties=outputs)
            ):
                verdict = lifecycle.hooks.judge_idleness(self.settings, entry.id, idleness)
        except GpuformError as error:
            # An error must never stop a resource.
            verdict = IdlenessVerdict(
                is_idle=False, because=f"its idleness is unknown: {error.message}"
            )
        if verdict is not None:
            self.verdicts[entry.urn] = verdict
        return verdict

    def format_verdicts(self) -> Iterator[str]:
        """Yield a line for each resource judged not idle, with the reason."""
        for urn, verdict in self.verdicts.items():
            if not verdict.is_idle:
                yield f"{name_of(urn)} is not stopped as idle: {verdict.because}"


RECORD_KIND: Final = "expired"
"""The name under which the backend stores the expired resources."""


@dataclass(slots=True)
class ExpiredResources:
    """Record expired resources by URN with their `ttl` and time; read on first use."""

    stack: Stack
    _entries: dict[str, dict[str, Any]] | None = field(default=None)

    def find_renewal_problems(
        self, registration: Registration, _others: RegistrationIndex
    ) -> Iterator[Problem]:
        """Yield a problem if `registration` recreates an expired resource without permission.

        A resource that still exists, or with another `ttl` than the recorded one, passes.
        """
        ttl = unwrap_secrets(registration.inputs.get("ttl"))
        if not isinstance(ttl, str):
            return
        # Recorded before its deletion, a resource may still exist after a failure.
        existing = (entry.urn for entry in self.stack.snapshot.resources if not entry.delete)
        if registration.urn in existing:
            return
        ended = self._read().get(_get_stackless_urn(registration.urn))
        if ended is None or ended.get("ttl") != ttl:
            return
        if Permission.RENEW_EXPIRED not in self.stack.run_context.permissions:
            yield Problem(
                "ttl",
                f"`gpuform expire` destroyed it at {ended.get('at')}, when its ttl of {ttl} was "
                "over: remove the resource, declare another ttl, or recreate it for "
                f"{ttl} with --allow {Permission.RENEW_EXPIRED}",
            )

    def add(self, entries: Iterable[ResourceState], now: float) -> None:
        """Record expiring resources with `ttl` and time. Resources without a `ttl` are skipped."""
        ended = {
            _get_stackless_urn(entry.urn): {"ttl": ttl, "at": format_moment(now)}
            for entry in entries
            if isinstance(ttl := unwrap_secrets(entry.inputs.get("ttl")), str)
        }
        if ended:
            self._write({**self._read(), **ended})

    def forget_recreated(self, existing_urns: Collection[str]) -> None:
        """Forget the recorded resources in `existing_urns`, after a run.

        Does nothing if the run has not read the records.
        """
        keys = set(map(_get_stackless_urn, existing_urns))
        if self._entries is not None and keys & self._entries.keys():
            self._write({key: entry for key, entry in self._entries.items() if key not in keys})

    def _read(self) -> Mapping[str, dict[str, Any]]:
        """Read the record of expired resources, once; empty if missing or damaged."""
        if self._entries is None:
            stack = self.stack
            data = stack.backend.read_own(stack.project.name, stack.name, RECORD_KIND)
            try:
                entries = json.loads(data) if data else {}
            # Somebody edited the file: without it a ttl starts again, and nothing is destroyed.
            except ValueError:
                entries = {}
            self._entries = entries if isinstance(entries, dict) else {}
        return self._entries

    def _write(self, entries: dict[str, dict[str, Any]]) -> None:
        """Write the record of expired resources, and remove the file of an empty record."""
        self._entries, stack = entries, self.stack
        data = json.dumps(entries, indent=2, sort_keys=True).encode() if entries else None
        stack.backend.write_own(stack.project.name, stack.name, RECORD_KIND, data)


def _get_stackless_urn(urn: str) -> str:
    """Return the URN without the stack's name, which may change."""
    return urn.partition("::")[2]


_CERTIFICATION: Final = "Certification"
_MAX_NODES: Final = 3
_CHANGING: Final = frozenset({Op.CREATE, Op.UPDATE, Op.REPLACE, Op.DELETE, Op.IMPORT})


def list_agenda(
    entries: Iterable[ResourceState], now: float, *, is_emulated: bool, stack: str = ""
) -> list[AgendaEntry]:
    """Return the calendar of the entries of a state, the next date first.

    Args:
        entries: the entries of the state, with the last observed outputs.
        now: the present time in Unix seconds.
        is_emulated: whether `now` is the time of an emulator's clock.
        stack: the stack of the entries, as PROJECT/STACK.
    """
    lines = [
        line.model_copy(update={"stack": stack})
        for entry in entries
        for line in _list_entry_lines(entry, entry.outputs, now, is_emulated=is_emulated)
    ]
    return sort_agenda(lines)


def sort_agenda(lines: Iterable[AgendaEntry]) -> list[AgendaEntry]:
    """Return the lines by time: those of now first, those of unknown time last."""
    return sorted(lines, key=lambda line: (line.moment, line.stack, line.name, line.kind))


def list_agenda_notices(
    steps: Iterable[Step], now: float, *, is_emulated: bool
) -> Iterator[Notice]:
    """Yield a notice for each line a plan's steps add to the calendar or remove from it.

    `now` and `is_emulated` are as for `list_agenda`.
    """
    for step in steps:
        if step.op not in _CHANGING or step.skipped:
            continue
        old = None if step.op in (Op.CREATE, Op.IMPORT) else step.old
        is_same_object = old is not None and step.op is Op.UPDATE
        before = _list_planned_lines(old, old.outputs if old else {}, now, is_emulated=is_emulated)
        new = step.new
        if is_same_object and new is not None and old is not None and not new.created:
            # A preview has not done the step, which keeps when the object was created.
            new = replace(new, created=old.created)
        observed = old.outputs if is_same_object and old is not None else {}
        after = _list_planned_lines(new, observed, now, is_emulated=is_emulated)
        # What has ended is no news: `gpuform expire` deletes for that reason.
        before = [line for line in before if not line.end or line.end > format_moment(now)]
        yield from _build_notices("removed from the calendar", before, after)
        yield from _build_notices("added to the calendar", after, before)


def _build_notices(
    verb: str, lines: Sequence[AgendaEntry], others: Sequence[AgendaEntry]
) -> Iterator[Notice]:
    """Yield a notice for each line missing in `others`."""
    for line in lines:
        if line not in others:
            message = f"{verb}: {format_line(line)}"
            identity = {"urn": line.urn, "name": line.name}
            yield Notice(kind=NoticeKind.CALENDAR, text=message, at=line.moment, **identity)


def format_line(line: AgendaEntry) -> str:
    """Return text and time of a line: `expires at 2026-12-31T00:00:00Z`."""
    if line.hours is not None:
        return line.text
    times = [f"from {line.start}" if line.start else "", f"until {line.end}" if line.end else ""]
    if line.kind == "expiry":
        times = [f"at {line.end}" if line.end else ""]
    return " ".join([line.text, *filter(None, times)])


def _list_planned_lines(
    entry: ResourceState | None,
    observed: PropertyMap,
    now: float,
    *,
    is_emulated: bool,
) -> list[AgendaEntry]:
    """Return the declared lines of an entry; an observation alone is no change of a plan."""
    if entry is None:
        return []
    lines = _list_entry_lines(entry, observed, now, is_emulated=is_emulated)
    return [line for line in lines if line.kind in ("reservation", "expiry", "running_hours")]


def _list_entry_lines(
    entry: ResourceState, observed: PropertyMap, now: float, *, is_emulated: bool
) -> Iterator[AgendaEntry]:
    """Yield the lines of an entry; none for an object only looked up, or due for deletion."""
    lifecycle = find_lifecycle(entry.type)
    is_old = entry.delete or entry.pending_replacement
    if lifecycle is None or not entry.custom or entry.external or is_old:
        return
    values, outputs = to_plain_properties(entry.inputs), to_plain_properties(observed)
    lines = [
        *_list_expiry(values, find_start(entry, observed, now, is_emulated=is_emulated)),
        *_list_running_hours(values, now),
        *lifecycle.hooks.list_agenda_entries(values, outputs),
    ]
    if lifecycle.kind == _CERTIFICATION:
        lines += _list_stale_certification(outputs)
    identity = {"urn": entry.urn, "name": name_of(entry.urn)}
    yield from (line.model_copy(update=identity) for line in lines)


def _list_expiry(values: Mapping[str, Any], created: float | None) -> Iterator[AgendaEntry]:
    """Yield when the resource expires; the time is empty while a `ttl` has no known beginning."""
    expires, ttl = values.get("expires"), values.get("ttl")
    if not isinstance(expires, str) and not isinstance(ttl, str):
        return
    end = compute_expiry(values, created)
    # A new object has no creation time yet, and a platform may never report one.
    description = "expires" if end is not None else f"expires {ttl} after its creation"
    yield AgendaEntry(
        kind="expiry", text=description, end="" if end is None else format_moment(end)
    )


def _list_running_hours(values: Mapping[str, Any], now: float) -> Iterator[AgendaEntry]:
    """Yield the weekly hours of the resource, with the next change in UTC."""
    hours = read_running_hours(values)
    if hours is None:
        return
    declared = ScheduleInputs.model_validate(values["schedule"])
    days = tuple(day for day in WEEKDAYS if day in hours.days)
    next_change = hours.find_next_change(now)
    moment = "" if next_change is None else format_moment(next_change)
    is_running = hours.contains_moment(now)
    yield AgendaEntry(
        kind="running_hours",
        text=f"runs {', '.join(days)} {declared.start}-{declared.stop} {declared.time_zone}",
        start="" if is_running else moment,
        end=moment if is_running else "",
        hours=WeeklyHours(
            days=days, start=declared.start, stop=declared.stop, time_zone=declared.time_zone
        ),
    )


def _list_stale_certification(outputs: Mapping[str, Any]) -> Iterator[AgendaEntry]:
    """Yield a line for the nodes no longer covered by the evidence of a certification."""
    gaps = outputs.get("gaps")
    nodes = [str(gap.get("node")) for gap in gaps or () if isinstance(gap, Mapping)]
    if nodes:
        more = f" and {len(nodes) - _MAX_NODES} more" if len(nodes) > _MAX_NODES else ""
        names = f"{', '.join(nodes[:_MAX_NODES])}{more}"
        description = f"certification is stale for {counted(len(nodes), 'node')}: {names}"
        yield AgendaEntry(kind="certification", text=description)

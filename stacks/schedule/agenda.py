"""List everything that begins or ends at a known time, from the entries of a state or a plan.

`gpuform calendar` reads states with this module, and plans show what they change in the calendar.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gpuform.providers.lifetime import format_moment
from gpuform.providers.values import PropertyMap
from gpuform.schemas.agenda import AgendaEntry, WeeklyHours
from gpuform.schemas.policies.lifetime import (
    WEEKDAYS,
    ScheduleInputs,
    compute_expiry,
    read_running_hours,
)
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.pricing import to_plain_properties
from gpuform.stacks.resource_rules import find_lifecycle
from gpuform.stacks.review.value_text import counted
from gpuform.stacks.schedule.calendar import find_start

_CERTIFICATION: Final = "Certification"
_MAX_NODES: Final = 3
_CHANGING: Final = frozenset({Op.CREATE, Op.UPDATE, Op.REPLACE, Op.DELETE, Op.IMPORT})


def list_agenda(
    entries: Iterable[ResourceState], now: float, *, is_emulated: bool, stack: str = ""
) -> list[AgendaEntry]:
    """Return the calendar of the entries of a state, what is due next first.

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
    """Yield a notice for each line that the steps of a plan add to the calendar or remove from it.

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
    """Yield a notice for each line that is not one of the others."""
    for line in lines:
        if line not in others:
            text = f"{verb}: {format_line(line)}"
            identity = {"urn": line.urn, "name": line.name}
            yield Notice(kind=NoticeKind.CALENDAR, text=text, at=line.moment, **identity)


def format_line(line: AgendaEntry) -> str:
    """Return what a line is, and when: `expires at 2026-12-31T00:00:00Z`."""
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
    """Return the declared lines of an entry; what is only observed is no change of a plan."""
    if entry is None:
        return []
    lines = _list_entry_lines(entry, observed, now, is_emulated=is_emulated)
    return [line for line in lines if line.kind in ("reservation", "expiry", "running_hours")]


def _list_entry_lines(
    entry: ResourceState, observed: PropertyMap, now: float, *, is_emulated: bool
) -> Iterator[AgendaEntry]:
    """Yield the lines of an entry; none for one that is only looked up, or waits for deletion."""
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
    text = "expires" if end is not None else f"expires {ttl} after its creation"
    yield AgendaEntry(kind="expiry", text=text, end="" if end is None else format_moment(end))


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
    """Yield a line for nodes that the evidence of a certification does not cover any more."""
    gaps = outputs.get("gaps")
    nodes = [str(gap.get("node")) for gap in gaps or () if isinstance(gap, Mapping)]
    if nodes:
        more = f" and {len(nodes) - _MAX_NODES} more" if len(nodes) > _MAX_NODES else ""
        names = f"{', '.join(nodes[:_MAX_NODES])}{more}"
        text = f"certification is stale for {counted(len(nodes), 'node')}: {names}"
        yield AgendaEntry(kind="certification", text=text)

"""The calendar of a state, what a plan changes in it, and its iCalendar file."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from icalendar import Calendar
from support.platforms.text_encodings import ENCODINGS

from gpuform.providers.lifetime import format_moment
from gpuform.providers.values import Secret
from gpuform.schemas.timeline import Agenda, AgendaEntry
from gpuform.stacks.engine.digests import RegistrationIndex
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.resource_rules import check_reservations
from gpuform.stacks.review.timeline_text import render_agenda, render_icalendar
from gpuform.stacks.schedule.calendar import list_agenda, list_agenda_notices

NOW = 1_800_000_000.0
MADE = datetime.fromtimestamp(NOW, UTC).isoformat()
DAY = 86400.0
HOURS = {"days": ["mon", "fri"], "start": "08:00", "stop": "20:00", "time_zone": "Europe/Berlin"}
TIMES = {
    "reservation_start_time": "2027-03-01T08:00:00Z",
    "reservation_end_time": "2027-03-31T08:00:00Z",
}
SCHEDULED = {
    "billing_type": "SCHEDULED_CAPACITY",
    "num_gpus": 16.0,
    "capacity_pool_id": "pool-research",
    **TIMES,
}


def create_entry(
    inputs: dict[str, Any],
    outputs: dict[str, Any] | None = None,
    kind: str = "together:Cluster",
    **fields: Any,
) -> ResourceState:
    type_ = f"pulumi-python:dynamic/gpuform.{kind}"
    urn = f"urn:pulumi:dev::demo::{type_}::train"
    return ResourceState(urn, True, type_, id="c1", inputs=inputs, outputs=outputs or {}, **fields)


def list_lines(entry: ResourceState) -> list[tuple[str, str, str, str]]:
    lines = list_agenda([entry], NOW, is_emulated=False, stack="demo/dev")
    return [(it.kind, it.text, it.start, it.end) for it in lines]


@pytest.mark.parametrize(
    ("inputs", "outputs", "line"),
    [
        ({"expires": "2027-12-31"}, {}, ("expiry", "expires", "", "2028-01-01T00:00:00Z")),
        (
            {"ttl": "2d"},
            {"created_at": MADE},
            ("expiry", "expires", "", format_moment(NOW + 2 * DAY)),
        ),
        ({"ttl": "2d"}, {}, ("expiry", "expires 2d after its creation", "", "")),
        (
            SCHEDULED,
            {},
            (
                "reservation",
                "reservation of 16 GPUs of capacity pool pool-research for 30 days",
                "2027-03-01T08:00:00Z",
                "2027-03-31T08:00:00Z",
            ),
        ),
        (
            {"billing_type": "RESERVED", "duration_days": 30.0, "num_reserved_gpus": 8.0},
            {"created_at": MADE},
            (
                "reservation",
                "reservation of 8 GPUs for 30 days",
                format_moment(NOW),
                format_moment(NOW + 30 * DAY),
            ),
        ),
        (
            {"billing_type": "RESERVED", "duration_days": 30.0},
            {"created_at": MADE, "reserved_until": "2027-06-01T00:00:00Z"},
            (
                "reservation",
                "reservation for 136.7 days",
                format_moment(NOW),
                "2027-06-01T00:00:00Z",
            ),
        ),
    ],
)
def test_a_declaration_has_its_line(
    inputs: dict[str, Any], outputs: dict[str, Any], line: tuple[str, str, str, str]
) -> None:
    assert list_lines(create_entry(inputs, outputs)) == [line]


def test_running_hours_have_their_next_change_and_their_week() -> None:
    (line,) = list_agenda(
        [create_entry({"schedule": HOURS}, kind="tensorone:Cluster")], NOW, is_emulated=False
    )
    assert (line.text, line.end) == (
        "runs mon, fri 08:00-20:00 Europe/Berlin",
        "2027-01-15T19:00:00Z",
    )
    assert line.hours is not None
    assert line.hours.days == ("mon", "fri")


def test_a_rollout_and_a_stale_certification_are_lines_of_now() -> None:
    node = {"id": "s-1", "gpu_node_name": "train-001", "state": "RUNNING"}
    nodes = {"1": {**node, "image_id": "new"}, "2": {**node, "image_id": "old"}}
    pool = create_entry({"image_id": "new"}, {"gpu_nodes": nodes}, "scp:NodePool")
    assert list_lines(pool) == [
        ("rollout", "rollout in progress: 1 of 2 nodes have the declared image", "", "")
    ]
    gaps = [{"node": "w-1", "because": "another driver"}]
    assert list_lines(create_entry({}, {"gaps": gaps}, "together:Certification")) == [
        ("certification", "certification is stale for 1 node: w-1", "", "")
    ]


@pytest.mark.parametrize("field", ["delete", "external", "pending_replacement"])
def test_an_object_that_is_not_ours_or_leaves_has_no_line(field: str) -> None:
    assert list_lines(create_entry({"expires": "2027-12-31"}, **{field: True})) == []


def list_notices(op: Op, old: ResourceState | None, new: ResourceState | None) -> list[str]:
    entry = new or old
    assert entry is not None
    step = Step(op, entry.urn, old, new)
    return [it.text for it in list_agenda_notices([step], NOW, is_emulated=False)]


def test_a_plan_shows_the_lines_that_it_changes() -> None:
    early, late = create_entry({"expires": "2027-01-31"}), create_entry({"expires": "2027-12-31"})
    removed = "removed from the calendar: expires at 2027-02-01T00:00:00Z"
    added = "added to the calendar: expires at 2028-01-01T00:00:00Z"
    assert list_notices(Op.CREATE, None, late) == [added]
    assert list_notices(Op.UPDATE, early, late) == [removed, added]
    assert list_notices(Op.DELETE, early, None) == [removed]
    assert list_notices(Op.UPDATE, late, late) == []
    assert list_notices(Op.SAME, early, late) == []
    assert list_notices(Op.DELETE, create_entry({"expires": "2026-12-31"}), None) == []


def test_a_ttl_keeps_its_end_in_an_update_and_begins_again_in_a_replacement() -> None:
    old = create_entry({"ttl": "2d"}, {"created_at": MADE}, created=MADE)
    new = create_entry({"ttl": "2d", "num_gpus": 8})
    assert list_notices(Op.UPDATE, old, new) == []
    assert list_notices(Op.REPLACE, old, new) == [
        f"removed from the calendar: expires at {format_moment(NOW + 2 * DAY)}",
        "added to the calendar: expires 2d after its creation",
    ]


def build_agenda(*entries: ResourceState) -> Agenda:
    lines = list_agenda(entries, NOW, is_emulated=False, stack="demo/dev")
    return Agenda(made_at=format_moment(NOW), entries=tuple(lines))


def test_an_icalendar_file_has_periods_moments_and_weekly_hours() -> None:
    entry = create_entry({**SCHEDULED, "expires": "2027-03-30"})
    hours = create_entry({"schedule": {**HOURS, "stop": "02:00"}}, kind="tensorone:Cluster")
    calendar = Calendar.from_ical(render_icalendar(build_agenda(entry, hours)))
    events = {str(it["categories"].cats[0]): it for it in calendar.walk("VEVENT")}
    reservation, expiry, weekly = (
        events[name] for name in ("reservation", "expiry", "running_hours")
    )
    assert reservation["dtstart"].dt == datetime(2027, 3, 1, 8, tzinfo=UTC)
    assert reservation["dtend"].dt == datetime(2027, 3, 31, 8, tzinfo=UTC)
    assert expiry["dtstart"].dt == datetime(2027, 3, 31, tzinfo=UTC)
    assert "dtend" not in expiry
    assert weekly["dtstart"].dt.isoformat() == "2027-01-15T08:00:00+01:00"
    assert weekly["dtend"].dt.isoformat() == "2027-01-16T02:00:00+01:00"
    assert weekly["rrule"]["byday"] == ["MO", "FR"]
    assert calendar.walk("VTIMEZONE")[0]["tzid"] == "Europe/Berlin"
    assert len({str(it["uid"]) for it in events.values()}) == 3


def test_a_name_cannot_add_a_property_to_an_icalendar_file() -> None:
    line = AgendaEntry(
        kind="expiry", text="expires", end="2027-12-31T00:00:00Z", name="a\r\nX-EVIL:1"
    )
    text = render_icalendar(Agenda(made_at=format_moment(NOW), entries=(line,)))
    assert "\nX-EVIL" not in text


def test_a_secret_input_is_in_no_calendar() -> None:
    secrets = [encode("hunter2&planted-vault/9") for encode in ENCODINGS.values()]
    for text in secrets:
        for name in ("expires", "ttl", "schedule", "reservation_end_time", "capacity_pool_id"):
            entry = create_entry(
                {**SCHEDULED, name: Secret(text)}, {"reserved_until": Secret(text)}
            )
            agenda = build_agenda(entry)
            output = [*render_agenda(agenda), render_icalendar(agenda), agenda.model_dump_json()]
            assert not any(text in part for part in output)


def build_index(*registrations: Registration) -> RegistrationIndex:
    index = RegistrationIndex()
    for registration in registrations:
        index.add(registration)
    return index


def register(name: str, kind: str = "together:Cluster", **inputs: Any) -> Registration:
    type_ = f"pulumi-python:dynamic/gpuform.{kind}"
    return Registration(f"urn:pulumi:dev::demo::{type_}::{name}", type_, name, True, inputs)


@pytest.mark.parametrize(
    ("start", "end", "is_refused"),
    [
        ("2027-03-15T00:00:00Z", "2027-04-15T00:00:00Z", True),
        ("2027-03-31T08:00:00Z", "2027-04-15T00:00:00Z", False),
        ("2027-02-01T00:00:00Z", "2027-03-01T08:00:00Z", False),
        ("2027-03-31T09:00:00+02:00", "2027-04-15T00:00:00Z", True),
    ],
)
def test_two_claims_on_one_capacity_pool_must_not_overlap(
    start: str, end: str, is_refused: bool
) -> None:
    first = register("first", **SCHEDULED)
    times = {"reservation_start_time": start, "reservation_end_time": end}
    second = register("second", **{**SCHEDULED, **times})
    problems = [*check_reservations(second, build_index(first, second))]
    assert bool(problems) is is_refused
    if problems:
        assert problems[0].path == "capacity_pool_id"
        assert "'first' claims the same capacity pool from 2027-03-01" in problems[0].reason
    other = register("second", **{**SCHEDULED, "capacity_pool_id": "other"})
    assert [*check_reservations(other, build_index(first, other))] == []


def test_what_runs_on_a_reservation_must_not_outlive_it() -> None:
    cluster = register("train", **SCHEDULED)
    node = register("bench", "tensorone:Cluster", expires="2027-04-30")
    dependent = replace(node, property_dependencies={"project_id": [cluster.urn]})
    (problem,) = check_reservations(dependent, build_index(cluster, dependent))
    assert (problem.path, "reservation of cluster 'train'" in problem.reason) == ("expires", True)
    assert [*check_reservations(node, build_index(cluster, node))] == []

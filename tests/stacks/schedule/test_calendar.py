"""Test which actions are due for an entry of the state, at any time."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.lifetime import IdlenessVerdict, find_creation_time
from gpuform.schemas.policies.lifetime import read_running_hours
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.schedule.calendar import TimeTable, is_end_unknown, select_timed

START = 1_800_000_000.0
MADE = datetime.fromtimestamp(START, UTC).isoformat()
HOURS = {"start": "08:00", "stop": "20:00", "time_zone": "Europe/Berlin"}


def create_entry(
    inputs: dict[str, Any], outputs: dict[str, Any], kind: str = "tensorone:Cluster", **fields: Any
) -> ResourceState:
    type_ = f"pulumi-python:dynamic/gpuform.{kind}"
    urn = f"urn:pulumi:dev::demo::{type_}::bench"
    return ResourceState(
        urn=urn, type=type_, custom=True, id="c1", inputs=inputs, outputs=outputs, **fields
    )


def create_cluster_entry(
    status: str = "running", *, made: str | None = MADE, **inputs: Any
) -> ResourceState:
    return create_entry(inputs, {"status": status, **({"created_at": made} if made else {})})


@given(st.floats(0, 40 * 86400), st.integers(1, 30))
def test_it_ends_when_its_time_is_over_and_never_before(passed: float, days: int) -> None:
    due = TimeTable(START + passed)(create_cluster_entry(ttl=f"{days}d"))
    assert (due is not None) == (START + passed >= START + days * 86400)
    assert due is None or due.inputs is None


@given(st.floats(0, 400 * 86400), st.sampled_from(["running", "stopped"]))
def test_it_runs_in_its_hours_and_in_no_others(passed: float, status: str) -> None:
    now = START + passed
    resource = create_cluster_entry(status, schedule=HOURS, state=status)
    due = TimeTable(now)(resource)
    hours = read_running_hours({"schedule": HOURS})
    assert hours is not None
    assert due is not None
    assert due.inputs is not None
    desired_state = due.inputs.get("state", "running")
    assert desired_state == ("running" if hours.contains_moment(now) else "stopped")
    assert due.inputs["schedule"] == HOURS


@given(st.floats(0, 400 * 86400))
def test_what_has_ended_is_not_started_first(passed: float) -> None:
    resource = create_cluster_entry("stopped", schedule=HOURS, expires="2000-01-01")
    due = TimeTable(START + passed)(resource)
    assert due is not None
    assert due.inputs is None


def test_nothing_is_due_but_what_was_shown() -> None:
    ended = create_cluster_entry(expires="2000-01-01")
    assert TimeTable(START, {ended.urn: True})(ended) is not None
    assert TimeTable(START, {})(ended) is None
    assert TimeTable(START, {ended.urn: False})(ended) is None, "a stop was shown, not an end"


def test_who_counts_from_nowhere_is_told() -> None:
    later = TimeTable(START * 2)
    untold = create_cluster_entry(made=None, ttl="1d")
    assert (later(untold), is_end_unknown(untold, START)) == (None, True)
    assert not is_end_unknown(create_cluster_entry(ttl="1d"), START)
    assert not is_end_unknown(create_cluster_entry(made=None, expires="2026-12-31"), START)
    node = {"state": "RUNNING", "created_at": "2024-07-11 08:56:59"}
    assert not is_end_unknown(create_entry({"ttl": "1d"}, node, "scp:GpuNode"), START)
    assert is_end_unknown(create_entry({"ttl": "1d"}, {"gpu_nodes": {}}, "scp:NodePool"), START)


@pytest.mark.parametrize(
    "fields", [{"delete": True}, {"external": True}, {"pending_replacement": True}]
)
def test_what_is_not_the_stacks_has_no_end(fields: dict[str, bool]) -> None:
    assert select_timed([create_entry({"ttl": "1d"}, {}, **fields)]) == []


def test_only_gpuforms_own_resources_have_ends() -> None:
    assert (
        select_timed([create_cluster_entry(), create_entry({"ttl": "1d"}, {}, "acme:Thing")]) == []
    )
    assert (
        len(select_timed([create_cluster_entry(ttl="1d"), create_cluster_entry(schedule=HOURS)]))
        == 2
    )


IDLE = {"below": "5%", "for": "6h"}


def test_what_is_idle_is_stopped_and_never_destroyed() -> None:
    resource = create_cluster_entry(idle=IDLE, tags={"team": "research"})
    due = TimeTable(START, idle=lambda _: IdlenessVerdict(is_idle=True, because="nothing runs"))(
        resource
    )
    assert due is not None
    assert due.inputs == {**resource.inputs, "state": "stopped"}
    assert due.reason == "idle: nothing runs"


@pytest.mark.parametrize("verdict", [None, IdlenessVerdict(is_idle=False, because="it is at work")])
def test_what_is_not_idle_runs_on(verdict: IdlenessVerdict | None) -> None:
    assert TimeTable(START, idle=lambda _: verdict)(create_cluster_entry(idle=IDLE)) is None
    assert TimeTable(START)(create_cluster_entry(idle=IDLE)) is None


def test_an_end_goes_before_idleness() -> None:
    table = TimeTable(START, idle=lambda _: IdlenessVerdict(is_idle=True, because="nothing runs"))
    due = table(create_cluster_entry(idle=IDLE, expires="2000-01-01"))
    assert due is not None
    assert due.inputs is None


def test_idleness_is_timed() -> None:
    assert len(select_timed([create_cluster_entry(idle=IDLE)])) == 1


EVENING = datetime.fromisoformat("2026-11-20T20:05:00+01:00").timestamp()
MORNING = datetime.fromisoformat("2026-11-21T08:05:00+01:00").timestamp()


@pytest.mark.parametrize(("now", "later"), [(EVENING, MORNING), (MORNING, EVENING)])
def test_a_stop_or_start_is_not_due_once_the_hours_have_changed(now: float, later: float) -> None:
    """The plan was confirmed only after a night or a day."""
    off = create_cluster_entry("stopped" if now == MORNING else "running", schedule=HOURS)
    assert TimeTable(now)(off) is not None
    assert TimeTable(now, later=later)(off) is None


def test_an_end_is_not_over_once_the_clock_has_jumped_back() -> None:
    resource = create_cluster_entry(ttl="14d")
    after = START + 15 * 86400
    assert TimeTable(after, later=after + 60)(resource) is not None
    assert TimeTable(after, later=START + 86400)(resource) is None


RECORDED = datetime.fromtimestamp(START - 60, UTC).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("reported", "recorded", "counted_from"),
    [
        (START, RECORDED, START),
        (START - 30 * 86400, RECORDED, START - 60),
        (-62135596800.0, RECORDED, START - 60),
        (0.0, RECORDED, START - 60),
        (START + 400 * 86400, RECORDED, START - 60),
        (None, RECORDED, START - 60),
        (START, "", START),
        (START, "2099-01-01T00:00:00Z", START),
        (START, "2026-01-01T00:00:00.123456789Z", START),
        (START, "no time", START),
        (0.0, "", None),
        (0.0, "1970-01-01T00:00:00Z", None),
        (START + 400 * 86400, "", None),
        (float("nan"), "", None),
    ],
)
def test_a_ttl_counts_from_the_later_of_two_credible_creations(
    reported: float | None, recorded: str, counted_from: float | None
) -> None:
    assert find_creation_time(reported, recorded, START + 86400) == counted_from

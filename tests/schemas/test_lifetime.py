"""Test `expires`, `ttl` and `schedule`: valid values, refused ones, and their meaning."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.schemas.changes import Action, compute_changes
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.policies.lifetime import (
    compute_expiry,
    has_expiry,
    parse_duration,
    parse_expiry,
)
from gpuform.schemas.tensorone.inputs import ClusterInputs
from gpuform.schemas.tensorone.wire import build_create
from gpuform.schemas.together.inputs import ClusterInputs as TogetherInputs
from gpuform.schemas.values import UNKNOWN

CLUSTER = {
    "name": "workbench",
    "gpu_type": "A100",
    "gpu_count": 4,
    "storage_gb": 500,
    "region": "us-west-2",
    "project_id": "proj_456",
}
HOURS = {"start": "08:00", "stop": "20:00", "time_zone": "Europe/Berlin"}


def list_problems(**more: Any) -> list[str]:
    return [str(problem) for problem in validate_inputs(ClusterInputs, {**CLUSTER, **more})[1]]


@given(st.dates(date(1970, 1, 2), date(9000, 1, 1)))
def test_a_date_expires_after_its_last_second_in_utc(day: date) -> None:
    end = datetime.fromtimestamp(parse_expiry(day.isoformat()), UTC)
    assert end == datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)


@given(st.integers(86400, 2**37), st.integers(-12 * 4, 14 * 4))
def test_the_offset_of_a_time_is_applied(seconds: int, quarters: int) -> None:
    wall = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    offset = timedelta(minutes=15 * quarters)
    timestamp = f"{wall.isoformat()}{'-' if quarters < 0 else '+'}{str(abs(offset)).zfill(8)[:5]}"
    expected = wall.replace(tzinfo=UTC) - offset
    assert datetime.fromtimestamp(parse_expiry(timestamp), UTC) == expected


@given(*(st.integers(0, 999) for _ in range(4)))
def test_a_time_to_live_is_the_sum_of_its_parts(weeks: int, days: int, hours: int, m: int) -> None:
    parts = {"w": weeks, "d": days, "h": hours, "m": m}
    ttl = "".join(f"{count}{unit}" for unit, count in parts.items() if count)
    expected = timedelta(weeks=weeks, days=days, hours=hours, minutes=m).total_seconds()
    if not expected:
        return
    assert parse_duration(ttl) == expected
    assert compute_expiry({"ttl": ttl}, 1_800_000_000.0) == 1_800_000_000.0 + expected
    assert compute_expiry({"ttl": ttl}, None) is None


@pytest.mark.parametrize(
    "ttl", ["", "0d", "0h0m", "14", "d", "14 d", "-1d", "1.5d", "1h1d", "1y", "\u0661d", "999999d"]
)
def test_invalid_times_to_live_are_refused(ttl: str) -> None:
    (problem,) = list_problems(ttl=ttl)
    assert problem == (
        f"ttl: {ttl} is not a time to live: write weeks, days, hours and minutes, such as 14d, "
        "36h or 1d12h"
    )


@pytest.mark.parametrize(
    "expires",
    ["", "soon", "2026-13-01", "2026-02-30", "20261231", "2026-12-31T10:00", "9999-12-31T"],
)
def test_invalid_expiries_are_refused(expires: str) -> None:
    (problem,) = list_problems(expires=expires)
    assert problem.startswith(
        f"expires: {expires} is not a date or a moment: write a date such as 2026-12-31"
    )


def test_expires_and_ttl_exclude_each_other() -> None:
    both = list_problems(expires="2026-12-31", ttl="14d")
    assert both == ["ttl: conflicts with expires, which sets the end: keep one of them"]
    assert list_problems(expires="2026-12-31") == list_problems(ttl="14d", schedule=HOURS) == []
    assert list_problems(expires=UNKNOWN) == []


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"time_zone": "Europe/Berln"}, "time_zone: Europe/Berln is not a time zone: use an IANA"),
        ({"time_zone": "+01:00"}, "time_zone: +01:00 is not a time zone: use an IANA name"),
        ({"start": "8:00"}, "start: 8:00 is not a time of day: write hours and minutes"),
        ({"start": "24:00"}, "start: 24:00 only ends a day: write 00:00"),
        ({"stop": "24:30"}, "stop: 24:30 is not a time of day"),
        ({"stop": "08:00"}, "stop: is the same as start: for whole days write 00:00 and 24:00"),
        ({"days": []}, "days: is too short: give at least 1 item(s)"),
        ({"days": ["Monday"]}, "days[0]: Monday is not known: use one of mon, tue"),
        ({"from": "09:00"}, "from: is called start here: write start: 09:00"),
    ],
)
def test_invalid_running_hours_are_refused(changed: dict[str, Any], problem: str) -> None:
    problems = list_problems(schedule={**HOURS, **changed})
    assert any(
        reported_problem.startswith(f"schedule.{problem}") for reported_problem in problems
    ), problems


def test_a_schedule_where_nothing_can_be_stopped_names_the_platforms_that_can() -> None:
    (problem,) = (
        problem
        for problem in validate_inputs(TogetherInputs, {"schedule": HOURS})[1]
        if problem.path == "schedule"
    )
    assert "Together, which cannot stop and start a cluster" in problem.reason
    assert "tensorone.Cluster, scp.NodePool or scp.GpuNode" in problem.reason


def test_a_changed_lifetime_is_a_change_that_is_not_sent() -> None:
    before = {**CLUSTER, "ttl": "14d", "schedule": HOURS}
    after = {**CLUSTER, "expires": "2026-12-31", "schedule": {**HOURS, "stop": "21:00"}}
    actions = {
        change.path: change.action for change in compute_changes(ClusterInputs, before, after)
    }
    assert actions == {
        "expires": Action.ADD,
        "ttl": Action.DELETE,
        "schedule.stop": Action.UPDATE,
    }
    assert compute_changes(ClusterInputs, after, after) == []
    assert build_create(ClusterInputs.model_validate(after)) == CLUSTER


def test_an_unknown_expiry_counts_as_an_expiry() -> None:
    assert has_expiry({"expires": UNKNOWN})
    assert not has_expiry({"schedule": HOURS})
    assert compute_expiry({"expires": UNKNOWN}, 0.0) is None

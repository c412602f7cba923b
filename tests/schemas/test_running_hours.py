"""Test running hours against wall clocks, also on the days when clocks change."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuform.schemas.policies.lifetime import WEEKDAYS, RunningHours, read_running_hours
from gpuform.schemas.values import UNKNOWN

LORD_HOWE = "Australia/Lord_Howe"
NEW_YORK = "America/New_York"
ZONES = ("UTC", "Europe/Berlin", NEW_YORK, LORD_HOWE, "Asia/Kathmandu")
YEAR = 365 * 86400
START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()

moments = st.integers(0, YEAR).map(lambda seconds: START + seconds)
times = st.builds(time, st.integers(0, 23), st.integers(0, 59))
hours = st.builds(
    RunningHours,
    days=st.sets(st.sampled_from(WEEKDAYS), min_size=1).map(frozenset),
    start=times,
    stop=times,
    zone=st.sampled_from(ZONES).map(ZoneInfo),
)


def build_running_hours(zone: str, start: str, stop: str, *days: str) -> RunningHours:
    schedule = {"start": start, "stop": stop, "time_zone": zone}
    running_hours = read_running_hours(
        {"schedule": {**schedule, **({"days": list(days)} if days else {})}}
    )
    assert running_hours is not None
    return running_hours


def to_timestamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def is_running_by_wall_clock(running_hours: RunningHours, now: float) -> bool:
    """Return whether the hours include the time, by a calendar and a wall clock."""
    wall = datetime.fromtimestamp(now, running_hours.zone)
    today, before = WEEKDAYS[wall.weekday()], WEEKDAYS[wall.weekday() - 1]
    wall_time = wall.time()
    if running_hours.stop > running_hours.start:
        return today in running_hours.days and running_hours.start <= wall_time < running_hours.stop
    begun_today = today in running_hours.days and wall_time >= running_hours.start
    return begun_today or (before in running_hours.days and wall_time < running_hours.stop)


def is_near_clock_change(running_hours: RunningHours, now: float) -> bool:
    """Return True within two days of a clock change, which may skip or double a window's bound."""
    offsets = {
        datetime.fromtimestamp(now + hour * 3600, running_hours.zone).utcoffset()
        for hour in range(-48, 49, 6)
    }
    return len(offsets) > 1


@given(hours, moments)
def test_running_hours_follow_the_wall_clock(running_hours: RunningHours, now: float) -> None:
    if not is_near_clock_change(running_hours, now):
        assert running_hours.contains_moment(now) == is_running_by_wall_clock(running_hours, now)


@given(hours, moments)
def test_hours_do_not_change_before_the_predicted_change(
    running_hours: RunningHours, now: float
) -> None:
    change = running_hours.find_next_change(now)
    if change is None:
        assert all(running_hours.contains_moment(now + hour * 3600) for hour in range(24 * 14))
        return
    assert change > now
    assert running_hours.contains_moment(change) is not running_hours.contains_moment(now)
    assert running_hours.contains_moment(change - 1) is running_hours.contains_moment(now)
    middle = (now + change) / 2
    assert running_hours.contains_moment(middle) is running_hours.contains_moment(now)


@pytest.mark.slow
@settings(max_examples=20)
@given(hours, moments)
def test_a_week_runs_as_long_as_declared_despite_clock_changes(
    running_hours: RunningHours, now: float
) -> None:
    """Allow an hour at each end of a window for a clock change."""
    length = (
        (running_hours.stop.hour - running_hours.start.hour) * 60
        + running_hours.stop.minute
        - running_hours.start.minute
    )
    minutes = (length % 1440 or 1440) * len(running_hours.days)
    wall = datetime.fromtimestamp(now, running_hours.zone).replace(hour=12, minute=0, second=0)
    week = [(wall + timedelta(minutes=m)).timestamp() for m in range(0, 7 * 1440, 15)]
    minutes_running = 15 * sum(map(running_hours.contains_moment, week))
    assert abs(minutes_running - minutes) <= 120 + 15 * 2 * len(running_hours.days)


@pytest.mark.parametrize(
    ("zone", "hours", "inside", "outside"),
    [
        # Clocks jump from 02:00 to 03:00: what begins at 02:30 begins when they jump.
        ("Europe/Berlin", "02:30-06:00", "2026-03-29T03:00:00+02:00", "2026-03-29T01:59:59+01:00"),
        # What ends then ends at that moment, too, and is not over before it has begun.
        ("Europe/Berlin", "01:00-02:30", "2026-03-29T01:59:59+01:00", "2026-03-29T03:00:00+02:00"),
        ("Europe/Berlin", "02:30-03:15", "2026-03-29T03:14:59+02:00", "2026-03-29T03:15:00+02:00"),
        # They show 02:30 twice: the first one begins, the second one ends.
        ("Europe/Berlin", "02:30-06:00", "2026-10-25T02:30:00+02:00", "2026-10-25T02:29:59+02:00"),
        ("Europe/Berlin", "00:00-02:30", "2026-10-25T02:29:59+01:00", "2026-10-25T02:30:00+01:00"),
        # Half an hour, at Lord Howe.
        (LORD_HOWE, "02:15-04:00", "2026-10-04T02:30:00+11:00", "2026-10-04T01:59:59+10:30"),
        (LORD_HOWE, "01:45-04:00", "2026-04-05T01:45:00+11:00", "2026-04-05T01:44:59+11:00"),
        (LORD_HOWE, "00:00-01:45", "2026-04-05T01:44:59+10:30", "2026-04-05T01:45:00+10:30"),
        (NEW_YORK, "02:30-06:00", "2026-03-08T03:00:00-04:00", "2026-03-08T01:59:59-05:00"),
        (NEW_YORK, "01:30-06:00", "2026-11-01T01:30:00-04:00", "2026-11-01T01:29:59-04:00"),
        (NEW_YORK, "00:00-01:30", "2026-11-01T01:29:59-05:00", "2026-11-01T01:30:00-05:00"),
        # Midnight itself is skipped.
        ("Africa/Cairo", "00:30-06:00", "2026-04-24T01:00:00+03:00", "2026-04-23T23:59:59+02:00"),
        # A leap day, and the night to it.
        ("UTC", "22:00-06:00", "2028-02-29T05:59:59+00:00", "2028-02-29T06:00:00+00:00"),
        ("Europe/Berlin", "08:00-20:00", "2028-02-29T08:00:00+01:00", "2028-02-29T20:00:00+01:00"),
        # Over midnight, and until midnight.
        ("Asia/Kathmandu", "22:00-06:00", "2026-05-02T05:59:59+05:45", "2026-05-02T06:00:00+05:45"),
        ("UTC", "22:00-24:00", "2026-05-02T23:59:59+00:00", "2026-05-03T00:00:00+00:00"),
    ],
)
def test_windows_on_the_days_of_clock_changes(
    zone: str, hours: str, inside: str, outside: str
) -> None:
    running_hours = build_running_hours(zone, *hours.split("-"))
    assert running_hours.contains_moment(to_timestamp(inside))
    assert not running_hours.contains_moment(to_timestamp(outside))


def test_a_window_that_falls_into_the_skipped_hour_does_not_run_that_day() -> None:
    running_hours = build_running_hours("Europe/Berlin", "02:10", "02:50", "sun")
    assert running_hours.find_next_change(
        to_timestamp("2026-03-28T12:00:00+01:00")
    ) == to_timestamp("2026-04-05T02:10:00+02:00")


def test_windows_on_working_days_do_not_run_at_weekends() -> None:
    running_hours = build_running_hours(
        "Europe/Berlin", "08:00", "20:00", "mon", "tue", "wed", "thu", "fri"
    )
    friday = to_timestamp("2026-11-20T19:59:00+01:00")
    assert running_hours.contains_moment(friday)
    assert running_hours.find_next_change(friday) == to_timestamp("2026-11-20T20:00:00+01:00")
    saturday = to_timestamp("2026-11-21T12:00:00+01:00")
    assert not running_hours.contains_moment(saturday)
    assert running_hours.find_next_change(saturday) == to_timestamp("2026-11-23T08:00:00+01:00")
    assert (
        running_hours.format_moment(to_timestamp("2026-11-23T08:00:00+01:00"))
        == "Mon 2026-11-23 08:00 Europe/Berlin"
    )


def test_consecutive_full_days_run_without_a_stop() -> None:
    always = build_running_hours("Europe/Berlin", "00:00", "24:00")
    assert always.find_next_change(START) is None
    weekend = build_running_hours("Europe/Berlin", "00:00", "24:00", "sat", "sun")
    saturday = to_timestamp("2026-11-21T12:00:00+01:00")
    assert weekend.find_next_change(saturday) == to_timestamp("2026-11-23T00:00:00+01:00")


@pytest.mark.parametrize("schedule", [None, UNKNOWN, {"start": UNKNOWN, "stop": "20:00"}])
def test_an_unknown_schedule_has_no_running_hours(schedule: object) -> None:
    assert read_running_hours({"schedule": schedule}) is None

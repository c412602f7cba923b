"""Test attempts while a platform is out of capacity: in rounds, for the declared time."""

from collections.abc import Callable
from typing import Any

import pytest

from gpuform.providers.context import ProviderContext
from gpuform.providers.context.polling import (
    build_capacity_error,
    parse_wait_seconds,
    try_until_capacity,
)
from gpuform.providers.errors import ApiError, Cancelled, OutOfCapacity

NAMES = ["A", "B", "C"]


def build_out_of_capacity_error(name: str) -> OutOfCapacity:
    return OutOfCapacity(f"no {name}", method="POST", path="/clusters", status=409)


def build_attempts(position: int | None, calls: list[str]) -> list[Callable[[], str]]:
    """Return three attempts with recorded calls; only the one at `position` succeeds."""

    def attempt(at: int) -> Callable[[], str]:
        def make() -> str:
            calls.append(NAMES[at])
            if at == position:
                return f"made by {NAMES[at]}"
            raise build_out_of_capacity_error(NAMES[at])

        return make

    return [attempt(at) for at in range(3)]


@pytest.mark.parametrize(
    ("position", "progress"),
    [
        (0, ["trying A, then B, C"]),
        (1, ["trying A, then B, C", "trying B; out of capacity: A", "using B; out of capacity: A"]),
        (
            2,
            [
                "trying A, then B, C",
                "trying B; out of capacity: A",
                "trying C; out of capacity: A, B",
                "using C; out of capacity: A, B",
            ],
        ),
    ],
)
def test_the_first_success_ends_the_search_and_all_attempts_are_reported(
    call: ProviderContext, reported: Any, position: int, progress: list[str]
) -> None:
    calls: list[str] = []
    created = try_until_capacity(call, build_attempts(position, calls), names=NAMES)
    assert created == f"made by {NAMES[position]}"
    assert calls == NAMES[: position + 1]
    assert reported.progress == progress


def test_attempts_without_names_are_not_reported(call: ProviderContext, reported: Any) -> None:
    assert try_until_capacity(call, build_attempts(1, [])) == "made by B"
    assert reported.progress == []


def test_without_a_wait_limit_one_round_is_tried(call: ProviderContext, clock: Any) -> None:
    call.start_deadline(600.0)
    calls: list[str] = []
    with pytest.raises(OutOfCapacity, match="no C"):
        try_until_capacity(call, build_attempts(None, calls))
    assert (calls, clock.pauses) == (NAMES, [])


def test_rounds_are_a_minute_apart_until_the_wait_limit(
    call: ProviderContext, clock: Any, reported: Any
) -> None:
    call.start_deadline(600.0)
    calls: list[str] = []
    with pytest.raises(OutOfCapacity, match="no C"):
        try_until_capacity(call, build_attempts(None, calls), 90.0, NAMES)
    assert calls == NAMES * 3
    assert clock.pauses == [60.0, 30.0]
    assert [message for message in reported.progress if "trying again for" in message] == [
        "out of capacity: A, B, C; trying again for 1m30s",
        "out of capacity: A, B, C; trying again for 30s",
    ]
    assert reported.progress.count("trying again A, then B, C") == 2


def test_a_search_without_names_reports_only_its_waits(
    call: ProviderContext, reported: Any
) -> None:
    call.start_deadline(600.0)
    with pytest.raises(OutOfCapacity):
        try_until_capacity(call, build_attempts(None, []), 30.0)
    assert reported.progress == ["out of capacity; trying again for 30s"]


@pytest.mark.parametrize(("deadline", "pauses"), [(20.0, [20.0]), (0.5, [0.5]), (None, [])])
def test_the_deadline_ends_the_search_before_its_wait_limit(
    call: ProviderContext, clock: Any, deadline: float | None, pauses: list[float]
) -> None:
    if deadline is not None:
        call.start_deadline(deadline)
    with pytest.raises(OutOfCapacity):
        try_until_capacity(call, build_attempts(None, []), 600.0)
    assert clock.pauses == pauses


def test_an_interrupted_search_makes_no_further_attempt(call: ProviderContext) -> None:
    calls: list[str] = []

    def interrupted() -> str:
        call.cancelled.set()
        raise build_out_of_capacity_error("A")

    with pytest.raises(Cancelled):
        try_until_capacity(call, [interrupted, *build_attempts(0, calls)])
    assert calls == []


@pytest.mark.parametrize(
    ("search", "seconds"),
    [(None, 0.0), ({}, 0.0), ({"wait_minutes": None}, 0.0), ({"wait_minutes": 2.5}, 150.0)],
)
def test_the_wait_limit_of_a_search_is_in_minutes(search: Any, seconds: float) -> None:
    assert parse_wait_seconds(search) == seconds


@pytest.mark.parametrize("is_searched", [True, False])
def test_the_error_names_the_missing_capacity_and_keeps_the_platforms_answer(
    is_searched: bool,
) -> None:
    answer = ApiError(
        "full", method="POST", path="/clusters", status=409, code="no_stock", request_id="r-1"
    )
    error = build_capacity_error(
        answer,
        "Together",
        ["16 H100 free in a", "16 H200 free in b"],
        "created",
        "try later",
        is_searched=is_searched,
    )
    assert error.message.startswith(
        "Together is out of capacity: it has no 16 H100 free in a and no 16 H200 free in b "
        "now; nothing was created"
    )
    assert (error.method, error.path, error.status) == ("POST", "/clusters", 409)
    assert (error.code, error.request_id) == ("no_stock", "r-1")
    more = "" if is_searched else "; to wait or to try alternatives, declare on_no_capacity"
    assert error.hint == f"try later{more}"

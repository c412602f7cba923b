"""Attempts in turn while a platform is out of capacity: in rounds, for as long as is declared."""

from collections.abc import Callable
from typing import Any

import pytest

from gpuform.providers.context import ProviderContext
from gpuform.providers.creating.capacity import (
    build_capacity_error,
    parse_wait_seconds,
    try_until_capacity,
)
from gpuform.providers.errors import ApiError, Cancelled, OutOfCapacity

NAMES = ["A", "B", "C"]


def out_of_stock(name: str) -> OutOfCapacity:
    return OutOfCapacity(f"no {name}", method="POST", path="/clusters", status=409)


def attempts_with_stock_at(place: int | None, calls: list[str]) -> list[Callable[[], str]]:
    """Return three attempts that note their calls; only the one at `place` makes something."""

    def attempt(at: int) -> Callable[[], str]:
        def make() -> str:
            calls.append(NAMES[at])
            if at == place:
                return f"made by {NAMES[at]}"
            raise out_of_stock(NAMES[at])

        return make

    return [attempt(at) for at in range(3)]


@pytest.mark.parametrize(
    ("place", "progress"),
    [
        (0, ["trying A, then B, C"]),
        (1, ["trying A, then B, C", "trying B; out of capacity: A", "took B; out of capacity: A"]),
        (
            2,
            [
                "trying A, then B, C",
                "trying B; out of capacity: A",
                "trying C; out of capacity: A, B",
                "took C; out of capacity: A, B",
            ],
        ),
    ],
)
def test_the_first_attempt_with_stock_ends_the_search_and_the_log_names_all(
    call: ProviderContext, told: Any, place: int, progress: list[str]
) -> None:
    calls: list[str] = []
    made = try_until_capacity(call, attempts_with_stock_at(place, calls), names=NAMES)
    assert made == f"made by {NAMES[place]}"
    assert calls == NAMES[: place + 1]
    assert told.progress == progress


def test_attempts_without_names_are_tried_in_silence(call: ProviderContext, told: Any) -> None:
    assert try_until_capacity(call, attempts_with_stock_at(1, [])) == "made by B"
    assert told.progress == []


def test_without_patience_one_round_is_made_even_long_before_the_deadline(
    call: ProviderContext, clock: Any
) -> None:
    call.start_deadline(600.0)
    calls: list[str] = []
    with pytest.raises(OutOfCapacity, match="no C"):
        try_until_capacity(call, attempts_with_stock_at(None, calls))
    assert (calls, clock.pauses) == (NAMES, [])


def test_rounds_are_a_minute_apart_until_the_patience_is_over(
    call: ProviderContext, clock: Any, told: Any
) -> None:
    call.start_deadline(600.0)
    calls: list[str] = []
    with pytest.raises(OutOfCapacity, match="no C"):
        try_until_capacity(call, attempts_with_stock_at(None, calls), 90.0, NAMES)
    assert calls == NAMES * 3
    assert clock.pauses == [60.0, 30.0]
    assert [text for text in told.progress if "trying again for" in text] == [
        "out of capacity: A, B, C; trying again for 1m30s",
        "out of capacity: A, B, C; trying again for 30s",
    ]
    assert told.progress.count("trying again A, then B, C") == 2


def test_a_search_without_names_says_only_that_it_waits(call: ProviderContext, told: Any) -> None:
    call.start_deadline(600.0)
    with pytest.raises(OutOfCapacity):
        try_until_capacity(call, attempts_with_stock_at(None, []), 30.0)
    assert told.progress == ["out of capacity; trying again for 30s"]


@pytest.mark.parametrize(("deadline", "pauses"), [(20.0, [20.0]), (0.5, [0.5]), (None, [])])
def test_the_deadline_of_the_call_ends_the_search_before_its_patience(
    call: ProviderContext, clock: Any, deadline: float | None, pauses: list[float]
) -> None:
    if deadline is not None:
        call.start_deadline(deadline)
    with pytest.raises(OutOfCapacity):
        try_until_capacity(call, attempts_with_stock_at(None, []), 600.0)
    assert clock.pauses == pauses


def test_an_interrupted_search_makes_no_further_attempt(call: ProviderContext) -> None:
    calls: list[str] = []

    def interrupted() -> str:
        call.cancelled.set()
        raise out_of_stock("A")

    with pytest.raises(Cancelled):
        try_until_capacity(call, [interrupted, *attempts_with_stock_at(0, calls)])
    assert calls == []


@pytest.mark.parametrize(
    ("search", "seconds"),
    [(None, 0.0), ({}, 0.0), ({"wait_minutes": None}, 0.0), ({"wait_minutes": 2.5}, 150.0)],
)
def test_the_patience_of_a_search_is_in_minutes(search: Any, seconds: float) -> None:
    assert parse_wait_seconds(search) == seconds


@pytest.mark.parametrize("is_searched", [True, False])
def test_the_error_says_what_is_missing_and_keeps_what_the_platform_answered(
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
    more = "" if is_searched else "; on_no_capacity makes gpuform wait, or try alternatives"
    assert error.hint == f"try later{more}"

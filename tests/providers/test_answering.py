"""Test questions that may never be answered: an interrupted run still ends in time."""

import threading
from collections.abc import Iterator
from contextvars import ContextVar
from types import SimpleNamespace

import pytest

from gpuform.providers.context import ProviderContext
from gpuform.providers.draining.schedulers import call_interruptibly
from gpuform.providers.errors import Cancelled, Unreachable

ASKED_BY: ContextVar[str] = ContextVar("asked_by", default="nobody")


class TickingTime:
    """A clock that advances a second at each reading."""

    def __init__(self) -> None:
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return float(self.looks)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> TickingTime:
    ticking = TickingTime()
    monkeypatch.setattr("gpuform.providers.draining.schedulers.time", ticking)
    return ticking


@pytest.fixture
def never(call: ProviderContext) -> Iterator[threading.Event]:
    """Return an event that a question waits for, and that is set when the test ends."""
    event = threading.Event()
    yield event
    event.set()


def test_an_answer_is_returned_and_an_error_raised(call: ProviderContext) -> None:
    assert call_interruptibly(call, lambda: [1, 2]) == [1, 2]

    def refuse() -> None:
        raise Unreachable("no answer")

    with pytest.raises(Unreachable, match="no answer"):
        call_interruptibly(call, refuse)


def test_a_question_runs_in_the_callers_context_in_a_daemon_thread(call: ProviderContext) -> None:
    token = ASKED_BY.set("a drain")
    try:
        question = call_interruptibly(
            call, lambda: SimpleNamespace(by=ASKED_BY.get(), thread=threading.current_thread())
        )
    finally:
        ASKED_BY.reset(token)
    assert question.by == "a drain"
    assert question.thread.daemon


@pytest.mark.parametrize(("grace_period", "checks"), [(3.0, 4), (0.0, 2), (None, 2)])
def test_after_an_interruption_an_answer_is_awaited_for_the_grace_period(
    call: ProviderContext,
    time: TickingTime,
    never: threading.Event,
    grace_period: float | None,
    checks: int,
) -> None:
    """The first check starts the period, which is one second by default."""
    call.cancelled.set()
    with pytest.raises(Cancelled, match=r"^interrupted: no answer in time$"):
        call_interruptibly(call, never.wait, grace_s=grace_period)
    assert time.looks == checks


def test_an_answer_after_the_interruption_still_counts(call: ProviderContext) -> None:
    def answer() -> str:
        call.cancelled.set()
        return "done"

    assert call_interruptibly(call, answer) == "done"

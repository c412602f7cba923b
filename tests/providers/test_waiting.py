from collections.abc import Iterator

import pytest

from gpuform.providers.context import (
    PollResult,
    ProviderContext,
    format_duration,
    wait_until_done,
    wait_until_gone,
)
from gpuform.providers.errors import (
    Cancelled,
    GpuformError,
    NotFound,
    NotReady,
    ServerError,
    Unreachable,
)

Step = PollResult[int] | Exception


class Probe:
    """Shows the steps one after another, the last one for ever."""

    def __init__(self, *steps: Step) -> None:
        self._steps: Iterator[Step] = iter(steps)
        self._step: Step = steps[0]
        self.count = 0

    def __call__(self) -> PollResult[int]:
        self.count += 1
        self._step = next(self._steps, self._step)
        if isinstance(self._step, Exception):
            raise self._step
        return self._step


def _server_error() -> ServerError:
    return ServerError("answered 503", method="GET", path="/x", status=503)


def test_it_returns_the_value_of_the_first_look_that_is_done(call: ProviderContext) -> None:
    probe = Probe(
        PollResult(1, "Pending"),
        PollResult(2, "Nobody knows this"),
        PollResult(3, "Ready", is_done=True),
    )
    assert wait_until_done(call, probe, label="x", interval=10) == 3
    assert call.clock.pauses == [10, 10]  # type: ignore[attr-defined]


def test_it_tells_the_phase_and_the_time_on_change_only(
    call: ProviderContext, told: object
) -> None:
    looks = [
        PollResult(0, "A"),
        PollResult(0, "A"),
        PollResult(0, "A"),
        PollResult(0, "B"),
        PollResult(0, "C", is_done=True),
    ]
    wait_until_done(call, Probe(*looks), label="x", interval=30)
    assert told.progress == ["A (0s)", "B (1m30s)"]  # type: ignore[attr-defined]


def test_a_failed_look_ends_it_with_the_look(call: ProviderContext) -> None:
    probe = Probe(
        PollResult(1, "Pending"), PollResult(2, "Degraded", failure="its status is Degraded")
    )
    with pytest.raises(NotReady, match=r"^x: its status is Degraded$") as caught:
        wait_until_done(call, probe, label="x")
    assert caught.value.last == 2


def test_the_deadline_ends_it_after_one_more_look(call: ProviderContext) -> None:
    call.start_deadline(25)
    probe = Probe(PollResult(1, "Pending"))
    with pytest.raises(NotReady, match=r"not done after 25s; last seen: Pending") as caught:
        wait_until_done(call, probe, label="x", interval=10)
    assert caught.value.last == 1
    assert probe.count == 4


def test_a_look_at_the_deadline_can_still_be_done(call: ProviderContext) -> None:
    call.start_deadline(10)
    assert (
        wait_until_done(
            call, Probe(PollResult(1, "A"), PollResult(2, "B", is_done=True)), label="x"
        )
        == 2
    )


def test_a_limit_is_shorter_than_the_deadline(call: ProviderContext) -> None:
    call.start_deadline(1000)
    with pytest.raises(NotReady, match="not done after 20s"):
        wait_until_done(call, Probe(PollResult(1, "A")), label="x", interval=10, limit=20)


@pytest.mark.parametrize("error", [_server_error(), Unreachable("no connection")])
def test_an_outage_is_waited_out(call: ProviderContext, told: object, error: GpuformError) -> None:
    probe = Probe(PollResult(1, "A"), error, error, PollResult(2, "B", is_done=True))
    assert wait_until_done(call, probe, label="x") == 2
    assert told.progress == ["A (0s)", f"no answer: {error.message} (10s)"]  # type: ignore[attr-defined]


def test_an_outage_until_the_deadline_is_the_reason(call: ProviderContext) -> None:
    call.start_deadline(20)
    with pytest.raises(NotReady, match="no answer: answered 503") as caught:
        wait_until_done(call, Probe(PollResult(1, "A"), _server_error()), label="x")
    assert caught.value.last == 1


def test_other_errors_pass(call: ProviderContext) -> None:
    with pytest.raises(NotFound):
        wait_until_done(
            call, Probe(NotFound("gone", method="GET", path="/", status=404)), label="x"
        )


def test_an_interruption_ends_it_with_the_last_look(call: ProviderContext) -> None:
    def probe() -> PollResult[int]:
        call.cancelled.set()
        return PollResult(5, "Pending")

    with pytest.raises(Cancelled, match="x: interrupted after 0s; last seen: Pending") as caught:
        wait_until_done(call, probe, label="x")
    assert caught.value.last == 5
    assert call.clock.pauses == []  # type: ignore[attr-defined]


def test_probes_slower_than_the_interval_are_not_delayed_further(call: ProviderContext) -> None:
    looks = iter([PollResult(0, "A"), PollResult(1, "B", is_done=True)])

    def probe() -> PollResult[int]:
        call.clock.time += 60  # type: ignore[attr-defined]
        return next(looks)

    wait_until_done(call, probe, label="x", interval=10)
    assert call.clock.pauses == []  # type: ignore[attr-defined]


def test_gone_is_done(call: ProviderContext) -> None:
    looks = iter([PollResult(None, "Deleting"), None])
    wait_until_gone(call, lambda: next(looks), label="x")


def test_what_does_not_go_is_an_error(call: ProviderContext) -> None:
    call.start_deadline(20)
    with pytest.raises(GpuformError, match="not done after 20s; last seen: Deleting"):
        wait_until_gone(call, lambda: PollResult(None, "Deleting"), label="x")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.4, "59s"), (60, "1m00s"), (754, "12m34s"), (3900, "1h05m")]
)
def test_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text

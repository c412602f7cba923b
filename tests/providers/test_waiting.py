"""Test waiting for a resource: polls, progress, deadlines, outages and interruptions."""

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
    NotShown,
    ServerError,
    Unreachable,
)

Step = PollResult[int] | Exception


class Probe:
    """Return the steps one after another, and repeat the last one."""

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


def _build_server_error() -> ServerError:
    return ServerError("answered 503", method="GET", path="/x", status=503)


def test_the_value_of_the_first_finished_poll_is_returned(call: ProviderContext) -> None:
    probe = Probe(
        PollResult(1, "Pending"),
        PollResult(2, "Nobody knows this"),
        PollResult(3, "Ready", is_done=True),
    )
    assert wait_until_done(call, probe, label="x", interval=10) == 3
    assert call.clock.pauses == [10, 10]  # type: ignore[attr-defined]


def test_phase_and_time_are_reported_only_on_change(
    call: ProviderContext, reported: object
) -> None:
    poll_results = [
        PollResult(0, "A"),
        PollResult(0, "A"),
        PollResult(0, "A"),
        PollResult(0, "B"),
        PollResult(0, "C", is_done=True),
    ]
    wait_until_done(call, Probe(*poll_results), label="x", interval=30)
    assert reported.progress == ["A (0s)", "B (1m30s)"]  # type: ignore[attr-defined]


def test_a_failed_poll_ends_the_wait_with_its_result(call: ProviderContext) -> None:
    probe = Probe(
        PollResult(1, "Pending"), PollResult(2, "Degraded", failure="its status is Degraded")
    )
    with pytest.raises(NotReady, match=r"^x: its status is Degraded$") as caught:
        wait_until_done(call, probe, label="x")
    assert caught.value.last == 2


def test_the_deadline_ends_the_wait_after_one_more_poll(call: ProviderContext) -> None:
    call.start_deadline(25)
    probe = Probe(PollResult(1, "Pending"))
    with pytest.raises(NotReady, match=r"not done after 25s; last seen: Pending") as caught:
        wait_until_done(call, probe, label="x", interval=10)
    assert caught.value.last == 1
    assert probe.count == 4


def test_a_poll_at_the_deadline_can_still_succeed(call: ProviderContext) -> None:
    call.start_deadline(10)
    assert (
        wait_until_done(
            call, Probe(PollResult(1, "A"), PollResult(2, "B", is_done=True)), label="x"
        )
        == 2
    )


def test_a_limit_shorter_than_the_deadline_ends_the_wait(call: ProviderContext) -> None:
    call.start_deadline(1000)
    with pytest.raises(NotReady, match="not done after 20s"):
        wait_until_done(call, Probe(PollResult(1, "A")), label="x", interval=10, limit=20)


@pytest.mark.parametrize("error", [_build_server_error(), Unreachable("no connection")])
def test_an_outage_does_not_end_the_wait(
    call: ProviderContext, reported: object, error: GpuformError
) -> None:
    probe = Probe(PollResult(1, "A"), error, error, PollResult(2, "B", is_done=True))
    assert wait_until_done(call, probe, label="x") == 2
    assert reported.progress == ["A (0s)", f"no answer: {error.message} (10s)"]  # type: ignore[attr-defined]


def test_an_outage_until_the_deadline_is_the_reported_reason(call: ProviderContext) -> None:
    call.start_deadline(20)
    with pytest.raises(NotReady, match="no answer: answered 503") as caught:
        wait_until_done(call, Probe(PollResult(1, "A"), _build_server_error()), label="x")
    assert caught.value.last == 1


def test_other_errors_are_raised(call: ProviderContext) -> None:
    with pytest.raises(NotFound):
        wait_until_done(
            call, Probe(NotFound("gone", method="GET", path="/", status=404)), label="x"
        )


def test_an_interruption_ends_the_wait_with_the_last_poll(call: ProviderContext) -> None:
    def probe() -> PollResult[int]:
        call.cancelled.set()
        return PollResult(5, "Pending")

    with pytest.raises(Cancelled, match="x: interrupted after 0s; last seen: Pending") as caught:
        wait_until_done(call, probe, label="x")
    assert caught.value.last == 5
    assert call.clock.pauses == []  # type: ignore[attr-defined]


def test_probes_slower_than_the_interval_are_not_delayed_further(call: ProviderContext) -> None:
    poll_results = iter([PollResult(0, "A"), PollResult(1, "B", is_done=True)])

    def probe() -> PollResult[int]:
        call.clock.time += 60  # type: ignore[attr-defined]
        return next(poll_results)

    wait_until_done(call, probe, label="x", interval=10)
    assert call.clock.pauses == []  # type: ignore[attr-defined]


def test_a_deleted_object_ends_the_wait(call: ProviderContext) -> None:
    poll_results = iter([PollResult(None, "Deleting"), None])
    wait_until_gone(call, lambda: next(poll_results), label="x")


def test_an_object_that_is_not_deleted_in_time_is_an_error(call: ProviderContext) -> None:
    call.start_deadline(20)
    with pytest.raises(GpuformError, match="not done after 20s; last seen: Deleting"):
        wait_until_gone(call, lambda: PollResult(None, "Deleting"), label="x")


def test_an_interrupted_wait_for_a_deletion_is_an_interruption(call: ProviderContext) -> None:
    call.cancelled.set()
    with pytest.raises(Cancelled, match="x: interrupted after 0s"):
        wait_until_gone(call, lambda: PollResult(None, "Deleting"), label="x")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.4, "59s"), (60, "1m00s"), (754, "12m34s"), (3900, "1h05m")]
)
def test_durations_are_formatted(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_an_object_that_a_replica_hides_for_a_while_is_waited_for(call: ProviderContext) -> None:
    probe = Probe(
        PollResult(1, "Pending"),
        *[NotShown("gone"), _build_server_error(), NotShown("gone")],
        PollResult(2, "Ready", is_done=True),
    )
    assert wait_until_done(call, probe, label="x", interval=20) == 2


def test_an_object_missing_for_the_propagation_time_ends_the_wait(call: ProviderContext) -> None:
    # Before the last miss the object is shown: the time starts again.
    steps = [NotShown("gone"), PollResult(1, "Pending"), NotShown("gone")]
    with pytest.raises(NotShown, match="gone"):
        wait_until_done(call, Probe(*steps), label="x", interval=20)
    assert call.clock.pauses == [20] * 5  # type: ignore[attr-defined]


def test_an_object_missing_at_the_deadline_ends_the_wait(call: ProviderContext) -> None:
    call.start_deadline(30)
    with pytest.raises(NotShown):
        wait_until_done(call, Probe(NotShown("gone")), label="x", interval=20)
    assert call.clock.pauses == [20, 10]  # type: ignore[attr-defined]


def test_a_created_object_that_no_probe_has_shown_ends_the_wait(call: ProviderContext) -> None:
    call.progress.just_created = True
    with pytest.raises(NotShown):
        wait_until_done(call, Probe(NotShown("gone")), label="x", interval=20)
    assert call.clock.pauses == []  # type: ignore[attr-defined]

"""Test the platform's rate limits: respected where known, waited for where they are met."""

import email.utils
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clocks.lockstep_clock import LockstepClock

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.emulator.tensorone import FREE_KEY
from gpuform.providers.errors import RateLimited
from gpuform.providers.tensorone.client import TensorOneClient
from gpuform.providers.tensorone.rate_limits import (
    RateLimitedPollSchedule,
    RateLimits,
    get_request_kind,
)

Json = dict[str, Any]

TEN = range(10)
HOUR = 3600


class RateLimitedPlatform:
    """Accept `limit` reads an hour, on the clock of the call."""

    def __init__(self, clock: Any, limit: int, *, ahead: float = 0.0, tells: bool = True) -> None:
        self.clock, self.limit, self.ahead, self.tells = clock, limit, ahead, tells
        self.taken: Counter[int] = Counter()
        self.refused = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        now = self.clock.now()
        window = int(now // HOUR)
        reset = (window + 1) * HOUR
        headers = {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Reset": str(int(reset + self.ahead)),
            "X-RateLimit-Window": str(HOUR),
            "Date": email.utils.formatdate(now + self.ahead, usegmt=True),
        }
        if self.taken[window] >= self.limit:
            self.refused += 1
            wait = {"Retry-After": str(int(reset - now) + 1)}
            return httpx.Response(429, json={}, headers={**headers, **wait})
        self.taken[window] += 1
        remaining = self.limit - self.taken[window]
        answer_headers = {**headers, "X-RateLimit-Remaining": str(remaining)} if self.tells else {}
        return httpx.Response(200, json={"data": {"id": "c"}}, headers=answer_headers)


def build_client(platform: RateLimitedPlatform) -> TensorOneClient:
    return TensorOneClient("http://t.test/v1", "key", httpx.MockTransport(platform))


@pytest.mark.parametrize("ahead", [0.0, 7200.0, -7200.0])
def test_no_request_is_sent_that_would_be_refused(
    clock: Any, call: ProviderContext, ahead: float
) -> None:
    """The platform's clock may differ from ours."""
    platform = RateLimitedPlatform(clock, 5, ahead=ahead)
    client = build_client(platform)
    with use_context(call):
        for _ in range(12):
            client.get_cluster("c")
    assert platform.refused == 0
    assert sorted(platform.taken.values()) == [2, 5, 5]


def test_a_refusal_states_the_wait(clock: Any, call: ProviderContext) -> None:
    """No other answer states the limits."""
    platform = RateLimitedPlatform(clock, 5, tells=False)
    client = build_client(platform)
    with use_context(call):
        for _ in range(12):
            client.get_cluster("c")
    assert platform.refused == 2


def test_a_request_beyond_the_deadline_is_reported_and_not_sent(
    clock: Any, call: ProviderContext
) -> None:
    platform = RateLimitedPlatform(clock, 1)
    client = build_client(platform)
    call.start_deadline(60)
    with use_context(call):
        client.get_cluster("c")
        with pytest.raises(
            RateLimited, match="the limit of GET requests is reached; waiting"
        ) as caught:
            client.get_cluster("c")
    assert caught.value.hint is not None
    assert sum(platform.taken.values()) == 1


def test_the_limit_of_one_kind_does_not_delay_another(clock: Any, call: ProviderContext) -> None:
    platform = RateLimitedPlatform(clock, 1)
    client = build_client(platform)
    with use_context(call):
        client.get_cluster("c")
        platform.taken.clear()
        client.update("c", {})
    assert call.clock is clock
    assert clock.pauses == []


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("GET", "/v1/clusters", "GET"),
        ("GET", "/v1/clusters/c", "GET"),
        ("POST", "/v1/clusters", "create"),
        ("POST", "/v1/clusters/c/start", "action"),
        ("PUT", "/v1/clusters/c", "PUT"),
        ("DELETE", "/v1/clusters/c", "DELETE"),
    ],
)
def test_requests_are_counted_by_kind(method: str, path: str, kind: str) -> None:
    assert get_request_kind(method, path) == kind


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-RateLimit-Limit": "5"},
        {"X-RateLimit-Limit": "many", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "9"},
        {"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "-1", "X-RateLimit-Reset": "soon"},
    ],
)
def test_unreadable_headers_delay_no_request(
    call: ProviderContext, headers: dict[str, str]
) -> None:
    answer = httpx.Response(200, json={"data": {"id": "c"}}, headers=headers)
    client = TensorOneClient("http://t.test", "key", httpx.MockTransport(lambda _: answer))
    with use_context(call):
        for _ in range(3):
            assert client.get_cluster("c").cluster.id == "c"


def _record_headers(
    rate_limits: RateLimits, call: ProviderContext, remaining: int, seconds: float, limit: int = 100
) -> None:
    now = call.clock.now()
    headers = {
        "X-RateLimit-Limit": str(limit),
        "X-RateLimit-Remaining": str(remaining),
        "X-RateLimit-Reset": str(int(now + seconds)),
    }
    request = httpx.Request("GET", "http://t.test/v1/clusters")
    with use_context(call):
        rate_limits.record_answer(httpx.Response(200, headers=headers, request=request))


@pytest.mark.parametrize(
    ("remaining", "seconds", "spacing"),
    [(100, 3600, 0), (50, 3600, 0), (30, 3600, 120), (0, 600, 600)],
)
def test_polls_get_less_frequent_when_half_of_the_reads_are_used(
    call: ProviderContext, remaining: int, seconds: float, spacing: float
) -> None:
    rate_limits = RateLimits()
    _record_headers(rate_limits, call, remaining, seconds)
    now = call.clock.now()
    assert rate_limits.compute_read_spacing(now) == spacing
    assert rate_limits.compute_read_spacing(now + seconds) == 0


@given(
    moments=st.lists(st.floats(0, 10_000), min_size=1, max_size=8),
    waited=st.floats(0, 7200),
    remaining=st.integers(0, 100),
)
def test_all_readers_wait_for_the_same_poll_time(
    moments: list[float], waited: float, remaining: int
) -> None:
    """Readers between two poll times wait for the same one, however few reads remain."""
    clock = StoppedClock(1_000_000.0)
    call = ProviderContext(clock=clock)
    rate_limits = RateLimits()
    _record_headers(rate_limits, call, remaining, 20_000)
    rhythm = RateLimitedPollSchedule(60.0, rate_limits)
    first = rhythm.compute_delay(clock.time)
    assert first >= min(60.0, rate_limits.compute_read_spacing(clock.time))
    for moment in sorted(moments):
        now = clock.time + moment
        pause = rhythm.compute_delay(now, waited)
        assert pause > 0
        # Beats are whole numbers of the shortest interval from the first who waited.
        beats = (now + pause - clock.time) / RateLimitedPollSchedule.SHORTEST
        assert abs(beats - round(beats)) < 1e-6


class StoppedClock:
    def __init__(self, time: float) -> None:
        self.time = time

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float, cancelled: object) -> None:
        self.time += seconds


class TestAFreeKey:
    """Test a key with 100 reads and 20 writes an hour on ten clusters."""

    @pytest.fixture
    def free(self, platform: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setenv("TENSORONE_API_KEY", FREE_KEY)
        return platform

    def _run_for_all(self, free: Any, work: Callable[[int, LockstepClock], Any]) -> list[Any]:
        """Run the work for all ten clusters at once, because successive waits would add up."""

        def move(time: float) -> None:
            free.send_control("POST", "clock", {"until": time})

        clock = LockstepClock(free.clock.now(), len(TEN), move)

        def run_one(number: int) -> Any:
            try:
                return work(number, clock)
            finally:
                clock.remove_thread()

        with ThreadPoolExecutor(len(TEN)) as pool:
            return list(pool.map(run_one, TEN))

    def _create_all(self, free: Any, inputs: Json) -> list[Any]:
        named = [{**inputs, "name": f"train-{number}"} for number in TEN]
        created = self._run_for_all(
            free, lambda n, clock: free.create(named[n], str(n), clock=clock)
        )
        assert all(created_cluster.outs["ready"] for created_cluster in created)
        return created

    def test_ten_creates_use_half_of_the_reads_at_most(self, free: Any, inputs: Json) -> None:
        self._create_all(free, inputs)
        statuses = Counter(
            (request["method"], request["status"]) for request in free.list_requests()
        )
        assert statuses["POST", 201] == 10
        assert set(statuses) == {("POST", 201), ("GET", 200)}
        # Usually 20: how many creates share a list depends on when their threads run.
        assert statuses["GET", 200] <= 80

    def test_create_update_and_delete_of_ten_clusters_wait_for_the_next_hour(
        self, free: Any, inputs: Json
    ) -> None:
        """Over 30 writes: the ones that exceed this hour's limit are sent in the next."""
        began = free.send_control("GET", "clock")["now"]
        created = self._create_all(free, inputs)
        assert [free.plan(created_cluster) for created_cluster in created] == [{}] * 10
        healthy_inputs = [
            {**created_cluster.inputs, "tags": {"a": "b"}} for created_cluster in created
        ]
        changed = self._run_for_all(
            free, lambda n, clock: free.update(created[n], healthy_inputs[n], clock=clock)
        )
        assert all(created_cluster.outs["ready"] for created_cluster in changed)
        assert [free.plan(free.refresh(created_cluster)) for created_cluster in changed] == [
            {}
        ] * 10
        self._run_for_all(free, lambda n, clock: free.delete(changed[n], clock=clock))
        assert free.list_objects() == []
        took = free.send_control("GET", "clock")["now"] - began
        assert took < 2 * HOUR
        refused = [
            created_cluster
            for created_cluster in free.list_requests()
            if created_cluster["status"] == 429
        ]
        assert {created_cluster["method"] for created_cluster in refused} == {"DELETE"}
        # Ten deletes may be on their way before one answer tells that no write is left: now, and
        # again when the first of the writes are free.
        waves = Counter(created_cluster["time"] for created_cluster in refused)
        assert len(waves) <= 2
        assert max(waves.values()) <= 10

    def test_waits_for_a_limit_are_reported(self, free: Any, inputs: Json) -> None:
        created = free.create(inputs)
        headers = {"Authorization": f"Bearer {FREE_KEY}"}
        for _ in range(120):
            free.http.get("/tensorone/v1/clusters", headers=headers)
        free.messages.clear()
        assert free.refresh(created).outs["ready"] is True
        assert any(
            "the limit of GET requests is reached; waiting" in message for message in free.messages
        )

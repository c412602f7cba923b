"""The platform's rate limits: kept where they are known, waited out where they are met."""

import email.utils
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockstep import Lockstep

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


class Limited:
    """A platform that takes `limit` reads an hour, on the clock of the call."""

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
        left = self.limit - self.taken[window]
        told = {**headers, "X-RateLimit-Remaining": str(left)} if self.tells else {}
        return httpx.Response(200, json={"data": {"id": "c"}}, headers=told)


def client_of(platform: Limited) -> TensorOneClient:
    return TensorOneClient("http://t.test/v1", "key", httpx.MockTransport(platform))


@pytest.mark.parametrize("ahead", [0.0, 7200.0, -7200.0])
def test_nothing_is_sent_that_would_be_refused(
    clock: Any, call: ProviderContext, ahead: float
) -> None:
    """Also where the platform's clock differs from ours."""
    platform = Limited(clock, 5, ahead=ahead)
    client = client_of(platform)
    with use_context(call):
        for _ in range(12):
            client.get_cluster("c")
    assert platform.refused == 0
    assert sorted(platform.taken.values()) == [2, 5, 5]


def test_a_refusal_says_how_long_to_wait(clock: Any, call: ProviderContext) -> None:
    """Where answers tell nothing else."""
    platform = Limited(clock, 5, tells=False)
    client = client_of(platform)
    with use_context(call):
        for _ in range(12):
            client.get_cluster("c")
    assert platform.refused == 2


def test_what_would_take_too_long_is_told_and_not_sent(clock: Any, call: ProviderContext) -> None:
    platform = Limited(clock, 1)
    client = client_of(platform)
    call.start_deadline(60)
    with use_context(call):
        client.get_cluster("c")
        with pytest.raises(
            RateLimited, match="the limit of GET requests is reached; waiting"
        ) as caught:
            client.get_cluster("c")
    assert caught.value.hint is not None
    assert sum(platform.taken.values()) == 1


def test_limits_of_one_kind_do_not_hold_another(clock: Any, call: ProviderContext) -> None:
    platform = Limited(clock, 1)
    client = client_of(platform)
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
def test_kinds(method: str, path: str, kind: str) -> None:
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
def test_headers_that_tell_nothing_hold_nothing(
    call: ProviderContext, headers: dict[str, str]
) -> None:
    answer = httpx.Response(200, json={"data": {"id": "c"}}, headers=headers)
    client = TensorOneClient("http://t.test", "key", httpx.MockTransport(lambda _: answer))
    with use_context(call):
        for _ in range(3):
            assert client.get_cluster("c").cluster.id == "c"


def _told(
    pace: RateLimits, call: ProviderContext, left: int, seconds: float, limit: int = 100
) -> None:
    now = call.clock.now()
    headers = {
        "X-RateLimit-Limit": str(limit),
        "X-RateLimit-Remaining": str(left),
        "X-RateLimit-Reset": str(int(now + seconds)),
    }
    request = httpx.Request("GET", "http://t.test/v1/clusters")
    with use_context(call):
        pace.record_answer(httpx.Response(200, headers=headers, request=request))


@pytest.mark.parametrize(
    ("left", "seconds", "spacing"), [(100, 3600, 0), (50, 3600, 0), (30, 3600, 120), (0, 600, 600)]
)
def test_looks_get_rarer_when_half_of_the_reads_are_used(
    call: ProviderContext, left: int, seconds: float, spacing: float
) -> None:
    pace = RateLimits()
    _told(pace, call, left, seconds)
    now = call.clock.now()
    assert pace.compute_read_spacing(now) == spacing
    assert pace.compute_read_spacing(now + seconds) == 0


@given(
    moments=st.lists(st.floats(0, 10_000), min_size=1, max_size=8),
    waited=st.floats(0, 7200),
    left=st.integers(0, 100),
)
def test_a_beat_is_one_for_all(moments: list[float], waited: float, left: int) -> None:
    """Whoever asks between two beats waits for the same one, however few reads are left."""
    clock = Still(1_000_000.0)
    call = ProviderContext(clock=clock)
    pace = RateLimits()
    _told(pace, call, left, 20_000)
    rhythm = RateLimitedPollSchedule(60.0, pace)
    first = rhythm.compute_delay(clock.time)
    assert first >= min(60.0, pace.compute_read_spacing(clock.time))
    for moment in sorted(moments):
        now = clock.time + moment
        pause = rhythm.compute_delay(now, waited)
        assert pause > 0
        # Beats are whole numbers of the shortest interval from the first who waited.
        beats = (now + pause - clock.time) / RateLimitedPollSchedule.SHORTEST
        assert abs(beats - round(beats)) < 1e-6


class Still:
    def __init__(self, time: float) -> None:
        self.time = time

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float, cancelled: object) -> None:
        self.time += seconds


class TestAFreeKey:
    """100 reads and 20 writes an hour, for ten clusters."""

    @pytest.fixture
    def free(self, world: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setenv("TENSORONE_API_KEY", FREE_KEY)
        return world

    def _all(self, free: Any, work: Callable[[int, Lockstep], Any]) -> list[Any]:
        """All ten at once: the time of one's waiting is not added to another's."""

        def move(time: float) -> None:
            free.control("POST", "clock", {"until": time})

        clock = Lockstep(free.clock.now(), len(TEN), move)

        def one(number: int) -> Any:
            try:
                return work(number, clock)
            finally:
                clock.leave()

        with ThreadPoolExecutor(len(TEN)) as pool:
            return list(pool.map(one, TEN))

    def _made(self, free: Any, inputs: Json) -> list[Any]:
        named = [{**inputs, "name": f"train-{number}"} for number in TEN]
        made = self._all(free, lambda n, clock: free.create(named[n], str(n), clock=clock))
        assert all(each.outs["ready"] for each in made)
        return made

    def test_makes_ten_clusters_with_a_quarter_of_its_reads(self, free: Any, inputs: Json) -> None:
        self._made(free, inputs)
        statuses = Counter((each["method"], each["status"]) for each in free.requests())
        assert statuses["POST", 201] == 10
        assert set(statuses) == {("POST", 201), ("GET", 200)}
        assert statuses["GET", 200] <= 40

    def test_lives_a_whole_life(self, free: Any, inputs: Json) -> None:
        """30 writes and more: what is not left in this hour is sent in the next."""
        began = free.control("GET", "clock")["now"]
        made = self._made(free, inputs)
        assert [free.plan(each) for each in made] == [{}] * 10
        wanted = [{**each.inputs, "tags": {"a": "b"}} for each in made]
        changed = self._all(free, lambda n, clock: free.update(made[n], wanted[n], clock=clock))
        assert all(each.outs["ready"] for each in changed)
        assert [free.plan(free.refresh(each)) for each in changed] == [{}] * 10
        self._all(free, lambda n, clock: free.delete(changed[n], clock=clock))
        assert free.objects() == []
        took = free.control("GET", "clock")["now"] - began
        assert took < 2 * HOUR
        refused = [each for each in free.requests() if each["status"] == 429]
        assert {each["method"] for each in refused} == {"DELETE"}
        # Ten deletes may be on their way before one answer tells that no write is left: now, and
        # again when the first of the writes are free.
        waves = Counter(each["time"] for each in refused)
        assert len(waves) <= 2
        assert max(waves.values()) <= 10

    def test_is_told_what_it_waits_for(self, free: Any, inputs: Json) -> None:
        made = free.create(inputs)
        headers = {"Authorization": f"Bearer {FREE_KEY}"}
        for _ in range(120):
            free.http.get("/tensorone/v1/clusters", headers=headers)
        free.told.clear()
        assert free.refresh(made).outs["ready"] is True
        assert any("the limit of GET requests is reached; waiting" in each for each in free.told)

"""Test readers that share requests: a question during a request is answered by the next request."""

import threading
import time
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes.limits import LAST_RESORT

from gpuform.providers.context import PollSchedule, ProviderContext, use_context
from gpuform.providers.errors import Cancelled, Contradicted, GpuformError, NotFound, ServerError
from gpuform.providers.http import Listing

ListedObject = tuple[str, int]
"""An id, and the number of the request that saw it."""


@dataclass
class Platform:
    """Objects with ids; a request whose number is in `held` waits for its event."""

    object_names: list[str]
    hidden: set[str] = field(default_factory=set)
    """Those of them that nobody finds who looks at them alone."""
    unlisted: set[str] = field(default_factory=set)
    sent: list[str] = field(default_factory=list)
    held: dict[int, threading.Event] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    most_at_a_time: int = 0
    _on_the_wire: int = 0

    def _count_request(self, path: str) -> int:
        with self.changed:
            number = len(self.sent)
            self.sent.append(path)
            self._on_the_wire += 1
            self.most_at_a_time = max(self.most_at_a_time, self._on_the_wire)
            self.changed.notify_all()
        if number in self.held:
            assert self.held[number].wait(LAST_RESORT)
        with self.changed:
            self._on_the_wire -= 1
        if number in self.errors:
            raise self.errors[number]
        return number

    def list(self) -> list[ListedObject]:
        number = self._count_request("list")
        return [(id_, number) for id_ in self.object_names if id_ not in self.unlisted]

    def get(self, id_: str) -> ListedObject:
        number = self._count_request(id_)
        if id_ not in self.object_names or id_ in self.hidden:
            raise NotFound("gone", method="GET", path=id_, status=404)
        return id_, number

    def hold(self, number: int) -> threading.Event:
        return self.held.setdefault(number, threading.Event())

    def wait_for_requests(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.sent) >= count, LAST_RESORT)


@pytest.fixture
def platform() -> Platform:
    return Platform([f"t{number}" for number in range(64)])


@pytest.fixture
def listing(platform: Platform) -> Listing[ListedObject]:
    return Listing(platform.list, platform.get, lambda listed_object: listed_object[0])


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(80) as pool:
        yield pool


def _wait_for_readers(listing: Listing[Any], count: int) -> None:
    """Wait until the next request has the given number of readers."""
    pause = threading.Event()
    while True:
        with listing._lock:
            if len(listing._next_round.asked) + listing._next_round.wants_all >= count:
                return
        pause.wait(0.0001)


def test_a_single_reader_reads_its_object(
    listing: Listing[ListedObject], platform: Platform
) -> None:
    assert [listing.read_one("t1"), listing.read_one("t2")] == [("t1", 0), ("t2", 1)]
    assert platform.sent == ["t1", "t2"]


def test_many_readers_need_two_requests(
    listing: Listing[ListedObject], platform: Platform, pool: ThreadPoolExecutor
) -> None:
    first = platform.hold(0)
    reads: list[Future[ListedObject]] = [pool.submit(listing.read_one, "t0")]
    platform.wait_for_requests(1)
    reads += [pool.submit(listing.read_one, id_) for id_ in platform.object_names[1:]]
    _wait_for_readers(listing, 63)
    first.set()
    assert [read.result() for read in reads] == [
        ("t0", 0),
        *((t, 1) for t in platform.object_names[1:]),
    ]
    assert platform.sent == ["t0", "list"]


def test_an_answer_is_never_older_than_its_question(
    listing: Listing[ListedObject], platform: Platform, pool: ThreadPoolExecutor
) -> None:
    first = platform.hold(0)
    lists = [pool.submit(listing.read_all)]
    platform.wait_for_requests(1)
    platform.object_names.append("new")
    late = [pool.submit(listing.read_one, "new"), pool.submit(listing.read_one, "t1")]
    _wait_for_readers(listing, 2)
    first.set()
    assert [read.result()[1] for read in late] == [1, 1]
    assert {number for _, number in lists[0].result()} == {0}


def test_two_readers_of_one_object_need_one_request(
    listing: Listing[ListedObject], platform: Platform, pool: ThreadPoolExecutor
) -> None:
    first = platform.hold(0)
    reads = [pool.submit(listing.read_one, "t0")]
    platform.wait_for_requests(1)
    reads += [pool.submit(listing.read_one, "t1") for _ in range(5)]
    _wait_for_readers(listing, 1)
    first.set()
    assert {read.result()[0] for read in reads} == {"t0", "t1"}
    assert set(platform.sent) == {"t0", "t1"}


def test_absence_from_a_list_is_confirmed(
    listing: Listing[ListedObject], platform: Platform, pool: ThreadPoolExecutor
) -> None:
    first = platform.hold(0)
    pool.submit(listing.read_one, "t0")
    platform.wait_for_requests(1)
    removed = [pool.submit(listing.read_one, id_) for id_ in ("gone", "t1")]
    _wait_for_readers(listing, 2)
    first.set()
    with pytest.raises(NotFound):
        removed[0].result()
    assert removed[1].result() == ("t1", 1)
    assert platform.sent == ["t0", "list", "gone", "t0"]  # the last is the witness


def test_an_object_that_the_list_lacks_is_found(
    platform: Platform, pool: ThreadPoolExecutor
) -> None:
    listing: Listing[ListedObject] = Listing(
        lambda: platform.list()[:1], platform.get, lambda t: t[0]
    )
    first = platform.hold(0)
    pool.submit(listing.read_all)
    platform.wait_for_requests(1)
    reads = [pool.submit(listing.read_one, id_) for id_ in ("t5", "t0")]
    _wait_for_readers(listing, 2)
    first.set()
    assert [read.result() for read in reads] == [("t5", 2), ("t0", 1)]


def test_an_error_reaches_every_reader_of_its_request_and_nobody_else(
    listing: Listing[ListedObject], platform: Platform, pool: ThreadPoolExecutor
) -> None:
    first = platform.hold(0)
    platform.errors[1] = GpuformError("no answer")
    alone = pool.submit(listing.read_one, "t0")
    platform.wait_for_requests(1)
    reads = [pool.submit(listing.read_one, id_) for id_ in ("t1", "t2", "t3")]
    _wait_for_readers(listing, 3)
    first.set()
    assert alone.result() == ("t0", 0)
    for read in reads:
        with pytest.raises(GpuformError, match="no answer"):
            read.result()
    assert listing.read_one("t4") == ("t4", 2)


@pytest.mark.parametrize("interruption", [Cancelled(), KeyboardInterrupt()], ids=repr)
def test_an_interrupted_reader_does_not_interrupt_others(
    listing: Listing[ListedObject],
    platform: Platform,
    pool: ThreadPoolExecutor,
    interruption: BaseException,
) -> None:
    first, second = platform.hold(0), platform.hold(1)
    platform.errors[1] = interruption
    pool.submit(listing.read_one, "t0")
    platform.wait_for_requests(1)
    reads = [pool.submit(listing.read_one, id_) for id_ in ("t1", "t2", "t3")]
    _wait_for_readers(listing, 3)
    first.set()
    second.set()
    ended = [read.exception(LAST_RESORT) for read in reads]
    assert [type(error) for error in ended if error] == [type(interruption)]
    served = [read.result() for read in reads if read.exception() is None]
    assert {number for _, number in served} <= {2, 3}


def test_one_request_is_sent_at_a_time(
    listing: Listing[ListedObject], platform: Platform, pool: ThreadPoolExecutor
) -> None:
    reads = [pool.submit(listing.read_one, id_) for id_ in platform.object_names * 8]
    assert [read.result()[0] for read in reads] == platform.object_names * 8
    assert platform.most_at_a_time == 1


class TestGoneObjects:
    """An object counts as deleted only if all answers agree."""

    def test_an_object_in_the_list_is_not_gone(
        self, listing: Listing[ListedObject], platform: Platform
    ) -> None:
        platform.hidden = {"t5"}
        with pytest.raises(Contradicted, match="its list: it still shows it"):
            listing.read_one("t5")

    def test_a_failed_list_is_an_error(
        self, listing: Listing[ListedObject], platform: Platform
    ) -> None:
        platform.errors[1] = ServerError("no list", method="GET", path="/", status=500)
        with pytest.raises(ServerError, match="no list"):
            listing.read_one("gone")

    @pytest.mark.parametrize("has_moment", [False, True])
    def test_a_404_of_the_list_is_an_error_and_no_evidence(
        self, listing: Listing[ListedObject], platform: Platform, *, has_moment: bool
    ) -> None:
        no_list = NotFound("no such path", method="GET", path="/v1/things", status=404)
        platform.errors = {1: no_list}
        with (
            use_context(ProviderContext(fresh_since=time.monotonic() if has_moment else None)),
            pytest.raises(Contradicted, match="no such path"),
        ):
            listing.read_one("gone")
        assert platform.sent == ["gone", "list"]

    def test_a_404_of_a_filtered_list_is_an_error(
        self, platform: Platform, pool: ThreadPoolExecutor
    ) -> None:
        def find_some(_ids: Collection[str]) -> list[ListedObject]:
            raise NotFound("no such path", method="POST", path="/query", status=404)

        listing: Listing[ListedObject] = Listing(
            platform.list, platform.get, lambda t: t[0], find_some
        )
        first = platform.hold(0)
        pool.submit(listing.read_one, "t0")
        platform.wait_for_requests(1)
        reads = [pool.submit(listing.read_one, id_) for id_ in ("t1", "t2")]
        _wait_for_readers(listing, 2)
        first.set()

        errors = [read.exception(LAST_RESORT) for read in reads]

        assert [type(error) for error in errors] == [Contradicted, Contradicted]

    def test_a_404_is_no_evidence_if_a_listed_object_has_one_too(
        self, listing: Listing[ListedObject], platform: Platform
    ) -> None:
        platform.hidden = set(platform.object_names)
        with pytest.raises(Contradicted, match="does not find another object either"):
            listing.read_one("gone")
        assert platform.sent == ["gone", "list", "t0", "list"]

    def test_a_404_is_evidence_if_the_witness_is_deleted_too(
        self, listing: Listing[ListedObject], platform: Platform
    ) -> None:
        held = platform.hold(2)
        with ThreadPoolExecutor() as pool:
            read = pool.submit(listing.read_one, "gone")
            platform.wait_for_requests(3)
            platform.object_names.remove("t0")
            held.set()
            with pytest.raises(NotFound):
                read.result()

    def test_an_answer_about_another_object_is_an_error(self) -> None:
        listing = Listing[ListedObject](
            list, lambda _id: ("other", 0), lambda listed_object: listed_object[0]
        )
        with pytest.raises(Contradicted, match="about another object"):
            listing.read_one("t1")

    def test_many_that_are_gone_need_one_list_and_one_witness(
        self, listing: Listing[ListedObject], platform: Platform, pool: ThreadPoolExecutor
    ) -> None:
        removed, moment = [f"g{number}" for number in range(40)], time.monotonic()

        def read(id_: str) -> ListedObject | None:
            with use_context(ProviderContext(fresh_since=moment)):
                try:
                    return listing.read_one(id_)
                except NotFound:
                    return None

        assert list(pool.map(read, removed)) == [None] * 40
        assert (platform.sent.count("list"), platform.sent.count("t0")) == (1, 1)
        assert len(platform.sent) == 42

    @given(
        there=st.sets(st.sampled_from("abcdef")),
        hidden=st.sets(st.sampled_from("abcdef")),
        unlisted=st.sets(st.sampled_from("abcdef")),
        requested_id=st.sampled_from("abcdef"),
        has_moment=st.booleans(),
    )
    def test_only_deleted_objects_are_gone(
        self,
        there: set[str],
        hidden: set[str],
        unlisted: set[str],
        requested_id: str,
        has_moment: bool,
    ) -> None:
        platform = Platform(sorted(there), hidden=hidden, unlisted=unlisted)
        listing = Listing(platform.list, platform.get, lambda listed_object: listed_object[0])
        readable = there - hidden
        listed = sorted(there - unlisted)
        with use_context(ProviderContext(fresh_since=time.monotonic() if has_moment else None)):
            try:
                assert listing.read_one(requested_id)[0] == requested_id
                assert requested_id in readable
            except NotFound:
                assert requested_id not in readable | {*listed}
                assert not listed or listed[0] in readable
            except Contradicted:
                assert requested_id not in readable
                assert requested_id in listed or listed[0] not in readable


class TestReadersOfOneRefresh:
    """A refresh: answers to its first readers are reused for the others."""

    @pytest.fixture
    def as_of(self) -> Iterator[float]:
        moment = time.monotonic()
        with use_context(ProviderContext(fresh_since=moment)):
            yield moment

    @pytest.mark.usefixtures("as_of")
    def test_any_number_of_readers_need_one_lookup_and_one_list(
        self, listing: Listing[ListedObject], platform: Platform
    ) -> None:
        read = [listing.read_one(id_) for id_ in platform.object_names]
        assert read == [("t0", 0), *((id_, 1) for id_ in platform.object_names[1:])]
        assert len(listing.read_all()) == 64
        assert platform.sent == ["t0", "list"]

    def test_concurrent_readers_need_no_more_requests(
        self,
        listing: Listing[ListedObject],
        platform: Platform,
        pool: ThreadPoolExecutor,
        as_of: float,
    ) -> None:
        def read(id_: str) -> ListedObject:
            with use_context(ProviderContext(fresh_since=as_of)):
                return listing.read_one(id_)

        ids = platform.object_names * 8
        assert [listed_object[0] for listed_object in pool.map(read, ids)] == ids
        assert len(platform.sent) <= 2

    @pytest.mark.usefixtures("as_of")
    def test_absence_is_confirmed(self, listing: Listing[ListedObject], platform: Platform) -> None:
        listing.read_all()
        platform.object_names.append("new")
        assert listing.read_one("new") == ("new", 1)
        with pytest.raises(NotFound):
            listing.read_one("gone")

    @pytest.mark.usefixtures("as_of")
    def test_a_later_moment_needs_another_list(
        self, listing: Listing[ListedObject], platform: Platform
    ) -> None:
        listing.read_all()
        with use_context(ProviderContext(fresh_since=time.monotonic() + 1)):
            assert {number for _, number in listing.read_all()} == {1}

    @pytest.mark.usefixtures("as_of")
    def test_a_reader_without_a_time_gets_a_new_answer(
        self, listing: Listing[ListedObject], platform: Platform
    ) -> None:
        listing.read_all()
        with use_context(ProviderContext()):
            assert listing.read_one("t1") == ("t1", 1)
            assert {number for _, number in listing.read_all()} == {2}

    @pytest.mark.usefixtures("as_of")
    def test_a_failed_list_is_requested_again(
        self, listing: Listing[ListedObject], platform: Platform
    ) -> None:
        platform.errors[0] = GpuformError("no answer")
        with pytest.raises(GpuformError, match="no answer"):
            listing.read_all()
        assert listing.read_one("t1") == ("t1", 1)


def test_readers_request_only_their_ids_if_the_platform_can_filter(
    platform: Platform, pool: ThreadPoolExecutor
) -> None:
    requested_ids: list[set[str]] = []

    def some(ids: Collection[str]) -> list[ListedObject]:
        requested_ids.append(set(ids))
        return [listed_object for listed_object in platform.list() if listed_object[0] in ids]

    listing: Listing[ListedObject] = Listing(
        platform.list, platform.get, lambda listed_object: listed_object[0], some
    )
    first = platform.hold(0)
    reads = [pool.submit(listing.read_one, "t0")]
    platform.wait_for_requests(1)
    reads += [pool.submit(listing.read_one, id_) for id_ in ("t1", "t2", "t3")]
    _wait_for_readers(listing, 3)
    first.set()
    assert [read.result() for read in reads] == [("t0", 0), ("t1", 1), ("t2", 1), ("t3", 1)]
    assert requested_ids == [{"t1", "t2", "t3"}]
    assert len(listing.read_all()) == 64


class TestPollTimes:
    def test_all_readers_use_the_poll_times_of_the_first(self) -> None:
        rhythm = PollSchedule(30)
        assert rhythm.compute_delay(1000) == 30
        assert rhythm.compute_delay(1010) == 20
        assert rhythm.compute_delay(1071) == 19

    def test_a_slightly_early_reader_counts_for_the_poll_time(self) -> None:
        rhythm = PollSchedule(30)
        rhythm.compute_delay(1000)
        assert rhythm.compute_delay(1029) == 31
        assert rhythm.compute_delay(1030) == 30

    def test_a_new_reader_polls_more_often_at_common_times(self) -> None:
        rhythm = PollSchedule(30)
        rhythm.compute_delay(1000)
        assert rhythm.compute_delay(1000, 0) == 0.46875
        assert rhythm.compute_delay(1030, 29) == 3.75
        assert rhythm.compute_delay(1030, 60) == 15
        assert rhythm.compute_delay(1030, 120) == 30
        assert PollSchedule(0.5).compute_delay(0, 0) == 0.5

    @given(st.floats(0, 1e5), st.floats(0, 1e5))
    def test_a_poll_is_late_by_a_quarter_at_most(self, start: float, waited: float) -> None:
        rhythm = PollSchedule(30)
        rhythm.compute_delay(0)
        pause = rhythm.compute_delay(start, waited)
        assert 0 < pause <= 1.1 * min(30, max(2 * PollSchedule.SHORTEST, waited / 4)) + 1e-6

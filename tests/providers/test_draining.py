"""Nodes go when no job runs on them, or not at all; and none stays cordoned."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from fake_clock import FakeClock
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_scheduler import Simulated

from gpuform.providers.calls import Call
from gpuform.providers.draining import (
    DrainedObject,
    Draining,
    ScheduledNode,
    Taking,
    Worker,
    conclude,
    undo,
)
from gpuform.providers.errors import Cancelled, GpuformError, Unreachable
from gpuform.providers.evidence import NotEnoughEvidence
from gpuform.providers.records import Drain, Drains, FolderRecords, Intents
from gpuform.schemas.drain import DrainInputs, Leaving

ID = "c1"
MINUTE = 60.0


class Killed(BaseException):
    """The process died here."""


@pytest.fixture
def scheduler(clock: Any) -> Simulated:
    return Simulated(clock)


@dataclass(frozen=True)
class Fewer:
    """So many nodes that go, those that are `named` or missed least."""

    draining: Draining
    named: Sequence[str]

    def leaving(self, count: int) -> Leaving | None:
        return self.draining.leaving(Taking(count=count, named=self.named))

    def clear(self, count: int) -> Drain:
        drain = self.draining.clear(Taking(count=count, named=self.named))
        assert drain is not None
        return drain

    def asking(self, drain: Drain) -> Drain:
        return self.draining.asking(drain)


def draining(
    call: Call,
    scheduler: Simulated,
    *,
    takes_cordoned: bool = True,
    nodes: Sequence[str] = (),
    **wanted: Any,
) -> Fewer:
    workers = [Worker(f"w{at}") for at in range(4)]
    subject = DrainedObject(ID, "cluster train", workers, takes_cordoned=takes_cordoned)
    return Fewer(Draining(call, subject, lambda: scheduler, DrainInputs(**wanted)), nodes)


def record_of(call: Call) -> Drain | None:
    return Drains.beside(call.intents).find(ID)


class TestClear:
    def test_idle_nodes_are_cordoned_and_looked_at_again(
        self, call: Call, scheduler: Simulated
    ) -> None:
        scheduler.run("w3", 30)
        drain = draining(call, scheduler).clear(2)
        assert drain.chosen == ("w2", "w1")
        assert scheduler.cordoned == ["w1", "w2"]
        assert scheduler.asked == ["nodes", "cordon", "nodes", "nodes"]
        assert record_of(call) == drain

    def test_jobs_are_waited_for(self, call: Call, scheduler: Simulated, clock: Any) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 30)
        began = clock.now()
        draining(call, scheduler).clear(1)
        assert not scheduler.is_busy("w3")
        assert 30 * MINUTE <= clock.now() - began < 31 * MINUTE

    def test_waiting_ends_and_all_is_as_it_was(
        self, call: Call, scheduler: Simulated, clock: Any
    ) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 200)
        with pytest.raises(GpuformError) as raised:
            draining(call, scheduler, wait_minutes=10).clear(1)
        assert "nothing was taken from cluster train" in str(raised.value)
        assert "w3: ml/on-w3 (ada)" in str(raised.value)
        assert (scheduler.cordoned, record_of(call)) == ([], None)
        assert scheduler.is_busy("w3")

    def test_fail_asks_nothing_of_a_busy_node(self, call: Call, scheduler: Simulated) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 1)
        with pytest.raises(GpuformError, match=r"jobs run on w3: ml/on-w3 \(ada\)"):
            draining(call, scheduler, on_busy="fail").clear(1)
        assert scheduler.asked == ["nodes"]
        assert record_of(call) is None

    def test_a_job_that_slips_in_before_the_cordon_is_seen(
        self, call: Call, scheduler: Simulated
    ) -> None:
        scheduler.before = lambda what: scheduler.run("w3", 5) if what == "cordon" else None
        with pytest.raises(GpuformError, match="jobs run on w3"):
            draining(call, scheduler, on_busy="fail").clear(1)
        assert (scheduler.cordoned, record_of(call)) == ([], None)
        draining(call, scheduler, nodes=["w3"]).clear(1)
        assert not scheduler.is_busy("w3")

    def test_evict_asks_until_budgets_allow_it(self, call: Call, scheduler: Simulated) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 10_000)
        scheduler.stubborn = {"w3"}

        def budget(what: str) -> None:
            if scheduler.asked.count("evict") == 3:
                scheduler.stubborn = set()

        scheduler.before = budget
        draining(call, scheduler, on_busy="evict").clear(1)
        assert scheduler.asked.count("evict") == 4
        assert [scheduler.is_busy(f"w{at}") for at in range(4)] == [True, True, True, False]

    def test_budgets_that_never_allow_it_end_at_the_deadline(
        self, call: Call, scheduler: Simulated
    ) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 10_000)
        scheduler.stubborn = {"w3"}
        with pytest.raises(GpuformError, match="nothing was taken"):
            draining(call, scheduler, on_busy="evict", wait_minutes=5).clear(1)
        assert (scheduler.cordoned, record_of(call)) == ([], None)
        assert scheduler.is_busy("w3")

    def test_what_somebody_uncordons_is_cordoned_again(
        self, call: Call, scheduler: Simulated
    ) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 5)

        def meddle(what: str) -> None:
            if what == "nodes" and len(scheduler.asked) == 4:
                scheduler.uncordon(["w3"], scheduler.nodes_["w3"].mark or "")

        scheduler.before = meddle
        draining(call, scheduler).clear(1)
        assert scheduler.cordoned == ["w3"]

    def test_others_that_are_cordoned_may_be_taken_too_and_are_waited_for(
        self, call: Call, scheduler: Simulated, told: Any
    ) -> None:
        scheduler.cordon(["w0"], "for repair")
        scheduler.run("w0", 20)
        wanted = draining(call, scheduler, nodes=["w2"])
        assert wanted.leaving(1) is not None
        wanted.clear(1)
        assert not scheduler.is_busy("w0")
        assert sorted(scheduler.cordoned) == ["w0", "w2"]
        said = "w0 of cluster train is cordoned too: the platform could take it in place of w2"
        assert [text.partition(";")[0] for text in (*told.unchecked, *told.warnings)] == [said] * 2

    def test_who_removes_by_name_need_not_wait_for_others(
        self, call: Call, scheduler: Simulated
    ) -> None:
        scheduler.cordon(["w0"], "for repair")
        scheduler.run("w0", 20)
        draining(call, scheduler, takes_cordoned=False, nodes=["w2"]).clear(1)
        assert scheduler.is_busy("w0")

    def test_what_cannot_be_cordoned_is_not_left_to_a_platform_that_picks(
        self, call: Call, scheduler: Simulated
    ) -> None:
        del scheduler.nodes_["w3"]
        assert draining(call, scheduler).clear(1).chosen == ("w2",)
        with pytest.raises(GpuformError, match="there is no node w3"):
            draining(call, scheduler, nodes=["w3"]).clear(1)
        with pytest.raises(GpuformError, match="Kubernetes knows 3 of them: it does not know w3"):
            draining(call, scheduler).clear(4)

    def test_other_names_than_an_earlier_attempt_had(
        self, call: Call, scheduler: Simulated
    ) -> None:
        draining(call, scheduler, nodes=["w0"]).clear(1)
        draining(call, scheduler, nodes=["w1"]).clear(1)
        assert scheduler.cordoned == ["w1"]


class TestTroubles:
    def test_a_scheduler_that_cannot_be_asked_keeps_everything(
        self, call: Call, scheduler: Simulated
    ) -> None:
        def broken(_: str) -> None:
            raise Unreachable("no answer")

        scheduler.before = broken
        with pytest.raises(GpuformError, match="nothing was taken from cluster train: no answer"):
            draining(call, scheduler).clear(1)
        assert record_of(call) is None

    def test_one_that_stops_answering_in_the_middle(
        self, call: Call, scheduler: Simulated, told: Any
    ) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 5)

        def dying(_: str) -> None:
            if len(scheduler.asked) >= 4:
                raise Unreachable("no answer")

        scheduler.before = dying
        with pytest.raises(GpuformError, match="nothing was taken"):
            draining(call, scheduler, wait_minutes=10).clear(1)
        assert "may still be cordoned" in told.warnings[0]
        drain = record_of(call)
        assert drain is not None
        scheduler.before = lambda _: None
        assert undo(call, drain, lambda: scheduler)
        assert (scheduler.cordoned, record_of(call)) == ([], None)

    def test_one_that_answers_again_goes_on(self, call: Call, scheduler: Simulated) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 5)
        lost = iter([True] * 5)

        def hiccup(_: str) -> None:
            if len(scheduler.asked) >= 4 and next(lost, False):
                raise Unreachable("no answer")

        scheduler.before = hiccup
        assert draining(call, scheduler).clear(1).chosen == ("w3",)
        assert not scheduler.is_busy("w3")

    def test_an_interruption_undoes(self, call: Call, scheduler: Simulated) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 50)
        scheduler.before = lambda _: call.cancelled.set() if len(scheduler.asked) == 3 else None
        with pytest.raises(Cancelled):
            draining(call, scheduler).clear(1)
        assert (scheduler.cordoned, record_of(call)) == ([], None)

    def test_an_interruption_does_not_wait_for_one_that_hangs(
        self, call: Call, scheduler: Simulated, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gpuform.providers.draining.answering.FIRST_WORD", 0.0)
        monkeypatch.setattr("gpuform.providers.draining.draining.LAST_WORD", 0.0)
        released = threading.Event()

        def hang(what: str) -> None:
            if len(scheduler.asked) >= 2:
                call.cancelled.set()
                released.wait()

        scheduler.before = hang
        try:
            with pytest.raises(Cancelled):
                draining(call, scheduler).clear(1)
            assert record_of(call) is not None  # the next run undoes it
        finally:
            released.set()


class TestUnknownNodes:
    """A node that its scheduler does not show is not an idle node."""

    def test_a_scheduler_without_nodes_lets_none_go(self, call: Call, scheduler: Simulated) -> None:
        scheduler.nodes_ = {}
        for taking in (Taking({"w1": "deleted"}), Taking(count=1)):
            with pytest.raises(NotEnoughEvidence, match=r"knows no node .* of w") as raised:
                of_four(call, scheduler).clear(taking)
            assert "a kubeconfig that may list all nodes and pods" in str(raised.value.hint)
        assert record_of(call) is None

    def test_one_of_several_that_it_does_not_show_stays(
        self, call: Call, scheduler: Simulated
    ) -> None:
        del scheduler.nodes_["w1"]
        for taking in (Taking({"w1": "deleted"}), Taking(count=1, named=["w1"]), Taking(count=4)):
            with pytest.raises(NotEnoughEvidence, match="address of w1"):
                of_four(call, scheduler).clear(taking)
        assert (scheduler.cordoned, record_of(call)) == ([], None)

    def test_others_go_in_its_place_where_any_may(self, call: Call, scheduler: Simulated) -> None:
        """An unknown node is not the idlest of all."""
        del scheduler.nodes_["w3"]
        drain = of_four(call, scheduler).clear(Taking(count=1))
        assert drain is not None
        assert drain.chosen == ("w2",)

    def test_a_failed_one_goes_where_its_scheduler_knows_the_others(
        self, call: Call, scheduler: Simulated
    ) -> None:
        """A node whose making failed never joins."""
        del scheduler.nodes_["w3"]
        assert of_four(call, scheduler, failed="w3").clear(Taking({"w3": "replaced"})) is not None
        del scheduler.nodes_["w0"]
        with pytest.raises(NotEnoughEvidence):
            of_four(call, scheduler, failed="w3").clear(Taking({"w3": "replaced"}))

    def test_a_failed_one_that_has_joined_is_waited_for_when_it_is_hidden(
        self, call: Call, scheduler: Simulated
    ) -> None:
        scheduler.run("w3", 600)
        scheduler.before = lambda _: (
            scheduler.nodes_.pop("w3", None) and None if len(scheduler.asked) > 3 else None
        )
        with pytest.raises(GpuformError, match=r"knows no node .* of w3"):
            of_four(call, scheduler, failed="w3", wait_minutes=5).clear(Taking({"w3": "deleted"}))

    def test_one_that_is_no_longer_shown_is_waited_for(
        self, call: Call, scheduler: Simulated, clock: Any
    ) -> None:
        scheduler.run("w1", 20)
        known = scheduler.nodes_["w1"]

        def hide(_: str) -> None:
            if "cordon" in scheduler.asked and scheduler.asked.count("nodes") < 5:
                scheduler.nodes_.pop("w1", None)
            else:
                scheduler.nodes_.setdefault("w1", known)

        scheduler.before = hide
        of_four(call, scheduler).clear(Taking({"w1": "deleted"}))
        assert not scheduler.is_busy("w1")
        assert scheduler.cordoned == ["w1"]

    def test_one_that_is_never_shown_again_stays(self, call: Call, scheduler: Simulated) -> None:
        scheduler.before = lambda what: (
            scheduler.nodes_.pop("w1", None) and None if "cordon" in scheduler.asked else None
        )
        with pytest.raises(GpuformError, match=r"knows no node .* of w1"):
            of_four(call, scheduler, wait_minutes=5).clear(Taking({"w1": "deleted"}))
        assert record_of(call) is None

    def test_one_answer_without_jobs_proves_nothing(self, call: Call, scheduler: Simulated) -> None:
        """A list that lags shows what was, some seconds after the cordon too."""
        scheduler.run("w1", 30)
        show = scheduler.nodes

        def show_late() -> Sequence[ScheduledNode]:
            shown = show()
            is_late = scheduler.asked == ["nodes", "cordon", "nodes"]
            return [replace(node, jobs=()) for node in shown] if is_late else shown

        scheduler.nodes = show_late  # type: ignore[method-assign]
        of_four(call, scheduler).clear(Taking({"w1": "deleted"}))
        assert not scheduler.is_busy("w1")

    def test_a_plan_goes_on_and_says_that_nobody_knows(
        self, call: Call, scheduler: Simulated, told: Any
    ) -> None:
        scheduler.nodes_ = {}
        assert of_four(call, scheduler).leaving(Taking({"w1": "deleted"})) is None
        assert "knows no node with the name, an id or an address of w1" in told.unchecked[0]

    def test_one_run_may_remove_it_as_it_is(
        self, call: Call, scheduler: Simulated, told: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scheduler.nodes_ = {}
        monkeypatch.setenv("GPUFORM_ALLOW", "evict-jobs")
        assert of_four(call, scheduler).clear(Taking({"w1": "deleted"})) is not None
        assert "removed as it is" in told.warnings[0]


def of_four(call: Call, scheduler: Simulated, *, failed: str = "", **wanted: Any) -> Draining:
    workers = [Worker(name, is_failed=name == failed) for name in ("w0", "w1", "w2", "w3")]
    subject = DrainedObject(ID, "pool train", workers)
    return Draining(call, subject, lambda: scheduler, DrainInputs(**wanted))


class TestConclusion:
    def test_the_right_ones_are_gone(self, call: Call, scheduler: Simulated) -> None:
        wanted = draining(call, scheduler)
        drain = wanted.asking(wanted.clear(1))
        asked = len(scheduler.asked)
        conclude(call, drain, lambda: scheduler, ["w0", "w1", "w2"])
        assert record_of(call) is None
        assert len(scheduler.asked) == asked

    def test_others_are_gone(self, call: Call, scheduler: Simulated) -> None:
        wanted = draining(call, scheduler)
        drain = wanted.asking(wanted.clear(2))
        with pytest.raises(GpuformError) as raised:
            conclude(call, drain, lambda: scheduler, ["w1", "w3"])
        assert "removed w0 in place of w3, which takes jobs again" in str(raised.value)
        assert record_of(call) is None

    def test_nothing_is_gone(self, call: Call, scheduler: Simulated) -> None:
        drain = draining(call, scheduler).clear(2)
        conclude(call, drain, lambda: scheduler, [f"w{at}" for at in range(4)])
        assert (scheduler.cordoned, record_of(call)) == ([], None)


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=4, max_size=4),
    count=st.integers(1, 3),
    dies_at=st.one_of(st.integers(1, 8), st.just(99)),
    slips_in=st.integers(0, 3),
    policy=st.sampled_from(["wait", "fail"]),
)
def test_wherever_it_dies_no_job_is_on_what_goes_and_the_next_run_ends_it(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    count: int,
    dies_at: int,
    slips_in: int,
    policy: str,
) -> None:
    clock = FakeClock()
    intents = Intents(FolderRecords(tmp_path_factory.mktemp("drain")))
    call = Call(clock=clock, intents=intents)
    scheduler = Simulated(clock)
    for at, length in enumerate(lengths):
        if length:
            scheduler.run(f"w{at}", length)

    def die(what: str) -> None:
        if what == "cordon" and not scheduler.nodes_[f"w{slips_in}"].is_cordoned:
            scheduler.run(f"w{slips_in}", 3)
        if len(scheduler.asked) == dies_at:
            raise Killed

    scheduler.before = die
    try:
        drain = draining(call, scheduler, on_busy=policy).clear(count)
    except Killed:
        scheduler.before = lambda _: None
        drain = record_of(call) or draining(call, scheduler).clear(count)
        if not scheduler.cordoned:
            drain = draining(call, scheduler).clear(count)
        undo(call, drain, lambda: scheduler)
        assert (scheduler.cordoned, record_of(call)) == ([], None)
    except GpuformError:
        assert (scheduler.cordoned, record_of(call)) == ([], None)
    else:
        assert len(drain.chosen) == count
        assert not any(scheduler.is_busy(name) for name in drain.chosen)
        assert sorted(scheduler.cordoned) == sorted(drain.chosen)

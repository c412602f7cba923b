"""Nodes go when no job runs on them, or not at all; and none stays cordoned."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from fake_clock import FakeClock
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_scheduler import Simulated

from gpuform.providers.context import ProviderContext
from gpuform.providers.draining import (
    DrainOperation,
    DrainTarget,
    NodeEviction,
    ScheduledNode,
    Worker,
    finish_drain,
    undo_drain,
)
from gpuform.providers.draining.drain_operation import format_jobs
from gpuform.providers.errors import (
    ApiError,
    Cancelled,
    GpuformError,
    MissingCredentials,
    UnknownOutcome,
    Unreachable,
)
from gpuform.providers.evidence import NotEnoughEvidence
from gpuform.providers.records import Drain, Drains, FolderRecords, Intents
from gpuform.schemas.policies.drain import DrainInputs, RemovedNodes, RunningJob

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

    draining: DrainOperation
    named: Sequence[str]

    def leaving(self, count: int) -> RemovedNodes | None:
        return self.draining.predict_removed_nodes(
            NodeEviction(count=count, requested_names=self.named)
        )

    def clear(self, count: int) -> Drain:
        drain = self.draining.drain_nodes(NodeEviction(count=count, requested_names=self.named))
        assert drain is not None
        return drain

    def asking(self, drain: Drain) -> Drain:
        return self.draining.record_request(drain)


def draining(
    call: ProviderContext,
    scheduler: Simulated,
    *,
    takes_cordoned: bool = True,
    nodes: Sequence[str] = (),
    **wanted: Any,
) -> Fewer:
    workers = [Worker(f"w{at}") for at in range(4)]
    subject = DrainTarget(ID, "cluster train", workers, removes_cordoned=takes_cordoned)
    return Fewer(DrainOperation(call, subject, lambda: scheduler, DrainInputs(**wanted)), nodes)


def record_of(call: ProviderContext) -> Drain | None:
    return Drains.from_intents(call.intents).find(ID)


class TestClear:
    def test_idle_nodes_are_cordoned_and_looked_at_again(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        scheduler.run("w3", 30)
        drain = draining(call, scheduler).clear(2)
        assert drain.chosen == ("w2", "w1")
        assert scheduler.cordoned == ["w1", "w2"]
        assert scheduler.asked == ["nodes", "cordon", "nodes", "nodes"]
        assert record_of(call) == drain

    def test_jobs_are_waited_for(
        self, call: ProviderContext, scheduler: Simulated, clock: Any, told: Any
    ) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 30)
        began = clock.now()
        draining(call, scheduler).clear(1)
        assert not scheduler.is_busy("w3")
        assert 30 * MINUTE <= clock.now() - began < 31 * MINUTE
        assert told.progress == ["cordoning w3", "waiting for w3: ml/on-w3 (ada) (0s)"]
        assert {*clock.pauses} == {5.0, 15.0, 30.0, 60.0}

    def test_waiting_ends_and_all_is_as_it_was(
        self, call: ProviderContext, scheduler: Simulated, clock: Any
    ) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 200)
        with pytest.raises(GpuformError) as raised:
            draining(call, scheduler, wait_minutes=10).clear(1)
        assert "cluster train: no node was removed" in str(raised.value)
        assert "w3: ml/on-w3 (ada)" in str(raised.value)
        assert (scheduler.cordoned, record_of(call)) == ([], None)
        assert scheduler.is_busy("w3")

    def test_fail_asks_nothing_of_a_busy_node(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 1)
        with pytest.raises(GpuformError, match=r"jobs run on w3: ml/on-w3 \(ada\)"):
            draining(call, scheduler, on_busy="fail").clear(1)
        assert scheduler.asked == ["nodes"]
        assert record_of(call) is None

    def test_a_job_that_slips_in_before_the_cordon_is_seen(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        scheduler.before = lambda what: scheduler.run("w3", 5) if what == "cordon" else None
        with pytest.raises(GpuformError, match="jobs run on w3"):
            draining(call, scheduler, on_busy="fail").clear(1)
        assert (scheduler.cordoned, record_of(call)) == ([], None)
        draining(call, scheduler, nodes=["w3"]).clear(1)
        assert not scheduler.is_busy("w3")

    def test_evict_asks_until_budgets_allow_it(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
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
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 10_000)
        scheduler.stubborn = {"w3"}
        with pytest.raises(GpuformError, match="no node was removed"):
            draining(call, scheduler, on_busy="evict", wait_minutes=5).clear(1)
        assert (scheduler.cordoned, record_of(call)) == ([], None)
        assert scheduler.is_busy("w3")

    def test_what_somebody_uncordons_is_cordoned_again(
        self, call: ProviderContext, scheduler: Simulated, told: Any
    ) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 5)

        def meddle(what: str) -> None:
            if what == "nodes" and len(scheduler.asked) == 4:
                scheduler.uncordon(["w3"], scheduler.nodes_["w3"].owner_label or "")

        scheduler.before = meddle
        draining(call, scheduler).clear(1)
        assert scheduler.cordoned == ["w3"]
        assert [text for text in told.progress if text.startswith("cordoned again (")]

    def test_others_that_are_cordoned_may_be_taken_too_and_are_waited_for(
        self, call: ProviderContext, scheduler: Simulated, told: Any
    ) -> None:
        scheduler.cordon(["w0"], "for repair")
        scheduler.run("w0", 20)
        wanted = draining(call, scheduler, nodes=["w2"])
        assert wanted.leaving(1) is not None
        wanted.clear(1)
        assert not scheduler.is_busy("w0")
        assert sorted(scheduler.cordoned) == ["w0", "w2"]
        said = "w0 of cluster train is cordoned, too: the platform could remove it instead of w2"
        assert [text.partition(";")[0] for text in (*told.unchecked, *told.warnings)] == [said] * 2

    def test_who_removes_by_name_need_not_wait_for_others(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        scheduler.cordon(["w0"], "for repair")
        scheduler.run("w0", 20)
        draining(call, scheduler, takes_cordoned=False, nodes=["w2"]).clear(1)
        assert scheduler.is_busy("w0")

    def test_what_cannot_be_cordoned_is_not_left_to_a_platform_that_picks(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        del scheduler.nodes_["w3"]
        assert draining(call, scheduler).clear(1).chosen == ("w2",)
        with pytest.raises(GpuformError, match="node w3 not found"):
            draining(call, scheduler, nodes=["w3"]).clear(1)
        with pytest.raises(GpuformError, match="Kubernetes knows 3 of them, and not w3"):
            draining(call, scheduler).clear(4)

    def test_an_earlier_attempt_is_undone_when_this_one_is_refused(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        draining(call, scheduler, nodes=["w0"]).clear(1)
        with pytest.raises(GpuformError, match="node w9 not found"):
            draining(call, scheduler, nodes=["w9"]).clear(1)
        assert (scheduler.cordoned, record_of(call)) == ([], None)

    def test_a_removal_that_the_platform_was_asked_for_is_not_undone_by_a_refusal(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        wanted = draining(call, scheduler, nodes=["w0"])
        drain = wanted.asking(wanted.clear(1))
        with pytest.raises(GpuformError, match="node w9 not found"):
            draining(call, scheduler, nodes=["w9"]).clear(1)
        assert (scheduler.cordoned, record_of(call)) == (["w0"], drain)

    def test_other_names_than_an_earlier_attempt_had(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        draining(call, scheduler, nodes=["w0"]).clear(1)
        draining(call, scheduler, nodes=["w1"]).clear(1)
        assert scheduler.cordoned == ["w1"]


class TestTroubles:
    def test_a_scheduler_that_cannot_be_asked_keeps_everything(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        def broken(_: str) -> None:
            raise Unreachable("no answer")

        scheduler.before = broken
        with pytest.raises(GpuformError, match="cluster train: no node was removed: no answer"):
            draining(call, scheduler).clear(1)
        assert record_of(call) is None

    def test_one_that_stops_answering_in_the_middle(
        self, call: ProviderContext, scheduler: Simulated, told: Any
    ) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 5)

        def dying(_: str) -> None:
            if len(scheduler.asked) >= 4:
                raise Unreachable("no answer")

        scheduler.before = dying
        with pytest.raises(GpuformError, match="no node was removed"):
            draining(call, scheduler, wait_minutes=10).clear(1)
        assert "may still be cordoned" in told.warnings[0]
        drain = record_of(call)
        assert drain is not None
        scheduler.before = lambda _: None
        assert undo_drain(call, drain, lambda: scheduler)
        assert (scheduler.cordoned, record_of(call)) == ([], None)

    def test_one_that_answers_again_goes_on(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 5)
        lost = iter([True] * 5)

        def hiccup(_: str) -> None:
            if len(scheduler.asked) >= 4 and next(lost, False):
                raise Unreachable("no answer")

        scheduler.before = hiccup
        assert draining(call, scheduler).clear(1).chosen == ("w3",)
        assert not scheduler.is_busy("w3")

    def test_an_interruption_undoes(self, call: ProviderContext, scheduler: Simulated) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 50)
        scheduler.before = lambda _: call.cancelled.set() if len(scheduler.asked) == 3 else None
        with pytest.raises(Cancelled):
            draining(call, scheduler).clear(1)
        assert (scheduler.cordoned, record_of(call)) == ([], None)

    def test_an_interruption_does_not_wait_for_one_that_hangs(
        self, call: ProviderContext, scheduler: Simulated, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gpuform.providers.draining.interruptible.ANSWER_GRACE_S", 0.0)
        monkeypatch.setattr("gpuform.providers.draining.drain_operation.UNDO_GRACE_S", 0.0)
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

    def test_who_waits_for_nothing_does_not_wait_for_what_is_hidden(
        self, call: ProviderContext, scheduler: Simulated, clock: Any
    ) -> None:
        scheduler.before = lambda what: (
            scheduler.nodes_.pop("w1", None) and None if "cordon" in scheduler.asked else None
        )
        began = clock.now()
        with pytest.raises(
            NotEnoughEvidence, match=r": pool train: cannot remove a node: .* address of w1"
        ) as raised:
            of_four(call, scheduler, on_busy="fail").drain_nodes(NodeEviction({"w1": "deleted"}))
        assert clock.now() - began < MINUTE
        assert raised.value.hint == HINT

    def test_a_scheduler_without_nodes_lets_none_go(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        scheduler.nodes_ = {}
        for taking in (NodeEviction({"w1": "deleted"}), NodeEviction(count=1)):
            with pytest.raises(NotEnoughEvidence, match=r"knows no node .* of w") as raised:
                of_four(call, scheduler).drain_nodes(taking)
            assert "a kubeconfig that may list all nodes and pods" in str(raised.value.hint)
        assert record_of(call) is None

    def test_one_of_several_that_it_does_not_show_stays(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        del scheduler.nodes_["w1"]
        for taking in (
            NodeEviction({"w1": "deleted"}),
            NodeEviction(count=1, requested_names=["w1"]),
            NodeEviction(count=4),
        ):
            with pytest.raises(NotEnoughEvidence, match="address of w1"):
                of_four(call, scheduler).drain_nodes(taking)
        assert (scheduler.cordoned, record_of(call)) == ([], None)

    def test_others_go_in_its_place_where_any_may(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        """An unknown node is not the idlest of all."""
        del scheduler.nodes_["w3"]
        drain = of_four(call, scheduler).drain_nodes(NodeEviction(count=1))
        assert drain is not None
        assert drain.chosen == ("w2",)

    def test_a_failed_one_goes_where_its_scheduler_knows_the_others(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        """A node whose making failed never joins."""
        del scheduler.nodes_["w3"]
        assert (
            of_four(call, scheduler, failed="w3").drain_nodes(NodeEviction({"w3": "replaced"}))
            is not None
        )
        del scheduler.nodes_["w0"]
        with pytest.raises(NotEnoughEvidence):
            of_four(call, scheduler, failed="w3").drain_nodes(NodeEviction({"w3": "replaced"}))

    def test_a_failed_one_that_never_joined_goes_before_idle_ones(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        del scheduler.nodes_["w0"]
        drain = of_four(call, scheduler, failed="w0").drain_nodes(NodeEviction(count=1))
        assert drain is not None
        assert (drain.chosen, drain.cordoned) == (("w0",), ())

    def test_a_failed_one_that_may_be_several_is_left_for_idle_ones(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        scheduler.nodes_["x"] = ScheduledNode("x", addresses=("w0",))
        drain = of_four(call, scheduler, failed="w0").drain_nodes(NodeEviction(count=1))
        assert drain is not None
        assert drain.chosen == ("w3",)

    def test_a_failed_one_that_may_be_several_nodes_stays(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        scheduler.nodes_["x"] = ScheduledNode("x", addresses=("w3",))
        with pytest.raises(NotEnoughEvidence, match="the node of w3 is unknown"):
            of_four(call, scheduler, failed="w3").drain_nodes(NodeEviction({"w3": "replaced"}))

    def test_a_failed_one_that_has_joined_is_waited_for_when_it_is_hidden(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        scheduler.run("w3", 600)
        scheduler.before = lambda _: (
            scheduler.nodes_.pop("w3", None) and None if len(scheduler.asked) > 3 else None
        )
        with pytest.raises(GpuformError, match=r"knows no node .* of w3"):
            of_four(call, scheduler, failed="w3", wait_minutes=5).drain_nodes(
                NodeEviction({"w3": "deleted"})
            )

    def test_one_that_is_no_longer_shown_is_waited_for(
        self, call: ProviderContext, scheduler: Simulated, clock: Any
    ) -> None:
        scheduler.run("w1", 20)
        known = scheduler.nodes_["w1"]

        def hide(_: str) -> None:
            if "cordon" in scheduler.asked and scheduler.asked.count("nodes") < 5:
                scheduler.nodes_.pop("w1", None)
            else:
                scheduler.nodes_.setdefault("w1", known)

        scheduler.before = hide
        of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"}))
        assert not scheduler.is_busy("w1")
        assert scheduler.cordoned == ["w1"]

    def test_one_that_is_never_shown_again_stays(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        scheduler.before = lambda what: (
            scheduler.nodes_.pop("w1", None) and None if "cordon" in scheduler.asked else None
        )
        with pytest.raises(GpuformError, match=r"knows no node .* of w1"):
            of_four(call, scheduler, wait_minutes=5).drain_nodes(NodeEviction({"w1": "deleted"}))
        assert record_of(call) is None

    def test_all_that_is_no_longer_shown_is_named(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        def hide(_: str) -> None:
            if "cordon" in scheduler.asked:
                scheduler.nodes_.clear()

        scheduler.before = hide
        with pytest.raises(GpuformError) as raised:
            of_four(call, scheduler, wait_minutes=5).drain_nodes(
                NodeEviction({"w1": "deleted", "w2": "deleted"})
            )
        gaps = [f"it knows no node with the name, an id or an address of {w}" for w in ("w1", "w2")]
        assert raised.value.message == (
            "pool train: no node was removed: waiting for jobs on w1, w2: not done after 5m00s; "
            f"last seen: Kubernetes: {'; '.join(gaps)}"
        )

    def test_one_answer_without_jobs_proves_nothing(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        """A list that lags shows what was, some seconds after the cordon too."""
        scheduler.run("w1", 30)
        show = scheduler.list_nodes

        def show_late() -> Sequence[ScheduledNode]:
            shown = show()
            is_late = scheduler.asked == ["nodes", "cordon", "nodes"]
            return [replace(node, jobs=()) for node in shown] if is_late else shown

        scheduler.list_nodes = show_late  # type: ignore[method-assign]
        of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"}))
        assert not scheduler.is_busy("w1")

    def test_an_answer_that_took_over_two_minutes_proves_nothing(
        self,
        call: ProviderContext,
        scheduler: Simulated,
        told: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        time = SimpleNamespace(now=0.0)
        time.monotonic = lambda: time.now
        monkeypatch.setattr("gpuform.providers.draining.drain_operation.time", time)

        def answer_late(what: str) -> None:
            if scheduler.asked.count("nodes") < 3:
                time.now += 121.0

        scheduler.before = answer_late
        of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"}))
        assert scheduler.asked.count("nodes") == 5
        assert told.progress == ["cordoning w1", "no job runs on them (0s)"]

    def test_a_plan_goes_on_and_says_that_nobody_knows(
        self, call: ProviderContext, scheduler: Simulated, told: Any
    ) -> None:
        scheduler.nodes_ = {}
        assert (
            of_four(call, scheduler).predict_removed_nodes(NodeEviction({"w1": "deleted"})) is None
        )
        assert "knows no node with the name, an id or an address of w1" in told.unchecked[0]

    def test_one_run_may_remove_it_as_it_is(
        self,
        call: ProviderContext,
        scheduler: Simulated,
        told: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        scheduler.nodes_ = {}
        monkeypatch.setenv("GPUFORM_ALLOW", "evict-jobs")
        assert of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"})) is not None
        assert "removed all the same" in told.warnings[0]


def of_four(
    call: ProviderContext, scheduler: Simulated, *, failed: str = "", **wanted: Any
) -> DrainOperation:
    workers = [Worker(name, is_failed=name == failed) for name in ("w0", "w1", "w2", "w3")]
    subject = DrainTarget(ID, "pool train", workers)
    return DrainOperation(call, subject, lambda: scheduler, DrainInputs(**wanted))


EVICT = "--allow evict-jobs"
HINT = (
    "declare the scheduler of these nodes, with a kubeconfig that may list all nodes and pods; "
    f"if they have none, {EVICT} removes them without asking a scheduler"
)


def refused(
    call: ProviderContext,
    scheduler: Simulated,
    taking: NodeEviction,
    *,
    takes_cordoned: bool = False,
    **wanted: Any,
) -> GpuformError:
    """Return the error of nodes that must not go, which have to be as they were before."""
    before = scheduler.cordoned
    workers = [Worker(f"w{at}") for at in range(4)]
    subject = DrainTarget(ID, "cluster train", workers, removes_cordoned=takes_cordoned)
    with pytest.raises(GpuformError) as raised:
        DrainOperation(call, subject, lambda: scheduler, DrainInputs(**wanted)).drain_nodes(taking)
    assert (scheduler.cordoned, record_of(call)) == (before, None)
    return raised.value


class TestWords:
    """What a drain reports and refuses, word for word."""

    def test_a_taking_of_nothing_is_false(self) -> None:
        assert not NodeEviction()
        assert NodeEviction({"w1": "deleted"})
        assert NodeEviction(count=1)

    def test_a_plan_says_which_nodes_go_and_what_is_done_about_their_jobs(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        scheduler.run("w1", 20)
        plan = of_four(call, scheduler).predict_removed_nodes(
            NodeEviction({"w1": "replaced"}, count=1)
        )
        assert plan is not None
        assert (plan.scheduler, plan.on_busy, plan.wait_minutes) == ("Kubernetes", "wait", 60)
        assert [(node.name, node.because) for node in plan.nodes] == [
            ("w3", "idle"),
            ("w1", "replaced"),
        ]
        assert [[job.id for job in node.jobs] for node in plan.nodes] == [[], ["ml/on-w1"]]
        assert (scheduler.cordoned, record_of(call)) == ([], None)

    @pytest.mark.parametrize(
        ("wanted", "minutes"),
        [({"on_busy": "fail"}, 0), ({"on_busy": "evict"}, 60), ({"wait_minutes": 7}, 7)],
    )
    def test_a_plan_says_how_long_jobs_are_waited_for(
        self, call: ProviderContext, scheduler: Simulated, wanted: Any, minutes: int
    ) -> None:
        plan = of_four(call, scheduler, **wanted).predict_removed_nodes(NodeEviction(count=1))
        assert plan is not None
        assert (plan.on_busy, plan.wait_minutes) == (wanted.get("on_busy", "wait"), minutes)

    def test_a_plan_that_cannot_ask_says_what_it_does_not_show(
        self, call: ProviderContext, scheduler: Simulated, told: Any
    ) -> None:
        def broken(_: str) -> None:
            raise Unreachable("no\n answer")

        scheduler.before = broken
        assert of_four(call, scheduler).predict_removed_nodes(NodeEviction(count=1)) is None
        assert told.unchecked == [
            (
                "the nodes to remove from pool train, and their jobs: no answer. No node is "
                "removed while they are unknown"
            )
        ]

    def test_names_that_cannot_be_meant_stop_the_plan(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        with pytest.raises(GpuformError) as raised:
            of_four(call, scheduler).predict_removed_nodes(
                NodeEviction(count=1, requested_names=["w7", "w8"])
            )
        assert raised.value.message.startswith(
            "pool train: drain.nodes[0]: node w7 not found; the nodes are w0, w1, w2, w3; drain."
        )

    def test_nodes_that_bear_a_mark_of_the_object(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        drain = of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"}))
        assert drain is not None
        assert drain.mark.startswith("gpuform-scale-down-")
        assert len(drain.mark) == len("gpuform-scale-down-") + 12
        assert scheduler.nodes_["w1"].owner_label == drain.mark
        assert (drain.chosen, drain.cordoned, drain.present) == (("w1",), ("w1",), ())

    def test_the_record_has_all_nodes_where_the_platform_picks(
        self, call: ProviderContext, scheduler: Simulated, told: Any
    ) -> None:
        drain = draining(call, scheduler).clear(2)
        assert drain.present == ("w0", "w1", "w2", "w3")
        assert told.progress[0] == "cordoning w3, w2"

    def test_busy_nodes_are_named_with_their_jobs(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        for at in range(4):
            scheduler.run(f"w{at}", 500)
        taking = NodeEviction({"w0": "deleted", "w1": "deleted"})
        error = refused(call, scheduler, taking, on_busy="fail")
        jobs = "w0: ml/on-w0 (ada); w1: ml/on-w1 (ada)"
        assert error.message == f"cluster train: no node was removed: jobs run on {jobs}"
        assert error.hint == (
            "run the command again when the jobs have ended, declare drain.on_busy: wait, or "
            f"end the jobs with {EVICT}"
        )
        error = refused(call, scheduler, taking, wait_minutes=10)
        assert error.message == (
            f"cluster train: no node was removed: after 10m00s jobs still run on {jobs}"
        )
        assert error.hint == (
            "run the command again when the jobs have ended, declare a longer "
            f"drain.wait_minutes, or end the jobs with {EVICT}"
        )

    def test_an_unknown_node_is_named_with_what_would_tell_its_jobs(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        del scheduler.nodes_["w1"]
        error = refused(call, scheduler, NodeEviction({"w1": "deleted"}))
        assert error.message == (
            "cluster train: no node was removed: cluster train: cannot remove a node: "
            "Kubernetes: it knows no node with the name, an id or an address of w1"
        )
        assert error.hint == HINT

    def test_jobs_in_doubt_are_no_idleness(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        scheduler.nodes_["w1"] = replace(
            scheduler.nodes_["w1"], incomplete_jobs_reason="Slurm shows no node"
        )
        error = refused(call, scheduler, NodeEviction({"w1": "deleted"}))
        assert "Kubernetes: the jobs on w1 are unknown: Slurm shows no node" in error.message
        drain = of_four(call, scheduler).drain_nodes(NodeEviction(count=3))
        assert drain is not None
        assert sorted(drain.chosen) == ["w0", "w2", "w3"]

    def test_a_node_that_may_be_several_is_named_with_these(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        scheduler.nodes_["x"] = ScheduledNode("x", addresses=("w1",))
        error = refused(call, scheduler, NodeEviction({"w1": "deleted"}))
        assert "the node of w1 is unknown: it may be w1 or x" in error.message

    @pytest.mark.parametrize(("count", "more"), [(10, ""), (12, "; Kubernetes: and 2 more")])
    def test_ten_unknown_nodes_are_named(
        self, call: ProviderContext, scheduler: Simulated, count: int, more: str
    ) -> None:
        names = [f"n{at:02}" for at in range(count)]
        subject = DrainTarget(ID, "pool train", [*map(Worker, names)])
        wanted = DrainOperation(call, subject, lambda: scheduler, DrainInputs())
        with pytest.raises(NotEnoughEvidence) as raised:
            wanted.drain_nodes(NodeEviction(dict.fromkeys(names, "deleted")))
        assert raised.value.message.endswith(f"address of n09{more}")

    def test_ten_jobs_of_a_node_are_named(self) -> None:
        jobs = [RunningJob(id=f"ml/{at}", name=str(at)) for at in range(12)]
        for count, more in ((10, ""), (11, ", and 1 more"), (12, ", and 2 more")):
            node = Worker("w0", scheduled_node=ScheduledNode("w0", jobs=tuple(jobs[:count])))
            assert format_jobs([node]).endswith(f"ml/9{more}")
            assert format_jobs([node]).startswith("w0: ml/0, ml/1, ")

    def test_a_scheduler_that_fails_leaves_its_hint_and_the_way_out(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        def broken(_: str) -> None:
            raise Unreachable("no answer", hint="look at the network")

        scheduler.before = broken
        error = refused(call, scheduler, NodeEviction(count=1))
        assert error.message == "cluster train: no node was removed: no answer"
        assert error.hint == f"look at the network; {EVICT} removes the nodes all the same"
        assert not isinstance(error, NotEnoughEvidence)

    def test_fewer_known_nodes_than_are_to_go_are_named(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        del scheduler.nodes_["w3"], scheduler.nodes_["w2"]
        error = refused(call, scheduler, NodeEviction(count=3), takes_cordoned=True)
        assert error.message == (
            "cluster train: no node was removed: cannot remove 3 nodes: Kubernetes knows 2 of "
            "them, and not w2, w3"
        )
        assert error.hint == (
            "wait until the nodes have joined, or remove them on the platform's own pages; "
            f"{EVICT} removes the nodes all the same"
        )

    def test_others_that_somebody_cordoned_are_named_where_the_platform_picks(
        self, call: ProviderContext, scheduler: Simulated, told: Any
    ) -> None:
        scheduler.cordon(["w0", "w3"], "for repair")
        draining(call, scheduler, nodes=["w2", "w1"]).clear(2)
        assert told.warnings == [
            (
                "w0, w3 of cluster train is cordoned, too: the platform could remove it "
                "instead of w1, w2; uncordon it to be sure"
            )
        ]
        told.warnings.clear()
        draining(call, scheduler, nodes=["w2"], takes_cordoned=False).clear(1)
        assert told.warnings == []

    def test_what_an_earlier_attempt_cordoned_is_no_others(
        self, call: ProviderContext, scheduler: Simulated, told: Any
    ) -> None:
        draining(call, scheduler, nodes=["w0"]).clear(1)
        draining(call, scheduler, nodes=["w1"]).clear(1)
        assert told.warnings == []


class TestEvictingWhatever:
    """A run that may end jobs takes nodes as they are, and says what it does not know."""

    @pytest.fixture(autouse=True)
    def allowed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GPUFORM_ALLOW", "evict-jobs")

    def test_jobs_are_ended_whatever_is_declared(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        scheduler.run("w1", 10_000)
        of_four(call, scheduler, on_busy="fail").drain_nodes(NodeEviction({"w1": "deleted"}))
        assert not scheduler.is_busy("w1")
        assert "evict" in scheduler.asked

    def test_a_scheduler_that_cannot_be_asked_keeps_nothing(
        self, call: ProviderContext, scheduler: Simulated, told: Any
    ) -> None:
        def broken(_: str) -> None:
            raise Unreachable("no\nanswer")

        scheduler.before = broken
        assert of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"})) is None
        assert told.warnings == ["pool train: its jobs are unknown: no answer"]
        with of_four(call, scheduler).drain_during(NodeEviction({"w1": "deleted"})):
            assert record_of(call) is None

    def test_an_unknown_node_is_removed_with_a_warning(
        self, call: ProviderContext, scheduler: Simulated, told: Any
    ) -> None:
        del scheduler.nodes_["w1"]
        drain = of_four(call, scheduler).drain_nodes(
            NodeEviction({"w1": "deleted", "w2": "deleted"})
        )
        assert drain is not None
        assert (drain.chosen, drain.cordoned) == (("w1", "w2"), ("w2",))
        del scheduler.nodes_["w2"]
        of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted", "w2": "deleted"}))
        assert "of w1; it knows no node" in told.warnings.pop()
        assert told.warnings == [
            (
                "pool train: it knows no node with the name, an id or an address of w1: "
                f"removed all the same, by {EVICT}"
            )
        ]

    def test_an_unknown_node_that_joins_meanwhile_is_cordoned_and_recorded(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        joins = scheduler.nodes_.pop("w1")

        def join(what: str) -> None:
            if what == "nodes" and "cordon" in scheduler.asked:
                scheduler.nodes_.setdefault("w1", joins)

        scheduler.before = join
        drain = of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"}))
        assert drain is not None
        assert drain.cordoned == ("w1",)
        assert (scheduler.cordoned, record_of(call)) == (["w1"], drain)

    def test_jobs_of_a_node_that_failed_count_no_longer(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        scheduler.nodes_["w1"] = replace(scheduler.nodes_["w1"], is_failed=True)
        scheduler.run("w1", 10_000)
        scheduler.stubborn = {"w1"}
        assert of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"})) is not None

    def test_an_interruption_is_no_permission(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        def stop(_: str) -> None:
            raise Cancelled("stopped")

        scheduler.before = stop
        with pytest.raises(Cancelled, match="pool train: no node was removed: stopped"):
            of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"}))


class TestTaken:
    """The block that asks the platform; what its error says of the nodes decides."""

    def test_the_record_says_first_that_the_platform_is_asked(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        with of_four(call, scheduler).drain_during(NodeEviction({"w1": "deleted"})):
            drain = record_of(call)
            assert drain is not None
            assert drain.asked
        assert record_of(call) == drain

    @pytest.mark.parametrize(
        ("error", "is_undone"),
        [
            (ApiError("no", method="PUT", path="/", status=422), True),
            (ApiError("no", method="PUT", path="/", status=500), False),
            (MissingCredentials("no key"), True),
            (Unreachable("no connection"), True),
            (Cancelled("stopped"), True),
            (UnknownOutcome("no answer"), False),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_nodes_that_the_platform_surely_keeps_are_uncordoned(
        self, call: ProviderContext, scheduler: Simulated, error: GpuformError, is_undone: bool
    ) -> None:
        with (
            pytest.raises(type(error)),
            of_four(call, scheduler).drain_during(NodeEviction({"w1": "deleted"})),
        ):
            raise error
        assert scheduler.cordoned == ([] if is_undone else ["w1"])
        assert (record_of(call) is None) is is_undone

    def test_an_interruption_before_the_platform_is_asked_uncordons(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        show = scheduler.list_nodes

        def stop_at_last() -> Sequence[ScheduledNode]:
            shown = show()
            if len(scheduler.asked) == 4:
                call.cancelled.set()
            return shown

        scheduler.list_nodes = stop_at_last  # type: ignore[method-assign]
        with (
            pytest.raises(Cancelled),
            of_four(call, scheduler).drain_during(NodeEviction({"w1": "deleted"})),
        ):
            pytest.fail("the platform was asked")
        assert (scheduler.cordoned, record_of(call)) == ([], None)


class TestUndo:
    def test_what_cannot_be_uncordoned_is_reported_and_stays_recorded(
        self, call: ProviderContext, scheduler: Simulated, told: Any
    ) -> None:
        drain = draining(call, scheduler).clear(2)

        def broken(_: str) -> None:
            raise Unreachable("no\nanswer")

        scheduler.before = broken
        assert not undo_drain(call, drain, lambda: scheduler)
        assert told.warnings[-1] == (
            "w3, w2 may still be cordoned: the scheduler did not uncordon (no answer); the "
            "next `up` or `refresh` uncordons"
        )
        assert record_of(call) == drain
        with pytest.raises(GpuformError) as raised:
            finish_drain(call, drain, lambda: scheduler, ["w0", "w1", "w2", "w3"])
        assert raised.value.message == "w3, w2 may still be cordoned"
        assert raised.value.hint == "run the command again to uncordon"

    def test_after_an_interruption_the_scheduler_has_three_seconds_to_uncordon(
        self, call: ProviderContext, scheduler: Simulated, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drain = draining(call, scheduler).clear(1)
        released, looks = threading.Event(), iter(range(100))
        scheduler.before = lambda _: released.wait() and None
        time = SimpleNamespace(monotonic=lambda: float(next(looks)))
        monkeypatch.setattr("gpuform.providers.draining.interruptible.time", time)
        call.cancelled.set()
        try:
            assert not undo_drain(call, drain, lambda: scheduler)
        finally:
            released.set()
        assert next(looks) == 4

    def test_what_somebody_else_cordoned_stays_so(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        drain = draining(call, scheduler).clear(1)
        scheduler.nodes_["w3"] = replace(scheduler.nodes_["w3"], owner_label="another")
        assert undo_drain(call, drain, lambda: scheduler)
        assert (scheduler.cordoned, record_of(call)) == (["w3"], None)


class TestConclusion:
    @pytest.mark.parametrize(
        ("is_free", "state"), [(True, "takes jobs again"), (False, "may still be cordoned")]
    )
    def test_others_that_went_are_named_with_what_became_of_the_chosen(
        self, call: ProviderContext, scheduler: Simulated, is_free: bool, state: str
    ) -> None:
        wanted = draining(call, scheduler)
        drain = wanted.asking(wanted.clear(2))

        def broken(_: str) -> None:
            if not is_free:
                raise Unreachable("no answer")

        scheduler.before = broken
        with pytest.raises(GpuformError) as raised:
            finish_drain(call, drain, lambda: scheduler, ["w2", "w3"])
        assert raised.value.message == (
            f"the platform removed w0, w1 instead of w3, w2, which {state}: look for jobs that "
            "ran on w0, w1"
        )

    def test_others_that_went_before_the_platform_was_asked_say_nothing(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        drain = draining(call, scheduler).clear(1)
        finish_drain(call, drain, lambda: scheduler, ["w2", "w3"])
        assert (scheduler.cordoned, record_of(call)) == ([], None)

    def test_what_was_cordoned_beside_the_chosen_is_uncordoned(
        self, call: ProviderContext, scheduler: Simulated
    ) -> None:
        drain = draining(call, scheduler).clear(1)
        scheduler.cordon(["w0"], drain.mark)
        more = replace(drain, cordoned=("w3", "w0"))
        finish_drain(call, more, lambda: scheduler, ["w0", "w1", "w2"])
        assert scheduler.cordoned == []

    def test_the_right_ones_are_gone(self, call: ProviderContext, scheduler: Simulated) -> None:
        wanted = draining(call, scheduler)
        drain = wanted.asking(wanted.clear(1))
        asked = len(scheduler.asked)
        finish_drain(call, drain, lambda: scheduler, ["w0", "w1", "w2"])
        assert record_of(call) is None
        assert len(scheduler.asked) == asked

    def test_others_are_gone(self, call: ProviderContext, scheduler: Simulated) -> None:
        wanted = draining(call, scheduler)
        drain = wanted.asking(wanted.clear(2))
        with pytest.raises(GpuformError) as raised:
            finish_drain(call, drain, lambda: scheduler, ["w1", "w3"])
        assert "removed w0 instead of w3, which takes jobs again" in str(raised.value)
        assert record_of(call) is None

    def test_nothing_is_gone(self, call: ProviderContext, scheduler: Simulated) -> None:
        drain = draining(call, scheduler).clear(2)
        finish_drain(call, drain, lambda: scheduler, [f"w{at}" for at in range(4)])
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
    call = ProviderContext(clock=clock, intents=intents)
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
        undo_drain(call, drain, lambda: scheduler)
        assert (scheduler.cordoned, record_of(call)) == ([], None)
    except GpuformError:
        assert (scheduler.cordoned, record_of(call)) == ([], None)
    else:
        assert len(drain.chosen) == count
        assert not any(scheduler.is_busy(name) for name in drain.chosen)
        assert sorted(scheduler.cordoned) == sorted(drain.chosen)

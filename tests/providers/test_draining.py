"""Test that nodes are removed only without jobs, and that none stays cordoned."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clocks.fake_clock import FakeClock
from support.platforms.provider_contexts import change_context
from support.schedulers.simulated_scheduler import SimulatedScheduler

from gpuform.providers.context import ProviderContext, RunContext
from gpuform.providers.draining import (
    DrainOperation,
    DrainTarget,
    NodeEviction,
    ScheduledNode,
    Worker,
    finish_drain,
    undo_drain,
    undo_drain_or_fail,
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
from gpuform.schemas.policies.drain import DrainInputs, RemovedNode, RemovedNodes, RunningJob

ID = "c1"
MINUTE = 60.0


class Killed(BaseException):
    """The process is killed here."""


@pytest.fixture
def scheduler(clock: Any) -> SimulatedScheduler:
    return SimulatedScheduler(clock)


@dataclass(frozen=True)
class NodeRemoval:
    """Remove a number of nodes: the `named` ones, or the ones that are missed least."""

    draining: DrainOperation
    named: Sequence[str]

    def predict_removed(self, count: int) -> RemovedNodes | None:
        return self.draining.predict_removed_nodes(
            NodeEviction(count=count, requested_names=self.named)
        )

    def clear(self, count: int) -> Drain:
        drain = self.draining.drain_nodes(NodeEviction(count=count, requested_names=self.named))
        assert drain is not None
        return drain

    def record_request(self, drain: Drain) -> Drain:
        return self.draining.record_request(drain)


def build_drain(
    call: ProviderContext,
    scheduler: SimulatedScheduler,
    *,
    takes_cordoned: bool = True,
    nodes: Sequence[str] = (),
    **drain_operation: Any,
) -> NodeRemoval:
    workers = [Worker(f"w{at}") for at in range(4)]
    subject = DrainTarget(ID, "cluster train", workers, removes_cordoned=takes_cordoned)
    return NodeRemoval(
        DrainOperation(call, subject, lambda: scheduler, DrainInputs(**drain_operation)), nodes
    )


def read_record(call: ProviderContext) -> Drain | None:
    return Drains.from_intents(call.intents).find(ID)


class TestClearNodes:
    def test_idle_nodes_are_cordoned_and_checked_again(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        scheduler.start_job("w3", 30)
        drain = build_drain(call, scheduler).clear(2)
        assert drain.chosen == ("w2", "w1")
        assert scheduler.cordoned == ["w1", "w2"]
        assert scheduler.requests == ["nodes", "cordon", "nodes", "nodes"]
        assert read_record(call) == drain

    def test_jobs_are_waited_for(
        self, call: ProviderContext, scheduler: SimulatedScheduler, clock: Any, reported: Any
    ) -> None:
        for at in range(4):
            scheduler.start_job(f"w{at}", 30)
        began = clock.now()
        build_drain(call, scheduler).clear(1)
        assert not scheduler.is_busy("w3")
        assert 30 * MINUTE <= clock.now() - began < 31 * MINUTE
        assert reported.progress == ["cordoning w3", "waiting for w3: ml/on-w3 (ada) (0s)"]
        assert {*clock.pauses} == {5.0, 15.0, 30.0, 60.0}

    def test_a_timed_out_wait_restores_every_node(
        self, call: ProviderContext, scheduler: SimulatedScheduler, clock: Any
    ) -> None:
        for at in range(4):
            scheduler.start_job(f"w{at}", 200)
        with pytest.raises(GpuformError) as raised:
            build_drain(call, scheduler, wait_minutes=10).clear(1)
        assert "cluster train: no node was removed" in str(raised.value)
        assert "w3: ml/on-w3 (ada)" in str(raised.value)
        assert (scheduler.cordoned, read_record(call)) == ([], None)
        assert scheduler.is_busy("w3")

    def test_on_busy_fail_does_not_touch_a_busy_node(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        for at in range(4):
            scheduler.start_job(f"w{at}", 1)
        with pytest.raises(GpuformError, match=r"jobs run on w3: ml/on-w3 \(ada\)"):
            build_drain(call, scheduler, on_busy="fail").clear(1)
        assert scheduler.requests == ["nodes"]
        assert read_record(call) is None

    def test_a_job_started_before_the_cordon_is_noticed(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        scheduler.before = lambda operation: (
            scheduler.start_job("w3", 5) if operation == "cordon" else None
        )
        with pytest.raises(GpuformError, match="jobs run on w3"):
            build_drain(call, scheduler, on_busy="fail").clear(1)
        assert (scheduler.cordoned, read_record(call)) == ([], None)
        build_drain(call, scheduler, nodes=["w3"]).clear(1)
        assert not scheduler.is_busy("w3")

    def test_evictions_are_retried_until_budgets_allow_them(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        for at in range(4):
            scheduler.start_job(f"w{at}", 10_000)
        scheduler.stubborn = {"w3"}

        def budget(operation: str) -> None:
            if scheduler.requests.count("evict") == 3:
                scheduler.stubborn = set()

        scheduler.before = budget
        build_drain(call, scheduler, on_busy="evict").clear(1)
        assert scheduler.requests.count("evict") == 4
        assert [scheduler.is_busy(f"w{at}") for at in range(4)] == [True, True, True, False]

    def test_budgets_that_never_allow_it_end_at_the_deadline(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        for at in range(4):
            scheduler.start_job(f"w{at}", 10_000)
        scheduler.stubborn = {"w3"}
        with pytest.raises(GpuformError, match="no node was removed"):
            build_drain(call, scheduler, on_busy="evict", wait_minutes=5).clear(1)
        assert (scheduler.cordoned, read_record(call)) == ([], None)
        assert scheduler.is_busy("w3")

    def test_a_node_uncordoned_by_somebody_is_cordoned_again(
        self, call: ProviderContext, scheduler: SimulatedScheduler, reported: Any
    ) -> None:
        for at in range(4):
            scheduler.start_job(f"w{at}", 5)

        def uncordon_outside(operation: str) -> None:
            if operation == "nodes" and len(scheduler.requests) == 4:
                scheduler.uncordon(["w3"], scheduler.nodes_by_name["w3"].owner_label or "")

        scheduler.before = uncordon_outside
        build_drain(call, scheduler).clear(1)
        assert scheduler.cordoned == ["w3"]
        assert [message for message in reported.progress if message.startswith("cordoned again (")]

    def test_other_cordoned_nodes_may_be_removed_and_are_waited_for(
        self, call: ProviderContext, scheduler: SimulatedScheduler, reported: Any
    ) -> None:
        scheduler.cordon(["w0"], "for repair")
        scheduler.start_job("w0", 20)
        drain_operation = build_drain(call, scheduler, nodes=["w2"])
        assert drain_operation.predict_removed(1) is not None
        drain_operation.clear(1)
        assert not scheduler.is_busy("w0")
        assert sorted(scheduler.cordoned) == ["w0", "w2"]
        message = "w0 of cluster train is cordoned, too: the platform could remove it instead of w2"
        assert [
            content.partition(";")[0] for content in (*reported.unchecked, *reported.warnings)
        ] == [message] * 2

    def test_a_removal_by_name_does_not_wait_for_other_nodes(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        scheduler.cordon(["w0"], "for repair")
        scheduler.start_job("w0", 20)
        build_drain(call, scheduler, takes_cordoned=False, nodes=["w2"]).clear(1)
        assert scheduler.is_busy("w0")

    def test_a_platform_that_picks_nodes_requires_cordons(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        del scheduler.nodes_by_name["w3"]
        assert build_drain(call, scheduler).clear(1).chosen == ("w2",)
        with pytest.raises(GpuformError, match="node w3 not found"):
            build_drain(call, scheduler, nodes=["w3"]).clear(1)
        with pytest.raises(GpuformError, match="Kubernetes shows only 3 nodes, and not w3"):
            build_drain(call, scheduler).clear(4)

    def test_an_earlier_attempt_is_undone_if_the_next_one_is_refused(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        build_drain(call, scheduler, nodes=["w0"]).clear(1)
        with pytest.raises(GpuformError, match="node w9 not found"):
            build_drain(call, scheduler, nodes=["w9"]).clear(1)
        assert (scheduler.cordoned, read_record(call)) == ([], None)

    def test_a_requested_removal_is_not_undone_by_a_refusal(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        drain_operation = build_drain(call, scheduler, nodes=["w0"])
        drain = drain_operation.record_request(drain_operation.clear(1))
        with pytest.raises(GpuformError, match="node w9 not found"):
            build_drain(call, scheduler, nodes=["w9"]).clear(1)
        assert (scheduler.cordoned, read_record(call)) == (["w0"], drain)

    def test_other_names_undo_the_earlier_attempt(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        build_drain(call, scheduler, nodes=["w0"]).clear(1)
        build_drain(call, scheduler, nodes=["w1"]).clear(1)
        assert scheduler.cordoned == ["w1"]


class TestTroubles:
    def test_an_unreachable_scheduler_prevents_the_removal(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        def raise_unreachable(_: str) -> None:
            raise Unreachable("no answer")

        scheduler.before = raise_unreachable
        with pytest.raises(GpuformError, match="cluster train: no node was removed: no answer"):
            build_drain(call, scheduler).clear(1)
        assert read_record(call) is None

    def test_a_scheduler_that_stops_answering_fails_the_removal(
        self, call: ProviderContext, scheduler: SimulatedScheduler, reported: Any
    ) -> None:
        for at in range(4):
            scheduler.start_job(f"w{at}", 5)

        def stop_answering(_: str) -> None:
            if len(scheduler.requests) >= 4:
                raise Unreachable("no answer")

        scheduler.before = stop_answering
        with pytest.raises(GpuformError, match="no node was removed"):
            build_drain(call, scheduler, wait_minutes=10).clear(1)
        assert "may still be cordoned" in reported.warnings[0]
        drain = read_record(call)
        assert drain is not None
        scheduler.before = lambda _: None
        assert undo_drain(call, drain, lambda: scheduler)
        assert (scheduler.cordoned, read_record(call)) == ([], None)

    def test_a_scheduler_that_answers_again_continues_the_removal(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        for at in range(4):
            scheduler.start_job(f"w{at}", 5)
        lost = iter([True] * 5)

        def fail_for_a_while(_: str) -> None:
            if len(scheduler.requests) >= 4 and next(lost, False):
                raise Unreachable("no answer")

        scheduler.before = fail_for_a_while
        assert build_drain(call, scheduler).clear(1).chosen == ("w3",)
        assert not scheduler.is_busy("w3")

    def test_an_interruption_uncordons_the_nodes(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        for at in range(4):
            scheduler.start_job(f"w{at}", 50)
        scheduler.before = lambda _: call.cancelled.set() if len(scheduler.requests) == 3 else None
        with pytest.raises(Cancelled):
            build_drain(call, scheduler).clear(1)
        assert (scheduler.cordoned, read_record(call)) == ([], None)

    def test_an_interruption_does_not_wait_for_a_hanging_scheduler(
        self, call: ProviderContext, scheduler: SimulatedScheduler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gpuform.providers.draining.schedulers.ANSWER_GRACE_S", 0.0)
        monkeypatch.setattr("gpuform.providers.draining.drain_operation.UNDO_GRACE_S", 0.0)
        released = threading.Event()

        def hang(operation: str) -> None:
            if len(scheduler.requests) >= 2:
                call.cancelled.set()
                released.wait()

        scheduler.before = hang
        try:
            with pytest.raises(Cancelled):
                build_drain(call, scheduler).clear(1)
            assert read_record(call) is not None  # the next run undoes it
        finally:
            released.set()

    def test_an_interruption_does_not_wait_for_a_hanging_eviction(
        self, call: ProviderContext, scheduler: SimulatedScheduler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for at in range(4):
            scheduler.start_job(f"w{at}", 50)

        with pytest.raises(Cancelled), interrupt_hanging(call, scheduler, "evict", monkeypatch):
            build_drain(call, scheduler, on_busy="evict").clear(1)

    def test_an_interruption_does_not_wait_for_a_hanging_uncordon_of_earlier_nodes(
        self, call: ProviderContext, scheduler: SimulatedScheduler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(operation: str) -> None:
            if operation in ("cordon", "uncordon"):
                raise Unreachable("no answer")

        scheduler.before = fail
        with pytest.raises(GpuformError):
            build_drain(call, scheduler).clear(2)

        with pytest.raises(Cancelled), interrupt_hanging(call, scheduler, "uncordon", monkeypatch):
            build_drain(call, scheduler).clear(1)


@contextmanager
def interrupt_hanging(
    call: ProviderContext,
    scheduler: SimulatedScheduler,
    operation: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[None]:
    """Let an operation of the scheduler hang, and interrupt the run meanwhile."""
    monkeypatch.setattr("gpuform.providers.draining.schedulers.ANSWER_GRACE_S", 0.0)
    monkeypatch.setattr("gpuform.providers.draining.drain_operation.UNDO_GRACE_S", 0.0)
    released = threading.Event()

    def hang(requested: str) -> None:
        if requested == operation:
            call.cancelled.set()
            released.wait()

    scheduler.before = hang
    try:
        yield
    finally:
        released.set()


class TestUnknownNodes:
    """A node that its scheduler does not show is not idle."""

    def test_without_a_wait_a_hidden_node_is_not_waited_for(
        self, call: ProviderContext, scheduler: SimulatedScheduler, clock: Any
    ) -> None:
        scheduler.before = lambda operation: (
            scheduler.nodes_by_name.pop("w1", None) and None
            if "cordon" in scheduler.requests
            else None
        )
        began = clock.now()
        with pytest.raises(
            NotEnoughEvidence, match=r": pool train: cannot remove a node: .* address of w1"
        ) as raised:
            build_drain_of_four(call, scheduler, on_busy="fail").drain_nodes(
                NodeEviction({"w1": "deleted"})
            )
        assert clock.now() - began < MINUTE
        assert raised.value.hint == HINT

    def test_a_scheduler_without_nodes_allows_no_removal(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        scheduler.nodes_by_name = {}
        for taking in (NodeEviction({"w1": "deleted"}), NodeEviction(count=1)):
            with pytest.raises(NotEnoughEvidence, match=r"no node has .* of w") as raised:
                build_drain_of_four(call, scheduler).drain_nodes(taking)
            assert "a kubeconfig that may list all nodes and pods" in str(raised.value.hint)
        assert read_record(call) is None

    def test_a_hidden_node_is_not_removed(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        del scheduler.nodes_by_name["w1"]
        for taking in (
            NodeEviction({"w1": "deleted"}),
            NodeEviction(count=1, requested_names=["w1"]),
            NodeEviction(count=4),
        ):
            with pytest.raises(NotEnoughEvidence, match="address of w1"):
                build_drain_of_four(call, scheduler).drain_nodes(taking)
        assert (scheduler.cordoned, read_record(call)) == ([], None)

    def test_known_nodes_are_removed_instead_of_a_hidden_one(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        """A node unknown to the scheduler must not rank as the idlest."""
        del scheduler.nodes_by_name["w3"]
        drain = build_drain_of_four(call, scheduler).drain_nodes(NodeEviction(count=1))
        assert drain is not None
        assert drain.chosen == ("w2",)

    def test_a_failed_node_is_removed_if_the_scheduler_knows_the_others(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        """A node whose creation failed never joins."""
        del scheduler.nodes_by_name["w3"]
        assert (
            build_drain_of_four(call, scheduler, failed="w3").drain_nodes(
                NodeEviction({"w3": "replaced"})
            )
            is not None
        )
        del scheduler.nodes_by_name["w0"]
        with pytest.raises(NotEnoughEvidence):
            build_drain_of_four(call, scheduler, failed="w3").drain_nodes(
                NodeEviction({"w3": "replaced"})
            )

    def test_a_failed_node_that_never_joined_is_removed_before_idle_ones(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        del scheduler.nodes_by_name["w0"]
        drain = build_drain_of_four(call, scheduler, failed="w0").drain_nodes(NodeEviction(count=1))
        assert drain is not None
        assert (drain.chosen, drain.cordoned) == (("w0",), ())

    def test_idle_nodes_are_removed_before_an_ambiguous_failed_one(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        scheduler.nodes_by_name["x"] = ScheduledNode("x", addresses=("w0",))
        drain = build_drain_of_four(call, scheduler, failed="w0").drain_nodes(NodeEviction(count=1))
        assert drain is not None
        assert drain.chosen == ("w3",)

    def test_an_ambiguous_failed_node_is_not_removed(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        scheduler.nodes_by_name["x"] = ScheduledNode("x", addresses=("w3",))
        with pytest.raises(NotEnoughEvidence, match="the node of w3 is unknown"):
            build_drain_of_four(call, scheduler, failed="w3").drain_nodes(
                NodeEviction({"w3": "replaced"})
            )

    def test_a_hidden_failed_node_that_had_joined_is_waited_for(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        scheduler.start_job("w3", 600)
        scheduler.before = lambda _: (
            scheduler.nodes_by_name.pop("w3", None) and None
            if len(scheduler.requests) > 3
            else None
        )
        with pytest.raises(GpuformError, match=r"no node has .* of w3"):
            build_drain_of_four(call, scheduler, failed="w3", wait_minutes=5).drain_nodes(
                NodeEviction({"w3": "deleted"})
            )

    def test_a_node_that_becomes_hidden_is_waited_for(
        self, call: ProviderContext, scheduler: SimulatedScheduler, clock: Any
    ) -> None:
        scheduler.start_job("w1", 20)
        hidden_node = scheduler.nodes_by_name["w1"]

        def hide(_: str) -> None:
            if "cordon" in scheduler.requests and scheduler.requests.count("nodes") < 5:
                scheduler.nodes_by_name.pop("w1", None)
            else:
                scheduler.nodes_by_name.setdefault("w1", hidden_node)

        scheduler.before = hide
        build_drain_of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"}))
        assert not scheduler.is_busy("w1")
        assert scheduler.cordoned == ["w1"]

    def test_a_node_that_stays_hidden_is_not_removed(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        scheduler.before = lambda operation: (
            scheduler.nodes_by_name.pop("w1", None) and None
            if "cordon" in scheduler.requests
            else None
        )
        with pytest.raises(GpuformError, match=r"no node has .* of w1"):
            build_drain_of_four(call, scheduler, wait_minutes=5).drain_nodes(
                NodeEviction({"w1": "deleted"})
            )
        assert read_record(call) is None

    def test_the_error_names_every_hidden_node(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        def hide(_: str) -> None:
            if "cordon" in scheduler.requests:
                scheduler.nodes_by_name.clear()

        scheduler.before = hide
        with pytest.raises(GpuformError) as raised:
            build_drain_of_four(call, scheduler, wait_minutes=5).drain_nodes(
                NodeEviction({"w1": "deleted", "w2": "deleted"})
            )
        gaps = [f"no node has the name, an id or an address of {w}" for w in ("w1", "w2")]
        assert raised.value.message == (
            "pool train: no node was removed: waiting for jobs on w1, w2: not done after 5m00s; "
            f"last seen: Kubernetes: {'; '.join(gaps)}"
        )

    def test_one_answer_without_jobs_is_no_evidence(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        """A lagging list shows the past, even seconds after the cordon."""
        scheduler.start_job("w1", 30)
        show = scheduler.list_nodes

        def show_late() -> Sequence[ScheduledNode]:
            answers = show()
            is_late = scheduler.requests == ["nodes", "cordon", "nodes"]
            return [replace(node, jobs=()) for node in answers] if is_late else answers

        scheduler.list_nodes = show_late  # type: ignore[method-assign]
        build_drain_of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"}))
        assert not scheduler.is_busy("w1")

    def test_an_answer_older_than_two_minutes_is_no_evidence(
        self,
        call: ProviderContext,
        scheduler: SimulatedScheduler,
        reported: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        time = SimpleNamespace(now=0.0)
        time.monotonic = lambda: time.now
        monkeypatch.setattr("gpuform.providers.draining.choosing.time", time)

        def answer_late(operation: str) -> None:
            if scheduler.requests.count("nodes") < 3:
                time.now += 121.0

        scheduler.before = answer_late
        build_drain_of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"}))
        assert scheduler.requests.count("nodes") == 5
        assert reported.progress == ["cordoning w1", "no job runs on them (0s)"]

    def test_a_plan_reports_unknown_nodes(
        self, call: ProviderContext, scheduler: SimulatedScheduler, reported: Any
    ) -> None:
        scheduler.nodes_by_name = {}
        removed = build_drain_of_four(call, scheduler).predict_removed_nodes(
            NodeEviction({"w1": "deleted"})
        )
        assert not removed.has_known_jobs
        assert removed.nodes == (RemovedNode(name="w1", because="deleted"),)
        assert "no node has the name, an id or an address of w1" in reported.unchecked[0]

    def test_a_permission_allows_removing_an_unknown_node(
        self,
        call: ProviderContext,
        scheduler: SimulatedScheduler,
        reported: Any,
    ) -> None:
        scheduler.nodes_by_name = {}
        change_context(call, run=RunContext({"GPUFORM_ALLOW": "evict-jobs"}))
        assert (
            build_drain_of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"}))
            is not None
        )
        assert "removed anyway" in reported.warnings[0]


def build_drain_of_four(
    call: ProviderContext,
    scheduler: SimulatedScheduler,
    *,
    failed: str = "",
    **drain_operation: Any,
) -> DrainOperation:
    workers = [Worker(name, is_failed=name == failed) for name in ("w0", "w1", "w2", "w3")]
    subject = DrainTarget(ID, "pool train", workers)
    return DrainOperation(call, subject, lambda: scheduler, DrainInputs(**drain_operation))


EVICT = "--allow evict-jobs"
HINT = (
    "declare the scheduler of these nodes, with a kubeconfig that may list all nodes and "
    f"pods; if the nodes have no scheduler, {EVICT} removes them without asking one"
)


def get_refusal(
    call: ProviderContext,
    scheduler: SimulatedScheduler,
    taking: NodeEviction,
    *,
    takes_cordoned: bool = False,
    **drain_operation: Any,
) -> GpuformError:
    """Return the error of a refused removal, after which every node has to be as before."""
    before = scheduler.cordoned
    workers = [Worker(f"w{at}") for at in range(4)]
    subject = DrainTarget(ID, "cluster train", workers, removes_cordoned=takes_cordoned)
    with pytest.raises(GpuformError) as raised:
        DrainOperation(
            call, subject, lambda: scheduler, DrainInputs(**drain_operation)
        ).drain_nodes(taking)
    assert (scheduler.cordoned, read_record(call)) == (before, None)
    return raised.value


class TestWords:
    """Exact texts that a drain reports and raises."""

    def test_an_empty_eviction_is_false(self) -> None:
        assert not NodeEviction()
        assert NodeEviction({"w1": "deleted"})
        assert NodeEviction(count=1)

    def test_a_plan_names_removed_nodes_and_the_treatment_of_their_jobs(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        scheduler.start_job("w1", 20)
        plan = build_drain_of_four(call, scheduler).predict_removed_nodes(
            NodeEviction({"w1": "replaced"}, count=1)
        )
        assert plan is not None
        assert (plan.scheduler, plan.on_busy, plan.wait_minutes) == ("Kubernetes", "wait", 60)
        assert [(node.name, node.because) for node in plan.nodes] == [
            ("w3", "idle"),
            ("w1", "replaced"),
        ]
        assert [[job.id for job in node.jobs] for node in plan.nodes] == [[], ["ml/on-w1"]]
        assert (scheduler.cordoned, read_record(call)) == ([], None)

    @pytest.mark.parametrize(
        ("policy", "minutes"),
        [({"on_busy": "fail"}, 0), ({"on_busy": "evict"}, 60), ({"wait_minutes": 7}, 7)],
    )
    def test_a_plan_says_how_long_jobs_are_waited_for(
        self, call: ProviderContext, scheduler: SimulatedScheduler, policy: Any, minutes: int
    ) -> None:
        plan = build_drain_of_four(call, scheduler, **policy).predict_removed_nodes(
            NodeEviction(count=1)
        )
        assert plan is not None
        assert (plan.on_busy, plan.wait_minutes) == (policy.get("on_busy", "wait"), minutes)

    def test_a_plan_without_a_scheduler_names_the_missing_information(
        self, call: ProviderContext, scheduler: SimulatedScheduler, reported: Any
    ) -> None:
        def raise_unreachable(_: str) -> None:
            raise Unreachable("no\n answer")

        scheduler.before = raise_unreachable
        removed = build_drain_of_four(call, scheduler).predict_removed_nodes(
            NodeEviction({"w1": "deleted"}, count=2, requested_names=["w3"])
        )
        assert [(node.name, node.because) for node in removed.nodes] == [
            ("w1", "deleted"),
            ("w3", "named"),
            ("", "unchosen"),
        ]
        assert reported.unchecked == [
            (
                "the nodes to remove from pool train, and their jobs: no answer. gpuform "
                "removes no node while its jobs are unknown"
            )
        ]

    def test_invalid_node_names_fail_the_plan(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        with pytest.raises(GpuformError) as raised:
            build_drain_of_four(call, scheduler).predict_removed_nodes(
                NodeEviction(count=1, requested_names=["w7", "w8"])
            )
        assert raised.value.message.startswith(
            "pool train: drain.nodes[0]: node w7 not found; the nodes are w0, w1, w2, w3; drain."
        )

    def test_cordons_carry_the_label_of_the_object(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        drain = build_drain_of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"}))
        assert drain is not None
        assert drain.mark.startswith("gpuform-scale-down-")
        assert len(drain.mark) == len("gpuform-scale-down-") + 12
        assert scheduler.nodes_by_name["w1"].owner_label == drain.mark
        assert (drain.chosen, drain.cordoned, drain.present) == (("w1",), ("w1",), ())

    def test_the_record_has_all_nodes_if_the_platform_picks(
        self, call: ProviderContext, scheduler: SimulatedScheduler, reported: Any
    ) -> None:
        drain = build_drain(call, scheduler).clear(2)
        assert drain.present == ("w0", "w1", "w2", "w3")
        assert reported.progress[0] == "cordoning w3, w2"

    def test_busy_nodes_are_named_with_their_jobs(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        for at in range(4):
            scheduler.start_job(f"w{at}", 500)
        taking = NodeEviction({"w0": "deleted", "w1": "deleted"})
        error = get_refusal(call, scheduler, taking, on_busy="fail")
        jobs = "w0: ml/on-w0 (ada); w1: ml/on-w1 (ada)"
        assert error.message == f"cluster train: no node was removed: jobs run on {jobs}"
        assert error.hint == (
            "run the command again when the jobs have ended, declare drain.on_busy: wait, or "
            f"end the jobs with {EVICT}"
        )
        error = get_refusal(call, scheduler, taking, wait_minutes=10)
        assert error.message == (
            f"cluster train: no node was removed: after 10m00s jobs still run on {jobs}"
        )
        assert error.hint == (
            "run the command again when the jobs have ended, declare a longer "
            f"drain.wait_minutes, or end the jobs with {EVICT}"
        )

    def test_an_unknown_node_is_named_with_a_remedy(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        del scheduler.nodes_by_name["w1"]
        error = get_refusal(call, scheduler, NodeEviction({"w1": "deleted"}))
        assert error.message == (
            "cluster train: no node was removed: cluster train: cannot remove a node: "
            "Kubernetes: no node has the name, an id or an address of w1"
        )
        assert error.hint == HINT

    def test_a_node_with_doubtful_jobs_is_not_idle(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        scheduler.nodes_by_name["w1"] = replace(
            scheduler.nodes_by_name["w1"], incomplete_jobs_reason="Slurm shows no node"
        )
        error = get_refusal(call, scheduler, NodeEviction({"w1": "deleted"}))
        assert "Kubernetes: the jobs on w1 are unknown: Slurm shows no node" in error.message
        drain = build_drain_of_four(call, scheduler).drain_nodes(NodeEviction(count=3))
        assert drain is not None
        assert sorted(drain.chosen) == ["w0", "w2", "w3"]

    def test_an_ambiguous_node_is_named_with_its_matches(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        scheduler.nodes_by_name["x"] = ScheduledNode("x", addresses=("w1",))
        error = get_refusal(call, scheduler, NodeEviction({"w1": "deleted"}))
        assert "the node of w1 is unknown: it may be w1 or x" in error.message

    @pytest.mark.parametrize(("count", "more"), [(10, ""), (12, "; Kubernetes: and 2 more")])
    def test_at_most_ten_unknown_nodes_are_named(
        self, call: ProviderContext, scheduler: SimulatedScheduler, count: int, more: str
    ) -> None:
        names = [f"n{at:02}" for at in range(count)]
        subject = DrainTarget(ID, "pool train", [*map(Worker, names)])
        drain_operation = DrainOperation(call, subject, lambda: scheduler, DrainInputs())
        with pytest.raises(NotEnoughEvidence) as raised:
            drain_operation.drain_nodes(NodeEviction(dict.fromkeys(names, "deleted")))
        assert raised.value.message.endswith(f"address of n09{more}")

    def test_at_most_ten_jobs_of_a_node_are_named(self) -> None:
        jobs = [RunningJob(id=f"ml/{at}", name=str(at)) for at in range(12)]
        for count, more in ((10, ""), (11, ", and 1 more"), (12, ", and 2 more")):
            node = Worker("w0", scheduled_node=ScheduledNode("w0", jobs=tuple(jobs[:count])))
            assert format_jobs([node]).endswith(f"ml/9{more}")
            assert format_jobs([node]).startswith("w0: ml/0, ml/1, ")

    def test_a_scheduler_error_keeps_its_hint_and_names_a_remedy(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        def raise_unreachable(_: str) -> None:
            raise Unreachable("no answer", hint="look at the network")

        scheduler.before = raise_unreachable
        error = get_refusal(call, scheduler, NodeEviction(count=1))
        assert error.message == "cluster train: no node was removed: no answer"
        assert error.hint == f"look at the network; {EVICT} removes the nodes anyway"
        assert not isinstance(error, NotEnoughEvidence)

    def test_too_few_known_nodes_are_named(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        del scheduler.nodes_by_name["w3"], scheduler.nodes_by_name["w2"]
        error = get_refusal(call, scheduler, NodeEviction(count=3), takes_cordoned=True)
        assert error.message == (
            "cluster train: no node was removed: cannot remove 3 nodes: Kubernetes shows "
            "only 2 nodes, and not w2, w3"
        )
        assert error.hint == (
            "wait until the nodes have joined, or remove the nodes on the platform's own "
            f"pages; {EVICT} removes the nodes anyway"
        )

    def test_other_cordoned_nodes_are_named_if_the_platform_picks(
        self, call: ProviderContext, scheduler: SimulatedScheduler, reported: Any
    ) -> None:
        scheduler.cordon(["w0", "w3"], "for repair")
        build_drain(call, scheduler, nodes=["w2", "w1"]).clear(2)
        assert reported.warnings == [
            (
                "w0, w3 of cluster train is cordoned, too: the platform could remove it "
                "instead of w1, w2; uncordon it to be sure"
            )
        ]
        reported.warnings.clear()
        build_drain(call, scheduler, nodes=["w2"], takes_cordoned=False).clear(1)
        assert reported.warnings == []

    def test_nodes_cordoned_by_an_earlier_attempt_are_not_other_nodes(
        self, call: ProviderContext, scheduler: SimulatedScheduler, reported: Any
    ) -> None:
        build_drain(call, scheduler, nodes=["w0"]).clear(1)
        build_drain(call, scheduler, nodes=["w1"]).clear(1)
        assert reported.warnings == []


class TestForcedEviction:
    """A run that may end jobs removes nodes as they are, and reports what it does not know."""

    @pytest.fixture(autouse=True)
    def allowed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GPUFORM_ALLOW", "evict-jobs")

    def test_jobs_are_ended_despite_the_declared_policy(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        scheduler.start_job("w1", 10_000)
        build_drain_of_four(call, scheduler, on_busy="fail").drain_nodes(
            NodeEviction({"w1": "deleted"})
        )
        assert not scheduler.is_busy("w1")
        assert "evict" in scheduler.requests

    def test_an_unreachable_scheduler_does_not_prevent_a_forced_removal(
        self, call: ProviderContext, scheduler: SimulatedScheduler, reported: Any
    ) -> None:
        def raise_unreachable(_: str) -> None:
            raise Unreachable("no\nanswer")

        scheduler.before = raise_unreachable
        assert (
            build_drain_of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"}))
            is None
        )
        assert reported.warnings == ["pool train: its jobs are unknown: no answer"]
        with build_drain_of_four(call, scheduler).drain_during(NodeEviction({"w1": "deleted"})):
            assert read_record(call) is None

    def test_an_unknown_node_is_removed_with_a_warning(
        self, call: ProviderContext, scheduler: SimulatedScheduler, reported: Any
    ) -> None:
        del scheduler.nodes_by_name["w1"]
        drain = build_drain_of_four(call, scheduler).drain_nodes(
            NodeEviction({"w1": "deleted", "w2": "deleted"})
        )
        assert drain is not None
        assert (drain.chosen, drain.cordoned) == (("w1", "w2"), ("w2",))
        del scheduler.nodes_by_name["w2"]
        build_drain_of_four(call, scheduler).drain_nodes(
            NodeEviction({"w1": "deleted", "w2": "deleted"})
        )
        assert "of w1; no node has" in reported.warnings.pop()
        assert reported.warnings == [
            (
                "pool train: no node has the name, an id or an address of w1: removed "
                f"anyway, because of {EVICT}"
            )
        ]

    def test_an_unknown_node_that_joins_meanwhile_is_cordoned_and_recorded(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        joins = scheduler.nodes_by_name.pop("w1")

        def join(operation: str) -> None:
            if operation == "nodes" and "cordon" in scheduler.requests:
                scheduler.nodes_by_name.setdefault("w1", joins)

        scheduler.before = join
        drain = build_drain_of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"}))
        assert drain is not None
        assert drain.cordoned == ("w1",)
        assert (scheduler.cordoned, read_record(call)) == (["w1"], drain)

    def test_jobs_of_a_failed_node_are_ignored(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        scheduler.nodes_by_name["w1"] = replace(scheduler.nodes_by_name["w1"], is_failed=True)
        scheduler.start_job("w1", 10_000)
        scheduler.stubborn = {"w1"}
        assert (
            build_drain_of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"}))
            is not None
        )

    def test_an_interruption_is_no_permission(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        def stop(_: str) -> None:
            raise Cancelled("stopped")

        scheduler.before = stop
        with pytest.raises(Cancelled, match="pool train: no node was removed: stopped"):
            build_drain_of_four(call, scheduler).drain_nodes(NodeEviction({"w1": "deleted"}))


def _repeat_after_lost_answer(error: GpuformError) -> GpuformError:
    """Return `error` as the client raises it for a repetition, after an attempt without answer."""
    error.has_unanswered_attempt = True
    return error


class TestRemovalRequest:
    """The block that requests the removal; its error decides what happens to the nodes."""

    def test_the_record_is_written_before_the_platform_is_asked(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        with build_drain_of_four(call, scheduler).drain_during(NodeEviction({"w1": "deleted"})):
            drain = read_record(call)
            assert drain is not None
            assert drain.asked
        assert read_record(call) == drain

    @pytest.mark.parametrize(
        ("error", "is_undone"),
        [
            (ApiError("no", method="PUT", path="/", status=422), True),
            (ApiError("no", method="PUT", path="/", status=500), False),
            (MissingCredentials("no key"), True),
            (Unreachable("no connection"), True),
            (Cancelled("stopped"), True),
            (UnknownOutcome("no answer"), False),
            (_repeat_after_lost_answer(ApiError("no", method="PUT", path="/", status=409)), False),
            (_repeat_after_lost_answer(Unreachable("no connection")), False),
            (_repeat_after_lost_answer(Cancelled("stopped")), False),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_nodes_that_the_platform_certainly_keeps_are_uncordoned(
        self,
        call: ProviderContext,
        scheduler: SimulatedScheduler,
        error: GpuformError,
        is_undone: bool,
    ) -> None:
        with (
            pytest.raises(type(error)),
            build_drain_of_four(call, scheduler).drain_during(NodeEviction({"w1": "deleted"})),
        ):
            raise error
        assert scheduler.cordoned == ([] if is_undone else ["w1"])
        assert (read_record(call) is None) is is_undone

    def test_an_interruption_before_the_platform_is_asked_uncordons(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        show = scheduler.list_nodes

        def stop_at_last() -> Sequence[ScheduledNode]:
            answers = show()
            if len(scheduler.requests) == 4:
                call.cancelled.set()
            return answers

        scheduler.list_nodes = stop_at_last  # type: ignore[method-assign]
        with (
            pytest.raises(Cancelled),
            build_drain_of_four(call, scheduler).drain_during(NodeEviction({"w1": "deleted"})),
        ):
            pytest.fail("the platform was asked")
        assert (scheduler.cordoned, read_record(call)) == ([], None)


class TestUndo:
    def test_a_node_that_cannot_be_uncordoned_is_reported_and_stays_recorded(
        self, call: ProviderContext, scheduler: SimulatedScheduler, reported: Any
    ) -> None:
        drain = build_drain(call, scheduler).clear(2)

        def raise_unreachable(_: str) -> None:
            raise Unreachable("no\nanswer")

        scheduler.before = raise_unreachable
        assert not undo_drain(call, drain, lambda: scheduler)
        assert reported.warnings[-1] == (
            "w3, w2 may still be cordoned: the scheduler did not uncordon (no answer); the "
            "next `up` or `refresh` uncordons"
        )
        assert read_record(call) == drain
        with pytest.raises(GpuformError) as raised:
            finish_drain(call, drain, lambda: scheduler, ["w0", "w1", "w2", "w3"])
        assert raised.value.message == "w3, w2 may still be cordoned"
        assert raised.value.hint == "run the command again to uncordon"
        with pytest.raises(GpuformError) as raised:
            undo_drain_or_fail(call, drain, lambda: scheduler)
        assert raised.value.message == "w3, w2 may still be cordoned"
        scheduler.before = lambda _: None
        undo_drain_or_fail(call, drain, lambda: scheduler)
        assert (scheduler.cordoned, read_record(call)) == ([], None)

    def test_after_an_interruption_the_scheduler_has_three_seconds_to_uncordon(
        self, call: ProviderContext, scheduler: SimulatedScheduler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drain = build_drain(call, scheduler).clear(1)
        released, ticks = threading.Event(), iter(range(100))
        scheduler.before = lambda _: released.wait() and None
        time = SimpleNamespace(monotonic=lambda: float(next(ticks)))
        monkeypatch.setattr("gpuform.providers.draining.schedulers.time", time)
        call.cancelled.set()
        try:
            assert not undo_drain(call, drain, lambda: scheduler)
        finally:
            released.set()
        assert next(ticks) == 4

    def test_a_node_cordoned_by_somebody_else_stays_cordoned(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        drain = build_drain(call, scheduler).clear(1)
        scheduler.nodes_by_name["w3"] = replace(
            scheduler.nodes_by_name["w3"], owner_label="another"
        )
        assert undo_drain(call, drain, lambda: scheduler)
        assert (scheduler.cordoned, read_record(call)) == (["w3"], None)


class TestConclusion:
    @pytest.mark.parametrize(
        ("is_free", "state"), [(True, "takes jobs again"), (False, "may still be cordoned")]
    )
    def test_other_removed_nodes_are_named_with_the_state_of_the_chosen(
        self, call: ProviderContext, scheduler: SimulatedScheduler, is_free: bool, state: str
    ) -> None:
        drain_operation = build_drain(call, scheduler)
        drain = drain_operation.record_request(drain_operation.clear(2))

        def raise_unreachable(_: str) -> None:
            if not is_free:
                raise Unreachable("no answer")

        scheduler.before = raise_unreachable
        with pytest.raises(GpuformError) as raised:
            finish_drain(call, drain, lambda: scheduler, ["w2", "w3"])
        assert raised.value.message == (
            f"the platform removed w0, w1 instead of w3, w2, which {state}: look for jobs that "
            "ran on w0, w1"
        )

    def test_other_nodes_removed_before_the_request_are_not_reported(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        drain = build_drain(call, scheduler).clear(1)
        finish_drain(call, drain, lambda: scheduler, ["w2", "w3"])
        assert (scheduler.cordoned, read_record(call)) == ([], None)

    def test_additionally_cordoned_nodes_are_uncordoned(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        drain = build_drain(call, scheduler).clear(1)
        scheduler.cordon(["w0"], drain.mark)
        more = replace(drain, cordoned=("w3", "w0"))
        finish_drain(call, more, lambda: scheduler, ["w0", "w1", "w2"])
        assert scheduler.cordoned == []

    def test_a_removal_of_the_chosen_nodes_ends_the_record(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        drain_operation = build_drain(call, scheduler)
        drain = drain_operation.record_request(drain_operation.clear(1))
        requests = len(scheduler.requests)
        finish_drain(call, drain, lambda: scheduler, ["w0", "w1", "w2"])
        assert read_record(call) is None
        assert len(scheduler.requests) == requests

    def test_a_removal_of_other_nodes_is_reported(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        drain_operation = build_drain(call, scheduler)
        drain = drain_operation.record_request(drain_operation.clear(2))
        with pytest.raises(GpuformError) as raised:
            finish_drain(call, drain, lambda: scheduler, ["w1", "w3"])
        assert "removed w0 instead of w3, which takes jobs again" in str(raised.value)
        assert read_record(call) is None

    def test_a_removal_without_effect_uncordons_the_nodes(
        self, call: ProviderContext, scheduler: SimulatedScheduler
    ) -> None:
        drain = build_drain(call, scheduler).clear(2)
        finish_drain(call, drain, lambda: scheduler, [f"w{at}" for at in range(4)])
        assert (scheduler.cordoned, read_record(call)) == ([], None)


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=4, max_size=4),
    count=st.integers(1, 3),
    dies_at=st.one_of(st.integers(1, 8), st.just(99)),
    slips_in=st.integers(0, 3),
    policy=st.sampled_from(["wait", "fail"]),
)
def test_a_killed_drain_hurts_no_job_and_is_resumed_by_the_next_run(
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
    scheduler = SimulatedScheduler(clock)
    for at, length in enumerate(lengths):
        if length:
            scheduler.start_job(f"w{at}", length)

    def die(operation: str) -> None:
        if operation == "cordon" and not scheduler.nodes_by_name[f"w{slips_in}"].is_cordoned:
            scheduler.start_job(f"w{slips_in}", 3)
        if len(scheduler.requests) == dies_at:
            raise Killed

    scheduler.before = die
    try:
        drain = build_drain(call, scheduler, on_busy=policy).clear(count)
    except Killed:
        scheduler.before = lambda _: None
        drain = read_record(call) or build_drain(call, scheduler).clear(count)
        if not scheduler.cordoned:
            drain = build_drain(call, scheduler).clear(count)
        undo_drain(call, drain, lambda: scheduler)
        assert (scheduler.cordoned, read_record(call)) == ([], None)
    except GpuformError:
        assert (scheduler.cordoned, read_record(call)) == ([], None)
    else:
        assert len(drain.chosen) == count
        assert not any(scheduler.is_busy(name) for name in drain.chosen)
        assert sorted(scheduler.cordoned) == sorted(drain.chosen)

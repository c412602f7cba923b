"""Test which nodes a pool loses, whose jobs are waited for, and what stays after a failure."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.schedulers.simulated_scheduler import SimulatedScheduler

from gpuform.providers.draining import ScheduledNode
from gpuform.providers.errors import Cancelled, GpuformError, UnplannedRemoval
from gpuform.providers.records import Drains
from gpuform.providers.scp.node_pool import NodePoolLifecycle
from gpuform.providers.scp.nodes import draining
from gpuform.schemas.policies.drain import RemovedNode, RemovedNodes
from gpuform.schemas.values import RemovalCount

Properties = dict[str, Any]

DELETE = "DELETE /v1/gpu-nodes"
ASKED = {"kubernetes": {"kubeconfig": "kubeconfig"}}


@pytest.fixture
def scheduler(environment: Any, monkeypatch: pytest.MonkeyPatch) -> SimulatedScheduler:
    """Replace the Kubernetes on the servers, which the platform does not know."""
    simulated = SimulatedScheduler(
        environment.clock, [f"train-00{number}" for number in range(1, 5)]
    )
    monkeypatch.setattr(draining, "create_declared_scheduler", lambda *_: simulated)
    return simulated


@pytest.fixture
def pool_of_four(environment: Any, pool_inputs: Properties) -> Any:
    made = environment.create("NodePool", {**pool_inputs, "count": 4, "drain": ASKED})
    environment.count_writes()
    return made


def shrink_inputs(pool: Any, count: int = 3, **drain: Any) -> Properties:
    return {**pool.inputs, "count": count, "drain": {**ASKED, **drain}}


def predict_removed_nodes(environment: Any, pool: Any, inputs: Properties) -> Any:
    with environment.use_context(pool.name, preview=True):
        return NodePoolLifecycle().predict_removed_nodes(pool.id, pool.outs, inputs)


def find_drain_record(environment: Any, pool: Any) -> Any:
    return Drains.from_intents(environment.intents).find(pool.id)


def test_shrinking_removes_the_idle_node_and_not_the_newest(
    environment: Any, pool_of_four: Any, scheduler: SimulatedScheduler
) -> None:
    for name in ("train-001", "train-003", "train-004"):
        scheduler.start_job(name, 100)
    assert environment.list_changes(pool_of_four, shrink_inputs(pool_of_four)) == {"count": (4, 3)}
    (removed_node,) = predict_removed_nodes(
        environment, pool_of_four, shrink_inputs(pool_of_four)
    ).nodes
    assert (removed_node.name, removed_node.because) == ("train-002", "idle")
    assert environment.count_writes() == {}
    pool = environment.update(pool_of_four, shrink_inputs(pool_of_four))
    assert list(pool.nodes) == ["train-001", "train-003", "train-004"]
    assert pool.outs["ready"] is True
    assert environment.count_writes() == {DELETE: 1}
    assert find_drain_record(environment, pool) is None


def test_a_pool_loses_no_more_nodes_than_planned(environment: Any, pool_of_four: Any) -> None:
    fewer = {**pool_of_four.inputs, "count": 2}
    del fewer["drain"]
    with pytest.raises(UnplannedRemoval, match=r"pool train: this would remove 2 nodes with 16"):
        environment.update(pool_of_four, fewer, planned_removal=RemovalCount(1, 8))
    with pytest.raises(UnplannedRemoval, match=r"remove 4 nodes with 32 GPUs, and .* 24 GPUs: it"):
        environment.delete(pool_of_four, planned_removal=RemovalCount(None, 24))
    assert environment.count_writes() == {}
    pool = environment.update(pool_of_four, fewer, planned_removal=RemovalCount(2, 16))
    assert (len(pool.nodes), environment.count_writes()) == (2, {DELETE: 1})


@pytest.mark.slow
def test_shrinking_waits_for_jobs(
    environment: Any, pool_of_four: Any, scheduler: SimulatedScheduler
) -> None:
    for name in scheduler.names:
        scheduler.start_job(name, 30)
    began = environment.now
    pool = environment.update(pool_of_four, shrink_inputs(pool_of_four))
    assert environment.now - began >= 30 * 60
    assert list(pool.nodes) == ["train-001", "train-002", "train-003"]


def test_busy_nodes_stay_and_are_not_cordoned(
    environment: Any, pool_of_four: Any, scheduler: SimulatedScheduler
) -> None:
    for name in scheduler.names:
        scheduler.start_job(name, 300)
    message = "pool train: no node was removed: .*jobs still run on train-004"
    with pytest.raises(GpuformError, match=message):
        environment.update(pool_of_four, shrink_inputs(pool_of_four, wait_minutes=10))
    assert (
        environment.count_writes(),
        scheduler.cordoned,
        find_drain_record(environment, pool_of_four),
    ) == (
        {},
        [],
        None,
    )


@pytest.mark.slow
def test_a_node_that_is_no_longer_declared_is_drained(
    environment: Any, pool_inputs: Properties, scheduler: SimulatedScheduler
) -> None:
    inputs = {key: value for key, value in pool_inputs.items() if key != "count"}
    declared = {**inputs, "nodes": {"001": {}, "002": {}, "003": {}}, "drain": ASKED}
    pool = environment.create("NodePool", declared)
    scheduler.start_job("train-001", 20)
    began = environment.now
    pool = environment.update(pool, {**declared, "nodes": {"002": {}, "003": {}}})
    assert sorted(pool.nodes) == ["002", "003"]
    assert environment.now - began >= 20 * 60


def test_a_locked_node_is_removed_last(
    environment: Any, pool_inputs: Properties, scheduler: SimulatedScheduler
) -> None:
    inputs = {key: value for key, value in pool_inputs.items() if key != "count"}
    nodes = {"001": {}, "002": {}, "003": {"lock_enabled": True}}
    pool = environment.create("NodePool", {**inputs, "nodes": nodes})
    counted = {**inputs, "count": 2, "drain": ASKED}
    assert [node.name for node in predict_removed_nodes(environment, pool, counted).nodes] == [
        "train-002"
    ]


def test_an_interrupted_removal_is_undone_by_the_next_run_or_refresh(
    environment: Any, pool_of_four: Any, scheduler: SimulatedScheduler
) -> None:
    for ending in ("update", "refresh"):

        def kill_at_node_list(what: str) -> None:
            if what == "nodes" and scheduler.cordoned:
                raise KeyboardInterrupt

        scheduler.before = kill_at_node_list
        with pytest.raises(KeyboardInterrupt):
            environment.update(pool_of_four, shrink_inputs(pool_of_four))
        scheduler.before = lambda _: None
        assert scheduler.cordoned == ["train-004"]
        with environment.use_context(pool_of_four.name):
            changes = NodePoolLifecycle().list_changes(
                pool_of_four.outs, pool_of_four.inputs, pool_of_four.id
            )
        assert [change.path for change in changes] == ["drain"]
        assert getattr(environment, ending)(pool_of_four).outs["ready"] is True
        assert (scheduler.cordoned, find_drain_record(environment, pool_of_four)) == ([], None)
    assert environment.count_writes() == {}


def test_a_node_chosen_by_a_killed_run_does_not_count_as_idle(
    environment: Any, pool_of_four: Any, scheduler: SimulatedScheduler
) -> None:
    for name in scheduler.names:
        scheduler.start_job(name, 300)

    def kill_at_node_list(what: str) -> None:
        if what == "nodes" and scheduler.cordoned:
            raise KeyboardInterrupt

    scheduler.before = kill_at_node_list
    with pytest.raises(KeyboardInterrupt):
        environment.update(pool_of_four, shrink_inputs(pool_of_four))
    scheduler.before = lambda _: None
    assert (scheduler.cordoned, find_drain_record(environment, pool_of_four).chosen) == (
        ["train-004"],
        ("train-004",),
    )
    with pytest.raises(GpuformError, match="jobs still run on train-004"):
        environment.update(pool_of_four, shrink_inputs(pool_of_four, wait_minutes=10))
    assert (
        environment.count_writes(),
        scheduler.cordoned,
        find_drain_record(environment, pool_of_four),
    ) == (
        {},
        [],
        None,
    )


def test_an_interruption_right_after_the_wait_for_jobs_uncordons(
    environment: Any, pool_of_four: Any, scheduler: SimulatedScheduler
) -> None:
    cancelled, list_nodes = threading.Event(), scheduler.list_nodes

    def cancel_at_the_last_poll() -> Sequence[ScheduledNode]:
        nodes = list_nodes()
        if scheduler.requests == ["nodes", "cordon", "nodes", "nodes"]:
            cancelled.set()
        return nodes

    scheduler.list_nodes = cancel_at_the_last_poll  # type: ignore[method-assign]
    with pytest.raises(Cancelled):
        environment.update(pool_of_four, shrink_inputs(pool_of_four), cancelled=cancelled)
    assert environment.count_writes() == {}
    assert (scheduler.cordoned, find_drain_record(environment, pool_of_four)) == ([], None)


class TestWithoutAScheduler:
    def test_the_plan_reports_that_jobs_were_not_checked(
        self, environment: Any, pool_inputs: Properties
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        fewer = {**pool_inputs, "count": 2}
        assert predict_removed_nodes(environment, pool, fewer) == RemovedNodes(
            nodes=(RemovedNode(name="train-003", because="deleted", gpus=8),)
        )
        (unchecked,) = environment.unchecked
        assert unchecked.startswith("the jobs on nodes of pool train whose GPUs are removed: ")
        assert list(environment.update(pool, fewer).nodes) == ["train-001", "train-002"]

    def test_declared_names_are_removed(self, environment: Any, pool_inputs: Properties) -> None:
        pool = environment.create("NodePool", pool_inputs)
        fewer = {**pool_inputs, "count": 2, "drain": {"nodes": ["train-001"]}}
        assert environment.list_changes(pool, fewer) == {
            "count": (3, 2),
            'nodes["train-001"]': (pool.nodes["train-001"]["id"], None),
        }
        assert list(environment.update(pool, fewer).nodes) == ["train-002", "train-003"]

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            (["train-009"], r"drain.nodes\[0\]: node train-009 not found"),
            (["train-001", "train-002"], "drain.nodes: names 2, but 1 node is removed"),
        ],
    )
    def test_wrong_names_are_refused(
        self, environment: Any, pool_inputs: Properties, names: list[str], message: str
    ) -> None:
        pool = environment.create("NodePool", pool_inputs)
        fewer = {**pool_inputs, "count": 2, "drain": {"nodes": names}}
        with pytest.raises(GpuformError, match=message):
            predict_removed_nodes(environment, pool, fewer)
        with pytest.raises(GpuformError, match=message):
            environment.update(pool, fewer)


class TestKubeconfig:
    def test_a_missing_kubeconfig_is_an_error(
        self, environment: Any, pool_of_four: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        removed = predict_removed_nodes(environment, pool_of_four, shrink_inputs(pool_of_four))
        assert removed.nodes == (RemovedNode(name="", because="unchosen", gpus=8),)
        assert "kubeconfig cannot be read (FileNotFoundError)" in environment.unchecked[-1]
        with pytest.raises(GpuformError, match="cannot be read"):
            environment.update(pool_of_four, shrink_inputs(pool_of_four))
        assert environment.count_writes() == {}

    def test_a_kubeconfig_without_a_current_context_is_refused(
        self, environment: Any, pool_of_four: Any, tmp_path: Path
    ) -> None:
        path = tmp_path / "config"
        path.write_text("contexts: [{name: other, context: {cluster: c, user: u}}]\n")
        asked = {"kubernetes": {"kubeconfig": str(path)}}
        inputs = {**pool_of_four.inputs, "count": 3, "drain": asked}
        with pytest.raises(GpuformError, match="no current context"):
            environment.update(pool_of_four, inputs)


@pytest.mark.parametrize(
    ("drain", "path"),
    [
        ({"on_busy": "wait"}, "drain.on_busy"),
        ({"wait_minutes": 5}, "drain.wait_minutes"),
        ({"slurm": {}}, "drain.slurm.via"),
        ({**ASKED, "on_busy": "fail", "wait_minutes": 5}, "drain.wait_minutes"),
        ({"nodes": ["a", "a"]}, "drain.nodes[1]"),
    ],
)
def test_contradictory_drains_are_refused(
    environment: Any, pool_inputs: Properties, drain: Properties, path: str
) -> None:
    assert list(environment.find_problems("NodePool", {**pool_inputs, "drain": drain})) == [path]


class TestEveryRemovalOfANode:
    """Each waits for the jobs of the very nodes that it takes, or takes none."""

    @staticmethod
    def _declare_one_by_one(pool_inputs: Properties, **nodes: Any) -> Properties:
        inputs = {key: value for key, value in pool_inputs.items() if key != "count"}
        return {**inputs, "nodes": {"001": {}, "002": {}, **nodes}, "drain": ASKED}

    @pytest.mark.slow
    @pytest.mark.sampled(1)
    @pytest.mark.parametrize(
        ("changed", "because"),
        [({"ip_address": "192.168.0.99"}, "replaced"), ({"state": "STOPPED"}, "stopped")],
    )
    def test_each_change_that_ends_jobs_drains_the_node(
        self,
        changed: Properties,
        because: str,
        environment: Any,
        pool_inputs: Properties,
        scheduler: SimulatedScheduler,
    ) -> None:
        before = self._declare_one_by_one(pool_inputs, **{"003": {"ip_address": "192.168.0.98"}})
        pool = environment.create("NodePool", before)
        environment.count_writes()
        after = self._declare_one_by_one(
            pool_inputs, **{"003": {"ip_address": "192.168.0.98", **changed}}
        )
        scheduler.start_job("train-003", 300)
        (removed_node,) = predict_removed_nodes(environment, pool, after).nodes
        assert (removed_node.name, removed_node.because, [job.id for job in removed_node.jobs]) == (
            "train-003",
            because,
            ["ml/on-train-003"],
        )
        refused = {**after, "drain": {**ASKED, "on_busy": "fail"}}
        with pytest.raises(GpuformError, match="pool train: no node was removed: jobs run on"):
            environment.update(pool, refused)
        assert (
            environment.count_writes(),
            scheduler.cordoned,
            find_drain_record(environment, pool),
        ) == (
            {},
            [],
            None,
        )
        scheduler.start_job("train-003", 20)
        began = environment.now
        pool = environment.update(pool, after)
        assert environment.now - began >= 20 * 60
        assert pool.outs["ready"] is True
        assert (scheduler.cordoned, find_drain_record(environment, pool)) == ([], None)

    @pytest.mark.slow
    @pytest.mark.sampled(1)
    def test_deleting_a_pool_drains_all_nodes(
        self, environment: Any, pool_of_four: Any, scheduler: SimulatedScheduler
    ) -> None:
        scheduler.start_job("train-002", 20)
        with environment.use_context(pool_of_four.name, preview=True):
            removed_nodes = NodePoolLifecycle().predict_nodes_removed_with_object(
                pool_of_four.id, pool_of_four.outs, "deleted"
            )
        assert [(node.name, node.because) for node in removed_nodes.busy] == [
            ("train-002", "deleted")
        ]
        assert len(removed_nodes.nodes) == 4
        began = environment.now
        environment.delete(pool_of_four)
        assert environment.now - began >= 20 * 60
        assert (scheduler.cordoned, find_drain_record(environment, pool_of_four)) == ([], None)

    @pytest.mark.slow
    @pytest.mark.sampled(1)
    def test_a_refused_deletion_uncordons_the_nodes(
        self, environment: Any, pool_of_four: Any, scheduler: SimulatedScheduler
    ) -> None:
        scheduler.start_job("train-002", 300)
        with pytest.raises(GpuformError, match="pool train: no node was removed"):
            environment.delete(pool_of_four)
        assert (
            environment.count_writes(),
            scheduler.cordoned,
            find_drain_record(environment, pool_of_four),
        ) == (
            {},
            [],
            None,
        )

    def test_the_scheduler_of_another_cluster_is_an_error(
        self,
        environment: Any,
        pool_of_four: Any,
        scheduler: SimulatedScheduler,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        scheduler.nodes_by_name = {"other-001": ScheduledNode("other-001")}
        with pytest.raises(GpuformError, match=r"no node has .* of train-001"):
            environment.delete(pool_of_four)
        assert environment.count_writes() == {}
        monkeypatch.setenv("GPUFORM_ALLOW", "evict-jobs")
        environment.delete(pool_of_four)
        assert environment.count_writes() == {DELETE: 1}

"""A pool that gets smaller: whose jobs are asked for, who goes, and what is left when it fails."""

from pathlib import Path
from typing import Any

import pytest
from simulated_scheduler import Simulated

from gpuform.providers.draining import ScheduledNode
from gpuform.providers.errors import GpuformError
from gpuform.providers.records import Drains
from gpuform.providers.scp.node_pool import NodePoolLifecycle
from gpuform.providers.scp.nodes import draining

Properties = dict[str, Any]

DELETE = "DELETE /v1/gpu-nodes"
ASKED = {"kubernetes": {"kubeconfig": "kubeconfig"}}


@pytest.fixture
def scheduler(world: Any, monkeypatch: pytest.MonkeyPatch) -> Simulated:
    """In the place of the Kubernetes that runs on the servers; the platform knows none."""
    made = Simulated(world.clock, [f"train-00{number}" for number in range(1, 5)])
    monkeypatch.setattr(draining, "declared_scheduler", lambda *_: made)
    return made


@pytest.fixture
def four(world: Any, pool_inputs: Properties) -> Any:
    made = world.create("NodePool", {**pool_inputs, "count": 4, "drain": ASKED})
    world.writes()
    return made


def smaller(pool: Any, count: int = 3, **drain: Any) -> Properties:
    return {**pool.inputs, "count": count, "drain": {**ASKED, **drain}}


def leaving(world: Any, pool: Any, inputs: Properties) -> Any:
    with world.serving(pool.name, preview=True):
        return NodePoolLifecycle().predict_removed_nodes(pool.id, pool.outs, inputs)


def record_of(world: Any, pool: Any) -> Any:
    return Drains.beside(world.intents).find(pool.id)


def test_the_idle_one_goes_and_not_the_newest(world: Any, four: Any, scheduler: Simulated) -> None:
    for name in ("train-001", "train-003", "train-004"):
        scheduler.run(name, 100)
    assert world.changes(four, smaller(four)) == {"count": (4, 3)}
    (goes,) = leaving(world, four, smaller(four)).nodes
    assert (goes.name, goes.because) == ("train-002", "idle")
    assert world.writes() == {}
    pool = world.update(four, smaller(four))
    assert list(pool.nodes) == ["train-001", "train-003", "train-004"]
    assert pool.outs["ready"] is True
    assert world.writes() == {DELETE: 1}
    assert record_of(world, pool) is None


@pytest.mark.slow
def test_jobs_are_waited_for(world: Any, four: Any, scheduler: Simulated) -> None:
    for name in scheduler.names:
        scheduler.run(name, 30)
    began = world.now
    pool = world.update(four, smaller(four))
    assert world.now - began >= 30 * 60
    assert list(pool.nodes) == ["train-001", "train-002", "train-003"]


def test_what_must_not_go_stays_and_nothing_is_cordoned(
    world: Any, four: Any, scheduler: Simulated
) -> None:
    for name in scheduler.names:
        scheduler.run(name, 300)
    told = "nothing was taken from pool train: .*jobs still run on train-004"
    with pytest.raises(GpuformError, match=told):
        world.update(four, smaller(four, wait_minutes=10))
    assert (world.writes(), scheduler.cordoned, record_of(world, four)) == ({}, [], None)


@pytest.mark.slow
def test_a_node_that_is_declared_no_more_is_drained(
    world: Any, pool_inputs: Properties, scheduler: Simulated
) -> None:
    inputs = {key: value for key, value in pool_inputs.items() if key != "count"}
    declared = {**inputs, "nodes": {"001": {}, "002": {}, "003": {}}, "drain": ASKED}
    pool = world.create("NodePool", declared)
    scheduler.run("train-001", 20)
    began = world.now
    pool = world.update(pool, {**declared, "nodes": {"002": {}, "003": {}}})
    assert sorted(pool.nodes) == ["002", "003"]
    assert world.now - began >= 20 * 60


def test_a_locked_one_goes_last(world: Any, pool_inputs: Properties, scheduler: Simulated) -> None:
    inputs = {key: value for key, value in pool_inputs.items() if key != "count"}
    nodes = {"001": {}, "002": {}, "003": {"lock_enabled": True}}
    pool = world.create("NodePool", {**inputs, "nodes": nodes})
    counted = {**inputs, "count": 2, "drain": ASKED}
    assert [each.name for each in leaving(world, pool, counted).nodes] == ["train-002"]


def test_an_interrupted_removal_is_undone_by_the_next_run_or_refresh(
    world: Any, four: Any, scheduler: Simulated
) -> None:
    for ending in ("update", "refresh"):

        def die(what: str) -> None:
            if what == "nodes" and scheduler.cordoned:
                raise KeyboardInterrupt

        scheduler.before = die
        with pytest.raises(KeyboardInterrupt):
            world.update(four, smaller(four))
        scheduler.before = lambda _: None
        assert scheduler.cordoned == ["train-004"]
        with world.serving(four.name):
            changes = NodePoolLifecycle().list_changes(four.outs, four.inputs, four.id)
        assert [change.path for change in changes] == ["drain"]
        assert getattr(world, ending)(four).outs["ready"] is True
        assert (scheduler.cordoned, record_of(world, four)) == ([], None)
    assert world.writes() == {}


def test_what_a_killed_run_chose_is_not_taken_for_idle(
    world: Any, four: Any, scheduler: Simulated
) -> None:
    for name in scheduler.names:
        scheduler.run(name, 300)

    def die(what: str) -> None:
        if what == "nodes" and scheduler.cordoned:
            raise KeyboardInterrupt

    scheduler.before = die
    with pytest.raises(KeyboardInterrupt):
        world.update(four, smaller(four))
    scheduler.before = lambda _: None
    assert (scheduler.cordoned, record_of(world, four).chosen) == (["train-004"], ("train-004",))
    with pytest.raises(GpuformError, match="jobs still run on train-004"):
        world.update(four, smaller(four, wait_minutes=10))
    assert (world.writes(), scheduler.cordoned, record_of(world, four)) == ({}, [], None)


class TestWithoutAScheduler:
    def test_nobody_is_asked_and_the_plan_says_so(
        self, world: Any, pool_inputs: Properties
    ) -> None:
        pool = world.create("NodePool", pool_inputs)
        fewer = {**pool_inputs, "count": 2}
        assert leaving(world, pool, fewer) is None
        (told,) = world.unchecked
        assert told.startswith("whether jobs run on nodes of pool train whose GPUs are removed: ")
        assert list(world.update(pool, fewer).nodes) == ["train-001", "train-002"]

    def test_names_are_honoured(self, world: Any, pool_inputs: Properties) -> None:
        pool = world.create("NodePool", pool_inputs)
        fewer = {**pool_inputs, "count": 2, "drain": {"nodes": ["train-001"]}}
        assert world.changes(pool, fewer) == {
            "count": (3, 2),
            'nodes["train-001"]': (pool.nodes["train-001"]["id"], None),
        }
        assert list(world.update(pool, fewer).nodes) == ["train-002", "train-003"]

    @pytest.mark.parametrize(
        ("names", "said"),
        [
            (["train-009"], r"drain.nodes\[0\]: there is no node train-009"),
            (["train-001", "train-002"], "drain.nodes: names 2, and 1 node goes"),
        ],
    )
    def test_names_that_cannot_be_meant(
        self, world: Any, pool_inputs: Properties, names: list[str], said: str
    ) -> None:
        pool = world.create("NodePool", pool_inputs)
        fewer = {**pool_inputs, "count": 2, "drain": {"nodes": names}}
        with pytest.raises(GpuformError, match=said):
            leaving(world, pool, fewer)
        with pytest.raises(GpuformError, match=said):
            world.update(pool, fewer)


class TestKubeconfig:
    def test_one_that_is_not_there(
        self, world: Any, four: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert leaving(world, four, smaller(four)) is None
        assert "kubeconfig cannot be read (FileNotFoundError)" in world.unchecked[-1]
        with pytest.raises(GpuformError, match="cannot be read"):
            world.update(four, smaller(four))
        assert world.writes() == {}

    def test_no_context_is_guessed(self, world: Any, four: Any, tmp_path: Path) -> None:
        path = tmp_path / "config"
        path.write_text("contexts: [{name: other, context: {cluster: c, user: u}}]\n")
        asked = {"kubernetes": {"kubeconfig": str(path)}}
        inputs = {**four.inputs, "count": 3, "drain": asked}
        with pytest.raises(GpuformError, match="no current context"):
            world.update(four, inputs)


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
def test_what_cannot_be_meant(
    world: Any, pool_inputs: Properties, drain: Properties, path: str
) -> None:
    assert list(world.problems("NodePool", {**pool_inputs, "drain": drain})) == [path]


class TestEveryWayToTakeANode:
    """Each waits for the jobs of the very nodes that it takes, or takes none."""

    @staticmethod
    def _one_by_one(pool_inputs: Properties, **nodes: Any) -> Properties:
        inputs = {key: value for key, value in pool_inputs.items() if key != "count"}
        return {**inputs, "nodes": {"001": {}, "002": {}, **nodes}, "drain": ASKED}

    @pytest.mark.slow
    @pytest.mark.sampled(1)
    @pytest.mark.parametrize(
        ("changed", "because"),
        [({"ip_address": "192.168.0.99"}, "replaced"), ({"state": "STOPPED"}, "stopped")],
    )
    def test_a_change_of_one(
        self,
        changed: Properties,
        because: str,
        world: Any,
        pool_inputs: Properties,
        scheduler: Simulated,
    ) -> None:
        before = self._one_by_one(pool_inputs, **{"003": {"ip_address": "192.168.0.98"}})
        pool = world.create("NodePool", before)
        world.writes()
        after = self._one_by_one(pool_inputs, **{"003": {"ip_address": "192.168.0.98", **changed}})
        scheduler.run("train-003", 300)
        (goes,) = leaving(world, pool, after).nodes
        assert (goes.name, goes.because, [job.id for job in goes.jobs]) == (
            "train-003",
            because,
            ["ml/on-train-003"],
        )
        refused = {**after, "drain": {**ASKED, "on_busy": "fail"}}
        with pytest.raises(GpuformError, match="nothing was taken from pool train: jobs run on"):
            world.update(pool, refused)
        assert (world.writes(), scheduler.cordoned, record_of(world, pool)) == ({}, [], None)
        scheduler.run("train-003", 20)
        began = world.now
        pool = world.update(pool, after)
        assert world.now - began >= 20 * 60
        assert pool.outs["ready"] is True
        assert (scheduler.cordoned, record_of(world, pool)) == ([], None)

    @pytest.mark.slow
    @pytest.mark.sampled(1)
    def test_all_of_them(self, world: Any, four: Any, scheduler: Simulated) -> None:
        scheduler.run("train-002", 20)
        with world.serving(four.name, preview=True):
            found = NodePoolLifecycle().predict_nodes_removed_with_object(
                four.id, four.outs, "deleted"
            )
        assert [(node.name, node.because) for node in found.busy] == [("train-002", "deleted")]
        assert len(found.nodes) == 4
        began = world.now
        world.delete(four)
        assert world.now - began >= 20 * 60
        assert (scheduler.cordoned, record_of(world, four)) == ([], None)

    @pytest.mark.slow
    @pytest.mark.sampled(1)
    def test_a_refused_deletion(self, world: Any, four: Any, scheduler: Simulated) -> None:
        scheduler.run("train-002", 300)
        with pytest.raises(GpuformError, match="nothing was taken from pool train"):
            world.delete(four)
        assert (world.writes(), scheduler.cordoned, record_of(world, four)) == ({}, [], None)

    def test_another_clusters_scheduler_is_told(
        self, world: Any, four: Any, scheduler: Simulated, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scheduler.nodes_ = {"other-001": ScheduledNode("other-001")}
        with pytest.raises(GpuformError, match=r"knows no node with the name, .* of train-001"):
            world.delete(four)
        assert world.writes() == {}
        monkeypatch.setenv("GPUFORM_ALLOW", "evict-jobs")
        world.delete(four)
        assert world.writes() == {DELETE: 1}

"""Another image or type of a pool: node by node, under no job, and no further than is well."""

from typing import Any

import pytest
from simulated_scheduler import Simulated

from gpuform.providers.errors import GpuformError
from gpuform.providers.records import Drains
from gpuform.providers.scp.node_pool import NodePoolLifecycle
from gpuform.providers.scp.nodes import draining

Properties = dict[str, Any]

UBUNTU = "IMAGE-4mQzWvT9hLxRbYc2NfKpJd"
A100 = "1b6d4f0c83a94e57b2c90a7d5e16f348"
ASKED = {"kubernetes": {"kubeconfig": "kubeconfig"}}
NAMES = ["train-001", "train-002", "train-003", "train-004"]


@pytest.fixture
def scheduler(world: Any, monkeypatch: pytest.MonkeyPatch) -> Simulated:
    made = Simulated(world.clock, NAMES)
    monkeypatch.setattr(draining, "declared_scheduler", lambda *_: made)
    return made


@pytest.fixture
def pool(world: Any, pool_inputs: Properties) -> Any:
    inputs = {**pool_inputs, "count": 4, "drain": ASKED, "rollout": {}}
    made = world.create("NodePool", inputs)
    world.writes()
    return made


def declared(pool: Any, image: str = UBUNTU, **rollout: Any) -> Properties:
    return {**pool.inputs, "image_id": image, "rollout": rollout}


def images(pool: Any) -> dict[str, str]:
    return {name: node["image_id"] for name, node in pool.nodes.items()}


def watched(world: Any, scheduler: Simulated) -> list[list[str]]:
    """The states of nodes at each look of the scheduler: what it cannot use just then."""
    seen: list[list[str]] = []

    def look(_: str) -> None:
        states = world.states()
        seen.append([name for name in NAMES if states.get(name) != "RUNNING"])

    scheduler.before = look
    return seen


def test_a_plan_tells_the_order_and_the_time(world: Any, pool: Any, scheduler: Simulated) -> None:
    scheduler.run("train-001", 30)
    assert world.diff(pool, declared(pool)) == []
    with world.serving(pool.name):
        (change,) = NodePoolLifecycle().list_changes(pool.outs, declared(pool), pool.id)
    assert (change.path, change.replaces) == ("image_id", False)
    assert change.because == (
        "1 at a time: train-001, train-002, train-003, train-004, those without jobs first; "
        "it takes 14h00m at most"
    )
    with world.serving(pool.name, preview=True):
        found = NodePoolLifecycle().predict_removed_nodes(pool.id, pool.outs, declared(pool))
    assert [(node.name, node.because, len(node.jobs)) for node in found.nodes] == [
        ("train-002", "replaced", 0),
        ("train-003", "replaced", 0),
        ("train-004", "replaced", 0),
        ("train-001", "replaced", 1),
    ]
    assert world.writes() == {}


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_one_at_a_time_and_under_no_job(world: Any, pool: Any, scheduler: Simulated) -> None:
    for name in NAMES[:3]:
        scheduler.run(name, 45)
    ids = {name: node["id"] for name, node in pool.nodes.items()}
    away = watched(world, scheduler)
    ends, deleted = dict(scheduler.ends), {}
    real = scheduler.before

    def look(what: str) -> None:
        real(what)
        for name in away[-1]:
            deleted.setdefault(name, world.now)

    scheduler.before = look
    rolled = world.update(pool, declared(pool))
    assert images(rolled) == dict.fromkeys(NAMES, UBUNTU)
    assert not {node["id"] for node in rolled.nodes.values()} & set(ids.values())
    assert max(map(len, away)) <= 1
    assert all(deleted.get(name, ends[name]) >= ends[name] for name in ends)
    assert (scheduler.cordoned, Drains.beside(world.intents).find(pool.id)) == ([], None)
    assert world.changes(rolled, declared(pool)) == {}


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_share_at_a_time_with_pauses(
    world: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = world.create("NodePool", {**pool_inputs, "count": 4, "rollout": {}})
    world.writes()
    began = world.now
    rolled = world.update(pool, declared(pool, max_unavailable="50%", pause="1h"))
    assert images(rolled) == dict.fromkeys(NAMES, UBUNTU)
    assert world.writes() == {"DELETE /v1/gpu-nodes": 2, "POST /v1/gpu-nodes": 2}
    assert [each for each in world.told if each.startswith("pausing")] == ["pausing for 1h00m"]
    assert world.now - began >= 3600


def test_another_type_of_server(world: Any, pool_inputs: Properties) -> None:
    pool = world.create("NodePool", {**pool_inputs, "rollout": {}})
    news = {**pool.inputs, "server_type_id": A100}
    assert world.diff(pool, news) == []
    rolled = world.update(pool, news)
    assert {node["product_type_id"] for node in rolled.nodes.values()} == {A100}


def test_without_a_rollout_the_pool_is_replaced(world: Any, pool_inputs: Properties) -> None:
    pool = world.create("NodePool", pool_inputs)
    assert world.diff(pool, {**pool_inputs, "image_id": UBUNTU}) == ["image_id"]


def test_a_state_of_before_rollouts(world: Any, pool: Any) -> None:
    """Its nodes do not say what they were made with: as all of them."""
    for node in pool.nodes.values():
        del node["image_id"], node["product_type_id"]
    assert world.changes(pool) == {}
    assert list(world.changes(pool, declared(pool))) == ["image_id"]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_it_stops_where_a_new_node_is_refused(world: Any, pool: Any, scheduler: Simulated) -> None:
    world.fault("POST", "/v1/gpu-nodes$", status=400, count=None)
    stopped = world.update(pool, declared(pool))
    assert "the rollout has stopped: train-001 was refused (" in stopped.reason
    assert "; train-002, train-003, train-004 is as before" in stopped.reason
    assert world.states().keys() == {"train-002", "train-003", "train-004"}
    world.heal()
    rolled = world.update(stopped, declared(pool))
    assert images(rolled) == dict.fromkeys(NAMES, UBUNTU)
    assert scheduler.cordoned == []


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("on_failure", "deletions"), [("stop", 1), ("continue", 4)])
def test_a_refused_deletion_is_a_failure(
    world: Any, pool: Any, scheduler: Simulated, on_failure: str, deletions: int
) -> None:
    world.fault("DELETE", "/v1/gpu-nodes$", status=400, count=None)
    began = world.now
    stopped = world.update(pool, declared(pool, on_failure=on_failure))
    assert "train-001 was not deleted (" in stopped.reason
    assert world.writes() == {"DELETE /v1/gpu-nodes": deletions}
    assert world.now - began < 3600
    assert (len(world.states()), scheduler.cordoned) == (4, [])
    world.heal()
    assert images(world.update(stopped, declared(pool))) == dict.fromkeys(NAMES, UBUNTU)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_node_that_its_scheduler_does_not_know_stays_until_it_does(
    world: Any, pool: Any, scheduler: Simulated
) -> None:
    known = scheduler.nodes_.pop("train-001")
    for name in NAMES:
        scheduler.run(name, 50)
    with pytest.raises(GpuformError, match="knows no node with the name, an id or an address of"):
        world.update(pool, declared(pool))
    assert (world.writes(), scheduler.cordoned) == ({}, [])
    scheduler.nodes_["train-001"] = known
    rolled = world.update(pool, declared(pool))
    assert images(rolled) == dict.fromkeys(NAMES, UBUNTU)
    assert scheduler.cordoned == []


def never_joins(world: Any, pool: Any, scheduler: Simulated) -> None:
    """The scheduler does not know the new train-001."""

    def look(_: str) -> None:
        nodes = world.control("GET", "objects")["scp"]["gpu_nodes"]
        if pool.nodes["train-001"]["id"] not in [each["id"] for each in nodes]:
            scheduler.nodes_.pop("train-001", None)

    scheduler.before = look


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_it_stops_where_a_new_node_does_not_join(
    world: Any, pool: Any, scheduler: Simulated
) -> None:
    never_joins(world, pool, scheduler)
    stopped = world.update(pool, declared(pool))
    assert "train-001 has not joined its scheduler; train-002, train-003, " in stopped.reason
    assert world.writes() == {"DELETE /v1/gpu-nodes": 1, "POST /v1/gpu-nodes": 1}
    assert scheduler.cordoned == []


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_it_may_continue(world: Any, pool: Any, scheduler: Simulated) -> None:
    never_joins(world, pool, scheduler)
    rolled = world.update(pool, declared(pool, max_unavailable=2, on_failure="continue"))
    assert rolled.reason == "train-001 has not joined its scheduler"
    assert images(rolled) == dict.fromkeys(NAMES, UBUNTU)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_killed_one_goes_on(world: Any, pool: Any, scheduler: Simulated) -> None:
    steps = 0

    def die(what: str) -> None:
        nonlocal steps
        if what == "cordon":
            steps += 1
            if steps == 3:
                raise KeyboardInterrupt

    scheduler.before = die
    with pytest.raises(KeyboardInterrupt):
        world.update(pool, declared(pool))
    scheduler.before = lambda _: None
    done = {name for name, image in images(world.refresh(pool)).items() if image == UBUNTU}
    assert len(done) in (1, 2)
    world.writes()
    rolled = world.update(world.refresh(pool), declared(pool))
    assert images(rolled) == dict.fromkeys(NAMES, UBUNTU)
    assert world.writes()["DELETE /v1/gpu-nodes"] == 4 - len(done)
    assert scheduler.cordoned == []


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_failed_nodes_are_within_its_bound(world: Any, pool: Any, scheduler: Simulated) -> None:
    for name in NAMES[:2]:
        world.in_state(pool.nodes[name]["id"], "ERROR")
    pool = world.refresh(pool)
    away = watched(world, scheduler)
    mended = world.update(pool, pool.inputs)
    assert mended.outs["ready"] is True
    assert away[-1] == []
    assert world.writes() == {"DELETE /v1/gpu-nodes": 2, "POST /v1/gpu-nodes": 2}


@pytest.mark.parametrize(
    ("rollout", "path", "said"),
    [
        ({"max_unavailable": 0}, "rollout.max_unavailable", "write 1 or more"),
        ({"max_unavailable": "0%"}, "rollout.max_unavailable", "such as 2, or a share, as 25%"),
        ({"max_unavailable": "120%"}, "rollout.max_unavailable", "such as 2, or a share, as 25%"),
        ({"pause": "soon"}, "rollout.pause", "soon is no time"),
        ({"on_failure": "rollback"}, "rollout.on_failure", "stop"),
    ],
)
def test_what_cannot_be_meant(
    world: Any, pool_inputs: Properties, rollout: Properties, path: str, said: str
) -> None:
    told = world.problems("NodePool", {**pool_inputs, "rollout": rollout})
    assert list(told) == [path]
    assert said in told[path]

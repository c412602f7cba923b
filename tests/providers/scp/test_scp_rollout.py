"""Test rollouts of another image or server type: node by node, after jobs, within limits."""

from typing import Any

import pytest
from support.schedulers.simulated_scheduler import SimulatedScheduler

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
def scheduler(environment: Any, monkeypatch: pytest.MonkeyPatch) -> SimulatedScheduler:
    simulated = SimulatedScheduler(environment.clock, NAMES)
    monkeypatch.setattr(draining, "create_declared_scheduler", lambda *_: simulated)
    return simulated


@pytest.fixture
def pool(environment: Any, pool_inputs: Properties) -> Any:
    inputs = {**pool_inputs, "count": 4, "drain": ASKED, "rollout": {}}
    made = environment.create("NodePool", inputs)
    environment.count_writes()
    return made


def declare_other_image(pool: Any, image: str = UBUNTU, **rollout: Any) -> Properties:
    return {**pool.inputs, "image_id": image, "rollout": rollout}


def list_images(pool: Any) -> dict[str, str]:
    return {name: node["image_id"] for name, node in pool.nodes.items()}


def watch_states(environment: Any, scheduler: SimulatedScheduler) -> list[list[str]]:
    """Record the states of nodes at each query of the scheduler: what it cannot use just then."""
    observed_states: list[list[str]] = []

    def look(_: str) -> None:
        states = environment.list_node_states()
        observed_states.append([name for name in NAMES if states.get(name) != "RUNNING"])

    scheduler.before = look
    return observed_states


def test_the_plan_of_a_rollout_shows_order_and_time(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    scheduler.start_job("train-001", 30)
    assert environment.diff(pool, declare_other_image(pool)) == []
    with environment.use_context(pool.name):
        (change,) = NodePoolLifecycle().list_changes(pool.outs, declare_other_image(pool), pool.id)
    assert (change.path, change.replaces) == ("image_id", False)
    assert change.because == (
        "1 at a time: train-001, train-002, train-003, train-004, those without jobs first; "
        "at most 14h00m"
    )
    with environment.use_context(pool.name, preview=True):
        removed_nodes = NodePoolLifecycle().predict_removed_nodes(
            pool.id, pool.outs, declare_other_image(pool)
        )
    assert [(node.name, node.because, len(node.jobs)) for node in removed_nodes.nodes] == [
        ("train-002", "replaced", 0),
        ("train-003", "replaced", 0),
        ("train-004", "replaced", 0),
        ("train-001", "replaced", 1),
    ]
    assert environment.count_writes() == {}


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_nodes_are_replaced_one_at_a_time_after_their_jobs(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    for name in NAMES[:3]:
        scheduler.start_job(name, 45)
    ids = {name: node["id"] for name, node in pool.nodes.items()}
    away = watch_states(environment, scheduler)
    ends, deleted = dict(scheduler.ends), {}
    real = scheduler.before

    def record_progress(what: str) -> None:
        real(what)
        for name in away[-1]:
            deleted.setdefault(name, environment.now)

    scheduler.before = record_progress
    rolled = environment.update(pool, declare_other_image(pool))
    assert list_images(rolled) == dict.fromkeys(NAMES, UBUNTU)
    assert not {node["id"] for node in rolled.nodes.values()} & set(ids.values())
    assert max(map(len, away)) <= 1
    assert all(deleted.get(name, ends[name]) >= ends[name] for name in ends)
    assert (scheduler.cordoned, Drains.from_intents(environment.intents).find(pool.id)) == (
        [],
        None,
    )
    assert environment.list_changes(rolled, declare_other_image(pool)) == {}


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_share_of_nodes_is_replaced_at_a_time_with_pauses(
    environment: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = environment.create("NodePool", {**pool_inputs, "count": 4, "rollout": {}})
    environment.count_writes()
    began = environment.now
    rolled = environment.update(pool, declare_other_image(pool, max_unavailable="50%", pause="1h"))
    assert list_images(rolled) == dict.fromkeys(NAMES, UBUNTU)
    assert environment.count_writes() == {"DELETE /v1/gpu-nodes": 2, "POST /v1/gpu-nodes": 2}
    assert [message for message in environment.messages if message.startswith("pausing")] == [
        "pausing for 1h00m"
    ]
    assert environment.now - began >= 3600


def test_another_server_type_is_rolled_out(environment: Any, pool_inputs: Properties) -> None:
    pool = environment.create("NodePool", {**pool_inputs, "rollout": {}})
    news = {**pool.inputs, "server_type_id": A100}
    assert environment.diff(pool, news) == []
    rolled = environment.update(pool, news)
    assert {node["product_type_id"] for node in rolled.nodes.values()} == {A100}


def test_without_a_rollout_the_pool_is_replaced(environment: Any, pool_inputs: Properties) -> None:
    pool = environment.create("NodePool", pool_inputs)
    assert environment.diff(pool, {**pool_inputs, "image_id": UBUNTU}) == ["image_id"]


def test_a_state_of_a_version_without_rollouts_plans_nothing(environment: Any, pool: Any) -> None:
    """Nodes of such a state have no record of the inputs that they were created with."""
    for node in pool.nodes.values():
        del node["image_id"], node["product_type_id"]
    assert environment.list_changes(pool) == {}
    assert list(environment.list_changes(pool, declare_other_image(pool))) == ["image_id"]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_rollout_stops_when_a_new_node_is_refused(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    environment.inject_fault("POST", "/v1/gpu-nodes$", status=400, count=None)
    stopped = environment.update(pool, declare_other_image(pool))
    assert "the rollout has stopped: train-001 was refused (" in stopped.reason
    assert "; train-002, train-003, train-004 is unchanged" in stopped.reason
    assert environment.list_node_states().keys() == {"train-002", "train-003", "train-004"}
    environment.remove_faults()
    rolled = environment.update(stopped, declare_other_image(pool))
    assert list_images(rolled) == dict.fromkeys(NAMES, UBUNTU)
    assert scheduler.cordoned == []


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("on_failure", "deletions"), [("stop", 1), ("continue", 4)])
def test_a_refused_deletion_stops_the_rollout(
    environment: Any, pool: Any, scheduler: SimulatedScheduler, on_failure: str, deletions: int
) -> None:
    environment.inject_fault("DELETE", "/v1/gpu-nodes$", status=400, count=None)
    began = environment.now
    stopped = environment.update(pool, declare_other_image(pool, on_failure=on_failure))
    assert "train-001 was not deleted (" in stopped.reason
    assert environment.count_writes() == {"DELETE /v1/gpu-nodes": deletions}
    assert environment.now - began < 3600
    assert (len(environment.list_node_states()), scheduler.cordoned) == (4, [])
    environment.remove_faults()
    assert list_images(environment.update(stopped, declare_other_image(pool))) == dict.fromkeys(
        NAMES, UBUNTU
    )


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_next_node_stays_until_the_new_one_joins_its_scheduler(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    joined_node = scheduler.nodes_by_name.pop("train-001")
    for name in NAMES:
        scheduler.start_job(name, 50)
    with pytest.raises(GpuformError, match="no node has the name, an id or an address of"):
        environment.update(pool, declare_other_image(pool))
    assert (environment.count_writes(), scheduler.cordoned) == ({}, [])
    scheduler.nodes_by_name["train-001"] = joined_node
    rolled = environment.update(pool, declare_other_image(pool))
    assert list_images(rolled) == dict.fromkeys(NAMES, UBUNTU)
    assert scheduler.cordoned == []


def hide_new_node(environment: Any, pool: Any, scheduler: SimulatedScheduler) -> None:
    """Hide the new train-001 from the scheduler."""

    def look(_: str) -> None:
        nodes = environment.call_emulator("GET", "objects")["scp"]["gpu_nodes"]
        if pool.nodes["train-001"]["id"] not in [node["id"] for node in nodes]:
            scheduler.nodes_by_name.pop("train-001", None)

    scheduler.before = look


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_rollout_stops_when_a_new_node_does_not_join(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    hide_new_node(environment, pool, scheduler)
    stopped = environment.update(pool, declare_other_image(pool))
    assert "train-001 has not joined its scheduler; train-002, train-003, " in stopped.reason
    assert environment.count_writes() == {"DELETE /v1/gpu-nodes": 1, "POST /v1/gpu-nodes": 1}
    assert scheduler.cordoned == []


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_on_failure_continue_replaces_the_other_nodes_after_a_failure(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    hide_new_node(environment, pool, scheduler)
    rolled = environment.update(
        pool, declare_other_image(pool, max_unavailable=2, on_failure="continue")
    )
    assert rolled.reason == "train-001 has not joined its scheduler"
    assert list_images(rolled) == dict.fromkeys(NAMES, UBUNTU)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_killed_rollout_is_resumed(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    steps = 0

    def die(what: str) -> None:
        nonlocal steps
        if what == "cordon":
            steps += 1
            if steps == 3:
                raise KeyboardInterrupt

    scheduler.before = die
    with pytest.raises(KeyboardInterrupt):
        environment.update(pool, declare_other_image(pool))
    scheduler.before = lambda _: None
    done = {
        name for name, image in list_images(environment.refresh(pool)).items() if image == UBUNTU
    }
    assert len(done) in (1, 2)
    environment.count_writes()
    rolled = environment.update(environment.refresh(pool), declare_other_image(pool))
    assert list_images(rolled) == dict.fromkeys(NAMES, UBUNTU)
    assert environment.count_writes()["DELETE /v1/gpu-nodes"] == 4 - len(done)
    assert scheduler.cordoned == []


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_failed_nodes_count_against_max_unavailable(
    environment: Any, pool: Any, scheduler: SimulatedScheduler
) -> None:
    for name in NAMES[:2]:
        environment.set_node_state(pool.nodes[name]["id"], "ERROR")
    pool = environment.refresh(pool)
    away = watch_states(environment, scheduler)
    repaired = environment.update(pool, pool.inputs)
    assert repaired.outs["ready"] is True
    assert away[-1] == []
    assert environment.count_writes() == {"DELETE /v1/gpu-nodes": 2, "POST /v1/gpu-nodes": 2}


@pytest.mark.parametrize(
    ("rollout", "path", "message"),
    [
        ({"max_unavailable": 0}, "rollout.max_unavailable", "write 1 or more"),
        (
            {"max_unavailable": "0%"},
            "rollout.max_unavailable",
            "such as 2, or a share, such as 25%",
        ),
        (
            {"max_unavailable": "120%"},
            "rollout.max_unavailable",
            "such as 2, or a share, such as 25%",
        ),
        ({"pause": "soon"}, "rollout.pause", "soon is not a duration"),
        ({"on_failure": "rollback"}, "rollout.on_failure", "stop"),
    ],
)
def test_contradictory_rollouts_are_refused(
    environment: Any, pool_inputs: Properties, rollout: Properties, path: str, message: str
) -> None:
    problems = environment.find_problems("NodePool", {**pool_inputs, "rollout": rollout})
    assert list(problems) == [path]
    assert message in problems[path]

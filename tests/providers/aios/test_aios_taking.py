"""Entries that leave the registry: their nodes finish their jobs first, and take jobs again."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
from aios_document import DECLARED
from simulated_scheduler import Simulated

from gpuform.providers.aios import entry_removal
from gpuform.providers.context import use_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.records import Drains

ID = "cluster-west-vision-001"
ASKED = {"kubernetes": {"kubeconfig": "kubeconfig"}}
NODES = [entry["id"] for entry in DECLARED["nodes"]["node_data"]]
FIRST = NODES[0]


@pytest.fixture
def scheduler(registry: Any, monkeypatch: pytest.MonkeyPatch) -> Simulated:
    clock = SimpleNamespace(now=lambda: registry.admin("GET", "clock")["now"])
    made = Simulated(clock, NODES)
    monkeypatch.setattr(entry_removal, "create_declared_scheduler", lambda *_: made)
    return made


@pytest.fixture
def whole() -> Any:
    """A record that declares its nodes."""
    return {**copy.deepcopy(DECLARED), "drain": ASKED}


@pytest.fixture
def alone(cluster: Any, gpu_node: Any) -> Any:
    """A node that is a resource of its own."""
    cluster.up({name: value for name, value in DECLARED.items() if name != "nodes"})
    entry = dict(DECLARED["nodes"]["node_data"][0])
    made = gpu_node("one")
    made.up({"cluster_id": ID, "node_id": entry.pop("id"), **entry, "drain": ASKED})
    return made


def entries(registry: Any) -> list[str]:
    return [entry["id"] for entry in registry.record(ID)["nodes"]["nodeData"]]


def without_first(declared: Any) -> Any:
    left = copy.deepcopy(declared)
    del left["nodes"]["node_data"][0]
    return left


def is_settled(registry: Any, thing: Any, scheduler: Simulated) -> bool:
    return not scheduler.cordoned and Drains.from_intents(registry.intents).find(thing.id) is None


def test_a_node_finishes_its_job(registry: Any, alone: Any, scheduler: Simulated) -> None:
    scheduler.run(FIRST, 20)
    began = scheduler.clock.now()
    alone.delete()
    assert scheduler.clock.now() - began >= 20 * 60
    assert entries(registry) == []
    assert is_settled(registry, alone, scheduler)


def test_a_node_that_must_not_go_stays(registry: Any, alone: Any, scheduler: Simulated) -> None:
    scheduler.run(FIRST, 300)
    alone.state["drain"] = {**ASKED, "on_busy": "fail"}
    registry.writes()
    with pytest.raises(GpuformError, match=f"node {ID}/{FIRST}: no node was removed: jobs run"):
        alone.delete()
    assert (registry.writes(), entries(registry)) == ([], [FIRST])
    assert is_settled(registry, alone, scheduler)


def test_a_plan_tells_the_jobs(
    registry: Any, alone: Any, cluster: Any, scheduler: Simulated
) -> None:
    scheduler.run(FIRST, 20)
    with use_context(registry.call()):
        found = alone.lifecycle.predict_nodes_removed_with_object(alone.id, alone.state, "deleted")
    assert [(node.name, len(node.jobs)) for node in found.nodes] == [(FIRST, 1)]


def test_an_entry_of_a_record_finishes_its_job(
    registry: Any, cluster: Any, whole: Any, scheduler: Simulated
) -> None:
    cluster.up(whole)
    scheduler.run(FIRST, 20)
    with use_context(registry.call()):
        inputs = cluster.check(without_first(whole))
        found = cluster.lifecycle.predict_removed_nodes(cluster.id, cluster.state, inputs)
    assert [(node.name, len(node.jobs)) for node in found.nodes] == [(FIRST, 1)]
    began = scheduler.clock.now()
    cluster.up(without_first(whole))
    assert scheduler.clock.now() - began >= 20 * 60
    assert entries(registry) == NODES[1:]
    assert is_settled(registry, cluster, scheduler)
    assert cluster.planned(without_first(whole)) == []


def test_the_end_of_a_record_waits_for_all(
    registry: Any, cluster: Any, whole: Any, scheduler: Simulated
) -> None:
    cluster.up(whole)
    scheduler.run(NODES[-1], 20)
    began = scheduler.clock.now()
    cluster.delete()
    assert scheduler.clock.now() - began >= 20 * 60
    assert is_settled(registry, cluster, scheduler)


def test_what_a_killed_run_has_cordoned_is_released(
    registry: Any, alone: Any, scheduler: Simulated
) -> None:
    def die(what: str) -> None:
        if what == "uncordon":
            raise KeyboardInterrupt

    scheduler.before = die
    with pytest.raises(KeyboardInterrupt):
        alone.delete()
    scheduler.before = lambda _: None
    assert (entries(registry), scheduler.cordoned) == ([], [FIRST])
    alone.delete()
    assert is_settled(registry, alone, scheduler)


def test_nobody_is_declared(registry: Any, cluster: Any) -> None:
    cluster.up(DECLARED)
    told: list[str] = []
    call = registry.call()
    call.on_skipped_check = told.append
    with use_context(call):
        assert (
            cluster.lifecycle.predict_nodes_removed_with_object(
                cluster.id, cluster.state, "deleted"
            )
            is None
        )
    assert told == []
    cluster.delete()

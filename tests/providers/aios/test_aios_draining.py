"""Test that nodes are drained before their entries leave the registry, then uncordoned."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
from support.platforms.aios_document import DECLARED
from support.platforms.provider_contexts import change_context
from support.schedulers.simulated_scheduler import SimulatedScheduler

from gpuform.providers.aios import record_changes
from gpuform.providers.context import use_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.records import Drains

ID = "cluster-west-vision-001"
ASKED = {"kubernetes": {"kubeconfig": "kubeconfig"}}
NODES = [entry["id"] for entry in DECLARED["nodes"]["node_data"]]
FIRST = NODES[0]


@pytest.fixture
def scheduler(registry: Any, monkeypatch: pytest.MonkeyPatch) -> SimulatedScheduler:
    clock = SimpleNamespace(now=lambda: registry.call_emulator("GET", "clock")["now"])
    simulated = SimulatedScheduler(clock, NODES)
    monkeypatch.setattr(record_changes, "create_declared_scheduler", lambda *_: simulated)
    return simulated


@pytest.fixture
def declared_with_nodes() -> Any:
    """Declare a record with its nodes."""
    return {**copy.deepcopy(DECLARED), "drain": ASKED}


@pytest.fixture
def separate_node(cluster: Any, gpu_node: Any) -> Any:
    """Create a node as a separate resource."""
    cluster.apply({name: value for name, value in DECLARED.items() if name != "nodes"})
    entry = dict(DECLARED["nodes"]["node_data"][0])
    made = gpu_node("one")
    made.apply({"cluster_id": ID, "node_id": entry.pop("id"), **entry, "drain": ASKED})
    return made


def list_entry_ids(registry: Any) -> list[str]:
    return [entry["id"] for entry in registry.get_record(ID)["nodes"]["nodeData"]]


def drop_first_node(declared: Any) -> Any:
    remaining = copy.deepcopy(declared)
    del remaining["nodes"]["node_data"][0]
    return remaining


def is_drain_finished(registry: Any, resource: Any, scheduler: SimulatedScheduler) -> bool:
    return (
        not scheduler.cordoned and Drains.from_intents(registry.intents).find(resource.id) is None
    )


def test_deleting_a_node_waits_for_its_job(
    registry: Any, separate_node: Any, scheduler: SimulatedScheduler
) -> None:
    scheduler.start_job(FIRST, 20)
    began = scheduler.clock.now()
    separate_node.delete()
    assert scheduler.clock.now() - began >= 20 * 60
    assert list_entry_ids(registry) == []
    assert is_drain_finished(registry, separate_node, scheduler)


def test_a_busy_node_stays_with_policy_fail(
    registry: Any, separate_node: Any, scheduler: SimulatedScheduler
) -> None:
    scheduler.start_job(FIRST, 300)
    separate_node.state["drain"] = {**ASKED, "on_busy": "fail"}
    registry.list_writes()
    with pytest.raises(GpuformError, match=f"node {ID}/{FIRST}: no node was removed: jobs run"):
        separate_node.delete()
    assert (registry.list_writes(), list_entry_ids(registry)) == ([], [FIRST])
    assert is_drain_finished(registry, separate_node, scheduler)


def test_the_plan_of_a_deletion_shows_the_nodes_jobs(
    registry: Any, separate_node: Any, cluster: Any, scheduler: SimulatedScheduler
) -> None:
    scheduler.start_job(FIRST, 20)
    with use_context(registry.create_context()):
        removed_nodes = separate_node.lifecycle.predict_nodes_removed_with_object(
            separate_node.id, separate_node.state, "deleted"
        )
    assert [(node.name, len(node.jobs)) for node in removed_nodes.nodes] == [(FIRST, 1)]


def test_removing_an_entry_of_a_record_waits_for_its_job(
    registry: Any, cluster: Any, declared_with_nodes: Any, scheduler: SimulatedScheduler
) -> None:
    cluster.apply(declared_with_nodes)
    scheduler.start_job(FIRST, 20)
    with use_context(registry.create_context()):
        inputs = cluster.check(drop_first_node(declared_with_nodes))
        removed_nodes = cluster.lifecycle.predict_removed_nodes(cluster.id, cluster.state, inputs)
    assert [(node.name, len(node.jobs)) for node in removed_nodes.nodes] == [(FIRST, 1)]
    began = scheduler.clock.now()
    cluster.apply(drop_first_node(declared_with_nodes))
    assert scheduler.clock.now() - began >= 20 * 60
    assert list_entry_ids(registry) == NODES[1:]
    assert is_drain_finished(registry, cluster, scheduler)
    assert cluster.list_planned_paths(drop_first_node(declared_with_nodes)) == []


def test_deleting_a_record_waits_for_the_jobs_of_all_nodes(
    registry: Any, cluster: Any, declared_with_nodes: Any, scheduler: SimulatedScheduler
) -> None:
    cluster.apply(declared_with_nodes)
    scheduler.start_job(NODES[-1], 20)
    began = scheduler.clock.now()
    cluster.delete()
    assert scheduler.clock.now() - began >= 20 * 60
    assert is_drain_finished(registry, cluster, scheduler)


def test_nodes_cordoned_by_a_killed_run_are_uncordoned(
    registry: Any, separate_node: Any, scheduler: SimulatedScheduler
) -> None:
    def kill_at_uncordon(what: str) -> None:
        if what == "uncordon":
            raise KeyboardInterrupt

    scheduler.before = kill_at_uncordon
    with pytest.raises(KeyboardInterrupt):
        separate_node.delete()
    scheduler.before = lambda _: None
    assert (list_entry_ids(registry), scheduler.cordoned) == ([], [FIRST])
    separate_node.delete()
    assert is_drain_finished(registry, separate_node, scheduler)


def test_without_a_scheduler_nothing_is_drained(registry: Any, cluster: Any) -> None:
    cluster.apply(DECLARED)
    warnings: list[str] = []
    call = registry.create_context()
    change_context(call, on_skipped_check=warnings.append)
    with use_context(call):
        removed = cluster.lifecycle.predict_nodes_removed_with_object(
            cluster.id, cluster.state, "deleted"
        )
        assert not removed.has_known_jobs
        assert {(node.because, node.gpus) for node in removed.nodes} == {("deleted", 0)}
    assert warnings == []
    cluster.delete()

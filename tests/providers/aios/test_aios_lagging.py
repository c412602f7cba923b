"""Test a registry that lags, loses answers and has other writers: nothing doubled or lost."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.platforms.provider_contexts import change_context

from gpuform.providers.aios.client import AiosClient
from gpuform.providers.aios.cluster import ClusterLifecycle
from gpuform.providers.aios.records import SENT_EVIDENCE, compare_properties
from gpuform.providers.context import use_context
from gpuform.providers.context.run_context import mount_transport
from gpuform.providers.errors import GpuformError

from .lagging_courses import EAST, NODE, RECORD, WEST, Course, Stack, build_entry
from .lagging_registry import LaggingRegistry, compute_sums, find_wrong_sums

LISTED = {**RECORD, "cluster_id": WEST, "nodes": {"node_data": [{"id": "node-1", **NODE}]}}


@pytest.fixture
def registry() -> LaggingRegistry:
    return LaggingRegistry(seed=1)


@pytest.fixture
def stack(
    registry: LaggingRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stack]:
    stack = Stack("alone", registry, tmp_path)
    with (
        mount_transport(stack.url, registry.create_transport()),
        stack.use_environment(monkeypatch),
    ):
        yield stack


@pytest.fixture
def west(stack: Stack, registry: LaggingRegistry) -> Any:
    """Create the record to which others add nodes, 1000 seconds ago."""
    cluster = stack.get_resource(WEST, ClusterLifecycle)
    cluster.apply({**RECORD, "cluster_id": WEST})
    registry.clock.moment += 1000
    return cluster


def declare_node(node_id: str = "node-1", **changes: Any) -> Any:
    return {"cluster_id": WEST, "node_id": node_id, **NODE, **changes}


def list_entries(registry: LaggingRegistry) -> list[Any]:
    record = registry.get_record(WEST)
    assert record is not None
    assert find_wrong_sums(record) == []
    return list(record["nodes"]["nodeData"])


def list_entry_ids(registry: LaggingRegistry) -> list[str]:
    return [entry["id"] for entry in list_entries(registry)]


def add_node_of_others(registry: LaggingRegistry, node_id: str = "theirs") -> None:
    entry = build_entry({"id": node_id, **NODE})
    sums = dict.fromkeys(("nodes.count", "gpus.count", "storage.disks"), 1)
    assert registry.update(WEST, {"$push": {"nodes.nodeData": entry}, "$inc": sums})[0] == 200


@pytest.mark.parametrize("lost", ["lost_before", "lost_after"])
@pytest.mark.parametrize("has_entry_ids", [True, False])
def test_a_node_is_added_once_if_the_answer_is_lost_while_reads_lag(
    west: Any, stack: Stack, registry: LaggingRegistry, lost: str, has_entry_ids: bool
) -> None:
    registry.has_entry_ids = has_entry_ids
    registry.fixed_lag, registry.next_write = 8.0, lost
    node = stack.get_resource("a")
    try:
        node.apply(declare_node())
    except GpuformError:
        assert lost == "lost_before"
        node.apply(declare_node())
    assert node.state["ready"] is True
    assert list_entry_ids(registry) == ["node-1"]


@pytest.mark.parametrize("lost", ["lost_before", "lost_after"])
def test_a_list_has_each_node_once_if_an_answer_is_lost_while_reads_lag(
    stack: Stack, registry: LaggingRegistry, lost: str
) -> None:
    cluster = stack.get_resource(WEST, ClusterLifecycle)
    cluster.apply(LISTED)
    registry.clock.moment += 1000
    registry.fixed_lag, registry.next_write = 8.0, lost
    more = [*LISTED["nodes"]["node_data"], {"id": "node-2", **NODE}]
    cluster.apply({**LISTED, "nodes": {"node_data": more}})
    assert list_entry_ids(registry) == ["node-1", "node-2"]
    registry.next_write = lost
    cluster.apply({**LISTED, "nodes": {"node_data": more[1:]}})
    assert list_entry_ids(registry) == ["node-2"]


@pytest.mark.parametrize("lost", ["lost_before", "lost_after"])
def test_an_entry_is_changed_once_if_the_answer_is_lost_while_reads_lag(
    west: Any, stack: Stack, registry: LaggingRegistry, lost: str
) -> None:
    node = stack.get_resource("a")
    node.apply(declare_node())
    registry.fixed_lag, registry.next_write = 8.0, lost
    node.apply(declare_node(memory=7))
    assert node.state["ready"] is True
    assert [entry["memory"] for entry in list_entries(registry)] == [7]


def test_a_value_set_by_others_during_a_lost_change_is_not_restored(
    west: Any, stack: Stack, registry: LaggingRegistry
) -> None:
    node = stack.get_resource("a")
    node.apply(declare_node())
    add_node_of_others(registry)

    def change_theirs() -> None:
        if "$set" in (registry.requests[-1][2] or {}):
            registry.update(WEST, {"$set": {"nodes.nodeData.1.memory": 7, "memory": 7}})

    registry.others, registry.faults.others = change_theirs, 1.0
    registry.next_write = "lost_before"
    node.apply(declare_node(memory=7))
    assert [entry["memory"] for entry in list_entries(registry)] == [7, 7]


def test_a_value_set_by_others_on_a_moved_node_during_a_lost_change_is_not_restored(
    west: Any, stack: Stack, registry: LaggingRegistry
) -> None:
    add_node_of_others(registry, "first")
    node = stack.get_resource("a")
    node.apply(declare_node())
    add_node_of_others(registry, "last")

    def move_and_change_the_last_node() -> None:
        if "nodes.nodeData.1.memory" in (registry.requests[-1][2] or {}).get("$set", {}):
            registry.faults.others = 0.0
            _, record = registry.update(WEST, {"$pull": {"nodes.nodeData": {"id": "first"}}})
            own, last = record["nodes"]["nodeData"]
            sums = compute_sums([own, {**last, "memory": 7}])
            registry.update(WEST, {"$set": {"nodes.nodeData.1.memory": 7, **sums}})

    registry.others, registry.faults.others = move_and_change_the_last_node, 1.0
    registry.next_write = "lost_before"
    node.apply(declare_node(memory=7))
    assert "gpuform could not restore the values of last" in str(node.state["not_ready_reason"])
    memories = {entry["id"]: entry["memory"] for entry in list_entries(registry)}
    assert memories == {"node-1": NODE["memory"], "last": 7}


def test_overwritten_values_of_a_moved_node_are_restored_even_if_the_removed_node_returns(
    west: Any, stack: Stack, registry: LaggingRegistry
) -> None:
    add_node_of_others(registry, "first")
    node = stack.get_resource("a")
    node.apply(declare_node())
    add_node_of_others(registry, "last")

    def add_the_first_node_again() -> None:
        if "nodes.nodeData.1.memory" in (registry.requests[-1][2] or {}).get("$set", {}):
            registry.faults.others = 0.0
            registry.update(WEST, {"$pull": {"nodes.nodeData": {"id": "first"}}})
            registry.update(
                WEST, {"$push": {"nodes.nodeData": build_entry({"id": "first", **NODE})}}
            )

    registry.others, registry.faults.others = add_the_first_node_again, 1.0
    node.apply(declare_node(memory=7))
    assert "the values of last were overwritten; gpuform restored the values" in str(
        node.state["not_ready_reason"]
    )
    memories = {entry["id"]: entry["memory"] for entry in list_entries(registry)}
    assert memories == dict.fromkeys(("node-1", "last", "first"), NODE["memory"])


def test_an_unfinished_change_is_undone_by_a_reverted_declaration_while_reads_lag(
    west: Any, stack: Stack, registry: LaggingRegistry
) -> None:
    """The change takes effect without an answer; then the declaration is reverted."""
    node = stack.get_resource("a")
    node.apply(declare_node())
    registry.clock.moment += 1000

    def answer_no_more() -> None:
        if "$set" in (registry.requests[-1][2] or {}):
            registry.faults.lost_after = 1.0

    registry.others, registry.faults.others = answer_no_more, 1.0
    node.apply(declare_node(memory=7))
    assert node.state["ready"] is False
    assert [entry["memory"] for entry in list_entries(registry)] == [7]
    registry.faults.lost_after = registry.faults.others = 0.0
    registry.fixed_lag = 600.0
    node.apply(declare_node())
    assert node.state["ready"] is True
    assert [entry["memory"] for entry in list_entries(registry)] == [NODE["memory"]]


def test_a_record_that_is_not_shown_yet_is_waited_for(
    stack: Stack, registry: LaggingRegistry
) -> None:
    registry.fixed_lag = 20.0
    cluster, node = stack.get_resource(WEST, ClusterLifecycle), stack.get_resource("a")
    cluster.apply({**RECORD, "cluster_id": WEST})
    assert cluster.state["ready"] is True
    node.apply(declare_node())
    assert list_entry_ids(registry) == ["node-1"]


def test_a_node_that_is_not_shown_yet_is_not_forgotten(
    west: Any, stack: Stack, registry: LaggingRegistry
) -> None:
    node = stack.get_resource("a")
    node.apply(declare_node())
    registry.fixed_lag = 20.0
    assert node.refresh() is True
    registry.update(WEST, {"$pull": {"nodes.nodeData": {"id": "node-1"}}})
    registry.clock.moment += 21
    assert node.refresh() is False


@pytest.mark.parametrize("first", [[], [declare_node(memory=7)]], ids=["as before", "and changed"])
def test_a_node_created_again_by_others_is_not_the_states_node(
    west: Any, stack: Stack, registry: LaggingRegistry, first: list[Any]
) -> None:
    node = stack.get_resource("a")
    node.apply(declare_node())
    registry.clock.moment += 1000
    registry.fixed_lag = 20.0
    node.delete()
    node.id, node.state = "", {}
    for declared in (*first, declare_node()):
        node.apply(declared)
    (entry,) = list_entries(registry)
    assert node.state["object_id"] == entry["_id"]
    assert node.refresh() is True


def test_a_refresh_with_an_older_answer_keeps_the_changed_node(
    west: Any, stack: Stack, registry: LaggingRegistry
) -> None:
    node = stack.get_resource("a")
    node.apply(declare_node())
    registry.clock.moment += 1000
    node.apply(declare_node(memory=7))
    registry.fixed_lag = 20.0
    assert node.refresh() is True
    assert node.state["memory"] == 7
    node.apply(declare_node())
    assert [entry["memory"] for entry in list_entries(registry)] == [NODE["memory"]]


def test_a_refresh_with_an_older_answer_keeps_the_changed_record(
    stack: Stack, registry: LaggingRegistry
) -> None:
    cluster = stack.get_resource(WEST, ClusterLifecycle)
    cluster.apply(LISTED)
    registry.clock.moment += 1000
    cluster.apply({**LISTED, "tags": ["new"]})
    registry.fixed_lag = 20.0
    assert cluster.refresh() is True
    assert cluster.state["tags"] == ["new"]


def test_a_node_that_somebody_adds_at_the_same_moment_is_not_doubled(
    west: Any, stack: Stack, registry: LaggingRegistry
) -> None:
    def add_before_ours() -> None:
        if "$addToSet" in (registry.requests[-1][2] or {}):
            registry.update(WEST, {"$push": {"nodes.nodeData": theirs}})

    theirs = build_entry({"id": "node-1", **NODE, "memory": 1})
    registry.others, registry.faults.others = add_before_ours, 1.0
    with pytest.raises(GpuformError, match="already had a node of that id"):
        stack.get_resource("a").apply(declare_node())
    record = registry.get_record(WEST)
    assert record is not None
    assert [entry["memory"] for entry in record["nodes"]["nodeData"]] == [1]


def test_the_sums_count_nodes_that_the_record_does_not_declare(
    stack: Stack, registry: LaggingRegistry
) -> None:
    cluster = stack.get_resource(WEST, ClusterLifecycle)
    cluster.apply(LISTED)
    add_node_of_others(registry)
    more = [*LISTED["nodes"]["node_data"], {"id": "node-2", **NODE}]
    cluster.apply({**LISTED, "nodes": {"node_data": more}})
    assert list_entry_ids(registry) == ["node-1", "theirs", "node-2"]


def test_a_number_that_a_node_does_not_report_is_not_summed_as_zero(
    west: Any, stack: Stack, registry: LaggingRegistry
) -> None:
    theirs = {**build_entry({"id": "theirs", **NODE})}
    del theirs["swap"]
    body = {"$push": {"nodes.nodeData": theirs}, "$set": {"swap": 999}}
    registry.update(WEST, body)
    stack.get_resource("a").apply(declare_node())
    record = registry.get_record(WEST)
    assert record is not None
    assert (record["swap"], record["nodes"]["count"]) == (999, 2)
    assert any("theirs has no swap" in warning for warning in stack.warnings)


def test_a_query_without_nodes_does_not_make_a_node_gone(
    west: Any, stack: Stack, registry: LaggingRegistry
) -> None:
    node = stack.get_resource("a")
    node.apply(declare_node())
    registry.query_has_nodes = False
    for _ in range(2):  # the second one reads the shared list
        call = stack.create_context("a")
        change_context(call, fresh_since=1.0)
        with use_context(call):
            assert node.lifecycle.read(node.id, node.state).id == node.id


def test_a_record_whose_nodes_are_not_listed_is_not_deleted(
    west: Any, registry: LaggingRegistry
) -> None:
    add_node_of_others(registry)
    with pytest.raises(GpuformError, match="this Cluster contains theirs, created by others"):
        west.delete()
    registry.update(WEST, {"$unset": {"nodes": ""}})
    with pytest.raises(GpuformError, match="the answer lists no nodes of the record"):
        west.delete()
    assert registry.get_record(WEST) is not None


def test_a_host_without_object_list_deletes_its_node_and_then_its_record(
    west: Any, stack: Stack, registry: LaggingRegistry
) -> None:
    """Under Pulumi's hosts, a GET still shows the deleted node when the record is deleted."""
    node = stack.get_resource("a")
    node.apply(declare_node())
    registry.clock.moment += 1000
    registry.fixed_lag = 20.0
    node.delete()
    with use_context(replace(stack.create_context(WEST), belongs_to_stack=lambda _id: False)):
        west.lifecycle.delete(west.id, west.state)
    assert registry.get_record(WEST) is None


@pytest.mark.parametrize("closes", [True, False])
def test_a_parser_that_refuses_get_counts_as_reachable(
    registry: LaggingRegistry, closes: bool
) -> None:
    """The platform's document has no GET for the Parser's path."""

    def parser(request: Any) -> Any:
        if closes:
            raise httpx.ReadError("closed", request=request)
        return httpx.Response(404, text="404 page not found", request=request)

    def serve(request: Any) -> Any:
        return parser(request) if "/api/" in str(request.url) else registry.serve(request)

    client = AiosClient("http://aios.test", "http://aios.test", httpx.MockTransport(serve))
    assert client.send_probe().address == "http://aios.test"
    assert AiosClient("http://aios.test", None, httpx.MockTransport(serve)).send_probe()


def test_a_record_without_the_sent_values_is_not_adopted() -> None:
    sent = {"cluster_metadata": {"name": "west", "additional_info": {"join": "token"}}}
    assert compare_properties({**sent, "tags": ["more"]}, sent) == SENT_EVIDENCE
    assert compare_properties({"cluster_metadata": {"name": "west"}}, sent) != SENT_EVIDENCE


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300))
def test_random_runs_of_two_stacks_beside_another_writer_lose_and_double_no_node(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = Course(seed, tmp_path, monkeypatch)
    course.play()
    for cluster_id in (WEST, EAST):
        record = course.registry.get_record(cluster_id)
        assert record is None or find_wrong_sums(record) == [], course.describe()

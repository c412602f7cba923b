"""Test one node of a record: its entry and the sums change together, with other writers."""

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.platforms.aios_document import CLUSTER, DECLARED, pair_with_types, remove_mongo_keys

from gpuform.providers.aios.client import get_client
from gpuform.providers.context import use_context
from gpuform.providers.emulator.aios.mongo import apply_update
from gpuform.providers.errors import GpuformError, NotAllowed
from gpuform.providers.operations import Settings
from gpuform.schemas.aios import wire
from gpuform.schemas.aios.parts import NODE_COUNT, SUM_PATHS, get_value, sum_declared_nodes
from gpuform.schemas.aios.updates import build_node_addition, build_node_change, build_node_removal
from gpuform.schemas.aios.wire import entry_to_declared

ID = "cluster-west-vision-001"
PATH = f"/clusters/{ID}"
ALONE = {name: value for name, value in DECLARED.items() if name != "nodes"}
FIRST, SECOND = DECLARED["nodes"]["node_data"]


def declare_node(entry: Any, **changes: Any) -> Any:
    """Declare a node of the example as a resource of its own."""
    own = {name: value for name, value in copy.deepcopy(entry).items() if name != "id"}
    return {"cluster_id": ID, "node_id": entry["id"], **own, **changes}


def test_the_documents_nodes_form_the_documents_record(
    cluster: Any, gpu_node: Any, registry: Any
) -> None:
    cluster.apply(ALONE)
    registry.list_writes()
    first, second = gpu_node("one"), gpu_node("two")
    first.apply(declare_node(FIRST))
    ((method, path, body),) = registry.list_writes()
    assert (method, path, set(body)) == ("PUT", PATH, {"$addToSet", "$set"})
    assert pair_with_types(body["$addToSet"]["nodes.nodeData"]) == pair_with_types(
        CLUSTER["nodes"]["nodeData"][0]
    )
    assert body["$set"] == {
        "nodes.count": 1,
        "gpus.count": 2,
        "gpus.memory": 32768,
        "vcpus.count": 32,
        "memory": 131072,
        "swap": 8192,
        "storage.disks": 2,
        "storage.size": 1048576,
        "network.interfaces": 2,
        "network.txBandwidth": 10000,
        "network.rxBandwidth": 10000,
    }
    second.apply(declare_node(SECOND))
    assert pair_with_types(remove_mongo_keys(registry.get_record(ID))) == pair_with_types(CLUSTER)
    assert first.id == f"{ID}/node-1"
    for stored_resource in (cluster, first, second):
        assert stored_resource.refresh() is True
    assert first.list_planned_paths(declare_node(FIRST)) == []
    assert cluster.list_planned_paths(ALONE) == []


def test_a_changed_entry_is_set_in_place_with_its_sum(
    cluster: Any, gpu_node: Any, registry: Any
) -> None:
    cluster.apply(ALONE)
    first, second = gpu_node("one"), gpu_node("two")
    first.apply(declare_node(FIRST))
    second.apply(declare_node(SECOND))
    registry.list_writes()
    changed = declare_node(SECOND, memory=60000)
    assert second.apply(changed) == ["memory"]
    body = {"$set": {"nodes.nodeData.1.memory": 60000, "memory": 131072 + 60000}}
    assert registry.list_writes() == [("PUT", PATH, body)]
    assert registry.get_record(ID)["memory"] == 131072 + 60000
    assert second.list_planned_paths(changed) == []


def test_a_deletion_pulls_the_entry_and_lowers_the_sums(
    cluster: Any, gpu_node: Any, registry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.apply(ALONE)
    first, second = gpu_node("one"), gpu_node("two")
    first.apply(declare_node(FIRST))
    second.apply(declare_node(SECOND))
    with use_context(registry.create_context()):
        first.lifecycle.check_deletion(first.state)
    assert "the hardware remains" in registry.warnings[0]
    first.delete()
    record = registry.get_record(ID)
    assert [entry["id"] for entry in record["nodes"]["nodeData"]] == ["node-2"]
    assert (record["nodes"]["count"], record["gpus"]["count"]) == (1, 1)
    registry.list_writes()
    first.delete()
    assert registry.list_writes() == []
    assert first.refresh() is False
    with pytest.raises(NotAllowed, match="this Cluster contains node-2, created by others"):
        cluster.delete()
    monkeypatch.setenv("GPUFORM_ALLOW", "destroy-others")
    cluster.delete()
    second.delete()
    assert second.refresh() is False


@pytest.mark.parametrize("when", ["create", "update", "delete"])
@pytest.mark.parametrize("fault", [{"drop": "after"}, {"drop": "before"}, {"status": 503}])
def test_a_lost_answer_adds_nothing_to_the_sums_twice(
    cluster: Any, gpu_node: Any, registry: Any, when: str, fault: Any
) -> None:
    cluster.apply(ALONE)
    node = gpu_node("one")
    if when != "create":
        node.apply(declare_node(FIRST))
    registry.inject_fault("PUT", PATH, **fault)
    if when == "delete":
        node.delete()
        expected = (0, 0, 0)
    else:
        memory = 131072 if when == "create" else 7
        declared = declare_node(FIRST, memory=memory)
        try:
            node.apply(declared)
        except GpuformError:  # the result of its create is unknown: the next run looks again
            node.apply(declared)
        expected = (1, 2, memory)
    record = registry.get_record(ID)
    sums = (record["nodes"]["count"], record["gpus"]["count"], record["memory"])
    assert sums == expected
    assert len(record["nodes"]["nodeData"]) == expected[0]


@pytest.mark.slow
def test_sums_are_right_after_twenty_concurrent_creates(
    cluster: Any, gpu_node: Any, registry: Any
) -> None:
    cluster.apply(ALONE)
    nodes = [gpu_node(f"n{at}") for at in range(20)]

    def create_and_delete(at: int) -> None:
        entry = {**SECOND, "id": f"n{at}"}
        nodes[at].apply(declare_node(entry))
        nodes[at].apply(declare_node(entry, swap=at))
        if at % 2:
            nodes[at].delete()

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(create_and_delete, range(20)))
    record = registry.get_record(ID)
    assert record["nodes"]["count"] == len(record["nodes"]["nodeData"]) == 10
    assert record["gpus"]["count"] == 10
    assert record["swap"] == sum(range(0, 20, 2))
    swaps = {
        stored_entry["id"]: stored_entry["swap"] for stored_entry in record["nodes"]["nodeData"]
    }
    assert swaps == {f"n{at}": at for at in range(0, 20, 2)}


def test_a_node_of_a_missing_record_is_refused(gpu_node: Any, registry: Any) -> None:
    with pytest.raises(GpuformError, match=r"cluster .* not found in the registry") as caught:
        gpu_node("one").apply(declare_node(FIRST))
    assert "declare it as an aios.Cluster" in str(caught.value)
    assert registry.intents.list_all() == []


def test_an_existing_entry_is_not_adopted(cluster: Any, gpu_node: Any, registry: Any) -> None:
    cluster.apply(DECLARED)
    registry.list_writes()
    with pytest.raises(GpuformError, match="already has a GpuNode named 'node-1'"):
        gpu_node("one").apply(declare_node(FIRST))
    assert registry.list_writes() == []


def test_the_values_of_a_moved_entry_are_restored(
    cluster: Any, gpu_node: Any, registry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody removes the first node just before the second one is changed by its position."""
    cluster.apply(ALONE)
    first, second, third = gpu_node("one"), gpu_node("two"), gpu_node("three")
    first.apply(declare_node(FIRST))
    second.apply(declare_node(SECOND))
    third.apply(declare_node({**SECOND, "id": "node-3"}, memory=333))
    client = get_client(Settings())
    update = client.update_cluster

    def remove_first_node(cluster_id: str, request: Any) -> Any:
        if (
            request.entry_changes
            and registry.get_record(ID)["nodes"]["nodeData"][0]["id"] == "node-1"
        ):
            registry.send_request("PUT", PATH, {"$pull": {"nodes.nodeData": {"id": "node-1"}}})
        return update(cluster_id, request)

    monkeypatch.setattr(client, "update_cluster", remove_first_node)
    assert second.apply(declare_node(SECOND, memory=7)) == ["memory"]
    assert second.state["ready"] is False
    reason = second.state["not_ready_reason"]
    assert f"node-2 of cluster {ID} was not changed" in reason
    assert "the values of node-3 were overwritten; gpuform restored the values" in reason
    record = registry.get_record(ID)
    memories = {entry["id"]: entry["memory"] for entry in record["nodes"]["nodeData"]}
    assert memories == {"node-2": SECOND["memory"], "node-3": 333}
    assert (record["memory"], record["nodes"]["count"]) == (SECOND["memory"] + 333, 2)
    assert second.apply(declare_node(SECOND, memory=7)) == ["memory"]
    assert second.state["ready"] is True
    assert registry.get_record(ID)["memory"] == 7 + 333


@pytest.mark.parametrize("reorder", ["insert in front", "reverse"])
def test_the_values_of_an_entry_that_moves_to_a_higher_index_are_restored(
    cluster: Any, gpu_node: Any, registry: Any, monkeypatch: pytest.MonkeyPatch, reorder: str
) -> None:
    """Somebody writes the list in another order just before a node is changed by its position."""
    cluster.apply(ALONE)
    first, second = gpu_node("one"), gpu_node("two")
    first.apply(declare_node(FIRST, memory=333))
    second.apply(declare_node(SECOND))
    client = get_client(Settings())
    update = client.update_cluster
    is_moved = False

    def move_nodes(cluster_id: str, request: Any) -> Any:
        nonlocal is_moved
        if request.entry_changes and not is_moved:
            is_moved = True
            entries = registry.get_record(ID)["nodes"]["nodeData"]
            new = {**entries[0], "id": "new", "_id": "5f0000000000000000000001", "memory": 1}
            entries = entries[::-1] if reorder == "reverse" else [new, *entries]
            registry.send_request("PUT", PATH, {"$set": {"nodes.nodeData": entries}})
        return update(cluster_id, request)

    monkeypatch.setattr(client, "update_cluster", move_nodes)
    second.apply(declare_node(SECOND, memory=7))
    assert second.state["ready"] is False
    assert (
        "the values of node-1 were overwritten; gpuform restored the values"
        in (second.state["not_ready_reason"])
    )
    second.apply(declare_node(SECOND, memory=7))
    assert second.state["ready"] is True
    record = registry.get_record(ID)
    memories = {entry["id"]: entry["memory"] for entry in record["nodes"]["nodeData"]}
    others = {} if reorder == "reverse" else {"new": 1}
    assert memories == {"node-1": 333, "node-2": 7, **others}
    assert record["memory"] == sum(memories.values())


def test_an_entry_created_behind_the_last_node_is_removed(
    cluster: Any, gpu_node: Any, registry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes are removed just before the third and last one is changed by its position."""
    cluster.apply(ALONE)
    nodes = [gpu_node(name) for name in ("one", "two", "three")]
    for at, node in enumerate(nodes):
        node.apply(declare_node({**SECOND, "id": f"node-{at}"}))
    client = get_client(Settings())
    update = client.update_cluster

    def remove_two_nodes(cluster_id: str, request: Any) -> Any:
        if request.entry_changes:
            removed_nodes = {"id": {"$in": ["node-0", "node-1"]}}
            registry.send_request("PUT", PATH, {"$pull": {"nodes.nodeData": removed_nodes}})
        return update(cluster_id, request)

    monkeypatch.setattr(client, "update_cluster", remove_two_nodes)
    nodes[2].apply(declare_node({**SECOND, "id": "node-2"}, memory=7))
    assert f"node-2 of cluster {ID} was not changed" in nodes[2].state["not_ready_reason"]
    record = registry.get_record(ID)
    assert [entry and entry["id"] for entry in record["nodes"]["nodeData"]] == ["node-2"]
    assert (record["memory"], record["nodes"]["count"]) == (SECOND["memory"], 1)


ENTRIES = st.lists(
    st.builds(
        lambda at, count, memory, swap: {
            **SECOND,
            "id": f"n{at}",
            "gpus": {"count": count, "memory": memory},
            "memory": memory,
            "swap": swap,
        },
        st.integers(0, 4),
        st.integers(0, 8),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    max_size=8,
)


@pytest.mark.slow
@settings(deadline=None)
@given(ENTRIES)
def test_after_any_history_the_sums_are_those_of_the_entries(entries: list[Any]) -> None:
    """Each step adds a node, or changes an existing one, or removes one with no difference."""
    record: dict[str, Any] = {"id": "c", "nodes": {"count": 0, "nodeData": []}}
    for entry in entries:
        parsed = wire.Cluster.model_validate(record)
        present = parsed.find_entry(entry["id"])
        request = build_node_change(parsed, entry)
        if present is None:
            body = build_node_addition(parsed, entry).body
        elif request is not None:
            body = request.body
        else:
            body = build_node_removal(parsed, entry["id"], None).body
        record = apply_update(record, body)
        parsed_record = wire.Cluster.model_validate(record)
        nodes = [entry_to_declared(node_entry) for node_entry in parsed_record.nodes.node_data]
        dumped = parsed_record.model_dump(exclude_none=True)
        for path in (NODE_COUNT, *SUM_PATHS):
            assert (get_value(dumped, path) or 0) == sum_declared_nodes(nodes)[path], path

"""Test outputs that inputs do not have: they plan nothing, and malformed ones are ignored."""

from typing import Any

import pytest

from gpuform.providers.scp.fabric import build_poll_result
from gpuform.providers.scp.pool.nodes import node_to_outputs
from gpuform.schemas.scp import wire

Properties = dict[str, Any]

FABRIC = {"node_pool_id": "POOL001-krw1a", "cluster_fabric_name": "fabric1"}
OF_NODE = ("os_type", "time_zone", "account_id", "created_by", "modified_at", "modified_by")
OF_FABRIC = (
    *("used_server_count", "description", "product_id", "pirp_id", "account_id"),
    *("created_at", "created_by", "modified_at", "modified_by"),
)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_new_output_fields_of_nodes_plan_nothing_for_an_old_state(
    environment: Any, pool_inputs: Properties, node_inputs: Properties
) -> None:
    pool = environment.create("NodePool", {**pool_inputs, "count": 2}, name="pool")
    inputs = {**node_inputs, "cluster_fabric_id": pool.outs["cluster_fabric_id"]}
    solo = environment.create("GpuNode", inputs)
    for shown_node in (pool.nodes["train-001"], solo.outs):
        assert (shown_node["os_type"], shown_node["time_zone"]) == ("LINUX", "Asia/Seoul")
        assert all(shown_node[name] for name in OF_NODE)
        for name in OF_NODE:
            del shown_node[name]
    for resource in (pool, solo):
        assert environment.list_changes(resource) == {}
        refreshed = environment.refresh(resource)
        assert environment.list_changes(refreshed) == {}
        assert environment.refresh(refreshed).outs == refreshed.outs
    assert environment.refresh(solo).outs["modified_by"]


def test_new_output_fields_of_a_fabric_plan_nothing_for_an_old_state(
    environment: Any, pool_inputs: Properties
) -> None:
    environment.create("NodePool", pool_inputs)
    fabric = environment.create("Fabric", FABRIC, name="fabric")
    assert fabric.outs["used_server_count"] == 3
    assert fabric.outs["pirp_id"] == "20"
    assert all(fabric.outs[name] for name in OF_FABRIC)
    for name in OF_FABRIC:
        del fabric.outs[name]
    assert environment.list_changes(fabric) == {}
    refreshed = environment.refresh(fabric)
    assert environment.list_changes(refreshed) == {}
    assert environment.refresh(refreshed).outs == refreshed.outs


@pytest.mark.parametrize("bad", [None, "many", {"a": 1}, [1], True])
def test_a_malformed_informational_field_is_ignored(bad: Any) -> None:
    node = wire.GpuNode.model_validate({"id": "a" * 32, **dict.fromkeys(OF_NODE, bad)})
    assert node_to_outputs(node, None).id == node.id
    fabric = wire.ClusterFabric.model_validate({"id": "a" * 32, **dict.fromkeys(OF_FABRIC, bad)})
    assert build_poll_result("fabric1", fabric).value.outputs.cluster_fabric_id == fabric.id

"""Records of nodes from stored outputs, and their formats.

`REQUIRED` are the fields of each node that test CAP02-01 of NVIDIA/ai-cloud-validation reads
(`isvtest/validations/governance.py`).
"""

import csv
import io
import json
from typing import Any

import jsonschema
import pytest

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.schemas.resource_facts import NodeHealth, NodeInventory, NodeRecord
from gpuform.stacks.json_schema import build_inventory_schema
from gpuform.stacks.topology_export.formats import render_inventory_csv, render_inventory_json

REQUIRED = (
    *("node_id", "health_state", "instance_id", "created_at", "hardware_type", "gpu_count"),
    *("account_id", "project_id", "in_use", "region"),
)
WORKER = {
    "node_id": "n-1",
    "host_name": "train-worker-0",
    "status": "NODE_PHASE_RUNNING",
    "num_gpus": 8.0,
    "instance_id": "i-1",
}
CLUSTER = {"created_at": "2026-03-01T08:00:00Z", "project_id": "proj-1", "placed_region": "us-east"}
SERVER = {
    "id": "s-1",
    "gpu_node_name": "train-001",
    "state": "RUNNING",
    "account_id": "acc-1",
    "created_at": "2026-03-01T08:00:00Z",
    "server_type": "g3v128h8",
}
MACHINE = {
    "status": "running",
    "owner_id": "user-1",
    "project_id": "proj-2",
    "name": "dev",
    "created_at": "2026-03-01T08:00:00Z",
}


def list_records(
    platform: str, kind: str, inputs: dict[str, Any], outputs: dict[str, Any]
) -> list[NodeRecord]:
    lifecycle = load_lifecycle_class(platform, kind)
    return [*lifecycle.hooks.list_node_records("object-1", inputs, outputs)]


@pytest.mark.parametrize(
    ("worker", "faults", "health", "in_use"),
    [
        ({}, [], NodeHealth.HEALTHY, True),
        ({}, [{"node": "train-worker-0"}], NodeHealth.UNHEALTHY, True),
        ({"status": "NODE_PHASE_FAILED"}, [], NodeHealth.UNHEALTHY, False),
        ({"status": "NODE_PHASE_BOOTING"}, [], NodeHealth.UNKNOWN, False),
        ({"status": ""}, [], NodeHealth.UNKNOWN, None),
    ],
)
def test_health_and_use_of_a_together_worker_follow_phase_and_faults(
    worker: dict[str, Any], faults: list[Any], health: NodeHealth, in_use: bool | None
) -> None:
    outputs = {**CLUSTER, "gpu_worker_nodes": [{**WORKER, **worker}], "faults": faults}
    (record,) = list_records("together", "Cluster", {"gpu_type": "H100_SXM"}, outputs)
    assert (record.health_state, record.in_use) == (health, in_use)
    assert (record.node_id, record.instance_id, record.gpu_count) == ("n-1", "i-1", 8)
    assert (record.hardware_type, record.region, record.project_id) == (
        "H100_SXM",
        "us-east",
        "proj-1",
    )


def test_a_worker_added_later_has_its_own_creation_time() -> None:
    event = {"node_id": "n-1", "reason": "TogetherScaledUp", "at": "2026-04-01T00:00:00Z"}
    outputs = {**CLUSTER, "gpu_worker_nodes": [WORKER], "node_events": [event]}
    (record,) = list_records("together", "Cluster", {}, outputs)
    assert record.created_at == "2026-04-01T00:00:00Z"


@pytest.mark.parametrize(
    ("node", "health"),
    [
        ({}, NodeHealth.HEALTHY),
        ({"state": "ERROR"}, NodeHealth.UNHEALTHY),
        ({"trouble": "not ready"}, NodeHealth.UNHEALTHY),
        ({"state": "STOPPED"}, NodeHealth.UNKNOWN),
    ],
)
def test_the_servers_of_a_pool_and_a_single_server_have_the_same_facts(
    node: dict[str, Any], health: NodeHealth
) -> None:
    server = {**SERVER, **node}
    inputs = {"region_id": "kr-west1"}
    pool = list_records("scp", "NodePool", inputs, {"gpu_nodes": {"001": server}})
    single = list_records("scp", "GpuNode", inputs, server)
    assert [
        record.model_copy(update=dict.fromkeys(("node_id", "instance_id"))) for record in pool
    ] == [record.model_copy(update=dict.fromkeys(("node_id", "instance_id"))) for record in single]
    assert (pool[0].node_id, single[0].node_id) == ("s-1", "object-1")
    assert (pool[0].health_state, pool[0].account_id) == (health, "acc-1")
    assert (pool[0].region, pool[0].gpu_count) == ("kr-west1", 8)


def test_a_machine_of_tensorone_is_a_node() -> None:
    inputs = {"gpu_type": "NVIDIA A100", "gpu_count": 2.0, "region": "us-east-1"}
    (record,) = list_records("tensorone", "Cluster", inputs, MACHINE)
    assert (record.node_id, record.account_id, record.project_id) == (
        "object-1",
        "user-1",
        "proj-2",
    )
    assert (record.health_state, record.in_use, record.gpu_count) == (NodeHealth.HEALTHY, True, 2)
    assert list_records("tensorone", "Cluster", inputs, {}) == []


def test_the_json_has_every_required_field_and_fits_its_schema() -> None:
    inventory = NodeInventory(success=True, nodes_checked=1, nodes=(NodeRecord(node_id="n-1"),))
    document = json.loads(render_inventory_json(inventory))
    jsonschema.Draft202012Validator(build_inventory_schema()).validate(document)
    assert {*REQUIRED} <= document["nodes"][0].keys()
    assert {"success", "platform", "nodes_checked", "nodes"} <= document.keys()
    del document["nodes"][0]["region"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(build_inventory_schema()).validate(document)


def test_the_csv_has_a_row_for_each_node_and_no_formula() -> None:
    node = NodeRecord(node_id="n-1", name="=cmd()", in_use=False, region='a,"b"')
    text = render_inventory_csv(NodeInventory(success=True, nodes_checked=1, nodes=(node,)))
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["name"] == "'=cmd()"
    assert (row["in_use"], row["gpu_count"], row["region"]) == ("false", "", 'a,"b"')

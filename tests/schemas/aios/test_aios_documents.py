"""Test the registry's documents: how they are parsed, declared and built."""

import copy
from typing import Any

import pytest
from support.platforms.aios_document import CLUSTER, DECLARED, pair_with_types

from gpuform.schemas.aios import wire
from gpuform.schemas.aios.inputs import ClusterInputs, GpuNodeInputs
from gpuform.schemas.aios.wire import (
    build_cluster_document,
    cluster_to_declared,
    node_to_entry,
)
from gpuform.schemas.changes import compute_changes
from gpuform.schemas.checking import validate_inputs


def convert_numbers_to_doubles(value: Any) -> Any:
    """Return the values with doubles for numbers, like Pulumi."""
    if isinstance(value, dict):
        return {key: convert_numbers_to_doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [convert_numbers_to_doubles(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def test_the_documented_record_is_parsed_field_by_field_with_types() -> None:
    read = wire.Cluster.model_validate(CLUSTER)
    dumped = read.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert pair_with_types(dumped) == pair_with_types(CLUSTER)


def test_fields_added_by_mongo_and_odd_ids_are_ignored() -> None:
    record = copy.deepcopy(CLUSTER)
    record["_id"], record["__v"] = {"$oid": "65a"}, 7
    record["nodes"]["nodeData"][0]["_id"] = "65a0f00000aaaaaaaaaaaaaa"
    read = wire.Cluster.model_validate(record)
    assert cluster_to_declared(read) == cluster_to_declared(wire.Cluster.model_validate(CLUSTER))
    assert wire.parse_object_id_time(read.object_id) is None
    assert wire.parse_object_id_time(read.nodes.node_data[0].object_id) == 0x65A0F000


@pytest.mark.parametrize("text", ["", "65a", "65a0f00000aaaaaaaaaaaaaaa", "z" * 24, None, 7])
def test_only_object_ids_have_a_creation_time(text: object) -> None:
    assert wire.parse_object_id_time(text) is None


def test_the_declared_example_builds_the_documented_record() -> None:
    declared, problems = validate_inputs(ClusterInputs, convert_numbers_to_doubles(DECLARED))
    assert problems == []
    inputs = ClusterInputs.model_validate(declared)
    cluster_document = build_cluster_document(inputs.dump_declared(), with_status=True)
    expected = copy.deepcopy(CLUSTER)
    del expected["config"]["urlMap"]
    assert pair_with_types(cluster_document) == pair_with_types(expected)
    assert "status" not in build_cluster_document(inputs.dump_declared(), with_status=False)


def test_the_documented_record_equals_its_declaration() -> None:
    declared, _ = validate_inputs(ClusterInputs, convert_numbers_to_doubles(DECLARED))
    observed = cluster_to_declared(wire.Cluster.model_validate(CLUSTER))
    assert compute_changes(ClusterInputs, observed, declared) == []


def test_a_record_without_nodes_has_zero_sums() -> None:
    alone = {name: value for name, value in DECLARED.items() if name != "nodes"}
    cluster_document = build_cluster_document(
        validate_inputs(ClusterInputs, convert_numbers_to_doubles(alone))[0], with_status=False
    )
    assert cluster_document["nodes"] == {"count": 0, "nodeData": []}
    assert cluster_document["gpus"] == {"count": 0, "memory": 0}
    assert cluster_document["network"] == {"interfaces": 0, "txBandwidth": 0, "rxBandwidth": 0}
    assert (cluster_document["memory"], cluster_document["swap"]) == (0, 0)


def test_a_separate_node_builds_the_same_entry() -> None:
    (first, _) = DECLARED["nodes"]["node_data"]
    own = {"cluster_id": "c", "node_id": first["id"], **first}
    del own["id"]
    declared, problems = validate_inputs(GpuNodeInputs, convert_numbers_to_doubles(own))
    assert problems == []
    entry = {"id": declared.pop("node_id"), **declared}
    del entry["cluster_id"]
    assert pair_with_types(node_to_entry(entry)) == pair_with_types(CLUSTER["nodes"]["nodeData"][0])

"""The registry's document: as it is read, as it is declared, as it is made."""

import copy
from typing import Any

import pytest
from aios_document import CLUSTER, DECLARED, typed

from gpuform.schemas.aios import wire
from gpuform.schemas.aios.documents import (
    build_cluster_document,
    cluster_to_declared,
    node_to_entry,
)
from gpuform.schemas.aios.inputs import ClusterInputs, GpuNodeInputs
from gpuform.schemas.changes import compute_changes
from gpuform.schemas.checking import validate_inputs


def doubles(value: Any) -> Any:
    """As Pulumi hands it over."""
    if isinstance(value, dict):
        return {key: doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [doubles(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def test_the_example_is_read_field_by_field_with_its_types() -> None:
    read = wire.Cluster.model_validate(CLUSTER)
    shown = read.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert typed(shown) == typed(CLUSTER)


def test_fields_added_by_mongo_and_odd_ids_are_ignored() -> None:
    given = copy.deepcopy(CLUSTER)
    given["_id"], given["__v"] = {"$oid": "65a"}, 7
    given["nodes"]["nodeData"][0]["_id"] = "65a0f00000aaaaaaaaaaaaaa"
    read = wire.Cluster.model_validate(given)
    assert cluster_to_declared(read) == cluster_to_declared(wire.Cluster.model_validate(CLUSTER))
    assert wire.parse_object_id_time(read.object_id) is None
    assert wire.parse_object_id_time(read.nodes.node_data[0].object_id) == 0x65A0F000


@pytest.mark.parametrize("text", ["", "65a", "65a0f00000aaaaaaaaaaaaaaa", "z" * 24, None, 7])
def test_other_values_than_object_ids_have_no_time(text: object) -> None:
    assert wire.parse_object_id_time(text) is None


def test_the_declared_example_makes_the_document_with_its_types() -> None:
    declared, problems = validate_inputs(ClusterInputs, doubles(DECLARED))
    assert problems == []
    inputs = ClusterInputs.model_validate(declared)
    made = build_cluster_document(inputs.dump_declared(), with_status=True)
    expected = copy.deepcopy(CLUSTER)
    del expected["config"]["urlMap"]
    assert typed(made) == typed(expected)
    assert "status" not in build_cluster_document(inputs.dump_declared(), with_status=False)


def test_nothing_differs_between_the_example_and_its_declaration() -> None:
    declared, _ = validate_inputs(ClusterInputs, doubles(DECLARED))
    observed = cluster_to_declared(wire.Cluster.model_validate(CLUSTER))
    assert compute_changes(ClusterInputs, observed, declared) == []


def test_a_record_without_nodes_has_zero_sums() -> None:
    alone = {name: value for name, value in DECLARED.items() if name != "nodes"}
    made = build_cluster_document(
        validate_inputs(ClusterInputs, doubles(alone))[0], with_status=False
    )
    assert made["nodes"] == {"count": 0, "nodeData": []}
    assert made["gpus"] == {"count": 0, "memory": 0}
    assert made["network"] == {"interfaces": 0, "txBandwidth": 0, "rxBandwidth": 0}
    assert (made["memory"], made["swap"]) == (0, 0)


def test_a_node_alone_makes_the_same_entry() -> None:
    (first, _) = DECLARED["nodes"]["node_data"]
    own = {"cluster_id": "c", "node_id": first["id"], **first}
    del own["id"]
    declared, problems = validate_inputs(GpuNodeInputs, doubles(own))
    assert problems == []
    entry = {"id": declared.pop("node_id"), **declared}
    del entry["cluster_id"]
    assert typed(node_to_entry(entry)) == typed(CLUSTER["nodes"]["nodeData"][0])

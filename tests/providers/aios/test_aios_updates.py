"""Test updates of a record, applied as MongoDB does."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.platforms.aios_document import CLUSTER, DECLARED

from gpuform.providers.emulator.aios.mongo import apply_update
from gpuform.schemas.aios import wire
from gpuform.schemas.aios.inputs import ClusterInputs
from gpuform.schemas.aios.updates import build_entries_request, build_field_changes, remove_sums
from gpuform.schemas.aios.wire import build_cluster_document, cluster_to_declared
from gpuform.schemas.changes import compute_changes, requires_action, select_declared_fields
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.rules import get_field_rules

TEXTS = st.sampled_from(["a", "b", "c"])
FREE = st.recursive(
    st.one_of(TEXTS, st.integers(0, 3), st.booleans()),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from(["x", "y", "1", "p.q", "$set", "z"]), inner, max_size=3),
        st.lists(inner, max_size=2),
    ),
    max_leaves=5,
)
NODE = DECLARED["nodes"]["node_data"][1]
NODES = st.lists(
    st.fixed_dictionaries(
        {
            **{name: st.just(value) for name, value in NODE.items()},
            "id": st.sampled_from(["n1", "n2", "n3", "n4"]),
            "memory": st.integers(0, 3),
            "swap": st.integers(0, 1),
        }
    ),
    max_size=4,
    unique_by=lambda node: node["id"],
)
DECLARATIONS = st.fixed_dictionaries(
    {
        "cluster_id": st.just("c"),
        "nodes": st.builds(lambda nodes: {"node_data": nodes}, NODES),
        "config": st.fixed_dictionaries(
            {"public_hostname": TEXTS},
            optional={
                "use_gateway": st.booleans(),
                "policy_executor_id": TEXTS,
                "custom_policy_system": FREE,
                "actions_policy_map": FREE,
            },
        ),
        "tags": st.lists(TEXTS, max_size=2),
        "cluster_metadata": st.fixed_dictionaries(
            {"name": TEXTS, "description": TEXTS, "owner": TEXTS},
            optional={"countries": st.lists(TEXTS, max_size=2), "additional_info": FREE},
        ),
    },
    optional={"region_id": TEXTS, "reputation": st.integers(0, 100)},
)


def validate_record(values: Any) -> Any:
    inputs, problems = validate_inputs(ClusterInputs, values)
    assert problems == []
    return inputs


@pytest.mark.slow
@settings(deadline=None)
@given(DECLARATIONS, DECLARATIONS)
def test_updates_change_any_record_into_its_declaration(first: Any, second: Any) -> None:
    before, after = validate_record(first), validate_record(second)
    record = build_cluster_document(before, with_status=True)
    rules = get_field_rules(ClusterInputs)
    nodes = (before["nodes"]["node_data"], after["nodes"]["node_data"])
    fields = remove_sums(build_field_changes(rules, before, after))
    record = apply_update(record, fields)
    requests = []
    while request := build_entries_request(wire.Cluster.model_validate(record), *nodes):
        assert all(request.body.values())
        requests.append(request)
        record = apply_update(record, request.body)
    assert len(requests) <= 3
    parsed = wire.Cluster.model_validate(record)
    echo = select_declared_fields(ClusterInputs, cluster_to_declared(parsed), after)
    assert not requires_action(compute_changes(ClusterInputs, echo, after))
    assert {node.id for node in parsed.nodes.node_data} == {node["id"] for node in nodes[1]}
    if not requires_action(compute_changes(ClusterInputs, before, after)):
        assert (fields, requests) == ({}, [])


def test_the_documents_change_gives_the_documents_update() -> None:
    before = validate_record(DECLARED)
    after = validate_record({**DECLARED, "tags": ["gpu", "updated"], "reputation": 97})
    body = build_field_changes(get_field_rules(ClusterInputs), before, after)
    assert body == {"$set": {"tags": ["gpu", "updated"], "reputation": 97}}
    assert apply_update(CLUSTER, body)["reputation"] == 97

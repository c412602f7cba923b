"""Test the rules of SCP's declared nodes, pools and fabrics, and the messages of violations."""

from typing import Any

import pytest

from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.scp.inputs import FabricInputs, GpuNodeInputs, NodeInputs, NodePoolInputs
from gpuform.schemas.values import UNKNOWN

MADE = {
    "image_id": "IMAGE-7XFMaJpLsapKvskFMjCtmm",
    "server_type_id": "f90e8ef54cc2451b825608e9f95f7bcb",
    "region_id": "kr-west1",
    "vpc_id": "e58348b1bc9148e5af86500fd4ef99ca",
    "subnet_id": "ab313c43291e4b678f4bacffe10768ae",
    "os_user_password": "Secret-free1!".replace("-", "#"),
}
POOL = {
    **MADE,
    "node_pool_id": "POOL001-krw1a",
    "cluster_fabric_name": "fabric1",
    "gpu_node_name_prefix": "train",
    "count": 4,
}
NODE = {**MADE, "gpu_node_name": "solo-1", "cluster_fabric_id": "f" * 32}
NODES = {key: value for key, value in POOL.items() if key != "count"}


def find_problems(model: Any, values: Any) -> dict[str, str]:
    return {problem.path: problem.reason for problem in validate_inputs(model, values)[1]}


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (NodePoolInputs, POOL),
        (NodePoolInputs, {**NODES, "nodes": {"a": {}, "b": {"lock_enabled": True}}}),
        (GpuNodeInputs, NODE),
        (FabricInputs, {"node_pool_id": "POOL001-krw1a", "cluster_fabric_name": "fabric1"}),
    ],
)
def test_a_valid_declaration_is_unchanged(model: Any, values: Any) -> None:
    assert validate_inputs(model, values) == (values, [])


@pytest.mark.parametrize("model", [NodePoolInputs, GpuNodeInputs, NodeInputs, FabricInputs])
def test_every_field_has_a_description(model: Any) -> None:
    assert all(field.description for field in model.model_fields.values())


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("cluster_fabric_name", "ab", "3 to 15"),
        ("cluster_fabric_name", "1abc", "begin with a letter"),
        ("cluster_fabric_name", "fabric-", "not end with a hyphen"),
        ("cluster_fabric_name", "a" * 16, "3 to 15"),
        ("cluster_fabric_name", "fäbric", "3 to 15"),
        ("cluster_fabric_name", "fabric1\n", "3 to 15"),
        ("gpu_node_name_prefix", "Train", "lower-case"),
        ("gpu_node_name_prefix", "a" * 21, "3 to 20"),
        ("gpu_node_name_prefix", "train-", "not end with a hyphen"),
        ("count", 0, "the least is 1"),
        ("count", 1000, "the most is 999"),
        ("state", "running", "did you mean RUNNING?"),
        ("state", "PAUSED", "use one of RUNNING, STOPPED"),
        ("init_script", "x" * 16385, "at most 16384 characters"),
        ("tags", {"": "x"}, "1 to 128"),
        ("tags", {"k" * 129: "x"}, "1 to 128"),
        ("tags", {"k": "v" * 257}, "at most 256"),
        ("nodes", {"a": {}}, None),
    ],
)
def test_invalid_values_are_reported_at_their_path(
    field: str, value: Any, message: str | None
) -> None:
    reasons = find_problems(NodePoolInputs, {**POOL, field: value})
    if message is None:
        assert list(reasons) == ["count"]
        assert "keep one of the two" in reasons["count"]
    else:
        assert list(reasons) == [field]
        assert message in reasons[field]


@pytest.mark.parametrize(
    "password",
    [
        "Short1!a",
        "Toolong1!aaaaaaaaaaaa",
        "alllower1!",
        "ALLUPPER1!",
        "NoDigits!!",
        "NoSigns111",
        "Other-sign1!",
        "Wíth-accent1",
        "Space in1!A",
    ],
)
def test_an_invalid_password_is_refused_and_not_shown(password: str) -> None:
    reasons = find_problems(NodePoolInputs, {**POOL, "os_user_password": password})
    assert list(reasons) == ["os_user_password"]
    assert "9 to 20 characters" in reasons["os_user_password"]
    assert password not in str(reasons)


@pytest.mark.parametrize("password", ["Abcdef12!", "A1a@" * 5, "Zz9@$!%*#&"])
def test_a_valid_password_is_accepted(password: str) -> None:
    assert find_problems(NodePoolInputs, {**POOL, "os_user_password": password}) == {}


def test_secret_fields_are_marked_as_secret() -> None:
    for model in (NodePoolInputs, GpuNodeInputs):
        rules = get_field_rules(model)
        assert {name for name in rules if rules[name].secret} == {"os_user_password", "init_script"}


def test_a_pool_requires_either_count_or_nodes() -> None:
    assert "how many nodes" in find_problems(NodePoolInputs, NODES)["count"]
    assert "one node or more" in find_problems(NodePoolInputs, {**NODES, "nodes": {}})["nodes"]
    both = {**NODES, "nodes": {"a": {}, "b": {}}, "remove": ["train-a"]}
    assert "is valid only with count" in find_problems(NodePoolInputs, both)["remove"]


@pytest.mark.parametrize(
    ("nodes", "path", "message"),
    [
        ({"a": {"nat_enabled": True}}, "nodes.a.public_ip_address_id", "is required with nat"),
        ({"a": {"public_ip_address_id": "x"}}, "nodes.a.nat_enabled", "declare it true"),
        ({"a": {"ip_address": "192.168.0.256"}}, "nodes.a.ip_address", "not an IPv4 address"),
        ({"a": {"policy_ip": "192.168.0.2"}}, "nodes.a.policy_ip", "write ip_address: 192.168"),
        ({"A": {}}, "nodes.A", "would be named train-A"),
        ({"a" * 19: {}}, f"nodes.{'a' * 19}", "declare its gpu_node_name"),
        ({"a": {}, "b": {"gpu_node_name": "train-a"}}, "nodes.b", "like a: give each node"),
    ],
)
def test_invalid_node_inputs_are_reported(nodes: Any, path: str, message: str) -> None:
    reasons = find_problems(NodePoolInputs, {**NODES, "nodes": nodes})
    assert list(reasons) == [path]
    assert message in reasons[path]


def test_a_node_requires_an_existing_fabric() -> None:
    reason = find_problems(GpuNodeInputs, {**NODE, "cluster_fabric_id": ""})["cluster_fabric_id"]
    assert "one server cannot create a fabric" in reason
    assert "scp.NodePool" in reason
    without = {key: value for key, value in NODE.items() if key != "cluster_fabric_id"}
    assert (
        "is required: Fabric to join" in find_problems(GpuNodeInputs, without)["cluster_fabric_id"]
    )


def test_empty_values_count_as_not_declared() -> None:
    values, problems = validate_inputs(
        NodePoolInputs, {**POOL, "init_script": "", "cluster_fabric_id": ""}
    )
    assert (values, problems) == (POOL, [])


def test_unknown_values_are_skipped() -> None:
    for name in POOL:
        assert find_problems(NodePoolInputs, {**POOL, name: UNKNOWN}) == {}
    for nodes in (UNKNOWN, {"a": UNKNOWN}, {"a": {"gpu_node_name": UNKNOWN}, "b": {}}):
        assert find_problems(NodePoolInputs, {**NODES, "nodes": nodes}) == {}
    nat = {"a": {"nat_enabled": True, "public_ip_address_id": UNKNOWN}}
    assert find_problems(NodePoolInputs, {**NODES, "nodes": nat}) == {}

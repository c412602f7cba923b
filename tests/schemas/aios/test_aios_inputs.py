"""Test the rules of declared records: their sums, and the names that the registry uses."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.platforms.aios_document import CLUSTER, DECLARED

from gpuform.schemas.aios.inputs import ClusterInputs, GpuNodeInputs
from gpuform.schemas.aios.parts import SUM_PATHS, get_value, set_value
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.values import UNKNOWN

A = {"model_name": "A", "memory": 1}


def find_problems(**changes: Any) -> dict[str, str]:
    inputs = {**copy.deepcopy(DECLARED), **changes}
    return {problem.path: problem.reason for problem in validate_inputs(ClusterInputs, inputs)[1]}


def build_nodes(*changes: dict[str, Any]) -> dict[str, Any]:
    """Return the example's nodes, each with changed fields."""
    both = copy.deepcopy(DECLARED["nodes"]["node_data"])
    pairs = zip(both, (*changes, {}, {}), strict=False)
    return {"node_data": [{**node, **change} for node, change in pairs]}


def test_undeclared_sums_are_computed() -> None:
    declared, problems = validate_inputs(ClusterInputs, DECLARED)
    assert problems == []
    assert declared["nodes"]["count"] == 2
    assert declared["gpus"] == {"count": 3, "memory": 49152}
    assert declared["vcpus"] == {"count": 48}
    assert (declared["memory"], declared["swap"]) == (196608, 12288)
    assert declared["storage"] == {"disks": 3, "size": 1572864}
    assert declared["network"] == {
        "interfaces": 3,
        "tx_bandwidth": 15000,
        "rx_bandwidth": 15000,
    }
    first = declared["nodes"]["node_data"][0]["gpus"]
    assert (first["count"], first["memory"]) == (2, 32768)
    assert first["model_names"] == ["NVIDIA A100"]


def test_declared_sums_equal_to_the_computed_ones_are_accepted() -> None:
    assert find_problems(gpus={"count": 3}, memory=196608, storage={"size": 1572864}) == {}


@pytest.mark.parametrize("path", SUM_PATHS)
def test_a_sum_that_contradicts_the_nodes_is_refused(path: str) -> None:
    declared, _ = validate_inputs(ClusterInputs, DECLARED)
    right = get_value(declared, path)
    wrong = set_value(declared, path, right + 1)
    (problem,) = validate_inputs(ClusterInputs, wrong)[1]
    assert problem.path == path
    assert f"write {right:g}" in problem.reason


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=4), st.integers(-3, 3))
def test_only_the_computed_sum_is_accepted_for_any_nodes(sizes: list[int], error: int) -> None:
    template = DECLARED["nodes"]["node_data"][1]
    entries = [{**template, "id": f"n{at}", "swap": size} for at, size in enumerate(sizes)]
    total = sum(sizes) + error
    if total < 0:
        return
    given_ = {**DECLARED, "nodes": {"node_data": entries}, "swap": total}
    assert [problem.path for problem in validate_inputs(ClusterInputs, given_)[1]] == (
        ["swap"] if error else []
    )


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"nodes": {"count": 3, **build_nodes()}}, "nodes.count", "write 2"),
        ({"nodes": {}, "gpus": {"count": 3}}, "gpus.count", "declare the nodes there"),
        ({"nodes": build_nodes({"id": "node-2"})}, "nodes.node_data[1].id", "declared twice"),
        (
            {
                "nodes": build_nodes(
                    {"gpus": {"count": 1, "gpus": [{"model_name": "A", "memory": 1}] * 2}}
                )
            },
            "nodes.node_data[0].gpus.count",
            "write 2",
        ),
        (
            {"nodes": build_nodes({"gpus": {"memory": 5}})},
            "nodes.node_data[0].gpus.count",
            "is required",
        ),
        (
            {"nodes": build_nodes({"gpus": {"model_names": ["B"], "gpus": [A]}})},
            "nodes.node_data[0].gpus.model_names",
            "write A",
        ),
        ({"nodes": build_nodes({"memory": -1})}, "nodes.node_data[0].memory", "too small"),
        ({"cluster_id": "a/b"}, "cluster_id", "no /"),
        ({"id": "west"}, "id", "is called cluster_id here"),
        ({"regionId": "us"}, "regionId", "did you mean region_id?"),
        ({"create_mode": "gateway"}, "create_mode", "use one of parser, direct"),
        ({"config": {"use_gateway": True}}, "config.public_hostname", "is required"),
        (
            {"config": {"public_hostname": "h", "url_map": CLUSTER["config"]["urlMap"]}},
            "config.url_map",
            "the system",
        ),
        ({"tags": "gpu"}, "tags", "must be a list"),
    ],
)
def test_invalid_inputs_are_reported_at_their_path(
    changes: dict[str, Any], path: str, message: str
) -> None:
    reasons = find_problems(**changes)
    assert list(reasons) == [path]
    assert message in reasons[path]


def test_unknown_numbers_make_only_their_own_sums_unknown() -> None:
    declared, problems = validate_inputs(
        ClusterInputs, {**DECLARED, "nodes": build_nodes({"memory": UNKNOWN})}
    )
    assert problems == []
    assert declared["memory"] is UNKNOWN
    assert declared["swap"] == 12288
    declared, problems = validate_inputs(ClusterInputs, {**DECLARED, "nodes": UNKNOWN})
    assert problems == []
    assert declared["gpus"] == {"count": UNKNOWN, "memory": UNKNOWN}


def test_a_separate_node_gets_its_sums_from_its_gpus() -> None:
    (node, _) = copy.deepcopy(DECLARED["nodes"]["node_data"])
    del node["id"]
    declared, problems = validate_inputs(GpuNodeInputs, {"cluster_id": "c", "node_id": "n", **node})
    assert problems == []
    assert declared["gpus"]["count"] == 2
    assert validate_inputs(GpuNodeInputs, {"cluster_id": "c", "id": "n", **node})[1][0].path == "id"

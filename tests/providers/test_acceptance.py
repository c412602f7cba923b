"""Test the results of Together's acceptance tests, by the phases of a cluster."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.together.cluster_view import are_workers_accepted, collect_acceptance_results
from gpuform.schemas.together import wire

TESTS = "RUNNING_ACCEPTANCE_TESTS"
NCCL = "RUNNING_NCCL_TESTS"
DECLARED = {"acceptance_tests_params": {"enabled": True}}


def format_minute(minute: int) -> str:
    return f"2026-03-01T08:{minute:02d}:00Z"


def build_phases(*names: str, first: int = 10) -> list[dict[str, str]]:
    return [
        {"phase": f"CLUSTER_PHASE_{name}", "transition_time": format_minute(first + number)}
        for number, name in enumerate(names)
    ]


def build_worker(name: str, since: int | None = 1) -> dict[str, Any]:
    course = (
        []
        if since is None
        else [{"phase": "NODE_PHASE_X", "transition_time": format_minute(since)}]
    )
    return {"host_name": name, "phase_transitions": course}


def collect_results(*names: str, workers: Any = None) -> Any:
    workers = workers or [build_worker("a"), build_worker("b")]
    cluster = wire.Cluster.model_validate(
        {"cluster_id": "c", "phase_transitions": build_phases(*names), "gpu_worker_nodes": workers}
    )
    return collect_acceptance_results(cluster, cluster.gpu_worker_nodes)


def test_each_test_has_a_result_with_nodes_and_time() -> None:
    tests, nccl = collect_results("INSTALLING_DRIVERS", TESTS, NCCL, "READY")
    assert (tests.category, nccl.category) == ("acceptance/tests", "acceptance/nccl")
    assert (tests.passed, tests.nodes, tests.at) == (True, ["a", "b"], format_minute(12))
    assert (nccl.passed, nccl.at) == (True, format_minute(13))


@pytest.mark.parametrize("after", ["ACCEPTANCE_TESTS_FAILED", "DEGRADED", "PAUSED", "WHATEVER"])
def test_a_test_without_a_pass_has_not_passed(after: str) -> None:
    [result] = collect_results(TESTS, after)
    assert result.passed is False


def test_a_running_test_has_no_result() -> None:
    assert collect_results("INSTALLING_DRIVERS", TESTS) == []


def test_the_last_result_counts() -> None:
    [result] = collect_results(TESTS, "ACCEPTANCE_TESTS_FAILED", "READY", TESTS, "READY")
    assert (result.passed, result.at) == (True, format_minute(14))


def test_later_workers_and_workers_without_a_time_are_not_covered() -> None:
    [result] = collect_results(
        TESTS, "READY", workers=[build_worker("a"), build_worker("b", 40), build_worker("c", None)]
    )
    assert result.nodes == ["a"]


@given(st.permutations(build_phases("INSTALLING_DRIVERS", TESTS, NCCL, "READY")))
def test_the_order_of_phases_is_irrelevant(listed: list[dict[str, str]]) -> None:
    cluster = wire.Cluster.model_validate({"cluster_id": "c", "phase_transitions": listed})
    assert [
        acceptance_result.passed for acceptance_result in collect_acceptance_results(cluster, ())
    ] == [True, True]


def test_a_cluster_is_accepted_if_all_of_its_workers_are() -> None:
    passed = [result.model_dump() for result in collect_results(TESTS, "READY")]
    observed = {"acceptance": passed, "gpu_worker_nodes": [build_worker("a"), build_worker("b")]}
    assert are_workers_accepted(DECLARED, observed)
    assert are_workers_accepted(DECLARED, {})  # it will be, or never gets ready
    assert not are_workers_accepted({}, observed)
    assert not are_workers_accepted(DECLARED, {**observed, "acceptance": []})
    assert not are_workers_accepted(
        DECLARED, {**observed, "gpu_worker_nodes": [build_worker("a"), build_worker("new")]}
    )
    failed = [{**result, "passed": False} for result in passed]
    assert not are_workers_accepted(DECLARED, {**observed, "acceptance": failed})

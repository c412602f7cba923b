"""Together's own acceptance tests, by the phases of a cluster."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.together.cluster_view import are_workers_accepted, collect_acceptance_results
from gpuform.schemas.together import wire

TESTS = "RUNNING_ACCEPTANCE_TESTS"
NCCL = "RUNNING_NCCL_TESTS"
DECLARED = {"acceptance_tests_params": {"enabled": True}}


def at(minute: int) -> str:
    return f"2026-03-01T08:{minute:02d}:00Z"


def phases(*names: str, first: int = 10) -> list[dict[str, str]]:
    return [
        {"phase": f"CLUSTER_PHASE_{name}", "transition_time": at(first + number)}
        for number, name in enumerate(names)
    ]


def worker(name: str, since: int | None = 1) -> dict[str, Any]:
    course = [] if since is None else [{"phase": "NODE_PHASE_X", "transition_time": at(since)}]
    return {"host_name": name, "phase_transitions": course}


def results(*names: str, workers: Any = None) -> Any:
    workers = workers or [worker("a"), worker("b")]
    cluster = wire.Cluster.model_validate(
        {"cluster_id": "c", "phase_transitions": phases(*names), "gpu_worker_nodes": workers}
    )
    return collect_acceptance_results(cluster, cluster.gpu_worker_nodes)


def test_each_test_has_a_result_with_nodes_and_time() -> None:
    tests, nccl = results("INSTALLING_DRIVERS", TESTS, NCCL, "READY")
    assert (tests.category, nccl.category) == ("acceptance/tests", "acceptance/nccl")
    assert (tests.passed, tests.nodes, tests.at) == (True, ["a", "b"], at(12))
    assert (nccl.passed, nccl.at) == (True, at(13))


@pytest.mark.parametrize("after", ["ACCEPTANCE_TESTS_FAILED", "DEGRADED", "PAUSED", "WHATEVER"])
def test_what_is_not_shown_to_pass_does_not(after: str) -> None:
    [result] = results(TESTS, after)
    assert result.passed is False


def test_a_test_that_goes_on_has_no_result() -> None:
    assert results("INSTALLING_DRIVERS", TESTS) == []


def test_the_last_result_counts() -> None:
    [result] = results(TESTS, "ACCEPTANCE_TESTS_FAILED", "READY", TESTS, "READY")
    assert (result.passed, result.at) == (True, at(14))


def test_workers_that_came_later_or_tell_nothing_are_not_covered() -> None:
    [result] = results(TESTS, "READY", workers=[worker("a"), worker("b", 40), worker("c", None)])
    assert result.nodes == ["a"]


@given(st.permutations(phases("INSTALLING_DRIVERS", TESTS, NCCL, "READY")))
def test_the_order_of_the_list_means_nothing(listed: list[dict[str, str]]) -> None:
    cluster = wire.Cluster.model_validate({"cluster_id": "c", "phase_transitions": listed})
    assert [each.passed for each in collect_acceptance_results(cluster, ())] == [True, True]


def test_a_cluster_is_accepted_when_all_of_its_workers_are() -> None:
    passed = [each.model_dump() for each in results(TESTS, "READY")]
    seen = {"acceptance": passed, "gpu_worker_nodes": [worker("a"), worker("b")]}
    assert are_workers_accepted(DECLARED, seen)
    assert are_workers_accepted(DECLARED, {})  # it will be, or never gets ready
    assert not are_workers_accepted({}, seen)
    assert not are_workers_accepted(DECLARED, {**seen, "acceptance": []})
    assert not are_workers_accepted(
        DECLARED, {**seen, "gpu_worker_nodes": [worker("a"), worker("new")]}
    )
    failed = [{**each, "passed": False} for each in passed]
    assert not are_workers_accepted(DECLARED, {**seen, "acceptance": failed})

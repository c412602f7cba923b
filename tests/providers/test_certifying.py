"""Test which nodes test jobs certify, and for how long."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.certifying import (
    CertifiableNode,
    JobResult,
    ReportedFailure,
    build_certify_again_change,
    find_evidence_gaps,
    judge_nodes,
    select_current_evidence,
)
from gpuform.schemas.policies.certification import CategoryInputs, NodeEvidence
from gpuform.schemas.policies.repair import NodeRepair

NODES = ["a", "b", "c", "d"]
AT = "2026-03-01T08:00:00Z"
REDUCE = CategoryInputs(
    domain="communication", variant="nccl-all-reduce", floor=300, tolerance="10%"
)
DCGM = CategoryInputs(domain="diagnostics", variant="dcgm-level4")
MACHINES = [CertifiableNode(node, f"machine-{node}", "560", "ubuntu") for node in NODES]

nodes = st.lists(st.sampled_from(NODES), unique=True, max_size=4)
figures = st.none() | st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([269.0, 270])
refusals = st.builds(
    ReportedFailure, st.sampled_from([*NODES, "stranger"]), st.just("XID"), st.booleans()
)
jobs = st.lists(
    st.builds(
        JobResult,
        category=st.sampled_from([REDUCE, DCGM]),
        nodes=nodes,
        has_passed=st.booleans(),
        measured_value=figures,
        reason=st.sampled_from(["", "it broke"]),
        reported_failures=st.lists(refusals, max_size=2),
    ),
    max_size=6,
)


@given(jobs)
def test_only_passed_jobs_of_every_category_certify_a_node(job_results: list[JobResult]) -> None:
    verdict = judge_nodes([REDUCE, DCGM], job_results, MACHINES, AT)
    for proof in verdict.evidence:
        mine = [job for job in job_results if proof.node in job.nodes]
        assert {job.category for job in mine if job.has_passed} == {REDUCE, DCGM}
        assert not any(
            item.node == proof.node for job in job_results for item in job.reported_failures
        )
        # A failed job that blames other nodes needs no figure.
        for job in (job for job in mine if job.category is REDUCE):
            figure = math.nan if job.measured_value is None else job.measured_value
            assert not job.has_passed or math.isfinite(figure)
            assert not math.isfinite(figure) or figure >= 270
    judged = {item.node for item in (*verdict.evidence, *verdict.failures)} | {*verdict.untested}
    assert judged == {*NODES}
    assert bool(verdict.problem) == (len(verdict.evidence) < len(NODES))


@pytest.mark.slow
@pytest.mark.sampled(1)
@given(jobs)
def test_a_single_faulty_node_ran_alone_or_is_named(job_results: list[JobResult]) -> None:
    for failure in judge_nodes([REDUCE, DCGM], job_results, MACHINES, AT).failures:
        if failure.is_alone:
            assert any(
                job.nodes == [failure.node]
                or any(
                    reported_failure.node == failure.node
                    for reported_failure in job.reported_failures
                )
                for job in job_results
            )


def build_evidence(machine: CertifiableNode) -> NodeEvidence:
    passed = [
        JobResult(test, [machine.node], has_passed=True, measured_value=400.0)
        for test in (REDUCE, DCGM)
    ]
    [evidence] = judge_nodes([REDUCE, DCGM], passed, [machine], AT).evidence
    return evidence


machines = st.builds(
    CertifiableNode,
    node=st.sampled_from(NODES),
    machine=st.sampled_from(["", "m1", "m2"]),
    driver=st.sampled_from(["", "560", "570"]),
    image=st.sampled_from(["", "u22", "u24"]),
)


@given(machines, machines)
def test_evidence_counts_only_for_its_machine_driver_and_image(
    then: CertifiableNode, now: CertifiableNode
) -> None:
    gaps = find_evidence_gaps([now], [build_evidence(then)], [REDUCE, DCGM])
    pairs = [(then.machine, now.machine), (then.driver, now.driver), (then.image, now.image)]
    differs = any(before and after and before != after for before, after in pairs)
    assert bool(gaps) == (then.node != now.node or differs)


def test_other_tests_are_no_evidence() -> None:
    higher = REDUCE.model_copy(update={"floor": 400.0})
    [gap] = find_evidence_gaps([MACHINES[0]], [build_evidence(MACHINES[0])], [higher, DCGM])
    assert gap.because == "other tests"


def test_a_removed_node_needs_no_evidence() -> None:
    evidence = [build_evidence(machine) for machine in MACHINES]
    assert find_evidence_gaps(MACHINES[:2], evidence, [REDUCE, DCGM]) == []
    assert [machine.node for machine in select_current_evidence(evidence, MACHINES[:2])] == [
        "a",
        "b",
    ]


def test_the_planned_change_counts_added_nodes() -> None:
    old: dict[str, Any] = {
        "evidence": [build_evidence(machine).model_dump() for machine in MACHINES],
        "gaps": [],
    }
    assert build_certify_again_change(old) is None
    certify_again_change = build_certify_again_change(old, 1)
    assert certify_again_change is not None
    assert certify_again_change.because == "certify again: 1 new node"
    stale = {**old, "gaps": [{"node": "a", "because": "another machine"}]}
    both = build_certify_again_change(stale, 2)
    assert both is not None
    assert both.because == ("certify again: 2 new nodes, 1 node that now is another machine (a)")


@pytest.mark.parametrize(
    ("instance", "reason"), [("machine-a", "certify again: 1 repaired node (a)"), ("other", None)]
)
def test_a_repair_is_a_reason_for_the_machine_that_it_repairs(
    instance: str, reason: str | None
) -> None:
    proven = {"node": "a", "machine": "machine-a", "categories": []}
    repair = NodeRepair(
        node="a", mode="REBOOT_VM", cause="asked", because="requested", instance=instance
    )
    change = build_certify_again_change({"evidence": [proven]}, repairs=[repair])
    assert (change.because if change else None) == reason

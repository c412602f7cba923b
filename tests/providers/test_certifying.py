"""What tests prove of nodes, and for how long: no figure, no proof."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.certifying import (
    JobResult,
    Machine,
    ReportedFailure,
    build_certify_again_change,
    find_evidence_gaps,
    judge_nodes,
    select_current_evidence,
)
from gpuform.schemas.policies.certification import CategoryInputs, NodeEvidence

NODES = ["a", "b", "c", "d"]
AT = "2026-03-01T08:00:00Z"
REDUCE = CategoryInputs(
    domain="communication", variant="nccl-all-reduce", floor=300, tolerance="10%"
)
DCGM = CategoryInputs(domain="diagnostics", variant="dcgm-level4")
MACHINES = [Machine(node, f"machine-{node}", "560", "ubuntu") for node in NODES]

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
def test_a_node_is_proven_by_a_passed_job_of_each_category_alone(told: list[JobResult]) -> None:
    verdict = judge_nodes([REDUCE, DCGM], told, MACHINES, AT)
    for proof in verdict.evidence:
        mine = [job for job in told if proof.node in job.nodes]
        assert {job.category for job in mine if job.has_passed} == {REDUCE, DCGM}
        assert not any(each.node == proof.node for job in told for each in job.reported_failures)
        for job in mine:
            assert job.category is DCGM or (
                job.measured_value is not None and job.measured_value >= 270
            )
            assert job.category is DCGM or math.isfinite(job.measured_value or math.nan)
    judged = {each.node for each in (*verdict.evidence, *verdict.failures)} | {*verdict.untested}
    assert judged == {*NODES}
    assert bool(verdict.problem) == (len(verdict.evidence) < len(NODES))


@pytest.mark.slow
@pytest.mark.sampled(1)
@given(jobs)
def test_who_is_at_fault_alone_was_alone_or_is_named(told: list[JobResult]) -> None:
    for failure in judge_nodes([REDUCE, DCGM], told, MACHINES, AT).failures:
        if failure.is_alone:
            assert any(
                job.nodes == [failure.node]
                or any(each.node == failure.node for each in job.reported_failures)
                for job in told
            )


def proof(machine: Machine) -> NodeEvidence:
    passed = [
        JobResult(each, [machine.node], has_passed=True, measured_value=400.0)
        for each in (REDUCE, DCGM)
    ]
    [evidence] = judge_nodes([REDUCE, DCGM], passed, [machine], AT).evidence
    return evidence


machines = st.builds(
    Machine,
    node=st.sampled_from(NODES),
    machine=st.sampled_from(["", "m1", "m2"]),
    driver=st.sampled_from(["", "560", "570"]),
    image=st.sampled_from(["", "u22", "u24"]),
)


@given(machines, machines)
def test_a_proof_holds_for_the_machine_driver_and_system_that_it_names(
    then: Machine, now: Machine
) -> None:
    gaps = find_evidence_gaps([now], [proof(then)], [REDUCE, DCGM])
    told = [(then.machine, now.machine), (then.driver, now.driver), (then.image, now.image)]
    differs = any(before and after and before != after for before, after in told)
    assert bool(gaps) == (then.node != now.node or differs)


def test_other_tests_prove_nothing() -> None:
    higher = REDUCE.model_copy(update={"floor": 400.0})
    [gap] = find_evidence_gaps([MACHINES[0]], [proof(MACHINES[0])], [higher, DCGM])
    assert gap.because == "other tests"


def test_who_has_left_needs_no_proof() -> None:
    evidence = [proof(each) for each in MACHINES]
    assert find_evidence_gaps(MACHINES[:2], evidence, [REDUCE, DCGM]) == []
    assert [each.node for each in select_current_evidence(evidence, MACHINES[:2])] == ["a", "b"]


def test_the_row_counts_the_nodes_that_a_plan_adds() -> None:
    old: dict[str, Any] = {"evidence": [proof(each).model_dump() for each in MACHINES], "gaps": []}
    assert build_certify_again_change(old) is None
    one = build_certify_again_change(old, 1)
    assert one is not None
    assert one.because == "certify again: 1 new node"
    stale = {**old, "gaps": [{"node": "a", "because": "another machine"}]}
    both = build_certify_again_change(stale, 2)
    assert both is not None
    assert both.because == ("certify again: 2 new nodes, 1 node that now is another machine (a)")

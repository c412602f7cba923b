"""The gate on rehearsals: what each limit finds, and plans that were not rehearsed."""

from pathlib import Path
from typing import Any

import pytest
from support.stacks.hand_made_rehearsals import TRAIN, build_outcome, build_rehearsal

from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan, PlanAction, PlanReason, ResourceChange
from gpuform.schemas.rehearsal import HazardKind, Rehearsal
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.gates.evaluating import GateEvaluator, list_blocking_gates
from gpuform.stacks.gates.file import read_gates
from gpuform.stacks.multi_stack import MultiStackWorkspace
from gpuform.stacks.operations.multi_stack.combined_plan import evaluate_workspace_gates
from gpuform.stacks.review.summary_text import render_plan_gates

LIMITS = "{max_lost_gpus: 0, max_gpu_hours_without_work: 8, jobs_ended: 0}"


def build_plan(stack: str, rehearsal: Rehearsal | None) -> Plan:
    change = ResourceChange(
        urn=TRAIN, type=TRAIN, name="train", action=PlanAction.UPDATE, reason=PlanReason.CHANGED
    )
    planned = Plan.from_changes("demo", stack, [change])
    return planned.model_copy(update={"rehearsal": rehearsal})


def evaluate_together(
    tmp_path: Path, *rehearsals: Rehearsal | None, together: Rehearsal | None = None
) -> list[str]:
    file = tmp_path / "stacks.yaml"
    file.write_text(f"stacks: [{{folder: demo}}]\ngates: {{safe: {{rehearsal: {LIMITS}}}}}\n")
    plans = tuple(build_plan(f"s{number}", item) for number, item in enumerate(rehearsals))
    workspace = MultiStackWorkspace(tmp_path, file=file)
    plan = StacksPlan(plans=plans, rehearsal=together)
    (result,) = evaluate_workspace_gates(plan, workspace, (), {}).gates or ()
    return list(result.findings)


def evaluate(
    tmp_path: Path,
    limits: str,
    rehearsal: Rehearsal | None,
    *,
    allowed: tuple[str, ...] = (),
    **plan: Any,
) -> Plan:
    file = tmp_path / "gates.yaml"
    file.write_text(f"gates:\n  safe: {{rehearsal: {limits}}}\n")
    planned = build_plan("dev", rehearsal).model_copy(update=plan)
    return GateEvaluator(read_gates(file, "gates.yaml"), allowed, tmp_path).evaluate(planned)


def list_findings(plan: Plan) -> list[str]:
    (result,) = plan.gates or ()
    return list(result.findings)


def test_a_plan_without_loss_passes(tmp_path: Path) -> None:
    rehearsal = build_rehearsal(build_outcome(HazardKind.KILLED))
    assert list_findings(evaluate(tmp_path, LIMITS, rehearsal)) == []


def test_each_limit_names_the_hazard_that_exceeds_it_most(tmp_path: Path) -> None:
    rehearsal = build_rehearsal(
        build_outcome(HazardKind.NO_CAPACITY, lost_gpus=16, gpu_hours_without_work=384.0),
        build_outcome(HazardKind.KILLED, lost_gpus=8, gpu_hours_without_work=4.0),
        build_outcome(HazardKind.JOB_STARTS, jobs_ended=("tune",)),
    )
    assert list_findings(evaluate(tmp_path, LIMITS, rehearsal)) == [
        "no-capacity for cluster train: 16 lost GPUs: the limit is 0",
        "no-capacity for cluster train: 384 GPU-hours without work: the limit is 8",
        "job-starts for cluster train: 1 ended jobs: the limit is 0",
    ]


def test_only_declared_limits_count(tmp_path: Path) -> None:
    rehearsal = build_rehearsal(build_outcome(HazardKind.JOB_STARTS, jobs_ended=("tune",)))
    assert list_findings(evaluate(tmp_path, "{max_lost_gpus: 0}", rehearsal)) == []


def test_a_finding_says_how_many_of_many_changes_were_played(tmp_path: Path) -> None:
    rehearsal = build_rehearsal(
        build_outcome(HazardKind.KILLED, lost_gpus=8), changes=200, played_changes=4
    )
    assert list_findings(evaluate(tmp_path, LIMITS, rehearsal)) == [
        "killed for cluster train: 8 lost GPUs: the limit is 0 (played: 4 of 200 changes)"
    ]


def read_note(plan: Plan) -> str:
    (result,) = plan.gates or ()
    assert result.findings == ()
    return result.note


@pytest.mark.parametrize(
    ("facts", "share"),
    [({}, "1 change"), ({"changes": 200, "played_changes": 4}, "4 of 200 changes")],
)
def test_a_gate_that_passes_says_how_much_was_played(
    tmp_path: Path, facts: dict[str, Any], share: str
) -> None:
    rehearsal = build_rehearsal(build_outcome(HazardKind.KILLED), **facts)
    plan = evaluate(tmp_path, LIMITS, rehearsal)
    assert read_note(plan) == f"{share} played under 1 hazard"
    assert list(render_plan_gates(plan))[1] == f"    safe passed: {share} played under 1 hazard"


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        ({"stack": "prod"}, "the rehearsal is one of stack demo/prod, not of demo/dev: save it"),
        ({"actions": {}}, "without 1 of the 1 change of this plan (replace train): save it"),
        ({"actions": {TRAIN: "update"}}, "without 1 of the 1 change of this plan (replace train)"),
    ],
)
def test_a_rehearsal_of_another_plan_is_refused(
    tmp_path: Path, facts: dict[str, Any], problem: str
) -> None:
    (change,) = build_plan("dev", None).changes
    replacement = change.model_copy(update={"action": PlanAction.REPLACE})
    plan = evaluate(tmp_path, LIMITS, build_rehearsal(**facts), changes=(replacement,))
    (finding,) = list_findings(plan)
    assert problem in finding


def test_a_run_that_does_less_than_its_rehearsed_plan_passes(tmp_path: Path) -> None:
    rehearsal = build_rehearsal(changes=2, actions={TRAIN: "replace", "urn-of-others": "create"})
    assert list_findings(evaluate(tmp_path, LIMITS, rehearsal)) == []


def test_the_loss_of_the_plan_itself_counts(tmp_path: Path) -> None:
    usual = build_outcome(HazardKind.NONE, "nothing goes wrong", gpu_hours_without_work=9.0)
    (finding,) = list_findings(evaluate(tmp_path, LIMITS, build_rehearsal(usual)))
    assert finding == "nothing goes wrong: 9 GPU-hours without work: the limit is 8"


def test_a_plan_that_was_not_rehearsed_is_refused_with_the_remedy(tmp_path: Path) -> None:
    plan = evaluate(tmp_path, LIMITS, None)
    (finding,) = list_findings(plan)
    assert finding.startswith("the plan was not rehearsed: save it with `gpuform preview")
    assert [gate.permission for gate in list_blocking_gates(plan)] == ["gate:safe"]


def test_a_permission_of_the_run_lifts_the_gate(tmp_path: Path) -> None:
    plan = evaluate(tmp_path, LIMITS, None, allowed=("gate:safe",))
    assert list_findings(plan)
    assert list_blocking_gates(plan) == []


def test_a_rehearsal_of_something_else_is_refused(tmp_path: Path) -> None:
    rehearsal = build_rehearsal(differences=("train: replace instead of update",))
    (finding,) = list_findings(evaluate(tmp_path, LIMITS, rehearsal))
    assert finding == "the rehearsal says nothing about this plan: train: replace instead of update"


def test_a_run_that_fails_without_a_hazard_is_refused(tmp_path: Path) -> None:
    usual = build_outcome(
        HazardKind.NONE, "nothing goes wrong", ending="failed", errors=("volume data is attached",)
    )
    (finding,) = list_findings(evaluate(tmp_path, LIMITS, build_rehearsal(usual)))
    assert finding == (
        "the rehearsed run fails even if nothing goes wrong: volume data is attached"
    )


@pytest.mark.parametrize("facts", [{"changes": (), "summary": {}}, {"operation": "expire"}])
def test_plans_that_nobody_rehearses_pass(tmp_path: Path, facts: dict[str, Any]) -> None:
    assert list_findings(evaluate(tmp_path, LIMITS, None, **facts)) == []


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ("{}", "gates.safe.rehearsal: has no limit: declare one of max_lost_gpus"),
        ("{max_lost_gpus: -1}", "gates.safe.rehearsal.max_lost_gpus"),
        ("{max_lost_gpu: 0}", "did you mean max_lost_gpus?"),
        ("{jobs_ended: 0}, resources: [train]", "conflicts with rehearsal"),
    ],
)
def test_a_mistake_in_the_limits_is_reported(tmp_path: Path, limits: str, problem: str) -> None:
    with pytest.raises(EngineError) as error:
        evaluate(tmp_path, limits, None)
    assert problem in str(error.value)


def test_a_gate_over_all_stacks_adds_the_undisturbed_losses_of_the_other_stacks(
    tmp_path: Path,
) -> None:
    usual = build_outcome(HazardKind.NONE, "nothing goes wrong", gpu_hours_without_work=3.0)
    killed = build_outcome(HazardKind.KILLED, "the run is killed", gpu_hours_without_work=6.0)
    assert evaluate_together(tmp_path, build_rehearsal(usual)) == []

    findings = evaluate_together(tmp_path, build_rehearsal(usual), build_rehearsal(usual, killed))

    assert findings == ["demo/s1: the run is killed: 9 GPU-hours without work: the limit is 8"]


def test_a_gate_over_all_stacks_names_the_stack_that_was_not_rehearsed(tmp_path: Path) -> None:
    (finding,) = evaluate_together(tmp_path, build_rehearsal(), None)
    assert finding == (
        "the rehearsal says nothing about this plan: demo/s1: the plan was not rehearsed"
    )
    (finding,) = evaluate_together(tmp_path, None, None)
    assert "`gpuform preview --all --save-plan FILE --rehearse`" in finding


def test_the_stacks_together_add_to_the_rehearsal_of_each_and_never_replace_it(
    tmp_path: Path,
) -> None:
    killed = build_outcome(HazardKind.KILLED, "the run is killed between them", lost_gpus=8)
    usual = build_outcome(HazardKind.NONE, ending="failed", errors=("volume data is attached",))
    together = build_rehearsal(killed, usual, differences=("another plan",))
    alone = build_rehearsal()

    assert evaluate_together(tmp_path, alone, alone, together=together) == [
        "the rehearsal says nothing about this plan: all stacks together: another plan",
        "the rehearsal says nothing about this plan: all stacks together: volume data is attached",
        "all stacks together: the run is killed between them: 8 lost GPUs: the limit is 0",
    ]
    (finding,) = evaluate_together(tmp_path, alone, None, together=alone)
    assert finding.endswith("demo/s1: the plan was not rehearsed")


def test_a_gate_over_all_stacks_refuses_a_run_that_fails_without_a_hazard(tmp_path: Path) -> None:
    usual = build_outcome(HazardKind.NONE, ending="failed", errors=("volume data is attached",))
    findings = evaluate_together(tmp_path, build_rehearsal(), build_rehearsal(usual))
    assert findings == [
        "the rehearsed run fails even if nothing goes wrong: volume data is attached"
    ]

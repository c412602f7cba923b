"""`preview --rehearse`: its result is in the saved plan, its seal and reviews, and gates read it.

What a rehearsal shows is made by hand here; `tests/rehearsing` has real ones.
"""

import json
from typing import Any

import pytest
from support.stacks.hand_made_rehearsals import build_outcome, build_rehearsal
from support.stacks.planned_project import PlannedProject

from gpuform.schemas.rehearsal import HazardKind, Rehearsal

pytestmark = pytest.mark.slow

GATE = "gates: {safe: {rehearsal: {max_lost_gpus: 0}}}\n"


@pytest.fixture
def gated_project(applied_project: PlannedProject) -> PlannedProject:
    """Return a project whose gate wants rehearsed plans, and whose next plan is an update."""
    (applied_project.project / "gates.yaml").write_text(GATE)
    applied_project.run("config", "set", "gpus", "24")
    return applied_project


def save_rehearsed_plan(
    project: PlannedProject, monkeypatch: pytest.MonkeyPatch, rehearsal: Rehearsal
) -> Any:
    monkeypatch.setattr("gpuform.stacks.rehearsing.rehearse", lambda *_arguments: rehearsal)
    return project.run("preview", "--save-plan", "plan.json", "--rehearse")


def test_a_saved_plan_with_a_harmless_rehearsal_passes_the_gate(
    gated_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsal = build_rehearsal(build_outcome(HazardKind.KILLED))
    saved = save_rehearsed_plan(gated_project, monkeypatch, rehearsal)
    assert saved.code == 0, saved.out + saved.err
    assert "If something goes wrong: nothing is lost" in saved.out
    assert gated_project.plan_document["rehearsal"] == json.loads(rehearsal.model_dump_json())
    assert "nothing is lost" in gated_project.run("review", "plan.json").out

    applied = gated_project.apply_plan()

    assert applied.code == 0, applied.out + applied.err


def test_a_rehearsal_with_losses_stops_the_plan_and_its_apply(
    gated_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = build_outcome(HazardKind.NO_CAPACITY, "no capacity for train", lost_gpus=16)
    saved = save_rehearsed_plan(gated_project, monkeypatch, build_rehearsal(outcome))
    assert saved.code == 5
    assert "no capacity for train: 16 lost GPUs: the limit is 0" in saved.err

    applied = gated_project.apply_plan()

    assert applied.code == 5
    assert "Nothing was changed." in applied.err


def test_a_plan_without_a_rehearsal_is_stopped(gated_project: PlannedProject) -> None:
    stopped = gated_project.run("up", "--yes")
    assert stopped.code == 5
    assert "gate safe: stops the plan: the plan was not rehearsed" in stopped.err


def test_a_plan_whose_rehearsal_was_edited_is_refused(
    gated_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = build_outcome(HazardKind.NO_CAPACITY, "no capacity for train", lost_gpus=16)
    save_rehearsed_plan(gated_project, monkeypatch, build_rehearsal(outcome))

    def hide_the_loss(document: Any) -> None:
        document["rehearsal"]["outcomes"][0]["lost_gpus"] = 0

    gated_project.edit_plan(hide_the_loss)

    assert "was edited after it was saved" in gated_project.apply_refused_plan()


@pytest.mark.parametrize("flag", [("--plan", "plan.json"), ("--all",)])
def test_rehearse_is_refused_where_another_command_has_it(
    planned_project: PlannedProject, flag: tuple[str, ...]
) -> None:
    refused = planned_project.run("preview", "--rehearse", *flag)
    assert refused.code == 2
    assert f"--rehearse cannot be combined with {flag[0]}" in refused.err

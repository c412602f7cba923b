"""`preview --rehearse`: its result is in the saved plan, its seal and reviews, and gates read it.

What a rehearsal shows is made by hand here; `tests/rehearsing` has real ones.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from support.stacks.hand_made_rehearsals import build_outcome, build_rehearsal
from support.stacks.planned_project import PlannedProject
from support.stacks.workspace import Workspace, create_workspace

from gpuform.providers.emulator.server import serve
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


def test_rehearse_is_refused_where_another_command_has_it(planned_project: PlannedProject) -> None:
    refused = planned_project.run("preview", "--rehearse", "--plan", "plan.json")
    assert refused.code == 2
    assert "--rehearse cannot be combined with --plan" in refused.err


def test_rehearsals_of_all_stacks_are_in_the_combined_plan_and_pass_its_gates(
    tmp_path: Path,
) -> None:
    with serve(seed="rehearsed together") as server:
        workspace = create_workspace(tmp_path / "fleet", server.url, {}, {})
        workspace.run_successfully("up", "--all", "--yes")
        workspace.edit("training/topology.yaml", "default: 16", "default: 24")
        (workspace.root / "training/gates.yaml").write_text(GATE)
        with (workspace.root / "stacks.yaml").open("a") as stacks_file:
            stacks_file.write(GATE.replace("safe", "everywhere"))
        stopped = workspace.run("up", "--all", "--yes")
        assert stopped.code == 5
        assert "save it with `gpuform preview --all --save-plan FILE --rehearse`" in stopped.stderr

        saved = workspace.run_successfully(
            "preview", "--all", "--save-plan", "plan.json", "--rehearse"
        )

        # The cluster mounts a volume of another stack, which is on the rehearsal's emulator, too.
        assert "harmless: no-capacity" in saved
        document = json.loads((workspace.root / "plan.json").read_text())
        rehearsed = [plan["stack"] for plan in document["plans"] if plan["rehearsal"]]
        assert (len(document["plans"]), len(rehearsed)) == (3, 1)
        assert document["rehearsal"] is None, "only one stack has changes"
        review = workspace.run_successfully("review", "plan.json", "--format", "github")
        assert "training/dev" in review
        assert "If something goes wrong" in review
        workspace.run_successfully("up", "--all", "--plan", "plan.json", "--yes")


COMPONENT = "import pulumi\n\npulumi.ComponentResource('pkg:index:Thing', 'thing')\n"


def test_stacks_with_changes_are_also_rehearsed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "Pulumi.yaml").write_text(f"name: {name}\nruntime: python\n")
        (tmp_path / name / "__main__.py").write_text(COMPONENT)
    (tmp_path / "stacks.yaml").write_text("stacks: [{folder: '*', stack: dev}]\n")
    (tmp_path / "state").mkdir()
    workspace = Workspace(
        tmp_path,
        {"PULUMI_BACKEND_URL": (tmp_path / "state").as_uri(), "PULUMI_CONFIG_PASSPHRASE": "a"},
    )
    workspace.run_successfully("stack", "init", "--all")

    flags = ("--all", "--save-plan", "plan.json", "--rehearse")
    output = json.loads(workspace.run_successfully("preview", *flags, "--json"))

    saved = json.loads((tmp_path / "plan.json").read_text())
    rehearsal = Rehearsal.model_validate(saved["rehearsal"])
    assert Rehearsal.model_validate(output["rehearsal"]) == rehearsal
    assert (rehearsal.project, rehearsal.changes, rehearsal.differences) == ("", 2, ())
    together = "with all stacks together: nothing is lost"
    assert together in workspace.run_successfully("review", "plan.json")
    review = workspace.run_successfully("review", "plan.json", "--format", "github")
    assert "all stacks together: nothing is lost" in review
    review = workspace.run_successfully("review", "plan.json", "--format", "json")
    assert Rehearsal.model_validate(json.loads(review)["rehearsal"]) == rehearsal

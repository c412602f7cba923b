"""Saved plans of `destroy` and `refresh`: made, reviewed, refused when overtaken, and applied."""

import json
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject

GATE = "gates:\n  few: {max_destroyed_gpus: 8}\n"


def get_gpus_in_state(planned_project: PlannedProject) -> Any:
    resources = json.loads(planned_project.state_file)["checkpoint"]["latest"]["resources"]
    (train,) = (resource for resource in resources if resource["urn"].endswith("::train"))
    return train["outputs"]["num_gpus"]


@pytest.mark.slow
def test_preview_only_of_destroy_and_refresh_changes_nothing(
    applied_project: PlannedProject,
) -> None:
    applied_project.resize_cluster_outside(24)
    before = applied_project.state_file, applied_project.sent_changes
    for command, message in (("destroy", "- 2 to delete"), ("refresh", "~ num_gpus: 16 => 24")):
        ran = applied_project.run(command, "--preview-only")
        assert ran.code == 0, ran.err
        assert message in ran.out
        assert applied_project.run(command, "--preview-only", "--json").json["changeSummary"]
        assert applied_project.run(command, "--save-plan", "plan.json", "--yes").code == 0
        assert (
            f"To apply it, run `gpuform {command} --plan plan.json`."
            in applied_project.run(command, "--save-plan", "plan.json").out
        )
    assert (applied_project.state_file, applied_project.sent_changes) == before
    assert not list((applied_project.project / ".pulumi/locks").rglob("*.json"))


@pytest.mark.slow
def test_a_saved_destroy_plan_is_reviewed_and_applied(
    applied_project: PlannedProject, terminal: None
) -> None:
    assert applied_project.run("destroy", "--save-plan", "plan.json", "--target", "train").code == 0
    assert applied_project.plan_document["operation"] == "destroy"
    ran = applied_project.run("review", "plan.json", "--fail-on-danger")
    assert ran.code == 3
    assert "gpuform destroy --plan plan.json --digest " in ran.out
    assert "refuses a saved plan, before the first change" in ran.out
    assert applied_project.run("preview", "--plan", "plan.json", "--target", "train").code == 0
    assert "leave --exclude out" in applied_project.apply_refused_plan("--exclude", "train")
    # `up` asks what `destroy` asks.
    assert applied_project.run("up", "--plan", "plan.json", answers="yes\nno\n").code == 1
    ran = applied_project.run("up", "--plan", "plan.json", answers="dev\n")
    assert ran.code == 0, ran.out + ran.err
    assert "Destroying (dev" in ran.out
    assert "was deleted since the plan" in applied_project.apply_refused_plan()
    history = applied_project.run("stack", "history", "--json").json
    assert history[0]["kind"] == "destroy"


@pytest.mark.slow
def test_the_json_of_a_destroy_preview_is_reviewed_as_destroy(
    applied_project: PlannedProject,
) -> None:
    ran = applied_project.run("destroy", "--preview-only", "--json")
    (applied_project.project / "preview.json").write_text(ran.out)
    ran = applied_project.run("review", "preview.json")
    assert ran.code == 0, ran.err
    assert "Plan of demo/dev: destroy" in ran.out
    assert "gpuform destroy --stack dev" in ran.out
    assert "no longer in the program" not in ran.out


@pytest.mark.slow
def test_an_outdated_destroy_plan_is_refused(applied_project: PlannedProject) -> None:
    assert applied_project.run("destroy", "--save-plan", "plan.json").code == 0
    plan = (applied_project.project / "plan.json").read_text()
    applied_project.edit_plan(lambda document: document.update(operation="refresh"))
    assert "was edited after it was saved" in applied_project.apply_refused_plan()
    (applied_project.project / "plan.json").write_text(plan)
    ran = applied_project.run("refresh", "--plan", "plan.json", "--yes")
    assert ran.code == 1
    assert "plan.json is a plan of another operation: destroy" in ran.err
    applied_project.edit_program(("size_tib=5", "size_tib=6"))
    assert applied_project.run("up", "--yes").code == 0
    assert "state of urn:pulumi:dev" in applied_project.apply_refused_plan()
    ran = applied_project.run("preview", "--plan", "plan.json")
    assert ran.code == 1
    assert "is out of date" in ran.err


@pytest.mark.slow
def test_gates_stop_a_saved_destroy_plan(applied_project: PlannedProject) -> None:
    (applied_project.project / "gates.yaml").write_text(GATE)
    assert applied_project.run("destroy", "--save-plan", "plan.json").code == 5
    assert applied_project.plan_document["gates"][0]["name"] == "few"
    assert applied_project.run("review", "plan.json", "--detailed-exitcode").code == 5
    before = applied_project.state_file, applied_project.sent_changes
    for command in ("up", "destroy"):
        assert applied_project.run(command, "--plan", "plan.json", "--yes").code == 5
    assert (applied_project.state_file, applied_project.sent_changes) == before
    ran = applied_project.run("destroy", "--plan", "plan.json", "--yes", "--allow", "gate:few")
    assert ran.code == 0, ran.err


@pytest.mark.slow
def test_a_saved_refresh_plan_applies_the_planned_drift(applied_project: PlannedProject) -> None:
    applied_project.resize_cluster_outside(24)
    assert applied_project.run("refresh", "--save-plan", "plan.json").code == 0
    assert applied_project.plan_document["operation"] == "refresh"
    applied_project.resize_cluster_outside(32)
    before = applied_project.state_file
    for command in ("up", "refresh"):
        ran = applied_project.run(command, "--plan", "plan.json", "--yes")
        assert ran.code == 1
        assert "train would set num_gpus to another value than planned" in ran.err
    assert applied_project.state_file == before
    applied_project.resize_cluster_outside(24)
    ran = applied_project.run("refresh", "--plan", "plan.json", "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert get_gpus_in_state(applied_project) == 24


@pytest.mark.slow
def test_a_saved_refresh_plan_refuses_later_drift(
    applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The apply refuses even drift that occurs after its own preview."""
    assert applied_project.run("refresh", "--save-plan", "plan.json").code == 0

    def confirm(*_: object) -> bool:
        applied_project.resize_cluster_outside(24)
        return True

    monkeypatch.setattr("gpuform.stacks.operations.runs.runner.PlannedRun._is_confirmed", confirm)
    ran = applied_project.run("refresh", "--plan", "plan.json", "--yes")
    assert ran.code == 1
    assert "would be imported from its platform, which the plan does not contain" in ran.out
    assert get_gpus_in_state(applied_project) == 16

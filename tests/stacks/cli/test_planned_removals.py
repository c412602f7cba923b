"""Test that a plan counts the nodes of the platform, and that a run removes no more than its plan.

Somebody else enlarges the cluster of the stack, which has two nodes of eight GPUs.
"""

from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject

from gpuform.stacks.operations.runs.runner import PlannedRun

GATE = "gates:\n  few: {max_destroyed_gpus: 8}\n"


def plan_train(project: PlannedProject, *command: str) -> Any:
    """Save a plan, and return the change of the cluster."""
    ran = project.run(*(command or ("preview",)), "--save-plan", "plan.json")
    assert ran.code == 0, ran.out + ran.err
    (change,) = (c for c in project.plan_document["changes"] if c["name"] == "train")
    return change


@pytest.mark.slow
def test_a_plan_that_shrinks_counts_the_nodes_of_the_platform(
    applied_project: PlannedProject,
) -> None:
    applied_project.resize_cluster_outside(32)
    assert plan_train(applied_project, "destroy")["gpus_removed"] == 32
    applied_project.run("config", "set", "gpus", "8")
    change = plan_train(applied_project)
    assert (change["gpus_removed"], change["gpus_added"]) == (24, 0)
    assert [node["gpus"] for node in change["leaving"]["nodes"]] == [8, 8, 8]
    assert "removes 24 GPUs" in applied_project.run("review", "plan.json").out
    (applied_project.project / "gates.yaml").write_text(GATE)
    ran = applied_project.run("up", "--yes")
    assert ran.code == 5
    assert "the plan removes 24 GPUs (train): the limit is 8" in ran.out + ran.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "gpus", "planned"),
    [
        ("up", 24, "the plan removes none"),
        ("up", 8, "the plan removes 1 node with 8 GPUs"),
        ("destroy", 16, "the plan removes 2 nodes with 16 GPUs"),
    ],
)
def test_a_run_removes_no_more_than_its_plan(
    applied_project: PlannedProject,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    gpus: int,
    planned: str,
) -> None:
    confirm = PlannedRun._is_confirmed

    def enlarge_while_the_plan_is_read(run: PlannedRun, *arguments: Any) -> bool:
        applied_project.resize_cluster_outside(32)
        sent_changes[:] = applied_project.sent_changes
        return confirm(run, *arguments)

    sent_changes: list[str] = []
    monkeypatch.setattr(PlannedRun, "_is_confirmed", enlarge_while_the_plan_is_read)
    applied_project.run("config", "set", "gpus", str(gpus))
    ran = applied_project.run(command, "--yes")
    assert ran.code == 1, ran.out + ran.err
    assert applied_project.sent_changes == sent_changes
    assert planned in ran.out + ran.err
    assert "it has grown since the plan was made; gpuform did not request this" in (
        ran.out + ran.err
    )


@pytest.mark.slow
def test_a_saved_plan_deletes_an_autoscaled_cluster_of_any_size_up_to_its_maximum(
    planned_project: PlannedProject,
) -> None:
    planned_project.edit_program(
        ("    volume_id=", "    auto_scale=True,\n    auto_scale_max_gpus=32,\n    volume_id=")
    )
    assert planned_project.run("up", "--yes", "--skip-preview").code == 0
    assert plan_train(planned_project, "destroy")["gpus_removed"] == 32
    review = planned_project.run("review", "plan.json").out
    assert "destroys up to 32 GPUs" in review
    assert "GPUs: up to 32 destroyed, none added" in review
    planned_project.resize_cluster_outside(24)
    ran = planned_project.apply_plan()
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.slow
def test_a_saved_plan_is_refused_if_more_nodes_would_be_removed(
    applied_project: PlannedProject,
) -> None:
    plan_train(applied_project, "destroy")
    applied_project.resize_cluster_outside(32)
    assert (
        "train: this would remove 4 nodes with 32 GPUs, and the plan removes 2 nodes with 16 GPUs"
        in applied_project.apply_refused_plan()
    )

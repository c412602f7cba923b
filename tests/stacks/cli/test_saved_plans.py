"""`preview --save-plan` and `up --plan`, over an emulator whose requests are counted."""

import os
import stat
import subprocess
import sys
from importlib.metadata import version

import pytest
from support.stacks.planned_project import PlannedProject

from gpuform.stacks.engine.planning import NEW_PLAN_HINT

TRAIN = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.together:Cluster::train"
DATA = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.together:SharedVolume::data"
FOLLOWING = "dependencies, property_dependencies"
STACK = "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"


@pytest.mark.slow
def test_a_saved_plan_is_applied_as_planned(planned_project: PlannedProject) -> None:
    ran = planned_project.run("preview", "--save-plan", "plan.json")
    assert ran.code == 0
    assert "Saved the plan to plan.json. To apply it, run `gpuform up --plan plan.json`." in ran.out
    assert planned_project.sent_changes == []
    assert stat.S_IMODE((planned_project.project / "plan.json").stat().st_mode) == 0o600
    document = planned_project.plan_document
    assert document["made_by"] == f"gpuform {version('gpuform')}"
    assert document["made_at"].endswith("Z")
    assert document["operation"] == "update"
    assert document["outputs"][0] == {
        "name": "kubeconfig",
        "action": "add",
        "before": None,
        "after": None,
        "unknown": True,
        "secret": False,
    }
    assert document["outputs"][1]["after"] == {"region": "us-central-8", "token": "[secret]"}
    assert document["basis"]["state"] == {}
    assert document["basis"]["effects"] == {TRAIN: ["create"], DATA: ["create"]}

    ran = planned_project.apply_plan()
    assert ran.code == 0, ran.err
    assert ran.out.index("Previewing update (dev, emulated):") < ran.out.index(
        "Updating (dev, emulated):"
    )
    assert "    + 2 created" in ran.out
    assert len(planned_project.sent_changes) == 2
    assert (
        "the plan plan.json is out of date, and nothing was changed:"
        in planned_project.apply_refused_plan()
    )


@pytest.mark.slow
def test_a_saved_plan_without_changes_sends_nothing(applied_project: PlannedProject) -> None:
    applied_project.save_plan()
    before = applied_project.sent_changes
    assert "2 unchanged" in applied_project.apply_plan("--expect-no-changes").out
    assert applied_project.sent_changes == before


@pytest.mark.slow
def test_a_saved_plan_works_with_json(planned_project: PlannedProject) -> None:
    ran = planned_project.run("preview", "--json", "--save-plan", "plan.json")
    assert ran.json["changeSummary"] == {"create": 3}
    assert "Saved the plan to plan.json" in ran.err
    ran = planned_project.apply_plan("--json")
    assert ran.code == 0
    assert [line for line in ran.lines if "summaryEvent" in line]


# The set is pickled in another order in each process.
OWN = """
from pulumi.dynamic import CreateResult, Resource, ResourceProvider

class Own(ResourceProvider):
    def create(self, props):
        return CreateResult("own", {"known": "a" in {"a", "b", "c", "d", "e"}})

class Thing(Resource):
    pass

Thing(Own(), "own", {})
"""


@pytest.mark.slow
def test_another_process_applies_a_saved_plan(planned_project: PlannedProject) -> None:
    planned_project.edit_program(("print(", f"{OWN}print("))
    planned_project.save_plan()
    command = [sys.executable, "-m", "gpuform.stacks.cli", "up", "--plan", "plan.json", "--yes"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert len(planned_project.sent_changes) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
def test_applying_a_plan_asks_for_confirmation(planned_project: PlannedProject) -> None:
    planned_project.save_plan()
    ran = planned_project.run("up", "--plan", "plan.json", answers="no\n")
    assert "Perform this update?" in ran.out
    assert "Nothing was changed." in ran.out
    assert planned_project.sent_changes == []
    assert planned_project.run("up", "--plan", "plan.json", answers="yes\n").code == 0


@pytest.mark.slow
def test_applying_a_plan_with_skip_preview_still_previews(planned_project: PlannedProject) -> None:
    planned_project.save_plan()
    assert "add --yes" in planned_project.run("up", "--plan", "plan.json").err
    ran = planned_project.run("up", "--plan", "plan.json", "--skip-preview")
    assert ran.code == 0
    # The comparison needs it.
    assert "Previewing update (dev, emulated):" in ran.out


def test_save_plan_replaces_an_older_file(planned_project: PlannedProject) -> None:
    (planned_project.project / "plan.json").write_text("old")
    (planned_project.project / "plan.json").chmod(0o644)
    planned_project.save_plan()
    assert stat.S_IMODE((planned_project.project / "plan.json").stat().st_mode) == 0o600
    assert planned_project.plan_document["stack"] == "dev"


def test_a_failed_preview_saves_no_plan(planned_project: PlannedProject) -> None:
    planned_project.edit_program(('"H100_SXM"', '"H1"'))
    ran = planned_project.run("preview", "--save-plan", "plan.json")
    assert ran.code == 1
    assert not (planned_project.project / "plan.json").exists()


def test_a_plan_file_that_cannot_be_written_is_an_error(planned_project: PlannedProject) -> None:
    (planned_project.project / "file").touch()
    ran = planned_project.run("preview", "--save-plan", "file/plan.json")
    assert ran.code == 1
    assert "error: the plan file/plan.json cannot be written: " in ran.err


@pytest.mark.slow
def test_a_plan_is_refused_after_another_run(applied_project: PlannedProject) -> None:
    applied_project.run("config", "set", "gpus", "24")
    applied_project.save_plan()
    applied_project.run("config", "set", "gpus", "32")
    assert applied_project.run("up", "--yes").code == 0
    applied_project.run("config", "set", "gpus", "24")
    assert applied_project.apply_refused_plan().splitlines() == [
        "error: the plan plan.json is out of date, and nothing was changed:",
        f"  state of {TRAIN} changed since the plan",
        f"  {NEW_PLAN_HINT}",
        "  more: gpuform help concepts/saved-plans",
    ]


def test_a_plan_is_refused_after_a_configuration_change(planned_project: PlannedProject) -> None:
    planned_project.save_plan()
    planned_project.run("config", "set", "gpus", "24")
    assert (
        "\n  configuration key demo:gpus was added since the plan\n"
        in planned_project.apply_refused_plan()
    )


def test_a_plan_is_refused_after_a_program_change(planned_project: PlannedProject) -> None:
    planned_project.save_plan()
    planned_project.edit_program(("    volume_id=data.id,\n", ""))
    moved = f"{TRAIN} declares different inputs: volume_id and options: {FOLLOWING}"
    assert f"\n  program: {moved}\n" in planned_project.apply_refused_plan()

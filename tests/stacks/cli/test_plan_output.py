"""Test the output of plans: order, unknown values, counts and hints."""

import json
import re

import pytest
from support.stacks.planned_project import PlannedProject

MANY = """
import pulumi
from gpuform.providers.together import SharedVolume

names = pulumi.Config().get("names") or "v10 v9 v1 a b"
for name in names.split():
    SharedVolume(name, volume_name=f"volume-{name}", region="us-central-8", size_tib=5)
pulumi.export("z", 1)
pulumi.export("a", pulumi.Output.secret("hunter2"))
"""
COMPONENT = """
import pulumi
from gpuform.providers.together import SharedVolume

team = pulumi.ComponentResource("my:org:Team", "team")
SharedVolume("data", volume_name="data", region="us-central-8", size_tib=5,
             opts=pulumi.ResourceOptions(parent=team))
"""


def write_program(planned_project: PlannedProject, text: str) -> None:
    (planned_project.project / "__main__.py").write_text(text)


def list_changed_names(out: str) -> list[str]:
    return re.findall(r"^[-+~] +(\S+)  together:", out, re.MULTILINE)


def test_changes_are_sorted_by_name(planned_project: PlannedProject) -> None:
    write_program(planned_project, MANY)
    first = planned_project.run("preview").out
    assert list_changed_names(first) == ["a", "b", "v1", "v9", "v10"]
    planned_project.run("config", "set", "names", "b v10 a v9 v1")
    assert planned_project.run("preview").out == first
    positions = [first.index(part) for part in ("+  v10", "Outputs:", "Resources:")]
    assert positions == sorted(positions)
    planned_project.run("up", "--yes", "--skip-preview")
    gone = planned_project.run("destroy", "--preview-only").out
    assert list_changed_names(gone) == ["a", "b", "v1", "v9", "v10"]


@pytest.mark.slow
def test_unknown_values_are_shown_as_known_after_apply(applied_project: PlannedProject) -> None:
    assert "[unknown]" not in applied_project.run("preview").out
    applied_project.run("config", "set", "type", "H200_SXM")
    out = applied_project.run("preview").out
    assert '  ~ status:     "Ready" => [known after apply]' in out
    assert "  ~ kubeconfig: [secret] => [known after apply]" in out
    assert "[unknown]" not in out
    assert "[secret] => [secret]" not in out
    assert "~ place" not in out, "its token did not change"


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("text", [MANY, COMPONENT])
def test_counts_of_resources_agree_between_commands(
    planned_project: PlannedProject, text: str
) -> None:
    write_program(planned_project, text)
    assert planned_project.run("up", "--yes", "--skip-preview").code == 0
    (row,) = planned_project.run("stack", "ls", "--json").json
    count = row["resourceCount"] - 2  # the stack and its provider, which Pulumi's list counts
    assert f"    {count} unchanged\n" in planned_project.run("preview").out
    assert f"\n{count} resources" in planned_project.run("status").out
    assert len(planned_project.run("status", "--refresh", "--json").json["resources"]) == count
    planned_project.save_plan()
    assert f"{count} unchanged" in planned_project.run("review", "plan.json").out
    deleting = planned_project.run("destroy", "--preview-only").out
    assert f"    - {count} to delete\n" in deleting


def test_a_resource_in_another_stack_gets_a_hint_to_its_move(
    planned_project: PlannedProject,
) -> None:
    run = planned_project.run
    write_program(planned_project, MANY)
    run("config", "set", "names", "data")
    assert run("up", "--yes", "--skip-preview").code == 0
    assert run("stack", "init", "prod").code == 0
    assert run("state", "move", "--source", "dev", "--dest", "prod", "data", "--yes").code == 0

    planned = run("preview", "--stack", "dev").out

    message = (
        "data: was moved to stack organization/demo/prod: this plan creates a second object. "
        "Remove it from this program, or move it back: gpuform state move --source "
        "organization/demo/prod data"
    )
    assert f"Notes:\n    {message}\n" in planned
    assert run("stack", "select", "dev").code == 0
    moved_back = message.rpartition(": gpuform ")[2].split()
    assert run(*moved_back, "--yes").code == 0
    assert "Notes:" not in run("preview", "--expect-no-changes").out


def test_a_renamed_resource_gets_a_hint_to_aliases(planned_project: PlannedProject) -> None:
    write_program(planned_project, MANY)
    planned_project.run("config", "set", "names", "data")
    assert planned_project.run("up", "--yes", "--skip-preview").code == 0
    write_program(planned_project, MANY.replace("volume-{name}", "volume-data"))
    planned_project.run("config", "set", "names", "scratch")
    planned_project.save_plan()
    message = (
        "scratch: has the inputs of data, which is deleted: if only its name has changed, keep "
        "the object with `aliases` (- name: data) in its options, or with `gpuform state rename "
        "data scratch`"
    )
    assert f"Notes:\n    {message}\n" in planned_project.run("preview").out
    assert message in planned_project.run("review", "plan.json").out
    messages = [
        diagnostic["message"]
        for diagnostic in planned_project.run("preview", "--json").json["diagnostics"]
    ]
    assert message in messages
    assert planned_project.run("state", "rename", "data", "scratch", "--yes").code == 0
    assert planned_project.run("preview", "--expect-no-changes").code == 0
    write_program(planned_project, MANY)
    planned_project.run("config", "set", "names", "other")
    assert "Notes:" not in planned_project.run("preview").out, "its inputs are others"
    assert json.loads(planned_project.state_file)["version"] == 3

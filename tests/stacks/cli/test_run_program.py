"""`--run-program` and `--clear-pending-creates`, as Pulumi's users type them."""

import json

import pytest
from support.stacks.planned_project import PlannedProject


@pytest.mark.slow
def test_refresh_and_destroy_with_run_program_succeed(applied_project: PlannedProject) -> None:
    ran = applied_project.run("refresh", "--run-program", "--yes")
    assert ran.code == 0, ran.out + ran.err
    saved = applied_project.run("destroy", "--run-program", "--save-plan", "gone.json")
    assert saved.code == 0, saved.out + saved.err
    ran = applied_project.run("destroy", "--plan", "gone.json", "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert applied_project.run("state", "list", "--json").json["resources"] == []


@pytest.mark.slow
def test_a_failing_program_with_run_program_destroys_nothing(
    applied_project: PlannedProject,
) -> None:
    before = applied_project.run("state", "list", "--json").json
    applied_project.edit_program(("import pulumi\n", "import pulumi\n\nraise RuntimeError('no')\n"))
    assert applied_project.run("destroy", "--run-program", "--yes").code == 1
    assert applied_project.run("state", "list", "--json").json == before


@pytest.mark.slow
def test_refresh_clears_pending_creates_only_with_its_flag(applied_project: PlannedProject) -> None:
    state = applied_project.project / ".pulumi/stacks/demo/dev.json"
    document = json.loads(state.read_text())
    latest = document["checkpoint"]["latest"]
    entry = {**latest["resources"][-1], "urn": latest["resources"][-1]["urn"] + "2"}
    del entry["id"]
    latest["pending_operations"] = [{"resource": entry, "type": "creating"}]
    state.write_text(json.dumps(document))
    assert applied_project.run("refresh", "--yes").code == 0
    assert "pending_operations" in applied_project.run("stack", "export").out
    ran = applied_project.run("refresh", "--clear-pending-creates", "--preview-only")
    assert "pending_operations" in applied_project.run("stack", "export").out
    ran = applied_project.run("refresh", "--clear-pending-creates", "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert "removed the record of the interrupted create of" in ran.err
    assert "pending_operations" not in applied_project.run("stack", "export").out

"""`--run-program` and `--clear-pending-creates`, as Pulumi's users type them."""

import json

import pytest
from plan_scenes import PlannedProject


@pytest.mark.slow
def test_a_refresh_and_a_destroy_run_the_program(made: PlannedProject) -> None:
    ran = made.run("refresh", "--run-program", "--yes")
    assert ran.code == 0, ran.out + ran.err
    saved = made.run("destroy", "--run-program", "--save-plan", "gone.json")
    assert saved.code == 0, saved.out + saved.err
    ran = made.run("destroy", "--plan", "gone.json", "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert made.run("state", "list", "--json").json["resources"] == []


@pytest.mark.slow
def test_a_program_that_raises_destroys_nothing(made: PlannedProject) -> None:
    before = made.run("state", "list", "--json").json
    made.edit_program(("import pulumi\n", "import pulumi\n\nraise RuntimeError('no')\n"))
    assert made.run("destroy", "--run-program", "--yes").code == 1
    assert made.run("state", "list", "--json").json == before


@pytest.mark.slow
def test_pending_creates_are_cleared(made: PlannedProject) -> None:
    state = made.project / ".pulumi/stacks/demo/dev.json"
    document = json.loads(state.read_text())
    latest = document["checkpoint"]["latest"]
    entry = {**latest["resources"][-1], "urn": latest["resources"][-1]["urn"] + "2"}
    del entry["id"]
    latest["pending_operations"] = [{"resource": entry, "type": "creating"}]
    state.write_text(json.dumps(document))
    assert made.run("refresh", "--yes").code == 0
    assert "pending_operations" in made.run("stack", "export").out
    ran = made.run("refresh", "--clear-pending-creates", "--preview-only")
    assert "pending_operations" in made.run("stack", "export").out
    ran = made.run("refresh", "--clear-pending-creates", "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert "is forgotten" in ran.err
    assert "pending_operations" not in made.run("stack", "export").out

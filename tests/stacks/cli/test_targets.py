"""Commands over a part of a stack: --target, --exclude, --replace and their kin."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject

Run = Any
CLUSTER = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.together:Cluster::train"
UP_ALL = ["up", "--emulate", "--yes", "--skip-preview"]


@pytest.fixture
def run_applied(dev: Run) -> Run:
    """Return the commands of a project whose cluster and volume exist."""
    ran = dev(*UP_ALL)
    assert ran.code == 0, ran.out + ran.err
    return dev


def list_operations(ran: Any) -> dict[str, str]:
    steps = json.loads(ran.out)["steps"]
    return {step["urn"].rsplit("::", 1)[1]: step["op"] for step in steps}


@pytest.mark.slow
def test_a_target_updates_only_the_named_resource(run_applied: Run) -> None:
    run_applied("config", "set", "gpus", "24")
    assert "train" in list_operations(
        run_applied("preview", "--emulate", "--json", "--target", "train")
    )
    none = run_applied("preview", "--emulate", "--json", "--exclude", CLUSTER)
    assert "train" not in list_operations(none)
    assert run_applied("preview", "--emulate", "-x", "**::tr*in", "--expect-no-changes").code == 0


SELECTING = """
up --yes --exclude
up --yes --skip-preview --exclude
up --yes --skip-preview --target-replace
up --yes --refresh --replace
destroy --yes --exclude
destroy --yes --skip-preview --target-dependents --target
refresh --yes --skip-preview --exclude
preview --exclude-dependents --exclude
drift --target
"""


def test_exclude_conflicts_with_target(applied_project: PlannedProject) -> None:
    before = applied_project.state_file, applied_project.sent_changes
    for command in (["up", "--yes"], ["refresh", "--yes"], ["destroy", "--yes"], ["preview"]):
        ran = applied_project.run(*command, "--target", "**", "--exclude", "train")
        assert ran.code == 2
        assert "--exclude cannot be combined with --target or --target-replace" in ran.err
    assert applied_project.run("up", "--target-replace", "data", "--exclude", "train").code == 2
    assert (applied_project.state_file, applied_project.sent_changes) == before


@pytest.mark.slow
def test_a_target_that_matches_nothing_stops_the_command(
    applied_project: PlannedProject,
) -> None:
    (applied_project.project / "__main__.py").write_text("")  # an update would delete everything
    before = applied_project.state_file, applied_project.sent_changes
    for *command, flag in map(str.split, SELECTING.strip().splitlines()):
        ran = applied_project.run(*command, flag, "data", flag, "trian")
        assert ran.code == 1
        output = ran.out + ran.err
        assert f"{flag} trian matches no resource of the stack" in output
        assert "did you mean train?" in output
        assert f"{flag} data" not in output
        assert "nothing to do" not in output
    for target, suggestion in (
        ("trai*", "a pattern is matched against complete URNs: '**::trai*' matches train"),
        ("nope*", "`gpuform state list` lists the resources"),
        (CLUSTER.replace("train", "trani"), f"did you mean {CLUSTER}?"),
    ):
        ran = applied_project.run("destroy", "--yes", "--exclude", target)
        assert ran.code == 1
        assert f"--exclude {target} matches no resource of the stack" in ran.err
        assert suggestion in ran.err
    assert (applied_project.state_file, applied_project.sent_changes) == before


@pytest.mark.slow
def test_resources_kept_by_an_exclusion_are_listed_before_the_question(
    applied_project: PlannedProject, terminal: None
) -> None:
    program = applied_project.project / "__main__.py"
    program.write_text(
        program.read_text() + 'SharedVolume("more", volume_name="more", region=region, size_tib=1)'
    )
    assert applied_project.run("up", "--yes").code == 0
    ran = applied_project.run("destroy", "--exclude", "train", answers="no\n")
    assert ran.code == 1
    message = "    --exclude train also leaves unchanged: data (train depends on it)"
    assert ran.out.index(message) < ran.out.index("This deletes 1 resource of stack dev")
    ran = applied_project.run(
        "destroy", "--exclude", "data", "--exclude-dependents", answers="no\n"
    )
    assert "    --exclude data also leaves unchanged: train (depends on data)" in ran.out
    program.write_text("")
    ran = applied_project.run("preview", "-x", "train")
    assert "    --exclude train also leaves unchanged: data (train depends on it)" in ran.out
    ran = applied_project.run("refresh", "-x", "train", answers="no\n")
    assert "also leaves unchanged" not in ran.out


@pytest.mark.slow
def test_dependents_of_a_target_are_listed_before_the_question(
    applied_project: PlannedProject, terminal: None
) -> None:
    ran = applied_project.run("destroy", "--target", "data", "--target-dependents", answers="no\n")
    assert "    --target data --target-dependents also includes: train (depends on data)" in ran.out
    ran = applied_project.run("preview", "--target", "data")
    assert "leaves" not in ran.out
    applied_project.edit_program(("size_tib=5", "size_tib=6"))
    ran = applied_project.run("up", "--target", "data", answers="no\n")
    message = "    --target data leaves 1 dependent unchanged: train"
    assert ran.out.index(message) < ran.out.index("Perform this update?")


@pytest.mark.slow
def test_a_requested_replacement_deletes_before_it_creates(
    applied_project: PlannedProject,
) -> None:
    ran = applied_project.run("up", "--yes", "--replace", "train")
    assert ran.code == 0, ran.out + ran.err
    assert ran.out.index("deleted original") < ran.out.index("created replacement")
    assert applied_project.run("preview", "--expect-no-changes").code == 0
    before = applied_project.state_file, applied_project.sent_changes
    ran = applied_project.run("up", "--yes", "--target-replace", "data")
    assert ran.code == 1
    assert "cannot be replaced alone: train depends on it and must be replaced too" in ran.out
    assert "add --target-dependents" in ran.out
    assert (applied_project.state_file, applied_project.sent_changes) == before
    ran = applied_project.run("up", "--yes", "--target-replace", "data", "--target-dependents")
    assert ran.code == 0, ran.out + ran.err
    assert applied_project.run("preview", "--expect-no-changes").code == 0


@pytest.mark.slow
def test_dependents_of_a_deleted_target_must_be_named(run_applied: Run) -> None:
    ran = run_applied("destroy", "--emulate", "--yes", "--target", "data")
    assert ran.code == 1
    assert f"{CLUSTER} would be deleted, but is not among the targets" in ran.out + ran.err
    part = run_applied("destroy", "--emulate", "--yes", "--target", "train")
    assert part.code == 0
    assert "The stack is empty" not in part.out
    rest = run_applied("destroy", "--emulate", "--yes")
    assert rest.code == 0
    assert "The stack is empty" in rest.out


@pytest.mark.slow
def test_target_replace_plans_a_replacement(run_applied: Run) -> None:
    ran = run_applied("preview", "--emulate", "--target-replace", "train")
    assert ran.code == 0
    assert "+- train  together:Cluster  replace: requested  (-16 GPUs, +16 GPUs)" in ran.out


BROKEN = """
from pulumi.dynamic import Resource, ResourceProvider


class Broken(ResourceProvider):
    def create(self, props):
        raise RuntimeError("no machine today")


class Machine(Resource):
    def __init__(self, name, **props):
        super().__init__(Broken(), name, {"address": None, **props})
"""


@pytest.mark.slow
def test_continue_on_error_creates_resources_that_do_not_depend_on_the_failed_one(
    dev: Run, project: Path
) -> None:
    (project / "broken.py").write_text(BROKEN)
    program = project / "__main__.py"
    more = "import broken\nbad = broken.Machine('bad')\nbroken.Machine('next', uses=bad.id)\n"
    program.write_text(program.read_text() + more)
    ran = dev(*UP_ALL, "--continue-on-error")
    assert ran.code == 1
    assert "no machine today" in ran.out + ran.err
    assert "+  train  together:Cluster  created in" in ran.out
    assert "next  " not in ran.out
    stack = json.loads(dev("stack", "export").out)
    names = {entry["urn"].rsplit("::", 1)[1] for entry in stack["deployment"]["resources"]}
    assert {"data", "train"} <= names
    assert not {"bad", "next"} & names

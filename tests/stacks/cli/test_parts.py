"""Commands over a part of a stack: --target, --exclude, --replace and their kin."""

import json
from pathlib import Path
from typing import Any

import pytest

Run = Any
CLUSTER = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.together:Cluster::train"
WHOLE = ["up", "--emulate", "--yes", "--skip-preview"]


@pytest.fixture
def up(dev: Run) -> Run:
    """Commands in a project whose cluster and volume exist."""
    ran = dev(*WHOLE)
    assert ran.code == 0, ran.out + ran.err
    return dev


def changes(ran: Any) -> dict[str, str]:
    steps = json.loads(ran.out)["steps"]
    return {step["urn"].rsplit("::", 1)[1]: step["op"] for step in steps}


def test_a_target_by_its_name_leaves_the_rest_as_it_is(up: Run) -> None:
    up("config", "set", "gpus", "24")
    assert "train" in changes(up("preview", "--emulate", "--json", "--target", "train"))
    none = up("preview", "--emulate", "--json", "--exclude", CLUSTER)
    assert "train" not in changes(none)
    assert up("preview", "--emulate", "--exclude", "tr*in", "--expect-no-changes").code == 7
    assert up("preview", "--emulate", "-x", "**::tr*in", "--expect-no-changes").code == 0


def test_a_target_that_does_not_exist_is_an_error(up: Run) -> None:
    ran = up("up", "--emulate", "--yes", "--target", "trian")
    assert ran.code == 1
    assert "target 'trian' could not be found in the stack" in ran.out + ran.err
    assert "a URN, a name, or a pattern" in ran.out + ran.err


def test_what_depends_on_a_target_is_not_deleted_without_being_named(up: Run) -> None:
    ran = up("destroy", "--emulate", "--yes", "--target", "data")
    assert ran.code == 1
    assert f"{CLUSTER} would be deleted, and is not among the targets" in ran.out + ran.err
    part = up("destroy", "--emulate", "--yes", "--target", "train")
    assert part.code == 0
    assert "The stack is empty" not in part.out
    rest = up("destroy", "--emulate", "--yes")
    assert rest.code == 0
    assert "The stack is empty" in rest.out


def test_a_replacement_that_is_asked_for_is_planned_as_such(up: Run) -> None:
    ran = up("preview", "--emulate", "--target-replace", "train")
    assert ran.code == 0
    assert "+- train  together:Cluster  replace: asked for  (-16 GPUs, +16 GPUs)" in ran.out


BROKEN = """
from pulumi.dynamic import Resource, ResourceProvider


class Broken(ResourceProvider):
    def create(self, props):
        raise RuntimeError("no machine today")


class Machine(Resource):
    def __init__(self, name, **props):
        super().__init__(Broken(), name, {"address": None, **props})
"""


def test_what_does_not_need_a_failed_resource_goes_on(dev: Run, project: Path) -> None:
    (project / "broken.py").write_text(BROKEN)
    program = project / "__main__.py"
    more = "import broken\nbad = broken.Machine('bad')\nbroken.Machine('next', uses=bad.id)\n"
    program.write_text(program.read_text() + more)
    ran = dev(*WHOLE, "--continue-on-error")
    assert ran.code == 1
    assert "no machine today" in ran.out + ran.err
    assert "+  train  together:Cluster  created in" in ran.out
    assert "next  " not in ran.out
    stack = json.loads(dev("stack", "export").out)
    names = {entry["urn"].rsplit("::", 1)[1] for entry in stack["deployment"]["resources"]}
    assert {"data", "train"} <= names
    assert not {"bad", "next"} & names

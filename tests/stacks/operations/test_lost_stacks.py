"""A change that removes a stack with objects, judged by the gates on cost of its base branch."""

import json
import subprocess
from pathlib import Path

import pytest

from gpuform.schemas.plan import Plan, PlanCost, StackCost
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.engine.store import Backend, write_marker
from gpuform.stacks.multi_stack import read_workspace
from gpuform.stacks.operations.multi_stack.combined_plan import evaluate_workspace_gates

GATES = """
gates:
  budget: {max_hourly_cost: {amount: 100, currency: USD}}
  few: {max_destroyed_gpus: 8}
"""
OBJECT = "pulumi-python:dynamic/gpuform.together:Cluster"
NO_LONGER = "network/prod is no longer one of the stacks"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a repository of the stacks network/prod, which has an object, and apps/dev."""
    for name in ("network", "apps"):
        (tmp_path / name / "state").mkdir(parents=True)
        (tmp_path / name / "Pulumi.yaml").write_text(
            f"name: {name}\nruntime: python\nbackend: {{url: 'file://state'}}\n"
        )
    (tmp_path / "apps/Pulumi.dev.yaml").touch()
    (tmp_path / "network/Pulumi.prod.yaml").touch()
    (tmp_path / "stacks.yaml").write_text(f"stacks: [{{folder: '*'}}]{GATES}")
    (tmp_path / ".gitignore").write_text("state\n")
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "Begin"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True)
    write_state(tmp_path, OBJECT)
    return tmp_path


def write_state(root: Path, *types: str) -> None:
    """Write a state of network/prod with one object of each type."""
    resources = [
        {"urn": f"urn:pulumi:prod::network::{type_}::a", "custom": True, "id": "1", "type": type_}
        for type_ in types
    ]
    latest = {"manifest": {"time": "", "magic": "", "version": ""}, "resources": resources}
    checkpoint = {"stack": "organization/network/prod", "latest": latest}
    state = json.dumps({"version": 3, "checkpoint": checkpoint}).encode()
    open_backend(root).write("network", "prod", state)


def open_backend(root: Path) -> Backend:
    return Backend.open((root / "network/state").as_uri(), {})


def find_objections(root: Path, *allowed: str) -> dict[str, tuple[str, ...]]:
    """Return the findings of the gates that stop a plan of apps/dev without changes."""
    cost = PlanCost(before=StackCost(), after=StackCost())
    plan = Plan.from_changes("apps", "dev", ()).model_copy(update={"cost": cost})
    workspace = read_workspace(root, {})
    judged = evaluate_workspace_gates(StacksPlan(plans=(plan,)), workspace, allowed, {}, "HEAD")
    return {gate.name: gate.findings for gate in judged.gates or () if gate.is_blocking}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("stacks.yaml", f"stacks: [{{folder: apps}}]{GATES}"),
        ("stacks.yaml", "stacks: [{folder: apps}]"),
        ("network/Pulumi.prod.yaml", None),
        ("network/Pulumi.yaml", None),
        ("network/Pulumi.yaml", "name: network\nruntime: python\nbackend: {url: 'file://new'}\n"),
        ("network/Pulumi.yaml", "name: renamed\nruntime: python\nbackend: {url: 'file://state'}\n"),
    ],
)
def test_a_gate_on_cost_stops_a_change_that_removes_a_stack_with_objects(
    root: Path, file: str, text: str | None
) -> None:
    assert find_objections(root) == {}
    (root / file).unlink()
    if text is not None:
        (root / file).write_text(text)
    else:
        (root / "stacks.yaml").write_text(f"stacks: [{{folder: apps}}]{GATES}")
    ((gate, (finding,)),) = find_objections(root).items()
    assert gate == "budget"
    assert finding.startswith(f"{NO_LONGER}, but has 1 object that no gate would count: ")
    # A branch that is older than the stack must not advise anybody to destroy the stack.
    assert "if the base branch has added the stack meanwhile, merge the base branch" in finding
    assert find_objections(root, "gate:budget") == {}


@pytest.mark.parametrize("base", ["stacks: [{folder: '*'}]", None])
def test_without_a_gate_on_cost_a_removed_stack_with_objects_is_a_danger(
    root: Path, base: str | None
) -> None:
    stacks_file = root / "stacks.yaml"
    stacks_file.unlink()
    if base is not None:
        stacks_file.write_text(base)
    amend = ["commit", "-qa", "--amend", "--no-edit"]
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *amend], cwd=root, check=True, capture_output=True)

    assert find_dangers(root) == ()
    (root / "network/Pulumi.prod.yaml").unlink()
    if base is not None:
        stacks_file.write_text("stacks: [{folder: apps}]")
    (danger,) = find_dangers(root)
    assert danger.startswith(f"{NO_LONGER}, but has 1 object that no gate would count: ")
    write_state(root)
    assert find_dangers(root) == (), "it has no objects"


def find_dangers(root: Path) -> tuple[str, ...]:
    """Return the dangers of a plan of apps/dev without changes."""
    plan = StacksPlan(plans=(Plan.from_changes("apps", "dev", ()),))
    judged = evaluate_workspace_gates(plan, read_workspace(root, {}), (), {}, "HEAD")
    return judged.weakened_gates


def test_a_destroyed_or_moved_stack_may_be_removed(root: Path) -> None:
    write_state(root)
    settings = "name: network\nruntime: python\nbackend: {url: 'file://new'}\n"
    (root / "network/Pulumi.yaml").write_text(settings)
    assert find_objections(root) == {}, "it has no objects"

    backend = open_backend(root)
    write_marker(backend.storage, "network", "prod", "moved", "file:///new")
    assert find_objections(root) == {}, "`stack migrate` has moved it to its new backend"

    (root / "stacks.yaml").write_text(f"stacks: [{{folder: apps}}]{GATES}")
    ((finding,),) = find_objections(root).values()
    assert finding.startswith(f"{NO_LONGER}: ")


def test_a_removed_stack_that_cannot_be_read_stops_the_plan(root: Path) -> None:
    open_backend(root).write("network", "prod", b"{")
    (root / "stacks.yaml").write_text(f"stacks: [{{folder: apps}}]{GATES}")
    ((finding,),) = find_objections(root).values()
    assert finding.startswith(f"{NO_LONGER}, and cannot be read: ")

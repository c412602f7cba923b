"""Test attacks on `--all`: several stacks report and refuse the same as one stack."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stacks.workspace import Workspace, create_workspace

from gpuform.providers.emulator.server import serve

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with serve(seed="attacked") as server:
        yield create_workspace(tmp_path / "fleet", server.url, {}, {})


def test_the_plan_of_all_stacks_shows_warnings_and_output_of_programs(workspace: Workspace) -> None:
    program = "import pulumi\npulumi.warn('few are left')\nprint('a remark')\n"
    (workspace.root / "told/__main__.py").write_text(program)
    output = workspace.run_successfully("preview", "--all", "--filter", "told")
    assert "told/dev:     warning: few are left" in output
    assert "told/dev:     a remark" in output


def test_a_project_gate_that_stops_the_plan_names_its_stack(workspace: Workspace) -> None:
    gates = "gates:\n  types: {allowed_gpu_types: [A100]}\n"
    (workspace.root / "training/gates.yaml").write_text(gates)
    done = workspace.run("preview", "--all")
    assert done.code == 5
    assert "error: training/dev: gates.yaml:2:3: gate types" in done.stderr


def test_plans_of_different_operations_are_refused_together(workspace: Workspace) -> None:
    """Gates of all stacks skip a refresh, so that a refresh in front could hide later creates."""
    gates = "\ngates:\n  types: {allowed_gpu_types: [A100]}\n"
    (workspace.root / "stacks.yaml").write_text("stacks:\n  - {folder: '*', stack: dev}" + gates)
    workspace.run("preview", "--all", "--save-plan", "plan.json")
    workspace.run_successfully(
        "refresh", "--all", "--filter", "told", "--save-plan", "refresh.json"
    )
    plan, refresh = (
        json.loads((workspace.root / f"{name}.json").read_text()) for name in ("plan", "refresh")
    )
    plan["plans"] = [*refresh["plans"], *plan["plans"][:2]]
    (workspace.root / "plan.json").write_text(json.dumps(plan))
    done = workspace.run("up", "--all", "--plan", "plan.json", "--yes")
    assert done.code == 1, done.stdout + done.stderr
    assert "the plans are for different operations" in done.stderr
    assert workspace.export("volumes/dev").get("resources") is None


def test_a_stack_is_not_applied_without_the_stacks_it_was_planned_with(
    workspace: Workspace,
) -> None:
    workspace.run_successfully("up", "--all", "--yes")
    workspace.run_successfully("preview", "--all", "--save-plan", "plan.json")
    plan = json.loads((workspace.root / "plan.json").read_text())
    plan_text = json.dumps(plan)
    ran = workspace.run("up", "--all", "--plan", "plan.json", "--yes", "--filter", "told")
    assert ran.code == 1
    message = "the plan of told/dev uses the planned outputs of training/dev, but training/dev"
    assert message in ran.stderr
    del plan["plans"][1]
    (workspace.root / "plan.json").write_text(json.dumps(plan))
    apart = workspace.run("up", "--all", "--plan", "plan.json", "--yes")
    assert apart.code == 1
    assert "does not have exactly the stacks that were planned together" in apart.stderr
    (workspace.root / "part.json").write_text(json.dumps(json.loads(plan_text)["plans"][2]))
    part = workspace.run("up", "--plan", "../part.json", "--yes", "--stack", "dev", folder="told")
    assert part.code == 1
    assert "is a part of a plan of several stacks" in part.stderr
    (workspace.root / "plan.json").write_text(plan_text)
    workspace.run_successfully("up", "--all", "--plan", "plan.json", "--yes")

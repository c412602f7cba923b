"""Attacks on `--all`: what one stack alone tells or refuses, all of them tell and refuse, too."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.stacks.workspace import Workspace, create_workspace

from gpuform.providers.emulator.server import serve

pytestmark = pytest.mark.slow


@pytest.fixture
def estate(tmp_path: Path) -> Iterator[Workspace]:
    with serve(seed="attacked") as server:
        yield create_workspace(tmp_path / "fleet", server.url, {}, {})


def test_the_plan_of_all_shows_what_a_program_says(estate: Workspace) -> None:
    program = "import pulumi\npulumi.warn('few are left')\nprint('a remark')\n"
    (estate.root / "told/__main__.py").write_text(program)
    shown = estate.run_successfully("preview", "--all", "--filter", "told")
    assert "told/dev:     warning: few are left" in shown
    assert "told/dev:     a remark" in shown


def test_a_gate_of_a_project_that_stops_the_plan_names_the_stack(estate: Workspace) -> None:
    gates = "gates:\n  types: {allowed_gpu_types: [A100]}\n"
    (estate.root / "training/gates.yaml").write_text(gates)
    done = estate.run("preview", "--all")
    assert done.code == 5
    assert "error: training/dev: gates.yaml:2:3: gate types" in done.stderr


def test_a_part_of_another_operation_lifts_no_gate_of_all(estate: Workspace) -> None:
    """Gates of all are not asked about a refresh: one in front must not hide what is made."""
    gates = "\ngates:\n  types: {allowed_gpu_types: [A100]}\n"
    (estate.root / "stacks.yaml").write_text("stacks:\n  - {folder: '*', stack: dev}" + gates)
    estate.run("preview", "--all", "--save-plan", "plan.json")
    estate.run_successfully("refresh", "--all", "--filter", "told", "--save-plan", "refresh.json")
    plan, refresh = (
        json.loads((estate.root / f"{name}.json").read_text()) for name in ("plan", "refresh")
    )
    plan["plans"] = [*refresh["plans"], *plan["plans"][:2]]
    (estate.root / "plan.json").write_text(json.dumps(plan))
    done = estate.run("up", "--all", "--plan", "plan.json", "--yes")
    assert done.code == 1, done.stdout + done.stderr
    assert "the plans are for different operations" in done.stderr
    assert estate.export("volumes/dev").get("resources") is None


def test_a_part_is_not_applied_without_what_it_was_planned_with(estate: Workspace) -> None:
    estate.run_successfully("up", "--all", "--yes")
    estate.run_successfully("preview", "--all", "--save-plan", "plan.json")
    plan = json.loads((estate.root / "plan.json").read_text())
    whole = json.dumps(plan)
    told = estate.run("up", "--all", "--plan", "plan.json", "--yes", "--filter", "told")
    assert told.code == 1
    said = "the plan of told/dev uses the planned outputs of training/dev, but training/dev"
    assert said in told.stderr
    del plan["plans"][1]
    (estate.root / "plan.json").write_text(json.dumps(plan))
    apart = estate.run("up", "--all", "--plan", "plan.json", "--yes")
    assert apart.code == 1
    assert said in apart.stderr
    (estate.root / "part.json").write_text(json.dumps(json.loads(whole)["plans"][2]))
    part = estate.run("up", "--plan", "../part.json", "--yes", "--stack", "dev", folder="told")
    assert part.code == 1
    assert "is a part of a plan of several stacks" in part.stderr
    (estate.root / "plan.json").write_text(whole)
    estate.run_successfully("up", "--all", "--plan", "plan.json", "--yes")

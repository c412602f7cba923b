"""`gpuform rehearse --all --plan` plays every stack of the saved plan, or fails.

The plays themselves are made by hand here; `tests/rehearsing` has real ones.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.stacks.hand_made_rehearsals import build_rehearsal

from gpuform.schemas.plan import Basis, Plan, PlanAction, PlanReason, ResourceChange
from gpuform.schemas.rehearsal import Rehearsal, StacksRehearsal
from gpuform.schemas.stacks_plan import StacksPlan, compute_stacks_digest
from gpuform.stacks import rehearsing
from gpuform.stacks.cli import main
from gpuform.stacks.rehearsing import PlannedStack, RehearsalError

Run = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that rehearses a saved plan of three stacks, and returns the exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PULUMI_BACKEND_URL", (tmp_path / "state").as_uri())
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    for project in ("network", "training", "report"):
        (tmp_path / project).mkdir()
        (tmp_path / project / "Pulumi.yaml").write_text(f"name: {project}\nruntime: python\n")
        state = tmp_path / "state/.pulumi/stacks" / project / "dev.json"
        state.parent.mkdir(parents=True)
        state.write_text('{"version": 3, "checkpoint": {"latest": {}}}')
    write_workspace(tmp_path, ("network", "training", "report"))

    def rehearse(operation: str, *flags: str) -> int:
        (tmp_path / "plan.json").write_text(build_plan(operation).model_dump_json())
        arguments = ["gpuform", "rehearse", "--all", "--plan", "plan.json", *flags]
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    return rehearse


def write_workspace(folder: Path, projects: Sequence[str]) -> None:
    """Write stacks.yaml with the stack `dev` of these projects."""
    entries = [f"  - {{folder: {project}, stack: dev}}\n" for project in projects]
    (folder / "stacks.yaml").write_text("stacks:\n" + "".join(entries))


def build_plan(operation: str) -> StacksPlan:
    """Return a plan with a change of three stacks, each of which reads the one before."""
    plans = []
    for project, read in (("network", ""), ("training", "network"), ("report", "training")):
        change = ResourceChange(
            urn=f"urn:pulumi:dev::{project}::pkg:index:Thing::thing",
            type="pkg:index:Thing",
            name="thing",
            action=PlanAction.UPDATE,
            reason=PlanReason.CHANGED,
        )
        references = (f"organization/{read}/dev",) if read else ()
        basis = Basis(state={}, config={}, program={}, seal=project)
        digest = compute_stacks_digest("", ("network/dev", "training/dev", "report/dev"))
        updates = {
            "operation": operation,
            "stack_references": references,
            "stacks_digest": digest,
            "basis": basis,
        }
        plans.append(Plan.from_changes(project, "dev", [change]).model_copy(update=updates))
    return StacksPlan(plans=tuple(plans))


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, set[str]]]:
    """Return the stacks that are played together, with those whose runs must have succeeded."""
    stacks: list[tuple[str, set[str]]] = []

    def play(planned: Sequence[PlannedStack], _options: Any) -> Rehearsal:
        stacks.extend((item.plan.project, set(item.dependencies)) for item in planned)
        return build_rehearsal()

    monkeypatch.setattr(rehearsing, "rehearse_together", play)
    return stacks


def test_stacks_are_played_in_the_order_of_their_plans_and_destroyed_in_reverse(
    run: Run, played: list[tuple[str, set[str]]]
) -> None:
    assert run("update") == 0
    assert played == [
        ("network", set()),
        ("training", {"network/dev"}),
        ("report", {"network/dev", "training/dev"}),
    ]
    played.clear()
    assert run("destroy") == 0
    assert [project for project, _ in played] == ["report", "training", "network"]


def test_a_planned_stack_that_the_workspace_lost_is_not_left_out_in_silence(
    run: Run,
    played: list[tuple[str, set[str]]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_workspace(tmp_path, ("network", "report"))
    assert run("update") == 1
    assert "stacks that do not belong to this workspace: training/dev" in capsys.readouterr().err
    assert not played


@pytest.fixture
def _refused_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no stacks be rehearsed together."""

    def refuse(*_arguments: Any) -> Rehearsal:
        raise RehearsalError("the stacks together: the emulator cannot make the plan: no region")

    monkeypatch.setattr(rehearsing, "rehearse_together", refuse)


@pytest.mark.usefixtures("_refused_together")
def test_stacks_that_cannot_be_played_together_are_rehearsed_one_by_one_with_a_warning(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(_stack: Any, plan: Plan, _options: Any) -> Rehearsal:
        return build_rehearsal(project=plan.project)

    monkeypatch.setattr(rehearsing, "rehearse", play)

    assert run("update", "--json") == 0

    output = capsys.readouterr()
    rehearsals = StacksRehearsal.model_validate_json(output.out).rehearsals
    assert [item.project for item in rehearsals] == ["network", "training", "report"]
    assert output.err == (
        "warning: each stack is rehearsed alone: the stacks together: the emulator cannot make "
        "the plan: no region\n"
    )


@pytest.mark.usefixtures("_refused_together")
def test_a_stack_that_cannot_be_rehearsed_fails_the_command(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def play(_stack: Any, plan: Plan, _options: Any) -> Rehearsal:
        if plan.project == "training":
            raise RehearsalError("stack dev: the emulator cannot make the plan")
        return build_rehearsal(project=plan.project)

    monkeypatch.setattr(rehearsing, "rehearse", play)
    assert run("update") == 1
    output = capsys.readouterr()
    assert "If something goes wrong with network/dev: nothing is lost" in output.out
    assert "training/stack dev: the emulator cannot make the plan" in output.err

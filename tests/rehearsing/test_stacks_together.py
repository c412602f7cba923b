"""Plans of several stacks are played together: the second one reads what the first one has made."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from rehearsing.conftest import BringUp
from support.stacks.workspace import create_workspace

from gpuform.providers.emulator.server import serve
from gpuform.schemas.rehearsal import HazardKind, HazardOutcome, Rehearsal, StacksRehearsal
from gpuform.stacks.engine.urn import get_stack_and_project
from gpuform.stacks.rehearsing import PlannedStack, RehearsalOptions, rehearse_together

SCENARIOS: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("planted_hazards.yaml").read_text(encoding="utf-8")
)
CLUSTER = SCENARIOS["stock_is_gone_after_the_delete"]["topologies"]["training"]
SIZED = CLUSTER.replace("num_gpus: 16", 'num_gpus: "{{ config.gpus }}"').replace(
    "config:\n", "config:\n  gpus: {type: integer, default: 16}\n"
)
KILLS = RehearsalOptions(hazards=(HazardKind.KILLED,), jobs=1)


def find_outcome(rehearsal: Rehearsal, description: str) -> HazardOutcome:
    (outcome,) = (o for o in rehearsal.outcomes if o.hazard.description == description)
    return outcome


@pytest.mark.slow
def test_gpus_that_move_between_stacks_are_lost_by_a_kill_between_the_two(
    bring_up: BringUp,
) -> None:
    second = SIZED.replace("cluster_name: training", "cluster_name: second")
    planned = bring_up(
        {"first": SIZED, "second": second}, {"first": {"gpus": 8}, "second": {"gpus": 24}}
    )
    first, last = (PlannedStack(item.stack, item.plan) for item in planned)

    rehearsal = rehearse_together([first, last], KILLS)

    assert (rehearsal.project, rehearsal.stack, rehearsal.changes) == ("", "", 2)
    assert rehearsal.differences == ()
    killed = find_outcome(
        rehearsal, "the run is killed between the stacks first/dev and second/dev"
    )
    assert (killed.lost_gpus, killed.is_mended) == (8, True)
    assert killed.gpu_hours_without_work > rehearsal.undisturbed.gpu_hours_without_work + 7
    assert killed.half_done == ("second/dev clusters.train: still to update",)
    assert killed.mended_by == "gpuform up --all"


@pytest.mark.slow
def test_a_stack_reads_outputs_of_a_stack_that_does_not_exist_yet(tmp_path: Path) -> None:
    with serve(seed="new stacks") as server:
        workspace = create_workspace(tmp_path / "fleet", server.url, {}, {})

        output = workspace.run_successfully("rehearse", "--all", "--hazards", "none", "--json")

    (rehearsal,) = StacksRehearsal.model_validate_json(output).rehearsals
    usual = rehearsal.undisturbed
    assert (usual.ending, usual.is_mended, usual.lost_gpus) == ("succeeded", True, 0)
    stacks = {get_stack_and_project(urn) for urn in rehearsal.actions}
    assert {("dev", "volumes"), ("dev", "training")} <= stacks


@pytest.mark.slow
def test_a_program_that_needs_a_credential_lets_each_stack_be_rehearsed_alone(
    tmp_path: Path,
) -> None:
    with serve(seed="a credential") as server:
        workspace = create_workspace(tmp_path / "fleet", server.url, {}, {})
        program = 'import os\n\nfrom gpuform.stacks import run\n\nos.environ["HOOK_TOKEN"]\n'
        (workspace.root / "training/__main__.py").write_text(f'{program}run("topology.yaml")\n')

        result = workspace.run(
            *("rehearse", "--all", "--hazards", "none", "--json"), HOOK_TOKEN="planted"
        )

    assert result.code == 1
    (rehearsal,) = StacksRehearsal.model_validate_json(result.stdout).rehearsals
    assert (rehearsal.project, rehearsal.undisturbed.ending) == ("volumes", "succeeded")
    together, alone = (line for line in result.stderr.splitlines() if "warning: " in line)
    assert together.startswith(
        "warning: each stack is rehearsed alone: the stacks together: the emulator cannot make "
        "the plan: training/dev: "
    )
    assert alone.startswith("warning: training/stack dev: the emulator cannot make the plan: ")
    assert "HOOK_TOKEN" in result.stderr

"""Twelve plans with one planted hazard each: a rehearsal names it, and is quiet about the twin."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from rehearsing.conftest import BringUp, PlannedStack

from gpuform.schemas.rehearsal import HazardKind, HazardOutcome, Rehearsal
from gpuform.stacks.rehearsing import RehearsalOptions, rehearse

SCENARIOS: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("planted_hazards.yaml").read_text(encoding="utf-8")
)
OF_ONE_STACK = [name for name, item in SCENARIOS.items() if len(item["topologies"]) == 1]

pytestmark = pytest.mark.slow


def bring_up_scenario(bring_up: BringUp, scenario: Any, *, is_twin: bool) -> list[PlannedStack]:
    """Bring up the stacks of a scenario, or of its twin, and plan the change."""
    topologies, changes = dict(scenario["topologies"]), scenario["change"]
    if is_twin:
        changes = scenario["twin"].get("change", changes)
        for old, new in scenario["twin"].get("edit", ()):
            for project, topology in topologies.items():
                assert old in topology
                topologies[project] = topology.replace(old, new)
    if len(topologies) == 1:
        changes = {next(iter(topologies)): changes}
    return bring_up(topologies, changes, tuple(scenario.get("allow", ())))


def rehearse_scenario(
    bring_up: BringUp, name: str, *, is_twin: bool, with_all: bool = False
) -> Rehearsal:
    """Rehearse the plan of a scenario with one stack, or of its twin, perhaps with all hazards."""
    scenario = SCENARIOS[name]
    (planned,) = bring_up_scenario(bring_up, scenario, is_twin=is_twin)
    chosen = HazardKind if with_all else scenario.get("hazards", HazardKind)
    hazards = tuple(HazardKind(kind) for kind in chosen)
    # One process: each further one creates the objects of the state again.
    options = RehearsalOptions(hazards=hazards, jobs=1, allow=tuple(scenario.get("allow", ())))
    return rehearse(planned.stack, planned.plan, options)


@pytest.mark.parametrize("name", OF_ONE_STACK)
def test_the_planted_hazard_is_the_worst(bring_up: BringUp, name: str) -> None:
    scenario = SCENARIOS[name]

    rehearsal = rehearse_scenario(bring_up, name, is_twin=False)

    worst = rehearsal.outcomes[0]
    assert worst.hazard.kind == scenario["worst"], worst
    assert_planted(rehearsal, worst, scenario["expect"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OF_ONE_STACK)
def test_no_hazard_of_all_hurts_more_than_the_planted_one(bring_up: BringUp, name: str) -> None:
    scenario = SCENARIOS[name]

    rehearsal = rehearse_scenario(bring_up, name, is_twin=False, with_all=True)

    worst = rehearsal.outcomes[0]
    planted = next(o for o in rehearsal.outcomes if o.hazard.kind == scenario["worst"])
    assert planted.severity == worst.severity, worst
    assert_planted(rehearsal, planted, scenario["expect"])


def assert_planted(rehearsal: Rehearsal, planted: HazardOutcome, expected: dict[str, Any]) -> None:
    """Assert that the outcome is harmful, and has the losses of the scenario."""
    assert planted in rehearsal.harmful
    assert planted.lost_gpus == expected.get("lost_gpus", 0)
    assert len(planted.jobs_ended) == expected.get("jobs_ended", 0)
    assert planted.data_lost == ((expected["data_lost"],) if "data_lost" in expected else ())
    assert planted.is_mended == expected.get("is_mended", planted.is_mended)
    if "half_done" in expected:
        assert planted.half_done == tuple(expected["half_done"])
    assert not rehearsal.differences


@pytest.mark.parametrize("name", OF_ONE_STACK)
def test_the_twin_without_the_hazard_is_quiet(bring_up: BringUp, name: str) -> None:
    rehearsal = rehearse_scenario(bring_up, name, is_twin=True)

    assert list_losses(rehearsal, SCENARIOS[name]) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OF_ONE_STACK)
def test_the_twin_is_quiet_under_all_hazards(bring_up: BringUp, name: str) -> None:
    rehearsal = rehearse_scenario(bring_up, name, is_twin=True, with_all=True)

    assert list_losses(rehearsal, SCENARIOS[name]) == []


def list_losses(rehearsal: Rehearsal, scenario: dict[str, Any]) -> list[tuple[object, ...]]:
    """Return the outcomes in which GPUs, jobs or data are lost.

    Also those that no command mends, if the scenario expects this of its hazard.
    """
    must_be_mended = not scenario["expect"].get("is_mended", True)
    return [
        (item.hazard.description, item.lost_gpus, item.jobs_ended, item.data_lost, item.is_mended)
        for item in rehearsal.outcomes
        if item.lost_gpus
        or item.jobs_ended
        or item.data_lost
        or (must_be_mended and not item.is_mended)
    ]


@pytest.mark.parametrize("is_twin", [False, True])
def test_a_volume_that_another_stack_mounts_cannot_be_replaced(
    bring_up: BringUp, is_twin: bool
) -> None:
    scenario = SCENARIOS["orders_of_two_stacks_collide"]
    storage, _training = bring_up_scenario(bring_up, scenario, is_twin=is_twin)

    rehearsal = rehearse(storage.stack, storage.plan, RehearsalOptions(hazards=(), jobs=1))

    assert rehearsal.undisturbed.has_failed == (not is_twin)
    if not is_twin:
        assert "volume data cannot be deleted: it is attached to a cluster" in str(
            rehearsal.undisturbed.errors
        )

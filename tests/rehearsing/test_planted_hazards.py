"""Twelve plans with one planted hazard each: a rehearsal names it, and is quiet about the twin."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from rehearsing.conftest import BringUp, PlannedStack

from gpuform.schemas.rehearsal import HazardKind, Rehearsal
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
    expected = scenario["expect"]
    assert worst in rehearsal.harmful
    assert worst.hazard.kind == scenario["worst"], worst
    assert worst.lost_gpus == expected.get("lost_gpus", 0)
    assert len(worst.jobs_ended) == expected.get("jobs_ended", 0)
    assert worst.data_lost == ((expected["data_lost"],) if "data_lost" in expected else ())
    assert worst.half_done == (
        (expected["half_done"],) if "half_done" in expected else worst.half_done
    )
    assert not rehearsal.differences


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OF_ONE_STACK)
def test_only_the_named_hazards_hurt_more_than_the_planted_one(
    bring_up: BringUp, name: str
) -> None:
    scenario = SCENARIOS[name]

    rehearsal = rehearse_scenario(bring_up, name, is_twin=False, with_all=True)

    kinds = list(dict.fromkeys(str(outcome.hazard.kind) for outcome in rehearsal.outcomes))
    assert set(kinds[: kinds.index(scenario["worst"])]) == set(scenario.get("worse", ()))


@pytest.mark.parametrize("name", OF_ONE_STACK)
def test_the_twin_without_the_hazard_is_quiet(bring_up: BringUp, name: str) -> None:
    rehearsal = rehearse_scenario(bring_up, name, is_twin=True)

    assert list_losses(rehearsal) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OF_ONE_STACK)
def test_the_twin_is_quiet_under_all_hazards(bring_up: BringUp, name: str) -> None:
    rehearsal = rehearse_scenario(bring_up, name, is_twin=True, with_all=True)

    assert list_losses(rehearsal) == []


def list_losses(rehearsal: Rehearsal) -> list[tuple[object, ...]]:
    """Return the outcomes in which GPUs, jobs or data are lost."""
    return [
        (item.hazard.description, item.lost_gpus, item.jobs_ended, item.data_lost)
        for item in rehearsal.outcomes
        if item.lost_gpus or item.jobs_ended or item.data_lost
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

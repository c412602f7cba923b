"""What a rehearsal predicts is what happens when the same plan is applied by hand.

The plans and hazards are random, and each seed gives the same pair. The nightly run plays all.
"""

import random
import re
from pathlib import Path
from typing import Any

import pytest
from rehearsing.by_hand import HandHazard, HandPlayer, HandResult
from rehearsing.conftest import create_project_stack, list_variables, plan_change

from gpuform.providers.emulator.server import serve
from gpuform.schemas.plan import Plan, PlanAction
from gpuform.schemas.rehearsal import HazardKind, HazardOutcome
from gpuform.stacks.operations.automation import up
from gpuform.stacks.operations.runs.options import RunOptions
from gpuform.stacks.rehearsing import RehearsalOptions, rehearse

SEEDS = range(50)
KINDS = (
    *(HazardKind.NO_CAPACITY, HazardKind.LOST_REQUEST, HazardKind.KILLED),
    *(HazardKind.RATE_LIMIT, HazardKind.NO_CREDIT),
)
TOPOLOGY = """\
config:
  driver: {{default: CUDA_12_5_555}}
  region: {{default: us-central-8}}
  gpus: {{type: integer, default: {gpus}}}
shared_volumes:
  data: {{platform: together, volume_name: data, region: us-central-8, size_tib: 2}}
clusters:
  train:
    platform: together
    cluster_name: training
    region: "{{{{ config.region }}}}"
    gpu_type: H100_SXM
    num_gpus: "{{{{ config.gpus }}}}"
    driver_version: "{{{{ config.driver }}}}"
    billing_type: {billing}
{lines}
"""
_REQUEST = re.compile(r"\b(before |after )?(POST|PUT|DELETE)\b.*?( before its| after its|$)")


def choose_plan(chance: random.Random) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """Return a random topology, the changed configuration, and the permissions of the plan."""
    gpus, billing = chance.choice([8, 16, 24]), chance.choice(["ON_DEMAND", "RESERVED"])
    lines = ["duration_days: 30"] if billing == "RESERVED" else []
    if chance.random() < 0.4:
        lines.append("rollout: {strategy: replace_cluster}")
    if chance.random() < 0.3:
        lines.append("on_no_capacity: {wait_minutes: 30}")
    changes: list[dict[str, Any]] = [
        {"driver": "CUDA_12_6_560"},
        {"region": "us-central-4", "driver": "CUDA_12_6_560"},
        {"gpus": gpus + 8},
        {"gpus": 8, "driver": "CUDA_12_6_560"},
    ]
    indented = "\n".join(f"    {line}" for line in lines)
    topology = TOPOLOGY.format(gpus=gpus, billing=billing, lines=indented)
    allow = ("destroy-reserved",) if billing == "RESERVED" else ()
    return topology, chance.choice(changes), allow


def find_hand_hazard(outcome: HazardOutcome, plan: Plan) -> HandHazard | None:
    """Return what to do by hand for the hazard of an outcome; None without a known request."""
    kind, text = outcome.hazard.kind, outcome.hazard.description
    if kind is HazardKind.NO_CAPACITY:
        is_replaced = any(change.action is PlanAction.REPLACE for change in plan.changes)
        return HandHazard(kind, "POST" if is_replaced else "PUT")
    match = _REQUEST.search(text)
    if match is None:
        return None
    when = (match[1] or match[3] or "before").split()[0]
    return HandHazard(kind, match[2], "after" if kind is HazardKind.NO_CREDIT else when)


def apply_by_hand(
    folder: Path, topology: str, change: dict[str, Any], allow: tuple[str, ...], hazard: HandHazard
) -> HandResult:
    """Bring the stack up on an emulator of its own, and apply the plan under the hazard."""
    with serve(seed="by hand") as server:
        variables = list_variables(server.url, folder)
        player = HandPlayer(server, variables)
        stack = create_project_stack(folder, "random", topology, variables)
        assert up(stack).succeeded
        plan_change(stack, change, allow)
        player.forget_samples()
        return player.play(stack, folder / "random", RunOptions(allow=allow), hazard)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_prediction_equals_what_happens_by_hand(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    topology, change, allow = choose_plan(chance)
    kind = chance.choice(KINDS)
    rehearsed = tmp_path / "rehearsed"
    rehearsed.mkdir()
    with serve(seed="rehearsed") as server:
        variables = list_variables(server.url, rehearsed)
        stack = create_project_stack(rehearsed, "random", topology, variables)
        assert up(stack).succeeded
        plan = plan_change(stack, change, allow)
        options = RehearsalOptions(hazards=(kind,), jobs=1, allow=allow)
        rehearsal = rehearse(stack, plan, options)
    outcomes = [item for item in rehearsal.outcomes if find_hand_hazard(item, plan) is not None]
    if not outcomes:
        pytest.skip(f"the plan meets no hazard {kind} that can be played by hand")
    predicted = chance.choice(sorted(outcomes, key=lambda item: item.hazard.description))
    hazard = find_hand_hazard(predicted, plan)
    assert hazard is not None

    by_hand = tmp_path / "by-hand"
    by_hand.mkdir()
    happened = apply_by_hand(by_hand, topology, change, allow, hazard)

    assert (predicted.ending, predicted.is_mended) == (happened.ending, happened.is_mended)
    assert ("data" in happened.volumes) == (not predicted.data_lost)
    # Without credit GPUs stop without the plan, too: a rehearsal leaves these out.
    if kind is not HazardKind.NO_CREDIT:
        assert predicted.lost_gpus == happened.lost_gpus
        hours = pytest.approx(happened.gpu_hours, rel=0.05, abs=1.0)
        assert predicted.gpu_hours_without_work == hours

"""Advice about places and orders is named where its rehearsal avoids the loss, and only there."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from rehearsing.conftest import BringUp

from gpuform.schemas.rehearsal import Advice, HazardKind
from gpuform.stacks.rehearsing import RehearsalOptions, rehearse

SCENARIOS: dict[str, Any] = yaml.safe_load(
    Path(__file__).with_name("planted_hazards.yaml").read_text(encoding="utf-8")
)
CLUSTER = yaml.safe_load(SCENARIOS["stock_is_gone_after_the_delete"]["topologies"]["training"])
WORKBENCH = yaml.safe_load(SCENARIOS["quota_is_full"]["topologies"]["workbench"])
HAZARDS = (HazardKind.NO_CAPACITY,)


def list_advice(bring_up: BringUp, topology: Any, change: Any) -> dict[str, list[Advice]]:
    """Return the advice of each hazard by the name of its resource, from a rehearsal."""
    (planned,) = bring_up(
        {"advised": yaml.safe_dump(topology, sort_keys=False)}, {"advised": change}
    )
    options = RehearsalOptions(hazards=HAZARDS, jobs=1)
    outcomes = rehearse(planned.stack, planned.plan, options).outcomes
    return {item.hazard.urn.rpartition("::")[2]: list(item.advice) for item in outcomes}


@pytest.mark.slow
def test_a_create_before_a_replacement_gets_a_run_of_its_own(bring_up: BringUp) -> None:
    train = CLUSTER["clusters"]["train"]
    extra = {**train, "cluster_name": "extra", "num_gpus": 8, "when": "{{ config.more }}"}
    topology = {
        "config": {**CLUSTER["config"], "more": {"type": "boolean", "default": False}},
        "clusters": {"extra": extra, "train": train},
    }

    advice = list_advice(bring_up, topology, {"more": True, "driver": "CUDA_12_6_560"})

    (split,) = advice["extra"]
    assert split.commands == ("gpuform up --stack dev --target extra", "gpuform up --stack dev")
    (create_first,) = advice["train"]
    assert create_first.declaration == "rollout: {strategy: replace_cluster}"
    assert create_first.lost_gpus == 0


@pytest.mark.slow
@pytest.mark.exhaustive
def test_another_place_helps_where_the_old_cluster_cannot_stay(bring_up: BringUp) -> None:
    advice = list_advice(bring_up, WORKBENCH, {"region": "us-east-1"})
    create_first, other_place = advice["workbench"]
    assert create_first.declaration == "options: {delete_before_replace: false}"
    assert other_place.declaration == "on_no_capacity: {alternatives: [{region: us-west-2}]}"
    assert other_place.condition == "only A100 in us-east-1 is out of stock"

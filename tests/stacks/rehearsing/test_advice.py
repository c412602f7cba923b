"""What a rehearsal proposes to avoid a loss, and how the project is changed for it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.schemas.plan import PlanAction, PlanReason, ResourceChange
from gpuform.schemas.rehearsal import Hazard, HazardKind, HazardOutcome
from gpuform.stacks.engine.project import load_project
from gpuform.stacks.rehearsing.advice import (
    Alternative,
    find_other_place,
    format_declaration,
    has_less_loss,
    list_alternatives,
    write_alternative,
)

CLUSTER = "pulumi-python:dynamic/gpuform.together:Cluster"
TENSORONE = "pulumi-python:dynamic/gpuform.tensorone:Cluster"
PLACE = {
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
}


def build_urn(name: str, type_: str = CLUSTER) -> str:
    return f"urn:pulumi:dev::demo::{type_}::{name}"


def build_change(
    name: str, action: PlanAction, type_: str = CLUSTER, **facts: Any
) -> ResourceChange:
    return ResourceChange(
        urn=build_urn(name, type_),
        type=type_,
        name=name,
        action=action,
        reason=PlanReason.CHANGED,
        **{"gpus_added": 8, "gpus_removed": 0, **facts},
    )


def build_outcome(
    kind: HazardKind = HazardKind.NO_CAPACITY, urn: str = build_urn("a"), **losses: object
) -> HazardOutcome:
    hazard = Hazard(kind=kind, urn=urn, description="no capacity")
    return HazardOutcome.model_validate({"hazard": hazard, **losses})


def list_proposals(
    *changes: ResourceChange, kind: HazardKind = HazardKind.NO_CAPACITY, **losses: Any
) -> list[str]:
    """Return the declarations and targets proposed for a hazard of the first change."""
    outcome = build_outcome(kind, changes[0].urn, **losses)
    alternatives = list_alternatives(outcome, {item.urn: item for item in changes}, PLACE)
    return [
        format_declaration({item.key: item.value}) if item.key else " ".join(item.targets)
        for item in alternatives
    ]


def test_a_replaced_cluster_may_be_replaced_create_first() -> None:
    assert list_proposals(build_change("a", PlanAction.REPLACE), kind=HazardKind.KILLED) == [
        "rollout: {strategy: replace_cluster}"
    ]
    change = build_change("a", PlanAction.REPLACE, TENSORONE)
    assert list_proposals(change, kind=HazardKind.KILLED) == [
        "options: {delete_before_replace: false}"
    ]


def test_without_capacity_another_place_is_proposed_for_a_replacement_alone() -> None:
    proposal = "on_no_capacity: {alternatives: [{region: us-central-4}]}"
    assert proposal in list_proposals(build_change("a", PlanAction.REPLACE))
    assert list_proposals(build_change("a", PlanAction.UPDATE)) == []


@pytest.mark.parametrize(
    ("platform", "inputs", "place"),
    [
        ("together", PLACE, {"region": "us-central-4"}),
        # A volume stays in its region, and only one region has the driver.
        ("together", {**PLACE, "volume_id": "v-1"}, {"gpu_type": "H100_SXM_INF"}),
        ("together", {**PLACE, "nvidia_driver_version": "1"}, {"gpu_type": "H100_SXM_INF"}),
        ("together", {"region": "nowhere-1"}, {}),
        ("tensorone", {"region": "us-east-1"}, {"region": "us-west-2"}),
        ("scp", {"region": "kr-west1"}, {}),
    ],
)
def test_another_place_has_the_same_gpus_if_there_is_one(
    platform: str, inputs: dict[str, Any], place: dict[str, str]
) -> None:
    assert find_other_place(platform, inputs) == place


def test_a_create_may_have_a_first_run_with_all_that_it_needs() -> None:
    volume = build_change("volume", PlanAction.CREATE)
    created = build_change("b", PlanAction.CREATE, dependencies=(volume.urn, "urn-of-others"))
    replaced = build_change("a", PlanAction.REPLACE, gpus_removed=8)
    assert list_proposals(created, volume, replaced) == [f"{created.urn} {volume.urn}"]
    grown = build_change("g", PlanAction.UPDATE)
    assert list_proposals(grown, replaced) == [grown.urn]
    # Nothing is deleted by the rest of the plan.
    assert list_proposals(created, volume) == []
    # A kill may come at any time of a first run as well.
    assert list_proposals(created, volume, replaced, kind=HazardKind.KILLED) == []


def test_a_first_run_that_would_delete_something_is_not_proposed() -> None:
    replaced = build_change("a", PlanAction.REPLACE, gpus_removed=8)
    created = build_change("b", PlanAction.CREATE, dependencies=(replaced.urn,))
    assert list_proposals(created, replaced) == []
    shrunk = build_change("s", PlanAction.UPDATE, gpus_removed=8)
    assert list_proposals(shrunk, replaced) == []


def test_a_deletion_and_lost_data_propose_protection_and_ended_jobs_a_drain() -> None:
    protection, drain = "options: {protect: true}", "drain: {on_busy: wait}"
    assert list_proposals(build_change("a", PlanAction.DELETE)) == [protection]
    change = build_change("a", PlanAction.UPDATE)
    assert list_proposals(change, data_lost=("volume",), jobs_ended=("x",)) == [drain, protection]


def test_advice_names_the_declaration_or_the_commands() -> None:
    outcome = build_outcome(lost_gpus=8, gpu_hours_without_work=2.5)
    place = {"gpu_type": "H100_SXM", "region": "us-central-8"}
    value = {"alternatives": [{"region": "us-central-4"}]}
    declared = Alternative("clusters", "a", build_urn("a"), "on_no_capacity", value, (), place)
    advice = declared.build_advice(outcome, "gpuform up")
    assert advice.declaration == "on_no_capacity: {alternatives: [{region: us-central-4}]}"
    assert advice.condition == "only H100_SXM in us-central-8 is out of stock"
    assert (advice.lost_gpus, advice.gpu_hours_without_work) == (8, 2.5)
    split = Alternative("clusters", "b", build_urn("b"), targets=(build_urn("b"), build_urn("v")))
    assert split.build_advice(outcome, "gpuform up --stack dev").commands == (
        "gpuform up --stack dev --target b --target v",
        "gpuform up --stack dev",
    )


@pytest.mark.parametrize(
    ("declared", "key", "value", "expected"),
    [
        (None, "options", {"protect": True}, {"protect": True}),
        ({"protect": False}, "options", {"protect": True}, None),
        (
            {"timeouts": {"create": "1h"}},
            "options",
            {"protect": True},
            {"timeouts": {"create": "1h"}, "protect": True},
        ),
        ({"max_unavailable": 2}, "rollout", {"strategy": "replace_cluster"}, None),
    ],
)
def test_a_declaration_is_added_but_never_changed(
    tmp_path: Path, declared: Any, key: str, value: Any, expected: Any
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    entry = {"platform": "together", **({key: declared} if declared else {})}
    (project / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (project / "__main__.py").write_text('from gpuform.stacks import run\n\nrun("topology.yaml")\n')
    (project / "topology.yaml").write_text(yaml.safe_dump({"clusters": {"a": entry}}))
    alternative = Alternative("clusters", "a", build_urn("a"), key, value)

    changed = write_alternative(
        load_project(project / "Pulumi.yaml"), alternative, tmp_path / "copy"
    )

    if expected is None:
        assert changed is None
    else:
        assert changed is not None
        topology = yaml.safe_load((changed.directory / "topology.yaml").read_text())
        assert topology["clusters"]["a"][key] == expected


def test_only_a_clear_gain_without_a_new_loss_is_advice() -> None:
    loss = build_outcome(lost_gpus=16, gpu_hours_without_work=40.0)
    assert has_less_loss(loss, build_outcome())
    assert has_less_loss(loss, build_outcome(lost_gpus=16, gpu_hours_without_work=6.0))
    assert not has_less_loss(loss, build_outcome(lost_gpus=16, gpu_hours_without_work=39.0))
    assert not has_less_loss(loss, build_outcome(jobs_ended=("train",)))
    assert not has_less_loss(build_outcome(), build_outcome())


def test_an_outcome_that_nobody_mends_is_worse_than_the_same_loss() -> None:
    assert build_outcome(is_mended=False).is_worse_than(build_outcome())
    assert not build_outcome(gpu_hours_without_work=0.05).is_worse_than(build_outcome())

"""The plan as text, against golden files."""

from collections.abc import Callable

import pytest

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import (
    Basis,
    Plan,
    PlanAction,
    PlanReason,
    PropertyChange,
    ResourceChange,
)
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.review.facts import Review, describe_validity
from gpuform.stacks.review.paint import Paint
from gpuform.stacks.review.plan_text import render_changes, render_plan

VOLUME = "pulumi-python:dynamic/gpuform.together:SharedVolume"
STACK = "pulumi:pulumi:Stack"

Golden = Callable[[str, str], None]
Make = Callable[..., ResourceChange]
Change = Callable[..., PropertyChange]


def build_plan(
    *changes: ResourceChange, unchecked: tuple[str, ...] = (), unchanged: int = 0
) -> Plan:
    made = Plan.from_changes("demo", "dev", changes, unchecked=unchecked)
    return made.model_copy(update={"summary": {**made.summary, PlanAction.SAME: unchanged}})


def test_a_first_plan_is_rendered(golden: Golden, resource: Make, change: Change) -> None:
    volume = resource(
        "data",
        PlanAction.CREATE,
        PlanReason.NEW,
        change("volume_name", after="training-data"),
        change("size_tib", after=5),
        type_=VOLUME,
    )
    cluster = resource(
        "train",
        PlanAction.CREATE,
        PlanReason.NEW,
        change("__provider", after="gASV"),
        change("cluster_name", after="training"),
        change("num_gpus", after=16),
        change("volume_id", unknown=True, because="known after apply"),
        change("token", after="[secret]", secret=True),
        change("oidc_config", after={"issuer_url": "https://login.example", "client_id": "gpu"}),
        change(
            "add_ons",
            after=[
                {"name": "ingress", "config": {"replicas": 2, "class": "nginx"}},
                {"name": "metrics", "config": {"retention": "30d", "volume": "[unknown]"}},
            ],
        ),
        gpus_added=16,
    )
    stack = resource("demo-dev", PlanAction.CREATE, PlanReason.NEW, type_=STACK)
    unchecked = ("regions were not checked: the API key is missing:\nset TOGETHER_API_KEY",)
    golden("create.txt", render_plan(build_plan(stack, volume, cluster, unchecked=unchecked)))


def test_changes_that_destroy_capacity_come_first(
    golden: Golden, resource: Make, change: Change
) -> None:
    small = resource(
        "eval",
        PlanAction.UPDATE,
        PlanReason.CHANGED,
        change("num_gpus", 16, 8),
        change(
            "billing_type",
            "RESERVED",
            "ON_DEMAND",
            because="no longer declared: the platform resets it to the default",
        ),
        gpus_removed=8,
    )
    moved = resource(
        "train",
        PlanAction.REPLACE,
        PlanReason.FIELD_FORCES_REPLACEMENT,
        change(
            "region",
            "us-central-8",
            "eu-west-1",
            forces_replacement=True,
            because="cannot be changed in place",
        ),
        change(
            "gpu_type",
            "H100_SXM",
            "B200_SXM",
            forces_replacement=True,
            because="cannot be changed in place",
        ),
        change(
            "volume_id",
            "vol-1",
            unknown=True,
            forces_replacement=True,
            because="known after apply",
        ),
        change("num_gpus", 16, 64),
        replace_paths=("region", "gpu_type", "volume_id"),
        gpus_added=64,
        gpus_removed=16,
    )
    gone = resource("old", PlanAction.DELETE, PlanReason.NOT_IN_PROGRAM, gpus_removed=256)
    scratch = resource("scratch", PlanAction.DELETE, PlanReason.NOT_IN_PROGRAM, type_=VOLUME)
    rendered = render_plan(build_plan(small, scratch, moved, gone, unchanged=3))
    golden("destructive.txt", rendered)
    heads = [line for line in rendered.splitlines() if "together:" in line]
    assert [head.split()[1] for head in heads] == ["old", "train", "eval", "scratch"]


def test_nested_changes_and_their_notes_are_rendered(
    golden: Golden, resource: Make, change: Change
) -> None:
    grown = resource(
        "train",
        PlanAction.UPDATE,
        PlanReason.CHANGED,
        change("add_ons", {"a": {"n": 1, "x": 5}, "b": 1}, {"a": {"n": 2, "x": 5}, "c": "new"}),
        change("labels", action=Action.DELETE, before=["one", "two"], because="no longer declared"),
        change("token", "[secret]", "[secret]", secret=True),
        change(
            "num_workers",
            action=Action.KEEP,
            before=8,
            after=8,
            because="no longer declared: the platform keeps its value",
        ),
    )
    same = resource(
        "other",
        PlanAction.SAME,
        PlanReason.UNCHANGED,
        change(
            "num_workers",
            action=Action.KEEP,
            before=2,
            after=2,
            because="no longer declared: the platform keeps its value",
        ),
    )
    waiting = resource(
        "slow", PlanAction.UPDATE, PlanReason.NOT_READY, change("ready", False, True)
    )
    forced = resource("follower", PlanAction.REPLACE, PlanReason.DEPENDENCY_REPLACED)
    unknown = resource(
        "sized-later", PlanAction.CREATE, PlanReason.NEW, gpus_added=None, type_="my:mod:Comp"
    )
    golden(
        "nested.txt", render_plan(build_plan(same, grown, waiting, forced, unknown, unchanged=1))
    )


def test_drift_is_rendered(golden: Golden, resource: Make, change: Change) -> None:
    drifted = resource("train", PlanAction.UPDATE, PlanReason.DRIFT, change("num_gpus", 16, 32))
    gone = resource("eval", PlanAction.DELETE, PlanReason.GONE, gpus_removed=8)
    golden("drift.txt", render_plan(build_plan(drifted, gone)))


def test_a_plan_without_changes_is_rendered() -> None:
    assert render_plan(build_plan(unchanged=2)) == "Resources:\n    2 unchanged"
    assert render_plan(build_plan()) == "Resources:\n    nothing to do"


def test_an_unknown_loss_of_gpus_ranks_before_every_known_one(resource: Make) -> None:
    counted_change = resource(
        "known", PlanAction.DELETE, PlanReason.NOT_IN_PROGRAM, gpus_removed=512
    )
    unknown = resource("unknown", PlanAction.DELETE, PlanReason.NOT_IN_PROGRAM, gpus_removed=None)
    rendered = render_plan(build_plan(counted_change, unknown))
    assert rendered.index("unknown") < rendered.index("known  together")
    assert "-512 or more to remove" in rendered


def test_details_name_the_urn(resource: Make) -> None:
    created = resource("train", PlanAction.CREATE, PlanReason.NEW)
    assert created.urn not in render_plan(build_plan(created))
    assert f"urn: {created.urn}" in render_plan(build_plan(created), details=True)


def test_changes_text_has_no_counts(resource: Make) -> None:
    created = resource("train", PlanAction.CREATE, PlanReason.NEW)
    assert render_changes(build_plan(created)) == "+  train  together:Cluster  create"


@pytest.mark.parametrize("path", ["replace", "field"])
def test_a_replacement_names_what_forces_it(resource: Make, change: Change, path: str) -> None:
    forced = change("zone", "a", "b", forces_replacement=True)
    replaced = resource(
        "m",
        PlanAction.REPLACE,
        PlanReason.FIELD_FORCES_REPLACEMENT,
        *([forced] if path == "field" else []),
        replace_paths=("zone",),
    )
    assert "replace: zone forces it" in render_plan(build_plan(replaced))


def test_color_changes_no_text(resource: Make, change: Change) -> None:
    grown = resource("t", PlanAction.UPDATE, PlanReason.CHANGED, change("num_gpus", 16, 24))
    coloured = render_plan(build_plan(grown), paint=Paint(color=True))
    assert "\x1b[33m" in coloured
    for code in ("32", "31", "33", "35", "1", "2", "0", "1;31"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured == render_plan(build_plan(grown))


def test_the_plan_of_several_stacks_promises_a_check_before_the_change_of_each_stack() -> None:
    basis = Basis(state={}, config={}, program={}, seal="seal")
    plans = [
        Plan.from_changes(project, "dev", ()).model_copy(update={"basis": basis})
        for project in ("network", "training")
    ]
    review = Review.from_stacks_plan(StacksPlan(plans=tuple(plans)), "plan.json")
    assert "before the first change of this stack" in describe_validity(review)

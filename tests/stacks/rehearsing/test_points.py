"""Which requests of a plan a rehearsal disturbs, and which hazards it plays at them."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from flask import Flask

from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan, PlanAction, PlanReason, ResourceChange
from gpuform.schemas.rehearsal import HazardKind
from gpuform.stacks.engine.planning import Op
from gpuform.stacks.operations.runs.callbacks import RunStarted
from gpuform.stacks.rehearsing.fleet import FleetRecorder, FleetState, Owner
from gpuform.stacks.rehearsing.hazards import list_plays
from gpuform.stacks.rehearsing.player import PlayedRun
from gpuform.stacks.rehearsing.points import LearnedPlan, Point, RequestObserver, group_points
from gpuform.stacks.rehearsing.sealed_states import choose_changes
from gpuform.stacks.rehearsing.worker import ShareRehearsal, assign_shares

CLUSTER = "pulumi-python:dynamic/gpuform.together:Cluster"


def build_urn(name: str) -> str:
    return f"urn:pulumi:dev::demo::{CLUSTER}::{name}"


def build_point(number: int, name: str, op: Op = Op.CREATE, method: str = "POST") -> Point:
    path = "/together/v1/compute/clusters" + ("" if method == "POST" else f"/{name}-0a1b2c3d")
    return Point(number, build_urn(name), CLUSTER, op, method, path, float(number))


def learn(*points: Point) -> LearnedPlan:
    names = {point.urn: ("together", point.urn.rpartition("::")[2]) for point in points}
    owners: dict[str, Owner] = dict(names.items())
    before = FleetState(0, dict.fromkeys(owners.values(), 16), {})
    groups = group_points(points, lambda _urn: 16, 2)
    return LearnedPlan({}, groups, owners, before, before, [before])


def test_many_equal_changes_are_played_at_the_first_and_at_the_largest() -> None:
    points = [build_point(number, f"c{number}") for number in range(1, 201)]
    (group,) = group_points(points, lambda urn: 64 if urn.endswith("c77") else 8, 2)
    assert [point.number for point in group.chosen] == [1, 77]
    assert len(group.points) == 200


def test_the_order_in_which_independent_resources_change_does_not_matter() -> None:
    numbers = {"a": 1, "b": 2, "c": 3}
    others = {"c": 1, "a": 2, "b": 3}
    plays = [
        list_plays(learn(*(build_point(n, name) for name, n in order.items())), list(HazardKind))
        for order in (numbers, others)
    ]
    assert [play.hazard for play in plays[0]] == [play.hazard for play in plays[1]]


def test_changes_of_different_kinds_are_played_each() -> None:
    points = [
        build_point(1, "a", Op.DELETE_REPLACED, "DELETE"),
        build_point(2, "b", Op.DELETE, "DELETE"),
        build_point(3, "a", Op.CREATE_REPLACEMENT),
    ]
    assert len(group_points(points, lambda _urn: 8, 2)) == 3


def test_capacity_that_ends_after_the_deletion_is_a_hazard_of_its_own() -> None:
    learned = learn(
        build_point(1, "a", Op.DELETE_REPLACED, "DELETE"),
        build_point(2, "a", Op.CREATE_REPLACEMENT),
    )
    (play,) = list_plays(learned, [HazardKind.NO_CAPACITY])
    assert play.hazard.description == "no capacity for clusters.a after its deletion"
    assert play.point is not None
    assert play.point.number == 2


def test_hazards_at_different_requests_of_one_resource_differ_in_words() -> None:
    learned = learn(
        build_point(1, "a", Op.UPDATE, "PATCH"),
        build_point(2, "a", Op.UPDATE, "PUT"),
        build_point(3, "a", Op.UPDATE, "PUT"),
    )
    descriptions = [play.hazard.description for play in list_plays(learned, HazardKind)]
    assert "no capacity for clusters.a, at request 2 of the run: PUT clusters/*" in descriptions
    assert len(set(descriptions)) == len(descriptions)


def test_each_request_is_lost_before_and_after_its_effect() -> None:
    plays = list_plays(learn(build_point(1, "a")), [HazardKind.LOST_REQUEST])
    assert [play.hazard.description for play in plays] == [
        "POST compute/clusters of clusters.a is lost before its effect",
        "POST compute/clusters of clusters.a is lost after its effect",
    ]


def test_a_play_tells_how_many_requests_it_stands_for() -> None:
    learned = learn(*(build_point(number, f"c{number}") for number in range(1, 11)))
    plays = list_plays(learned, [HazardKind.NO_CAPACITY])
    assert sum(play.hazard.points for play in plays) == 10


def test_requests_of_a_preview_do_not_count_for_the_run_that_follows() -> None:
    server: Any = SimpleNamespace(store=SimpleNamespace(change_count=0))
    observer = RequestObserver(server, lambda: None, lambda _step: None, count=5)
    query = httpx.Request("POST", "http://emulator/aios/clusters/query")

    def send() -> int:
        observer.handle(query, lambda _request: httpx.Response(200))
        return observer.count

    observer.follow_steps(RunStarted("update", preview=True, project="demo", stack="dev"))
    assert send() == 6
    observer.follow_steps(RunStarted("update", preview=False, project="demo", stack="dev"))
    assert send() == 6


def test_a_hazard_whose_request_a_run_does_not_send_is_no_quiet_one() -> None:
    player: Any = SimpleNamespace(
        create_recorder=lambda: FleetRecorder(Flask(__name__)),
        play=lambda *_arguments, **_options: PlayedRun("succeeded", (), [], 0.0),
    )
    (play,) = list_plays(learn(build_point(1, "a")), [HazardKind.NO_CAPACITY])
    nothing: Any = None
    rehearsal = ShareRehearsal(nothing, nothing, player, [])
    with pytest.raises(EngineError, match=r"no capacity for clusters\.a: the run did not send"):
        rehearsal.play_hazard(play, {})


@pytest.mark.parametrize("kind", [kind for kind in HazardKind if kind is not HazardKind.NONE])
def test_a_plan_without_requests_meets_no_hazard(kind: HazardKind) -> None:
    assert list_plays(learn(), [kind]) == []


def test_deletions_that_a_failed_run_does_not_reach_are_late() -> None:
    deletion = build_point(1, "a", Op.DELETE_REPLACED, "DELETE")
    creation = build_point(2, "a", Op.CREATE_REPLACEMENT)
    later_deletion = build_point(3, "a", Op.DELETE_REPLACED, "DELETE")
    removal = build_point(4, "b", Op.DELETE, "DELETE")
    assert not learn(deletion, creation).has_late_deletions
    assert learn(creation, later_deletion).has_late_deletions
    assert learn(removal).has_late_deletions


def plan_changes(count: int) -> Plan:
    changes = [
        ResourceChange(
            urn=build_urn(f"c{number}"),
            type=CLUSTER,
            name=f"c{number}",
            action=PlanAction.REPLACE if number % 2 else PlanAction.UPDATE,
            reason=PlanReason.CHANGED,
            gpus_removed=64 if number in {50, 51} else 8,
        )
        for number in range(count)
    ]
    return Plan.from_changes("demo", "dev", changes)


def test_a_large_plan_is_played_by_the_first_and_largest_change_of_each_kind() -> None:
    chosen = choose_changes(plan_changes(200))
    assert chosen == {build_urn(name) for name in ("c0", "c1", "c50", "c51")}
    assert choose_changes(plan_changes(10)) is None


def test_all_hazards_of_a_resource_are_played_by_one_process() -> None:
    points = [
        build_point(number, f"c{number % 5}", method="POST" if number < 6 else "PUT")
        for number in range(1, 11)
    ]
    plays = list_plays(learn(*points), list(HazardKind))

    shares = assign_shares(plays, 2)

    shares_by_urn: dict[str, set[int]] = {}
    for play, share in zip(plays, shares, strict=True):
        shares_by_urn.setdefault(play.hazard.urn, set()).add(share)
    assert {len(item) for item in shares_by_urn.values()} == {1}
    largest = max(sum(play.hazard.urn == urn for play in plays) for urn in shares_by_urn)
    assert abs(shares.count(0) - shares.count(1)) <= largest
    assert assign_shares(plays, 1) == [0] * len(plays)


def test_alternatives_are_for_replaced_and_deleted_resources_first() -> None:
    learned = learn(*(build_point(number, f"c{number}") for number in range(4)))
    actions = [PlanAction.UPDATE, PlanAction.SAME, PlanAction.REPLACE, PlanAction.DELETE]
    changes = {
        build_urn(f"c{number}"): ResourceChange(
            urn=build_urn(f"c{number}"),
            type=CLUSTER,
            name=f"c{number}",
            action=action,
            reason=PlanReason.CHANGED,
        )
        for number, action in enumerate(actions)
    }

    riskiest = replace(learned, changes=changes).list_riskiest(3)

    assert riskiest == [build_urn("c2"), build_urn("c3"), build_urn("c0")]

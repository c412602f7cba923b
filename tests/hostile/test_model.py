"""The model finds what it looks for: each invariant is broken once, and kept once."""

import base64
import json
from typing import Any

import pytest
from hostile import model, planted
from hostile.courses import Step
from hostile.fakes.behavior import Behavior
from hostile.fakes.fleet import Fleet
from hostile.fakes.world import COLLEAGUE, OURS, Asked, Thing, World
from hostile.model import Known, Model
from processes.commands import Result

DONE = Result(0, "", "")
BODY = {"volume_name": "data", "size_tib": 5}


def made(world: World, by: str, id_: str = "v-1", **body: Any) -> Thing:
    return world.add(by, "together", "volume", id_, "data", BODY | body)


def found(world: World, result: Result = DONE, *held: str, is_settled: bool = False) -> list[str]:
    violations = Model(world).check(result, Known(set(held)), is_settled=is_settled)
    return [each.invariant for each in violations]


def test_what_the_state_does_not_hold_is_lost() -> None:
    world = World()
    made(world, OURS)
    assert found(world) == [model.LOST]
    assert found(world, DONE, "v-1") == []


def test_a_record_holds_it_until_everything_is_settled() -> None:
    world = World()
    made(world, OURS)
    known = Known(records=[{"id": None, "name": "data"}])
    checked = Model(world).check(DONE, known, is_settled=False)
    assert checked == []
    checked = Model(world).check(DONE, known, is_settled=True)
    assert [each.invariant for each in checked] == [model.LOST]


def test_in_the_end_a_failing_command_may_name_it() -> None:
    world = World()
    made(world, OURS)
    assert found(world, Result(1, "", "is v-1 ours?"), is_settled=True) == []
    assert found(world, Result(0, "", "is v-1 ours?"), is_settled=True) == [model.LOST]


@pytest.mark.parametrize("act", ["change", "remove", "hold"])
def test_the_colleagues_are_not_touched(act: str) -> None:
    world = World()
    thing = made(world, COLLEAGUE)
    assert found(world) == []
    if act == "change":
        world.change(OURS, thing, size_tib=9)
    elif act == "remove":
        world.remove(OURS, thing, 0)
    held = ["v-1"] if act == "hold" else []
    assert found(world, DONE, *held) == [model.TOUCHED]


@pytest.mark.parametrize(
    ("size", "had_effect", "later", "may"),
    [(5, False, 0, True), (5, True, 0, False), (9, False, 0, False), (5, False, 61, False)],
)
def test_only_what_nobody_can_tell_apart_may_be_adopted(
    size: int, had_effect: bool, later: float, may: bool
) -> None:
    world = World()
    asked = Asked(world.now, BODY, 0, had_effect)
    world.asked.append(asked)
    world.move(later)
    made(world, COLLEAGUE, size_tib=size).raced = True
    assert found(world, DONE, "v-1") == ([] if may else [model.TOUCHED])


def test_a_node_does_not_show_with_how_many_others_it_was_asked_for() -> None:
    servers = [{"gpu_node_name": f"train-00{number}"} for number in (1, 2, 3)]
    world = World()
    world.asked.append(Asked(world.now, {"server_details": servers}, 0, had_effect=False))
    node = world.add(COLLEAGUE, "scp", "node", "n-1", "train-001", {})
    node.sent, node.raced = {"server_details": servers[:2]}, True
    assert found(world, DONE, "n-1") == []


def test_two_of_one_are_doubled_unless_one_leaves() -> None:
    world = World()
    first = made(world, OURS)
    made(world, OURS, "v-2")
    assert found(world, DONE, "v-1", "v-2") == [model.DOUBLED]
    world.remove(OURS, first, 10)
    assert found(world, DONE, "v-2") == []


@pytest.mark.parametrize("result", [Result(255, "", ""), Result(1, "", "Traceback (most recent")])
def test_faults_of_gpuform_are_seen(result: Result) -> None:
    assert found(World(), result) == [model.EXIT]
    assert found(World(), Result(-9, "", "")) == []


@pytest.mark.parametrize("secret", planted.ALL)
def test_secrets_are_seen_in_files(secret: str) -> None:
    encoded = base64.b64encode(secret.encode())
    files = {"clear": json.dumps({"a": secret}).encode(), "encoded": encoded, "none": b"x"}
    if "\n" in secret:
        files["clear"] = secret.encode()
    assert {each.text.split()[-1] for each in Model(World()).check_files(files)} == {
        "clear",
        "encoded",
    }


def test_names_that_a_record_has_identify_nodes_whatever_ids_the_answer_had() -> None:
    world = World()
    world.add(OURS, "scp", "node", "n-2", "train-002", {"made_in": ["train-a", "train"]})
    known = Known(records=[{"ids": ["n-1"], "names": ["train-001", "train-002"]}])
    assert Model(world).check(DONE, known, is_settled=False) == []


@pytest.mark.parametrize(
    ("lifetime", "passed", "expected"),
    [("", 3, []), ("", 2, [model.EARLY]), ("ttl", 2, []), ("ttl", 1, [model.EARLY])],
)
def test_nothing_expires_before_its_end(lifetime: str, passed: int, expected: list[str]) -> None:
    world = World()
    thing = made(world, OURS)
    world.move(passed * 86_400)
    world.remove(OURS, thing, 0)
    checked = Model(world, lifetime=lifetime).check_step(DONE, "expire")
    assert [each.invariant for each in checked] == expected


@pytest.mark.parametrize("was_healthy", [False, True])
def test_nothing_is_made_behind_a_gate_that_nobody_opened(was_healthy: bool) -> None:
    world = World(is_gated=True, was_healthy=was_healthy)
    made(world, OURS)
    checked = Model(world).check_step(DONE, "up")
    assert [each.invariant for each in checked] == ([] if was_healthy else [model.LET_PASS])


@pytest.mark.parametrize(("writer", "expected"), [(OURS, [model.SUMS]), (COLLEAGUE, [])])
def test_totals_that_we_wrote_fit_the_entries(writer: str, expected: list[str]) -> None:
    world = World()
    cluster = world.add(OURS, "aios", "cluster", "east", "east", {})
    cluster.data["sums"] = (writer, False, "2 nodes, 3 entries")
    checked = Model(world).check_step(DONE, "up")
    assert [each.invariant for each in checked] == expected


@pytest.mark.parametrize(("delay", "expected"), [(0, [model.LOST, model.TOUCHED]), (8, [])])
def test_who_is_late_may_be_taken_for_an_equal_object(delay: int, expected: list[str]) -> None:
    world = World(behavior=Behavior(list_delay=delay))
    world.asked.append(Asked(world.now, BODY, 0, had_effect=True))
    made(world, OURS, "v-1")
    made(world, COLLEAGUE, "v-2").raced = True
    assert found(world, DONE, "v-2") == expected


def take_node_with_a_job(world: World, fleet: Fleet, seconds: float) -> None:
    node = world.add(OURS, "scp", "node", "n-1", "train-001", {"policy_ip": "192.168.0.2"})
    world.move(10)
    fleet.run_job(node, seconds)
    world.move(60)
    world.remove(OURS, node, 0)


@pytest.mark.parametrize(("seconds", "expected"), [(600, [model.KILLED]), (30, [])])
def test_no_node_goes_under_a_job(seconds: float, expected: list[str]) -> None:
    world = World()
    fleet = Fleet(world)
    take_node_with_a_job(world, fleet, seconds)
    checked = Model(world).check_jobs(fleet, Step("destroy"))
    assert [each.invariant for each in checked] == expected


@pytest.mark.parametrize(
    ("mood", "works", "expected"),
    [
        ("healthy", False, []),
        ("healthy", True, [model.IDLE]),
        ("foreign", False, [model.IDLE]),
    ],
)
def test_nothing_stops_that_nobody_knows_to_be_idle(
    mood: str, works: bool, expected: list[str]
) -> None:
    world = World()
    fleet = Fleet(world)
    node = world.add(OURS, "scp", "node", "n-1", "train-001", {"policy_ip": "192.168.0.2"})
    world.move(10)
    if works:
        fleet.run_job(node, 300)
    world.move(600)
    world.change(OURS, node, switched=("stop", world.now))
    checked = Model(world).check_jobs(fleet, Step("watch", mood=mood))
    assert [each.invariant for each in checked] == expected

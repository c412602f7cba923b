"""Test that the model finds violations: each invariant is broken once, and kept once."""

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


def create_object(world: World, by: str, id_: str = "v-1", **body: Any) -> Thing:
    return world.add(by, "together", "volume", id_, "data", BODY | body)


def find_violations(
    world: World, result: Result = DONE, *held: str, is_settled: bool = False
) -> list[str]:
    violations = Model(world).check(result, Known(set(held)), is_settled=is_settled)
    return [violation.invariant for violation in violations]


def test_an_object_missing_in_the_state_is_lost() -> None:
    world = World()
    create_object(world, OURS)
    assert find_violations(world) == [model.LOST]
    assert find_violations(world, DONE, "v-1") == []


def test_an_object_on_record_is_not_lost_until_everything_is_recovered() -> None:
    world = World()
    create_object(world, OURS)
    knowledge = Known(records=[{"id": None, "name": "data"}])
    checked = Model(world).check(DONE, knowledge, is_settled=False)
    assert checked == []
    checked = Model(world).check(DONE, knowledge, is_settled=True)
    assert [item.invariant for item in checked] == [model.LOST]


def test_a_failing_command_may_name_a_lost_object_at_the_end() -> None:
    world = World()
    create_object(world, OURS)
    assert find_violations(world, Result(1, "", "is v-1 ours?"), is_settled=True) == []
    assert find_violations(world, Result(0, "", "is v-1 ours?"), is_settled=True) == [model.LOST]


@pytest.mark.parametrize("act", ["change", "remove", "hold"])
def test_changes_of_the_colleagues_objects_are_found(act: str) -> None:
    world = World()
    platform_object = create_object(world, COLLEAGUE)
    assert find_violations(world) == []
    if act == "change":
        world.change(OURS, platform_object, size_tib=9)
    elif act == "remove":
        world.remove(OURS, platform_object, 0)
    held = ["v-1"] if act == "hold" else []
    assert find_violations(world, DONE, *held) == [model.TOUCHED]


@pytest.mark.parametrize(
    ("size", "had_effect", "later", "may"),
    [(5, False, 0, True), (5, True, 0, False), (9, False, 0, False), (5, False, 61, False)],
)
def test_only_an_indistinguishable_object_may_be_adopted(
    size: int, had_effect: bool, later: float, may: bool
) -> None:
    world = World()
    create_request = Asked(world.now, BODY, 0, had_effect)
    world.asked.append(create_request)
    world.move(later)
    create_object(world, COLLEAGUE, size_tib=size).raced = True
    assert find_violations(world, DONE, "v-1") == ([] if may else [model.TOUCHED])


def test_the_size_of_its_batch_does_not_distinguish_a_node() -> None:
    servers = [{"gpu_node_name": f"train-00{number}"} for number in (1, 2, 3)]
    world = World()
    world.asked.append(Asked(world.now, {"server_details": servers}, 0, had_effect=False))
    node = world.add(COLLEAGUE, "scp", "node", "n-1", "train-001", {})
    node.sent, node.raced = {"server_details": servers[:2]}, True
    assert find_violations(world, DONE, "n-1") == []


def test_two_objects_are_doubled_unless_one_is_deleted() -> None:
    world = World()
    first = create_object(world, OURS)
    create_object(world, OURS, "v-2")
    assert find_violations(world, DONE, "v-1", "v-2") == [model.DOUBLED]
    world.remove(OURS, first, 10)
    assert find_violations(world, DONE, "v-2") == []


@pytest.mark.parametrize("result", [Result(255, "", ""), Result(1, "", "Traceback (most recent")])
def test_crashes_of_gpuform_are_found(result: Result) -> None:
    assert find_violations(World(), result) == [model.EXIT]
    assert find_violations(World(), Result(-9, "", "")) == []


@pytest.mark.parametrize("secret", planted.ALL)
def test_secrets_in_files_are_found(secret: str) -> None:
    encoded = base64.b64encode(secret.encode())
    files = {"clear": json.dumps({"a": secret}).encode(), "encoded": encoded, "none": b"x"}
    if "\n" in secret:
        files["clear"] = secret.encode()
    assert {check_file.text.split()[-1] for check_file in Model(World()).check_files(files)} == {
        "clear",
        "encoded",
    }


def test_names_that_a_record_has_identify_nodes_whatever_ids_the_answer_had() -> None:
    world = World()
    world.add(OURS, "scp", "node", "n-2", "train-002", {"made_in": ["train-a", "train"]})
    knowledge = Known(records=[{"ids": ["n-1"], "names": ["train-001", "train-002"]}])
    assert Model(world).check(DONE, knowledge, is_settled=False) == []


@pytest.mark.parametrize(
    ("lifetime", "passed", "expected"),
    [("", 3, []), ("", 2, [model.EARLY]), ("ttl", 2, []), ("ttl", 1, [model.EARLY])],
)
def test_an_early_expiry_is_found(lifetime: str, passed: int, expected: list[str]) -> None:
    world = World()
    platform_object = create_object(world, OURS)
    world.move(passed * 86_400)
    world.remove(OURS, platform_object, 0)
    checked = Model(world, lifetime=lifetime).check_step(DONE, "expire")
    assert [item.invariant for item in checked] == expected


@pytest.mark.parametrize("was_healthy", [False, True])
def test_a_create_behind_a_closed_gate_is_found(was_healthy: bool) -> None:
    world = World(is_gated=True, was_healthy=was_healthy)
    create_object(world, OURS)
    checked = Model(world).check_step(DONE, "up")
    assert [item.invariant for item in checked] == ([] if was_healthy else [model.LET_PASS])


@pytest.mark.parametrize(("writer", "expected"), [(OURS, [model.SUMS]), (COLLEAGUE, [])])
def test_wrong_totals_of_ours_are_found(writer: str, expected: list[str]) -> None:
    world = World()
    cluster = world.add(OURS, "aios", "cluster", "east", "east", {})
    cluster.data["sums"] = (writer, False, "2 nodes, 3 entries")
    checked = Model(world).check_step(DONE, "up")
    assert [item.invariant for item in checked] == expected


@pytest.mark.parametrize(("delay", "expected"), [(0, [model.LOST, model.TOUCHED]), (8, [])])
def test_a_late_object_may_be_confused_with_an_equal_one(delay: int, expected: list[str]) -> None:
    world = World(behavior=Behavior(list_delay=delay))
    world.asked.append(Asked(world.now, BODY, 0, had_effect=True))
    create_object(world, OURS, "v-1")
    create_object(world, COLLEAGUE, "v-2").raced = True
    assert find_violations(world, DONE, "v-2") == expected


def take_node_with_a_job(world: World, fleet: Fleet, seconds: float) -> None:
    node = world.add(OURS, "scp", "node", "n-1", "train-001", {"policy_ip": "192.168.0.2"})
    world.move(10)
    fleet.run_job(node, seconds)
    world.move(60)
    world.remove(OURS, node, 0)


@pytest.mark.parametrize(("seconds", "expected"), [(600, [model.KILLED]), (30, [])])
def test_a_node_removed_under_a_job_is_found(seconds: float, expected: list[str]) -> None:
    world = World()
    fleet = Fleet(world)
    take_node_with_a_job(world, fleet, seconds)
    checked = Model(world).check_jobs(fleet, Step("destroy"))
    assert [item.invariant for item in checked] == expected


@pytest.mark.parametrize(
    ("mood", "works", "expected"),
    [
        ("healthy", False, []),
        ("healthy", True, [model.IDLE]),
        ("foreign", False, [model.IDLE]),
    ],
)
def test_a_stop_without_known_idleness_is_found(
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
    assert [item.invariant for item in checked] == expected

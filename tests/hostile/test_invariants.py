"""Test that the model finds violations: each invariant is broken once, and kept once."""

import base64
import json
from typing import Any

import pytest
from hostile import invariants, planted
from hostile.courses import Step
from hostile.fakes.behavior import Behavior
from hostile.fakes.fleet import Fleet
from hostile.fakes.simulation import COLLEAGUE, OURS, CreateRequest, PlatformObject, Simulation
from hostile.invariants import InvariantChecker, StackKnowledge
from processes.commands import Result

DONE = Result(0, "", "")
BODY = {"volume_name": "data", "size_tib": 5}


def create_object(simulation: Simulation, by: str, id_: str = "v-1", **body: Any) -> PlatformObject:
    return simulation.add_object(by, "together", "volume", id_, "data", BODY | body)


def find_violations(
    simulation: Simulation, result: Result = DONE, *held: str, is_settled: bool = False
) -> list[str]:
    violations = InvariantChecker(simulation).check(
        result, StackKnowledge(set(held)), is_settled=is_settled
    )
    return [violation.invariant for violation in violations]


def test_an_object_missing_in_the_state_is_lost() -> None:
    simulation = Simulation()
    create_object(simulation, OURS)
    assert find_violations(simulation) == [invariants.LOST]
    assert find_violations(simulation, DONE, "v-1") == []


def test_an_object_on_record_is_not_lost_until_everything_is_recovered() -> None:
    simulation = Simulation()
    create_object(simulation, OURS)
    knowledge = StackKnowledge(records=[{"id": None, "name": "data"}])
    checked = InvariantChecker(simulation).check(DONE, knowledge, is_settled=False)
    assert checked == []
    checked = InvariantChecker(simulation).check(DONE, knowledge, is_settled=True)
    assert [item.invariant for item in checked] == [invariants.LOST]


def test_a_failing_command_may_name_a_lost_object_at_the_end() -> None:
    simulation = Simulation()
    create_object(simulation, OURS)
    assert find_violations(simulation, Result(1, "", "is v-1 ours?"), is_settled=True) == []
    assert find_violations(simulation, Result(0, "", "is v-1 ours?"), is_settled=True) == [
        invariants.LOST
    ]


@pytest.mark.parametrize("act", ["change", "remove", "hold"])
def test_changes_of_the_colleagues_objects_are_found(act: str) -> None:
    simulation = Simulation()
    platform_object = create_object(simulation, COLLEAGUE)
    assert find_violations(simulation) == []
    if act == "change":
        simulation.change_object(OURS, platform_object, size_tib=9)
    elif act == "remove":
        simulation.delete_object(OURS, platform_object, 0)
    held = ["v-1"] if act == "hold" else []
    assert find_violations(simulation, DONE, *held) == [invariants.TOUCHED]


@pytest.mark.parametrize(
    ("size", "had_effect", "later", "may"),
    [(5, False, 0, True), (5, True, 0, False), (9, False, 0, False), (5, False, 61, False)],
)
def test_only_an_indistinguishable_object_may_be_adopted(
    size: int, had_effect: bool, later: float, may: bool
) -> None:
    simulation = Simulation()
    create_request = CreateRequest(simulation.now, BODY, 0, had_effect)
    simulation.create_requests.append(create_request)
    simulation.advance(later)
    create_object(simulation, COLLEAGUE, size_tib=size).was_raced = True
    assert find_violations(simulation, DONE, "v-1") == ([] if may else [invariants.TOUCHED])


def test_the_size_of_its_batch_does_not_distinguish_a_node() -> None:
    servers = [{"gpu_node_name": f"train-00{number}"} for number in (1, 2, 3)]
    simulation = Simulation()
    simulation.create_requests.append(
        CreateRequest(simulation.now, {"server_details": servers}, 0, had_effect=False)
    )
    node = simulation.add_object(COLLEAGUE, "scp", "node", "n-1", "train-001", {})
    node.sent, node.was_raced = {"server_details": servers[:2]}, True
    assert find_violations(simulation, DONE, "n-1") == []


def test_two_objects_are_doubled_unless_one_is_deleted() -> None:
    simulation = Simulation()
    first = create_object(simulation, OURS)
    create_object(simulation, OURS, "v-2")
    assert find_violations(simulation, DONE, "v-1", "v-2") == [invariants.DOUBLED]
    simulation.delete_object(OURS, first, 10)
    assert find_violations(simulation, DONE, "v-2") == []


@pytest.mark.parametrize("result", [Result(255, "", ""), Result(1, "", "Traceback (most recent")])
def test_crashes_of_gpuform_are_found(result: Result) -> None:
    assert find_violations(Simulation(), result) == [invariants.EXIT]
    assert find_violations(Simulation(), Result(-9, "", "")) == []


@pytest.mark.parametrize("secret", planted.ALL)
def test_secrets_in_files_are_found(secret: str) -> None:
    encoded = base64.b64encode(secret.encode())
    files = {"clear": json.dumps({"a": secret}).encode(), "encoded": encoded, "none": b"x"}
    if "\n" in secret:
        files["clear"] = secret.encode()
    assert {
        check_file.text.split()[-1]
        for check_file in InvariantChecker(Simulation()).check_files(files)
    } == {
        "clear",
        "encoded",
    }


def test_names_that_a_record_has_identify_nodes_whatever_ids_the_answer_had() -> None:
    simulation = Simulation()
    simulation.add_object(
        OURS, "scp", "node", "n-2", "train-002", {"made_in": ["train-a", "train"]}
    )
    knowledge = StackKnowledge(records=[{"ids": ["n-1"], "names": ["train-001", "train-002"]}])
    assert InvariantChecker(simulation).check(DONE, knowledge, is_settled=False) == []


@pytest.mark.parametrize(
    ("lifetime", "passed", "expected"),
    [("", 3, []), ("", 2, [invariants.EARLY]), ("ttl", 2, []), ("ttl", 1, [invariants.EARLY])],
)
def test_an_early_expiry_is_found(lifetime: str, passed: int, expected: list[str]) -> None:
    simulation = Simulation()
    platform_object = create_object(simulation, OURS)
    simulation.advance(passed * 86_400)
    simulation.delete_object(OURS, platform_object, 0)
    checked = InvariantChecker(simulation, lifetime=lifetime).check_step(DONE, "expire")
    assert [item.invariant for item in checked] == expected


@pytest.mark.parametrize("was_healthy", [False, True])
def test_a_create_behind_a_closed_gate_is_found(was_healthy: bool) -> None:
    simulation = Simulation(is_gated=True, was_healthy=was_healthy)
    create_object(simulation, OURS)
    checked = InvariantChecker(simulation).check_step(DONE, "up")
    assert [item.invariant for item in checked] == ([] if was_healthy else [invariants.LET_PASS])


@pytest.mark.parametrize(("writer", "expected"), [(OURS, [invariants.SUMS]), (COLLEAGUE, [])])
def test_wrong_totals_of_ours_are_found(writer: str, expected: list[str]) -> None:
    simulation = Simulation()
    cluster = simulation.add_object(OURS, "aios", "cluster", "east", "east", {})
    cluster.data["sums"] = (writer, False, "2 nodes, 3 entries")
    checked = InvariantChecker(simulation).check_step(DONE, "up")
    assert [item.invariant for item in checked] == expected


@pytest.mark.parametrize(
    ("delay", "expected"), [(0, [invariants.LOST, invariants.TOUCHED]), (8, [])]
)
def test_a_late_object_may_be_confused_with_an_equal_one(delay: int, expected: list[str]) -> None:
    simulation = Simulation(behavior=Behavior(list_delay=delay))
    simulation.create_requests.append(CreateRequest(simulation.now, BODY, 0, had_effect=True))
    create_object(simulation, OURS, "v-1")
    create_object(simulation, COLLEAGUE, "v-2").was_raced = True
    assert find_violations(simulation, DONE, "v-2") == expected


def take_node_with_a_job(simulation: Simulation, fleet: Fleet, seconds: float) -> None:
    node = simulation.add_object(
        OURS, "scp", "node", "n-1", "train-001", {"policy_ip": "192.168.0.2"}
    )
    simulation.advance(10)
    fleet.run_job(node, seconds)
    simulation.advance(60)
    simulation.delete_object(OURS, node, 0)


@pytest.mark.parametrize(("seconds", "expected"), [(600, [invariants.KILLED]), (30, [])])
def test_a_node_removed_under_a_job_is_found(seconds: float, expected: list[str]) -> None:
    simulation = Simulation()
    fleet = Fleet(simulation)
    take_node_with_a_job(simulation, fleet, seconds)
    checked = InvariantChecker(simulation).check_jobs(fleet, Step("destroy"))
    assert [item.invariant for item in checked] == expected


@pytest.mark.parametrize(
    ("mood", "works", "expected"),
    [
        ("healthy", False, []),
        ("healthy", True, [invariants.IDLE]),
        ("foreign", False, [invariants.IDLE]),
    ],
)
def test_a_stop_without_known_idleness_is_found(
    mood: str, works: bool, expected: list[str]
) -> None:
    simulation = Simulation()
    fleet = Fleet(simulation)
    node = simulation.add_object(
        OURS, "scp", "node", "n-1", "train-001", {"policy_ip": "192.168.0.2"}
    )
    simulation.advance(10)
    if works:
        fleet.run_job(node, 300)
    simulation.advance(600)
    simulation.change_object(OURS, node, switched=("stop", simulation.now))
    checked = InvariantChecker(simulation).check_jobs(fleet, Step("watch", lens_mood=mood))
    assert [item.invariant for item in checked] == expected

"""Test injected faults of the emulated SCP, and many clients at once."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from emulator.scp.scp_client import NEW_NODE_SECONDS, POOL, Json, ScpClient, build_create_body

NODES = "^/v1/gpu-nodes$"


def test_too_many_requests_are_answered_with_429(scp: ScpClient, control: Any) -> None:
    control.add_fault(path=NODES, status=429, headers={"Retry-After": "2"})
    answer = scp.send("GET", "/v1/gpu-nodes")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "2")
    assert scp.send("GET", "/v1/gpu-nodes").status_code == 200


@pytest.mark.parametrize("status", [500, 502, 503, 504, 599])
def test_a_server_error_has_the_platforms_form_and_no_effect(
    scp: ScpClient, control: Any, status: int
) -> None:
    control.add_fault(method="POST", path=NODES, status=status)
    answer = scp.send("POST", "/v1/gpu-nodes", build_create_body("a-001", "a-002"))
    assert answer.status_code == status
    assert answer.json()["errors"][0]["status"] == status
    assert scp.get_states() == {}


@pytest.mark.parametrize(("drop", "states"), [("before", 0), ("after", 2)])
def test_a_dropped_connection_has_no_answer(
    scp: ScpClient, control: Any, drop: str, states: int
) -> None:
    control.add_fault(method="POST", path=NODES, drop=drop)
    with pytest.raises(httpx.TransportError):
        scp.create(build_create_body("a-001", "a-002"))
    assert len(scp.get_states()) == states


def test_a_create_without_capacity_is_refused(scp: ScpClient, control: Any) -> None:
    control.add_fault(method="POST", path=NODES, capacity=True)
    message = scp.require_refusal("POST", "/v1/gpu-nodes", build_create_body("a-001", "a-002"))
    assert message == f"Insufficient capacity in node pool {POOL}: 2 requested, 0 available."
    scp.create(build_create_body("a-001", "a-002"))


def test_a_create_that_is_stuck_stays_until_it_is_deleted(scp: ScpClient, control: Any) -> None:
    control.add_fault(method="POST", path=NODES, stuck=True)
    ids = scp.create(build_create_body("a-001", "a-002"))
    control.advance(86400)
    assert scp.get_states() == {"a-001": "CREATING", "a-002": "CREATING"}
    assert scp.get_fabrics()["fabric-a"]["state"] == "CREATING"
    scp.delete(*ids)
    control.advance(180)
    assert scp.get_states() == scp.get_fabrics() == {}


def list_members(fabric: Json) -> list[str]:
    return [node["gpu_node_id"] for node in fabric["gpu_node_details"]]


def test_stuck_power_nat_and_deletion_never_end(scp: ScpClient, control: Any, fabric: Json) -> None:
    first, second = list_members(fabric)
    nat = f"/v1/gpu-nodes/{second}/public-nat-ip"
    control.add_fault(path="/stop$", stuck=True)
    control.add_fault(path="/public-nat-ip$", stuck=True)
    scp.request("POST", "/v1/gpu-nodes/stop", {"gpu_node_ids": [first]})
    scp.request("POST", nat, {"public_ip_address_id": "0" * 32})
    control.advance(86400)
    assert scp.get_states() == {"a-001": "STOPPING", "a-002": "EDITING"}
    assert scp.get_node(second)["policy_use_nat"] is False
    control.add_fault(method="DELETE", stuck=True)
    scp.delete(first, second)
    control.advance(86400)
    assert set(scp.get_states().values()) == {"TERMINATING"}
    scp.delete(first, second)
    control.advance(180)
    assert scp.get_states() == {}


def test_a_stuck_move_moves_no_node(scp: ScpClient, control: Any, fabric: Json) -> None:
    scp.create(build_create_body("b-001", "b-002", fabric="fabric-b"))
    control.advance(NEW_NODE_SECONDS)
    control.add_fault(path="/modify-members$", stuck=True)
    moving = list_members(fabric)[0]
    scp.request(
        "POST",
        "/v1/cluster-fabrics/modify-members",
        {
            "before_cluster_fabric_id": fabric["id"],
            "after_cluster_fabric_id": scp.get_fabrics()["fabric-b"]["id"],
            "gpu_node_id_list": [moving],
        },
    )
    control.advance(86400)
    assert scp.get_node(moving)["state"] == "EDITING"
    assert scp.get_node(moving)["cluster_fabric_id"] == fabric["id"]


def test_some_of_the_new_nodes_fail(scp: ScpClient, control: Any) -> None:
    control.add_fault(method="POST", path=NODES, failing="-002$")
    ids = scp.create(build_create_body("a-001", "a-002", "a-003"))
    assert set(scp.get_states().values()) == {"CREATING"}
    control.advance(NEW_NODE_SECONDS)
    assert scp.get_states() == {"a-001": "RUNNING", "a-002": "ERROR", "a-003": "RUNNING"}
    message = scp.require_refusal("POST", "/v1/gpu-nodes/stop", {"gpu_node_ids": ids})
    assert message == "a-002 is ERROR; this is possible when RUNNING"
    scp.delete(ids[1])
    control.advance(180)
    assert set(scp.get_states()) == {"a-001", "a-003"}


def test_a_malformed_pattern_is_refused(scp: ScpClient) -> None:
    base = scp.url.removesuffix("/scp")
    answer = scp.http.post(f"{base}/_emulator/faults", json={"failing": "("})
    assert answer.status_code == 422
    assert "failing" in answer.json()["error"]


def test_a_fault_can_override_a_state(scp: ScpClient, control: Any, fabric: Json) -> None:
    first, _ = list_members(fabric)
    control.add_fault(path=f"/v1/gpu-nodes/{first}$", status_override="UNKNOWN", count=None)
    control.add_fault(path=f"/v1/cluster-fabrics/{fabric['id']}$", status_override="ERROR")
    assert scp.get_states() == {"a-001": "UNKNOWN", "a-002": "RUNNING"}
    assert scp.get_node(first)["state"] == "UNKNOWN"
    assert [scp.get_fabrics()["fabric-a"]["state"] for _ in range(2)] == ["ERROR", "RUNNING"]
    control.call("DELETE", "/faults")
    assert scp.get_node(first)["state"] == "RUNNING"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (build_create_body("b-001", "b-002"), "cluster fabric name 'fabric-a' is in use"),
        (build_create_body("a-002", "a-003", fabric="fabric-b"), "gpu_node_name 'a-002' is in use"),
    ],
    ids=["the fabric's name", "a node's name"],
)
def test_two_creates_at_once_do_not_share_a_name(scp: ScpClient, other: Json, message: str) -> None:
    bodies = [build_create_body("a-001", "a-002"), other] * 4
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda body: scp.send("POST", "/v1/gpu-nodes", body), bodies))
    assert sorted(answer.status_code for answer in answers) == [202] + [400] * 7
    assert len(scp.get_states()) == 2
    assert any(message in answer.text for answer in answers)


def test_many_creates_at_once_share_the_capacity(scp: ScpClient, control: Any) -> None:
    control.call("POST", "/scp/settings", {"capacity": {POOL: 7}, "create_answer": "all"})
    bodies = [build_create_body(f"n-{at}1", f"n-{at}2", fabric=f"fabric-{at}") for at in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda body: scp.send("POST", "/v1/gpu-nodes", body), bodies))
    assert sorted(answer.status_code for answer in answers) == [202] * 3 + [400] * 5
    created = [node_id for answer in answers if answer.status_code == 202
            for node_id in answer.json()["resource_id"].split(", ")]  # fmt: skip
    assert len(set(created)) == len(scp.get_states()) == 6
    assert len({scp.get_node(item)["policy_ip"] for item in created}) == 6


@pytest.mark.parametrize(
    "body",
    [{"capacity": "x"}, {"joining": True}, {"reaction_seconds": -1}, {"clock_ahead_seconds": "x"}],
)
def test_a_malformed_setting_is_refused(
    scp: ScpClient, control: Any, body: dict[str, object]
) -> None:
    before = control.call("GET", "/scp/settings")
    base = scp.url.removesuffix("/scp")
    answer = scp.http.post(f"{base}/_emulator/scp/settings", json=body)
    assert answer.status_code == 422
    assert control.call("GET", "/scp/settings") == before


def test_settings_are_kept_one_by_one_and_end_with_a_reset(scp: ScpClient, control: Any) -> None:
    before = control.call("GET", "/scp/settings")
    control.call("POST", "/scp/settings", {"capacity": {POOL: 4}})
    changed = control.call("POST", "/scp/settings", {"joining_one_allowed": False})
    assert changed == {**before, "capacity": {POOL: 4}, "joining_one_allowed": False}
    control.call("POST", "/reset")
    assert control.call("GET", "/scp/settings") == before


def test_a_missing_object_cannot_be_changed_by_a_control(scp: ScpClient) -> None:
    url = f"{scp.url.removesuffix('/scp')}/_emulator/scp/gpu-nodes/{'0' * 32}"
    assert scp.http.delete(url).status_code == 404
    assert scp.http.post(url, json={"state": "ERROR"}).status_code == 404

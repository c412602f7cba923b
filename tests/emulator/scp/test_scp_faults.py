"""Injected faults, and many clients at once."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from emulator.scp.asking import NEW_NODE_SECONDS, POOL, Api, Json, new_nodes

NODES = "^/v1/gpu-nodes$"


def test_too_many_requests(scp: Api, control: Any) -> None:
    control.fault(path=NODES, status=429, headers={"Retry-After": "2"})
    answer = scp.ask("GET", "/v1/gpu-nodes")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "2")
    assert scp.ask("GET", "/v1/gpu-nodes").status_code == 200


@pytest.mark.parametrize("status", [500, 502, 503, 504, 599])
def test_a_server_error_has_the_platform_s_form_and_no_effect(
    scp: Api, control: Any, status: int
) -> None:
    control.fault(method="POST", path=NODES, status=status)
    answer = scp.ask("POST", "/v1/gpu-nodes", new_nodes("a-001", "a-002"))
    assert answer.status_code == status
    assert answer.json()["errors"][0]["status"] == status
    assert scp.states() == {}


@pytest.mark.parametrize(("drop", "states"), [("before", 0), ("after", 2)])
def test_a_dropped_connection(scp: Api, control: Any, drop: str, states: int) -> None:
    control.fault(method="POST", path=NODES, drop=drop)
    with pytest.raises(httpx.TransportError):
        scp.create(new_nodes("a-001", "a-002"))
    assert len(scp.states()) == states


def test_no_capacity(scp: Api, control: Any) -> None:
    control.fault(method="POST", path=NODES, capacity=True)
    told = scp.refused("POST", "/v1/gpu-nodes", new_nodes("a-001", "a-002"))
    assert told == f"Insufficient capacity in node pool {POOL}: 2 requested, 0 available."
    scp.create(new_nodes("a-001", "a-002"))


def test_a_create_that_is_stuck_stays_until_it_is_deleted(scp: Api, control: Any) -> None:
    control.fault(method="POST", path=NODES, stuck=True)
    ids = scp.create(new_nodes("a-001", "a-002"))
    control.advance(86400)
    assert scp.states() == {"a-001": "CREATING", "a-002": "CREATING"}
    assert scp.fabrics()["fabric-a"]["state"] == "CREATING"
    scp.delete(*ids)
    control.advance(180)
    assert scp.states() == scp.fabrics() == {}


def members(fabric: Json) -> list[str]:
    return [each["gpu_node_id"] for each in fabric["gpu_node_details"]]


def test_stuck_power_nat_and_deletion(scp: Api, control: Any, fabric: Json) -> None:
    first, second = members(fabric)
    nat = f"/v1/gpu-nodes/{second}/public-nat-ip"
    control.fault(path="/stop$", stuck=True)
    control.fault(path="/public-nat-ip$", stuck=True)
    scp.do("POST", "/v1/gpu-nodes/stop", {"gpu_node_ids": [first]})
    scp.do("POST", nat, {"public_ip_address_id": "0" * 32})
    control.advance(86400)
    assert scp.states() == {"a-001": "STOPPING", "a-002": "EDITING"}
    assert scp.node(second)["policy_use_nat"] is False
    control.fault(method="DELETE", stuck=True)
    scp.delete(first, second)
    control.advance(86400)
    assert set(scp.states().values()) == {"TERMINATING"}
    scp.delete(first, second)
    control.advance(180)
    assert scp.states() == {}


def test_a_stuck_move_moves_nobody(scp: Api, control: Any, fabric: Json) -> None:
    scp.create(new_nodes("b-001", "b-002", fabric="fabric-b"))
    control.advance(NEW_NODE_SECONDS)
    control.fault(path="/modify-members$", stuck=True)
    moving = members(fabric)[0]
    scp.do(
        "POST",
        "/v1/cluster-fabrics/modify-members",
        {
            "before_cluster_fabric_id": fabric["id"],
            "after_cluster_fabric_id": scp.fabrics()["fabric-b"]["id"],
            "gpu_node_id_list": [moving],
        },
    )
    control.advance(86400)
    assert scp.node(moving)["state"] == "EDITING"
    assert scp.node(moving)["cluster_fabric_id"] == fabric["id"]


def test_some_of_the_new_nodes_fail(scp: Api, control: Any) -> None:
    control.fault(method="POST", path=NODES, failing="-002$")
    ids = scp.create(new_nodes("a-001", "a-002", "a-003"))
    assert set(scp.states().values()) == {"CREATING"}
    control.advance(NEW_NODE_SECONDS)
    assert scp.states() == {"a-001": "RUNNING", "a-002": "ERROR", "a-003": "RUNNING"}
    told = scp.refused("POST", "/v1/gpu-nodes/stop", {"gpu_node_ids": ids})
    assert told == "a-002 is ERROR; this is possible when RUNNING"
    scp.delete(ids[1])
    control.advance(180)
    assert set(scp.states()) == {"a-001", "a-003"}


def test_a_pattern_that_makes_no_sense_is_refused(scp: Api) -> None:
    base = scp.url.removesuffix("/scp")
    answer = scp.http.post(f"{base}/_emulator/faults", json={"failing": "("})
    assert answer.status_code == 422
    assert "failing" in answer.json()["error"]


def test_a_state_can_be_imposed(scp: Api, control: Any, fabric: Json) -> None:
    first, _ = members(fabric)
    control.fault(path=f"/v1/gpu-nodes/{first}$", status_override="UNKNOWN", count=None)
    control.fault(path=f"/v1/cluster-fabrics/{fabric['id']}$", status_override="ERROR")
    assert scp.states() == {"a-001": "UNKNOWN", "a-002": "RUNNING"}
    assert scp.node(first)["state"] == "UNKNOWN"
    assert [scp.fabrics()["fabric-a"]["state"] for _ in range(2)] == ["ERROR", "RUNNING"]
    control.call("DELETE", "/faults")
    assert scp.node(first)["state"] == "RUNNING"


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (new_nodes("b-001", "b-002"), "cluster fabric name 'fabric-a' is in use"),
        (new_nodes("a-002", "a-003", fabric="fabric-b"), "gpu_node_name 'a-002' is in use"),
    ],
    ids=["the fabric's name", "a node's name"],
)
def test_two_creates_at_once_do_not_share_a_name(scp: Api, other: Json, told: str) -> None:
    bodies = [new_nodes("a-001", "a-002"), other] * 4
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda body: scp.ask("POST", "/v1/gpu-nodes", body), bodies))
    assert sorted(answer.status_code for answer in answers) == [202] + [400] * 7
    assert len(scp.states()) == 2
    assert any(told in answer.text for answer in answers)


def test_many_creates_at_once_share_the_capacity(scp: Api, control: Any) -> None:
    control.call("POST", "/scp/settings", {"capacity": {POOL: 7}, "create_answer": "all"})
    bodies = [new_nodes(f"n-{at}1", f"n-{at}2", fabric=f"fabric-{at}") for at in range(8)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda body: scp.ask("POST", "/v1/gpu-nodes", body), bodies))
    assert sorted(answer.status_code for answer in answers) == [202] * 3 + [400] * 5
    made = [each for answer in answers if answer.status_code == 202
            for each in answer.json()["resource_id"].split(", ")]  # fmt: skip
    assert len(set(made)) == len(scp.states()) == 6
    assert len({scp.node(each)["policy_ip"] for each in made}) == 6


@pytest.mark.parametrize(
    "body",
    [{"capacity": "x"}, {"joining": True}, {"reaction_seconds": -1}, {"clock_ahead_seconds": "x"}],
)
def test_a_setting_that_makes_no_sense_is_refused(
    scp: Api, control: Any, body: dict[str, object]
) -> None:
    before = control.call("GET", "/scp/settings")
    base = scp.url.removesuffix("/scp")
    answer = scp.http.post(f"{base}/_emulator/scp/settings", json=body)
    assert answer.status_code == 422
    assert control.call("GET", "/scp/settings") == before


def test_settings_are_kept_one_by_one_and_end_with_a_reset(scp: Api, control: Any) -> None:
    before = control.call("GET", "/scp/settings")
    control.call("POST", "/scp/settings", {"capacity": {POOL: 4}})
    changed = control.call("POST", "/scp/settings", {"joining_one_allowed": False})
    assert changed == {**before, "capacity": {POOL: 4}, "joining_one_allowed": False}
    control.call("POST", "/reset")
    assert control.call("GET", "/scp/settings") == before


def test_what_does_not_exist_cannot_be_changed_past_the_api(scp: Api) -> None:
    url = f"{scp.url.removesuffix('/scp')}/_emulator/scp/gpu-nodes/{'0' * 32}"
    assert scp.http.delete(url).status_code == 404
    assert scp.http.post(url, json={"state": "ERROR"}).status_code == 404

"""Test nodes and fabrics of the emulated SCP from the first state to the last."""

from datetime import UTC, datetime
from typing import Any

import pytest
from emulator.scp.scp_client import (
    NEW_NODE_SECONDS,
    PASSWORD,
    POOL,
    PUBLIC_IP,
    Json,
    ScpClient,
    build_create_body,
    build_server,
)


def list_member_ids(fabric: Json) -> list[str]:
    return [node["gpu_node_id"] for node in fabric["gpu_node_details"]]


def watch_fields(
    scp: ScpClient, control: Any, node_id: str, seconds: int, *fields: str
) -> list[tuple[Any, ...]]:
    """Return the distinct values of a node's fields, read every 10 seconds."""
    observed_values = []
    for _ in range(seconds // 10 + 1):
        node = scp.get_node(node_id)
        observed_values.append(tuple(node[name] for name in fields))
        control.advance(10)
    return list(dict.fromkeys(observed_values))


def change_settings(control: Any, **values: object) -> None:
    control.call("POST", "/scp/settings", values)


def test_a_new_node_gets_its_fabric_and_runs(scp: ScpClient, control: Any, start: datetime) -> None:
    ids = scp.create(build_create_body("a-001", "a-002"))
    assert len(set(ids)) == 2
    observed_values = watch_fields(
        scp, control, ids[0], NEW_NODE_SECONDS, "state", "cluster_fabric_id"
    )
    fabric_id = scp.get_fabrics()["fabric-a"]["id"]
    assert observed_values == [("CREATING", None), ("CREATING", fabric_id), ("RUNNING", fabric_id)]
    node = scp.get_node(ids[1])
    assert (node["gpu_node_name"], node["cluster_fabric_name"]) == ("a-002", "fabric-a")
    assert node["created_at"] == start.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert node["modified_at"] > node["created_at"]


def test_a_fabric_appears_with_the_id_in_its_nodes(scp: ScpClient, control: Any) -> None:
    (node_id, _) = scp.create(build_create_body("a-001", "a-002"))
    observed_values = []
    for _ in range(40):
        fabric = scp.get_fabrics().get("fabric-a")
        id_ = scp.get_node(node_id)["cluster_fabric_id"]
        observed_values.append((fabric and fabric["state"], id_ is not None))
        if fabric:
            assert fabric["id"] == id_
            assert scp.get(f"/v1/cluster-fabrics/{id_}") == fabric
        control.advance(5)
    assert list(dict.fromkeys(observed_values)) == [
        (None, False),
        ("CREATING", True),
        ("RUNNING", True),
    ]


def test_a_fabric_exists_until_its_last_node_is_deleted(
    scp: ScpClient, control: Any, fabric: Json
) -> None:
    first, second = list_member_ids(fabric)
    scp.delete(first)
    assert scp.get_node(first)["state"] == "TERMINATING"
    assert scp.get_fabrics()["fabric-a"]["used_server_count"] == 2
    control.advance(180)
    assert scp.require_refusal("GET", f"/v1/gpu-nodes/{first}", status=404)
    assert list_member_ids(scp.get_fabrics()["fabric-a"]) == [second]
    scp.delete(second)
    control.advance(179)
    assert scp.get_fabrics()["fabric-a"]["gpu_node_details"][0]["state"] == "TERMINATING"
    control.advance(1)
    assert scp.get_fabrics() == scp.get_states() == {}
    assert scp.require_refusal("GET", f"/v1/cluster-fabrics/{fabric['id']}", status=404)
    scp.create(build_create_body("a-001", "a-002"))
    control.advance(NEW_NODE_SECONDS)
    assert scp.get_fabrics()["fabric-a"]["id"] != fabric["id"]


def test_a_fabric_that_loses_all_nodes_before_it_appears_never_does(
    scp: ScpClient, control: Any
) -> None:
    ids = scp.create(build_create_body("a-001", "a-002"))
    scp.delete(*ids)
    for _ in range(30):
        control.advance(10)
        assert scp.get_fabrics() == {}
    assert scp.create(build_create_body("a-001", "a-002"))


def test_a_deleted_node_may_be_shown_as_terminated(
    scp: ScpClient, control: Any, fabric: Json
) -> None:
    change_settings(control, terminated_seconds=600)
    ids = list_member_ids(fabric)
    scp.delete(*ids)
    control.advance(180)
    assert scp.get_states() == {"a-001": "TERMINATED", "a-002": "TERMINATED"}
    assert scp.get_fabrics() == {}
    assert scp.require_refusal("DELETE", "/v1/gpu-nodes", {"gpu_node_ids": ids}, status=404)
    scp.create(build_create_body("a-001", "a-002"))  # its name and address are free
    control.advance(600)
    assert scp.get_states() == {"a-001": "CREATING", "a-002": "CREATING"}


def test_a_node_is_stopped_and_started(scp: ScpClient, control: Any, fabric: Json) -> None:
    ids = list_member_ids(fabric)
    scp.request("POST", "/v1/gpu-nodes/stop", {"gpu_node_ids": ids})
    states = [state for (state,) in watch_fields(scp, control, ids[0], 150, "state")]
    scp.request("POST", "/v1/gpu-nodes/start", {"gpu_node_ids": ids})
    states += [state for (state,) in watch_fields(scp, control, ids[1], 300, "state")]
    assert states == ["STOPPING", "STOPPED", "STARTING", "RUNNING"]


@pytest.mark.parametrize("power", ["RUNNING", "STOPPED"])
def test_nat_is_assigned_and_released(
    scp: ScpClient, control: Any, fabric: Json, power: str
) -> None:
    node_id = list_member_ids(fabric)[0]
    if power == "STOPPED":
        scp.request("POST", "/v1/gpu-nodes/stop", {"gpu_node_ids": [node_id]})
        control.advance(120)
    path, fields = f"/v1/gpu-nodes/{node_id}/public-nat-ip", ("state", "policy_use_nat")
    scp.request("POST", path, {"public_ip_address_id": PUBLIC_IP})
    observed_values = watch_fields(scp, control, node_id, 60, *fields)
    assert observed_values == [("EDITING", False), (power, True)]
    assert scp.get_node(node_id)["policy_nat"]
    scp.request("DELETE", path)
    observed_values = watch_fields(scp, control, node_id, 60, *fields)
    assert observed_values == [("EDITING", True), (power, False)]
    assert scp.get_node(node_id)["policy_nat"] is None


def test_a_public_ip_serves_one_node_and_is_free_again(
    scp: ScpClient, control: Any, fabric: Json
) -> None:
    first, second = (
        f"/v1/gpu-nodes/{node_id}/public-nat-ip" for node_id in list_member_ids(fabric)
    )
    body = {"public_ip_address_id": PUBLIC_IP}
    scp.request("POST", first, body)
    assert "in use" in scp.require_refusal("POST", second, body)
    control.advance(60)
    scp.request("DELETE", first)
    assert "in use" in scp.require_refusal("POST", second, body)
    control.advance(60)
    scp.request("POST", second, body)


def test_a_lock_is_set_at_once_and_a_second_lock_changes_nothing(
    scp: ScpClient, fabric: Json
) -> None:
    node_id = list_member_ids(fabric)[0]
    for verb, enabled in (("lock", True), ("lock", True), ("unlock", False), ("unlock", False)):
        scp.request("PUT", f"/v1/gpu-nodes/{node_id}/{verb}")
        assert scp.get_node(node_id)["lock_enabled"] is enabled
    assert scp.get_node(list_member_ids(fabric)[1])["lock_enabled"] is False


def test_members_move_between_fabrics_of_one_pool(
    scp: ScpClient, control: Any, fabric: Json
) -> None:
    scp.create(build_create_body("b-001", "b-002", fabric="fabric-b"))
    control.advance(NEW_NODE_SECONDS)
    other = scp.get_fabrics()["fabric-b"]["id"]
    first, second = list_member_ids(fabric)

    def move(*ids: str) -> None:
        body = {"before_cluster_fabric_id": fabric["id"], "after_cluster_fabric_id": other}
        scp.request("POST", "/v1/cluster-fabrics/modify-members", {**body, "gpu_node_id_list": ids})

    move(first)
    observed_values = watch_fields(
        scp, control, first, 100, "state", "cluster_fabric_id", "cluster_fabric_name"
    )
    assert observed_values == [
        ("EDITING", fabric["id"], "fabric-a"),
        ("RUNNING", other, "fabric-b"),
    ]
    counts = {name: fabric["used_server_count"] for name, fabric in scp.get_fabrics().items()}
    assert counts == {"fabric-a": 1, "fabric-b": 3}
    move(second)
    assert set(scp.get_fabrics()) == {"fabric-a", "fabric-b"}
    control.advance(60)
    assert set(scp.get_fabrics()) == {"fabric-b"}


def test_a_fabric_lives_while_a_node_is_moving_into_it(
    scp: ScpClient, control: Any, fabric: Json
) -> None:
    scp.create(build_create_body("b-001", "b-002", fabric="fabric-b"))
    control.advance(NEW_NODE_SECONDS)
    other = scp.get_fabrics()["fabric-b"]
    scp.delete(*list_member_ids(other))
    control.advance(150)
    moving = list_member_ids(fabric)[0]
    body = {"before_cluster_fabric_id": fabric["id"], "after_cluster_fabric_id": other["id"]}
    scp.request(
        "POST", "/v1/cluster-fabrics/modify-members", {**body, "gpu_node_id_list": [moving]}
    )
    control.advance(30)
    assert scp.get_fabrics()["fabric-b"]["used_server_count"] == 0
    control.advance(30)
    assert list_member_ids(scp.get_fabrics()["fabric-b"]) == [moving]


def test_servers_join_a_fabric(scp: ScpClient, control: Any, fabric: Json) -> None:
    joining = scp.create(build_create_body("a-003", fabric_id=fabric["id"]))
    assert scp.get_node(joining[0])["cluster_fabric_id"] == fabric["id"]
    scp.create(build_create_body(*(f"a-01{at}" for at in range(5)), fabric_id=fabric["id"]))
    assert scp.get_fabrics()["fabric-a"]["used_server_count"] == 8
    change_settings(control, joining_one_allowed=False)
    message = scp.require_refusal(
        "POST", "/v1/gpu-nodes", build_create_body("a-004", fabric_id=fabric["id"])
    )
    assert "2 to 5" in message


def test_a_setting_allows_joining_a_fabric_that_is_being_created(
    scp: ScpClient, control: Any
) -> None:
    scp.create(build_create_body("a-001", "a-002"))
    control.advance(120)
    fabric_id = scp.get_fabrics()["fabric-a"]["id"]
    body = build_create_body("a-003", "a-004", fabric_id=fabric_id)
    assert "is CREATING" in scp.require_refusal("POST", "/v1/gpu-nodes", body)
    change_settings(control, joining_while_creating=True)
    scp.create(body)
    change_settings(control, joining_while_creating=False)
    control.advance(30)
    scp.create(build_create_body("a-005", fabric_id=fabric_id))


def test_an_empty_fabric_id_means_a_new_fabric(scp: ScpClient) -> None:
    scp.create(build_create_body("a-001", "a-002", fabric_id=""))
    assert "2 to 5" in scp.require_refusal(
        "POST", "/v1/gpu-nodes", build_create_body("b-001", fabric="fabric-b")
    )


def test_nodes_get_the_lowest_free_addresses(scp: ScpClient, control: Any) -> None:
    body = build_create_body("a-001", "a-002")
    body["server_details"].append(build_server("a-003", ip_address="192.168.0.2"))
    addresses = [scp.get_node(node_id)["policy_ip"] for node_id in scp.create(body)]
    assert addresses == ["192.168.0.1", "192.168.0.3", "192.168.0.2"]
    storage = [
        scp.get_node(node_id)["pfs_ip"]
        for node_id in scp.create(build_create_body("b-1", "b-2", fabric="b-f"))
    ]
    assert len({address for pair in storage for address in pair}) == 4


def test_a_setting_limits_the_capacity(scp: ScpClient, control: Any, fabric: Json) -> None:
    change_settings(control, capacity={POOL: 4})
    joining = build_create_body("a-003", "a-004", "a-005", fabric_id=fabric["id"])
    answer = scp.send("POST", "/v1/gpu-nodes", joining)
    assert answer.status_code == 400
    (error,) = answer.json()["errors"]
    assert error["code"] == "InsufficientCapacity"
    assert "3 requested, 2 available" in error["detail"]
    korean = scp.send("POST", "/v1/gpu-nodes", joining, Accept_Language="ko-KR").json()
    assert "가용 자원이 부족합니다" in korean["errors"][0]["detail"]
    scp.create(build_create_body("a-003", "a-004", fabric_id=fabric["id"]))
    scp.delete(*list_member_ids(fabric))
    assert "0 available" in scp.require_refusal(
        "POST", "/v1/gpu-nodes", build_create_body("b-1", "b-2")
    )
    control.advance(180)
    scp.create(build_create_body("b-001", "b-002", fabric="fabric-b"))


def test_an_accepted_action_may_show_late(scp: ScpClient, control: Any, fabric: Json) -> None:
    change_settings(control, reaction_seconds=20)
    node_id = list_member_ids(fabric)[0]
    scp.delete(node_id)
    observed_values = watch_fields(scp, control, node_id, 190, "state")
    assert observed_values == [("RUNNING",), ("TERMINATING",)]
    assert scp.require_refusal("GET", f"/v1/gpu-nodes/{node_id}", status=404)


def test_a_node_can_be_changed_and_removed_past_the_api(
    scp: ScpClient, control: Any, fabric: Json
) -> None:
    first, second = list_member_ids(fabric)
    control.call("POST", f"/scp/gpu-nodes/{first}", {"state": "ERROR"})
    control.call("DELETE", f"/scp/gpu-nodes/{second}")
    control.advance(3600)
    assert scp.get_states() == {"a-001": "ERROR"}
    assert scp.get_fabrics()["fabric-a"]["used_server_count"] == 1
    scp.delete(first)
    control.advance(180)
    assert scp.get_states() == scp.get_fabrics() == {}


def test_objects_shows_nodes_and_fabrics(control: Any, scp: ScpClient, fabric: Json) -> None:
    first, second = list_member_ids(fabric)
    assert control.call("GET", "/objects")["scp"] == {
        "gpu_nodes": [
            {"id": first, "name": "a-001", "status": "RUNNING"},
            {"id": second, "name": "a-002", "status": "RUNNING"},
        ],
        "fabrics": [{"id": fabric["id"], "name": "fabric-a", "status": "RUNNING"}],
    }


def test_the_log_has_neither_passwords_nor_scripts(scp: ScpClient, control: Any) -> None:
    body = build_create_body("a-001", "a-002", init_script="export TOKEN=hidden")
    scp.request("POST", "/v1/gpu-nodes", body)
    scp.require_refusal("POST", "/v1/gpu-nodes", {**body, "os_user_password": "short-secret"})
    scp.http.post(f"{scp.url}/v1/gpu-nodes", content=f'{{"os_user_password": "{PASSWORD}",')
    logged = control.list_requests()
    assert [entry["status"] for entry in logged] == [202, 400, 401]
    assert [entry["path"] for entry in logged] == ["/v1/gpu-nodes"] * 3
    hidden = {"os_user_password": "[secret]", "init_script": "[secret]"}
    assert logged[0]["body"] == {**body, **hidden}
    for secret in (PASSWORD, "hidden", "short-secret"):
        assert secret not in str(logged)


@pytest.mark.parametrize(
    ("answer", "known_values"), [("first", 1), ("all", 3), ("foreign", 0), ("none", 0)]
)
def test_a_create_is_answered_with_the_ids_that_are_set(
    scp: ScpClient, control: Any, answer: str, known_values: int
) -> None:
    if answer != "first":
        control.call("POST", "/scp/settings", {"create_answer": answer})
    resource_id = scp.request(
        "POST", "/v1/gpu-nodes", build_create_body("a-001", "a-002", "a-003")
    )["resource_id"]
    listed = {node["id"] for node in scp.get("/v1/gpu-nodes")["gpu_nodes"]}
    assert len(listed & set(resource_id.split(", "))) == known_values
    assert (resource_id == "") == (answer == "none")


def test_new_nodes_show_later_than_their_answer(scp: ScpClient, control: Any) -> None:
    control.call("POST", "/scp/settings", {"appears_seconds": 8, "create_answer": "all"})
    resource_id = scp.request("POST", "/v1/gpu-nodes", build_create_body("a-001", "a-002"))[
        "resource_id"
    ]
    first, _ = resource_id.split(", ")
    assert scp.get_states() == {}
    assert scp.send("GET", f"/v1/gpu-nodes/{first}").status_code == 404
    assert "in use" in scp.require_refusal(
        "POST", "/v1/gpu-nodes", build_create_body("a-001", "a-003")
    )
    scp.require_refusal("DELETE", "/v1/gpu-nodes", {"gpu_node_ids": [first]}, status=404)
    control.advance(8)
    assert scp.get_states() == {"a-001": "CREATING", "a-002": "CREATING"}
    assert scp.get_node(first)["gpu_node_name"] == "a-001"

"""Test each rule that a request can break: 400 with its reason, and no change."""

from typing import Any

import pytest
from emulator.scp.scp_client import (
    NEW_NODE_SECONDS,
    PASSWORD,
    PUBLIC_IP,
    Json,
    ScpClient,
    build_create_body,
    build_server,
)

WEST_B = "5d0e7c9a1f4b42c8b6a3e2d19f7c8054"
EAST = {
    "region_id": "kr-east1",
    "vpc_id": "3c1f0d7a5b8e4926a4d1c7f2e09b6583",
    "subnet_id": "c72a9b1e6d3f4805917e4c2b8d5f0a36",
}
UNAVAILABLE = "7ea25c90d1b348f6a80f3b6c94d27e15"
OTHER_IMAGE_ONLY = "1b6d4f0c83a94e57b2c90a7d5e16f348"


def build_body_with_server(**values: Any) -> Json:
    body = build_create_body("n-001")
    body["server_details"].append(build_server("n-002", **values))
    return body


WRONG: dict[str, tuple[Json, str]] = {
    "one server": (build_create_body("n-001"), "2 to 5"),
    "six servers": (build_create_body(*(f"n-00{at}" for at in range(6))), "2 to 5"),
    "no server": (build_create_body(), "2 to 5"),
    "one name twice": (build_create_body("n-001", "n-001"), "'n-001' is in use"),
    "capital in a name": (build_create_body("N-001", "n-002"), "gpu_node_name 'N-001'"),
    "short name": (build_create_body("n1", "n-002"), "gpu_node_name 'n1'"),
    "dash at the end": (build_create_body("n-001-", "n-002"), "gpu_node_name 'n-001-'"),
    "digit first": (build_create_body("1-001", "n-002"), "gpu_node_name '1-001'"),
    "long name": (build_create_body("n" * 29, "n-002"), "gpu_node_name"),
    "short fabric name": (
        build_create_body("n-001", "n-002", fabric="ab"),
        "cluster_fabric_name 'ab'",
    ),
    "long fabric name": (
        build_create_body("n-001", "n-002", fabric="f" * 16),
        "cluster_fabric_name",
    ),
    "fabric name with _": (
        build_create_body("n-001", "n-002", fabric="a_b"),
        "cluster_fabric_name",
    ),
    "another user": (build_create_body("n-001", "n-002", os_user_id="ubuntu"), "must be root"),
    "script too long": (build_create_body("n-001", "n-002", init_script="x" * 16385), "16384"),
    "empty tag key": (build_create_body("n-001", "n-002", tags=[{"key": ""}]), "tags: a key"),
    "long tag value": (
        build_create_body("n-001", "n-002", tags=[{"value": "v" * 257}]),
        "tags: a value",
    ),
    "unknown region": (build_create_body("n-001", "n-002", region_id="us-1"), "region_id 'us-1'"),
    "unknown image": (
        build_create_body("n-001", "n-002", image_id="IMAGE-x"),
        "image_id 'IMAGE-x'",
    ),
    "unknown pool": (build_create_body("n-001", "n-002", pool="POOL9"), "node_pool_id 'POOL9'"),
    "unknown network": (build_create_body("n-001", "n-002", vpc_id="x"), "vpc_id 'x'"),
    "unknown subnet": (build_create_body("n-001", "n-002", subnet_id="x"), "subnet_id 'x'"),
    "pool of another region": (build_create_body("n-001", "n-002", **EAST), "node_pool_id"),
    "subnet of another network": (
        build_create_body("n-001", "n-002", subnet_id=EAST["subnet_id"]),
        "subnet_id",
    ),
    "subnet that the pool does not serve": (
        build_create_body("n-001", "n-002", pool="POOL002-krw1b", subnet_id=WEST_B),
        "does not serve",
    ),
    "unknown server type": (build_body_with_server(server_type_id="x"), "server_type_id 'x'"),
    "server type that is sold out": (
        build_body_with_server(server_type_id=UNAVAILABLE),
        "is UNAVAILABLE",
    ),
    "server type without the image": (
        build_create_body(
            image_id="IMAGE-9sHgDr3XkWnVtBq6ZyLmPa",
            pool="POOL001-kre1a",
            server_details=[
                build_server(f"n-00{at}", server_type_id=OTHER_IMAGE_ONLY) for at in (1, 2)
            ],
            **EAST,
        ),
        "does not run image",
    ),
    "address outside": (
        build_body_with_server(ip_address="10.0.0.1"),
        "not an address of the subnet",
    ),
    "address that is none": (build_body_with_server(ip_address="192.168.0"), "not an address"),
    "NAT without an id": (build_body_with_server(nat_enabled=True), "NAT needs the id"),
    "NAT with an empty id": (
        build_body_with_server(nat_enabled=True, public_ip_address_id=""),
        "NAT needs the id",
    ),
    "number as a text": (
        build_body_with_server(nat_enabled="true"),
        "server_details.1.nat_enabled",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_create_that_breaks_a_rule_makes_nothing(scp: ScpClient, control: Any, case: str) -> None:
    body, expected_words = WRONG[case]
    assert expected_words in scp.require_refusal("POST", "/v1/gpu-nodes", body)
    control.advance(NEW_NODE_SECONDS)
    assert scp.get_states() == scp.get_fabrics() == {}


def test_every_problem_is_reported_at_once(scp: ScpClient) -> None:
    body = build_create_body(
        "N", "n-002", fabric="_", os_user_id="me", os_user_password="p", image_id="i"
    )
    answer = scp.send("POST", "/v1/gpu-nodes", body)
    detail = answer.json()["errors"][0]["detail"]
    assert isinstance(detail, list)
    assert len(detail) == 5


@pytest.mark.parametrize(
    "password",
    [
        "",
        "Aa1!Aa1!",
        "Aa1!" * 5 + "A",
        "aaaa1111!",
        "AAAA1111!",
        "AAAAaaaa!",
        "AAAAaaaa1",
        "Aa1! Aa1!",
        "Aa1!Aa1!-",
        "Aa1!Aa1!가",
        "Aa1!Aa1!1\n",
    ],
)
def test_a_bad_password_is_refused_and_not_repeated_in_the_answer(
    scp: ScpClient, password: str
) -> None:
    message = scp.require_refusal(
        "POST", "/v1/gpu-nodes", build_create_body("a-1", "a-2", os_user_password=password)
    )
    assert "os_user_password" in message
    assert not password or password not in message


@pytest.mark.parametrize("password", ["Aa1!Aa1!A", "Aa1!" * 5, "@$!%*#&aA1", PASSWORD])
def test_a_valid_password_is_accepted(scp: ScpClient, password: str) -> None:
    assert scp.create(build_create_body("a-1", "a-2", os_user_password=password))


@pytest.mark.parametrize("content", ["", "[]", "null", "{", '{"gpu_node_ids": "x"}', "{}"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/gpu-nodes"),
        ("DELETE", "/v1/gpu-nodes"),
        ("POST", "/v1/cluster-fabrics/modify-members"),
    ],
)
def test_a_malformed_body_is_refused(scp: ScpClient, content: str, method: str, path: str) -> None:
    answer = scp.send(method, path, content=content)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["code"] == "InvalidRequestBody"


@pytest.fixture
def second_fabric(scp: ScpClient, control: Any, fabric: Json) -> Json:
    """Return `fabric-b` with `b-001` and `b-002`, beside `fabric-a`."""
    scp.create(build_create_body("b-001", "b-002", fabric="fabric-b"))
    control.advance(NEW_NODE_SECONDS)
    return scp.get_fabrics()["fabric-b"]


def get_node_ids(fabric: Json) -> list[str]:
    return [node["gpu_node_id"] for node in fabric["gpu_node_details"]]


def test_names_and_addresses_of_live_nodes_cannot_be_used_again(
    scp: ScpClient, second_fabric: Json
) -> None:
    message = scp.require_refusal(
        "POST", "/v1/gpu-nodes", build_create_body("a-001", "b-002", fabric="fabric-c")
    )
    assert "'a-001' is in use" in message
    assert "'b-002' is in use" in message
    body = build_body_with_server(ip_address="192.168.0.1")
    assert "ip_address '192.168.0.1' is in use" in scp.require_refusal(
        "POST", "/v1/gpu-nodes", body
    )
    body = build_body_with_server(ip_address="192.168.0.9")
    body["server_details"][0]["ip_address"] = "192.168.0.9"
    assert "ip_address '192.168.0.9' is in use" in scp.require_refusal(
        "POST", "/v1/gpu-nodes", body
    )


def test_one_public_ip_for_two_servers_is_refused(scp: ScpClient) -> None:
    nat = {"nat_enabled": True, "public_ip_address_id": PUBLIC_IP}
    body = build_create_body(
        server_details=[build_server("n-001", **nat), build_server("n-002", **nat)]
    )
    assert "public IP" in scp.require_refusal("POST", "/v1/gpu-nodes", body)


def test_a_fabric_name_is_unique_in_its_pool_from_the_create_on(scp: ScpClient) -> None:
    scp.create(build_create_body("a-001", "a-002"))
    message = scp.require_refusal("POST", "/v1/gpu-nodes", build_create_body("b-001", "b-002"))
    assert "'fabric-a' is in use" in message
    scp.create(build_create_body("b-001", "b-002", pool="POOL002-krw1b"))


def test_joining_needs_the_true_name_and_pool_of_the_fabric(scp: ScpClient, fabric: Json) -> None:
    for wrong, expected_words in (
        ({"fabric": "fabric-b"}, "cluster_fabric_name 'fabric-b'"),
        ({"pool": "POOL002-krw1b"}, "node_pool_id 'POOL002-krw1b'"),
    ):
        body = build_create_body("a-003", "a-004", fabric_id=fabric["id"], **wrong)
        assert expected_words in scp.require_refusal("POST", "/v1/gpu-nodes", body)
    body = build_create_body("a-003", "a-004", fabric_id="0" * 32)
    assert "0" * 32 in scp.require_refusal("POST", "/v1/gpu-nodes", body, status=404)


@pytest.mark.parametrize(("method", "path"), [("DELETE", ""), ("POST", "/stop")])
def test_one_locked_node_refuses_a_delete_or_stop_of_many(
    scp: ScpClient, control: Any, fabric: Json, method: str, path: str
) -> None:
    locked, other = get_node_ids(fabric)
    scp.request("PUT", f"/v1/gpu-nodes/{locked}/lock")
    for wrong in ([other, locked], [locked]):
        answer = scp.send(method, f"/v1/gpu-nodes{path}", {"gpu_node_ids": wrong})
        assert answer.status_code == 400
        (error,) = answer.json()["errors"]
        assert error["code"] == "GpuNodeLocked"
        assert "a-001 is locked" in error["detail"]
    control.advance(3600)
    assert scp.get_states() == {"a-001": "RUNNING", "a-002": "RUNNING"}
    scp.request("PUT", f"/v1/gpu-nodes/{locked}/unlock")
    scp.request(method, f"/v1/gpu-nodes{path}", {"gpu_node_ids": [other, locked]})


@pytest.mark.parametrize(
    ("method", "path"), [("DELETE", ""), ("POST", "/stop"), ("POST", "/start")]
)
def test_a_refusal_for_one_node_changes_none_of_many(
    scp: ScpClient, control: Any, fabric: Json, method: str, path: str
) -> None:
    both = get_node_ids(fabric)
    target = f"/v1/gpu-nodes{path}"
    if path == "/start":
        scp.request("POST", "/v1/gpu-nodes/stop", {"gpu_node_ids": both})
        control.advance(120)
    before = scp.get_states()
    unknown = ["0" * 32, "1" * 32]
    message = scp.require_refusal(method, target, {"gpu_node_ids": [*both, *unknown]}, status=404)
    assert all(node_id in message for node_id in unknown)
    assert "twice" in scp.require_refusal(method, target, {"gpu_node_ids": [both[0], *both]})
    assert "gpu_node_ids" in scp.require_refusal(method, target, {"gpu_node_ids": []})
    assert scp.get_states() == before


def test_start_and_stop_need_the_right_state_of_all_nodes(
    scp: ScpClient, control: Any, fabric: Json
) -> None:
    first, second = get_node_ids(fabric)
    start, stop = "/v1/gpu-nodes/start", "/v1/gpu-nodes/stop"
    assert "a-001 is RUNNING" in scp.require_refusal("POST", start, {"gpu_node_ids": [first]})
    scp.request("POST", stop, {"gpu_node_ids": [first]})
    for verb in (start, stop):
        assert "a-001 is STOPPING" in scp.require_refusal("POST", verb, {"gpu_node_ids": [first]})
    control.advance(120)
    message = scp.require_refusal("POST", stop, {"gpu_node_ids": [second, first]})
    assert "a-001 is STOPPED" in message
    assert "a-002" not in message
    assert scp.get_states()["a-002"] == "RUNNING"


def test_nat_needs_a_stable_node_an_id_and_no_nat_before(
    scp: ScpClient, control: Any, fabric: Json
) -> None:
    path = f"/v1/gpu-nodes/{get_node_ids(fabric)[0]}/public-nat-ip"
    body = {"public_ip_address_id": PUBLIC_IP}
    for wrong in ("", "192.0.2.1", "x" * 32):
        message = scp.require_refusal("POST", path, {"public_ip_address_id": wrong})
        assert "NAT needs the id" in message
    assert "has no public NAT IP" in scp.require_refusal("DELETE", path)
    scp.request("POST", path, body)
    assert "is EDITING" in scp.require_refusal("POST", path, body)
    assert "is EDITING" in scp.require_refusal("DELETE", path)
    control.advance(60)
    assert "has a public NAT IP already" in scp.require_refusal("POST", path, body)


def test_members_move_only_to_a_fabric_of_the_same_pool(
    scp: ScpClient, control: Any, fabric: Json, second_fabric: Json
) -> None:
    path = "/v1/cluster-fabrics/modify-members"

    def body(before: str, after: str, *nodes: str) -> Json:
        return {
            "before_cluster_fabric_id": before,
            "after_cluster_fabric_id": after,
            "gpu_node_id_list": list(nodes),
        }

    a, b, mine, theirs = (
        fabric["id"],
        second_fabric["id"],
        get_node_ids(fabric),
        get_node_ids(second_fabric),
    )
    assert "are the same" in scp.require_refusal("POST", path, body(a, a, *mine))
    assert "b-001 is not a member" in scp.require_refusal(
        "POST", path, body(a, b, mine[0], theirs[0])
    )
    assert "gpu_node_id_list" in scp.require_refusal("POST", path, body(a, b))
    for wrong in (body("0" * 32, b, *mine), body(a, "0" * 32, *mine), body(a, b, "0" * 32)):
        assert "0" * 32 in scp.require_refusal("POST", path, wrong, status=404)
    scp.create(build_create_body("c-001", "c-002", fabric="fabric-c", pool="POOL002-krw1b"))
    scp.create(build_create_body("d-001", "d-002", fabric="fabric-d"))
    control.advance(120)
    fabrics = scp.get_fabrics()
    other_pool = body(a, fabrics["fabric-c"]["id"], *mine)
    assert "within one pool" in scp.require_refusal("POST", path, other_pool)
    creating = body(a, fabrics["fabric-d"]["id"], *mine)
    assert "fabric-d' is CREATING" in scp.require_refusal("POST", path, creating)
    control.advance(60)
    new = get_node_ids(scp.get_fabrics()["fabric-d"])
    assert "d-001 is CREATING" in scp.require_refusal(
        "POST", path, body(fabrics["fabric-d"]["id"], a, *new)
    )
    assert scp.get_states()["a-001"] == "RUNNING"


@pytest.mark.slow
def test_a_full_subnet_refuses_a_create_completely(scp: ScpClient) -> None:
    used = 0
    for at in range(50):
        names = [f"n{at:02d}-{server_at}" for server_at in range(5)]
        scp.create(build_create_body(*names, fabric=f"fabric-{at}", subnet_id=WEST_B))
        used += 5
    body = build_create_body(*(f"m-{at}" for at in range(5)), subnet_id=WEST_B)
    assert "no free IP address" in scp.require_refusal("POST", "/v1/gpu-nodes", body)
    assert len(scp.get_states()) == used

"""Test that the emulated SCP serves API 1.3 with zones, and API 1.2 without."""

from typing import Any

import httpx
import pytest
from emulator.scp.scp_client import Json, ScpClient, build_create_body, build_server

NODES = "/v1/gpu-nodes"
POOLS = "/v1/cluster-fabrics/node-pools"
ZONE = "kr-west1-a"
SUBNET = "ab313c43291e4b678f4bacffe10768ae"


def send_newer(scp: ScpClient, method: str, path: str, body: object = None) -> httpx.Response:
    """Send a request of API 1.3."""
    return scp.send(method, path, body, Scp_Api_Version="multinodegpucluster 1.3")


def get_newer(scp: ScpClient, path: str) -> Any:
    answer = send_newer(scp, "GET", path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Scp-Api-Version"] == "multinodegpucluster 1.3"
    return answer.json()


def declare_nodes(*names: str, zone: str | None = ZONE, **more: Any) -> Json:
    servers = [build_server(name) | ({} if zone is None else {"zone": zone}) for name in names]
    return build_create_body(**more, server_details=servers)


def test_only_answers_of_the_newer_version_have_the_zone(scp: ScpClient, fabric: Json) -> None:
    node_id = fabric["gpu_node_details"][0]["gpu_node_id"]
    assert "zone" not in scp.get_node(node_id)
    assert all("zone" not in node for node in scp.get(NODES)["gpu_nodes"])
    assert get_newer(scp, f"{NODES}/{node_id}") == {**scp.get_node(node_id), "zone": ZONE}
    assert [node["zone"] for node in get_newer(scp, NODES)["gpu_nodes"]] == [ZONE, ZONE]


def test_fabrics_and_pools_are_the_same_in_both_versions(scp: ScpClient, fabric: Json) -> None:
    path = f"/v1/cluster-fabrics/{fabric['id']}"
    assert get_newer(scp, path) == scp.get(path)
    assert get_newer(scp, f"{POOLS}?cluster_fabric_id={fabric['id']}") == scp.get(
        f"{POOLS}?cluster_fabric_id={fabric['id']}"
    )


def test_nodes_are_filtered_by_zone_in_the_newer_version_alone(
    scp: ScpClient, fabric: Json
) -> None:
    assert get_newer(scp, f"{NODES}?zone={ZONE}")["count"] == 2
    assert get_newer(scp, f"{NODES}?zone=kr-west1-b")["count"] == 0
    assert "zone" in scp.require_refusal("GET", f"{NODES}?zone={ZONE}")
    assert "zone" in scp.require_refusal("GET", f"{POOLS}?subnet_id={SUBNET}&zone={ZONE}")


@pytest.mark.parametrize(
    ("query", "pools"),
    [
        ("", None),
        (f"?subnet_id={SUBNET}", None),
        (f"?zone={ZONE}", None),
        ("?node_pool_id=POOL001-krw1a", None),
        (f"?subnet_id={SUBNET}&zone={ZONE}", ["POOL001-krw1a"]),
        (f"?subnet_id={SUBNET}&zone=kr-west1-b", ["POOL002-krw1b"]),
        (f"?subnet_id={SUBNET}&zone=kr-east1-a", []),
        (f"?cluster_fabric_id={'0' * 32}", []),
    ],
)
def test_pools_of_the_newer_version_need_a_fabric_or_a_subnet_and_a_zone(
    scp: ScpClient, query: str, pools: list[str] | None
) -> None:
    answer = send_newer(scp, "GET", f"{POOLS}{query}")
    if pools is None:
        assert answer.status_code == 400
        assert "cluster_fabric_id, or subnet_id together with zone" in answer.text
    else:
        assert [pool["node_pool_id"] for pool in answer.json()["node_pools"]] == pools


@pytest.mark.parametrize(
    ("zone", "told"),
    [
        (None, "zone of 'a-001' is required"),
        ("", "zone of 'a-001' is required"),
        ("kr-west1-b", "is in zone 'kr-west1-a', not in 'kr-west1-b'"),
    ],
)
def test_the_newer_version_creates_servers_only_in_the_zone_of_the_pool(
    scp: ScpClient, zone: str | None, told: str
) -> None:
    answer = send_newer(scp, "POST", NODES, declare_nodes("a-001", "a-002", zone=zone))
    assert answer.status_code == 400
    assert told in answer.text
    assert scp.get(NODES)["count"] == 0
    accepted = send_newer(scp, "POST", NODES, declare_nodes("a-001", "a-002"))
    assert accepted.status_code == 202


@pytest.mark.parametrize("zone", [ZONE, "", None])
def test_the_present_version_does_not_know_a_zone(scp: ScpClient, zone: str | None) -> None:
    body = build_create_body("a-001", "a-002")
    body["server_details"][0]["zone"] = zone
    assert "zone" in scp.require_refusal("POST", NODES, body)
    assert scp.get(NODES)["count"] == 0


def test_one_server_joins_a_fabric_and_does_not_create_one(scp: ScpClient, fabric: Json) -> None:
    alone = send_newer(scp, "POST", NODES, declare_nodes("b-001", fabric="fabric-b"))
    assert alone.status_code == 400
    joining = declare_nodes("a-003", fabric_id=fabric["id"])
    assert send_newer(scp, "POST", NODES, joining).status_code == 202

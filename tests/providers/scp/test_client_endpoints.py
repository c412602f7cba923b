"""Test the requests to all 16 documented endpoints, and how the client reads the answers."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, SecretStr
from support.platforms.emulated_scp import (
    H100,
    IMAGE,
    POOL,
    PUBLIC_IP,
    SUBNET,
    EmulatedScp,
    build_create_request,
    run_emulator,
)
from support.platforms.scp_document import (
    CREATE,
    ENDPOINTS,
    ID,
    NODE,
    Endpoint,
    Json,
    add_newer_fields,
)

from gpuform.providers.errors import NotFound
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.client.connection import Connection
from gpuform.providers.scp.client.credentials import Credentials
from gpuform.schemas.scp import wire

CREDENTIALS = Credentials("AK", "SK", base_url="http://scp.test/base")


def _create() -> wire.CreateGpuNodes:
    fabric = wire.ClusterFabricDetails(**CREATE["cluster_fabric_details"])
    servers = tuple(wire.ServerDetails(**server) for server in CREATE["server_details"])
    tags = tuple(wire.Tag(**tag) for tag in CREATE["tags"])
    parts = {"cluster_fabric_details": fabric, "server_details": servers, "tags": tags}
    return wire.CreateGpuNodes(**{**CREATE, **parts})


def _list_filters(endpoint: Endpoint) -> dict[str, str]:
    return {k: v for k, v in endpoint.query.items() if k not in {"size", "page", "sort"}}


CALLS: dict[str, Callable[[ScpClient, Endpoint], Any]] = {
    "1.1": lambda scp, _: scp.assign_nat(ID, ""),
    "1.2": lambda scp, _: scp.create_nodes(_create()),
    "1.3": lambda scp, _: scp.delete_nodes([ID]),
    "1.4": lambda scp, endpoint: scp.list_fabrics(**_list_filters(endpoint)),
    "1.5": lambda scp, endpoint: scp.list_images(**_list_filters(endpoint)),
    "1.6": lambda scp, endpoint: scp.list_products(**_list_filters(endpoint)),
    "1.7": lambda scp, endpoint: scp.list_nodes(**_list_filters(endpoint)),
    "1.8": lambda scp, endpoint: scp.list_node_pools(**_list_filters(endpoint)),
    "1.9": lambda scp, _: scp.lock_node(ID),
    "1.10": lambda scp, _: scp.modify_members(ID, ID, [ID]),
    "1.11": lambda scp, _: scp.release_nat(ID),
    "1.12": lambda scp, _: scp.get_fabric(ID),
    "1.13": lambda scp, _: scp.get_node(ID),
    "1.14": lambda scp, _: scp.start_nodes([ID]),
    "1.15": lambda scp, _: scp.stop_nodes([ID]),
    "1.16": lambda scp, _: scp.unlock_node(ID),
}


def _to_plain_values(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {name: _to_plain_values(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, tuple | list):
        return [_to_plain_values(item) for item in value]
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _build_expected_body(endpoint: Endpoint) -> Any:
    """Return the client's result for the document's answer."""
    if endpoint.number == "1.2":
        return [ID]
    if endpoint.method != "GET":
        return None
    answer = add_newer_fields(endpoint.answer)
    if endpoint.number in {"1.12", "1.13"}:
        return answer
    (listed,) = (value for value in answer.values() if isinstance(value, list))
    return listed


class Platform:
    """Answers as the document's example; other pages of a list are empty."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer: Json = self.endpoint.answer
        if request.url.params.get("page", "0") != "0":
            answer = {k: [] if isinstance(v, list) else v for k, v in answer.items()}
        return httpx.Response(self.endpoint.status, json=answer)


def test_every_endpoint_is_called() -> None:
    assert CALLS.keys() == {endpoint.number for endpoint in ENDPOINTS}
    assert len(CALLS) == 16


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=str)
def test_a_request_is_as_documented(endpoint: Endpoint) -> None:
    platform = Platform(endpoint)
    scp = ScpClient(Connection(CREDENTIALS, httpx.MockTransport(platform)))
    assert _to_plain_values(CALLS[endpoint.number](scp, endpoint)) == _build_expected_body(endpoint)
    sent = platform.asked[0]
    assert sent.method == endpoint.method
    assert sent.url.path == "/base" + re.sub(r"\{\w+\}", ID, endpoint.path)
    assert set(sent.url.params) == set(endpoint.query)
    filters = _list_filters(endpoint)
    assert {name: sent.url.params[name] for name in filters} == filters
    assert (json.loads(sent.content) if sent.content else None) == endpoint.body
    if endpoint.body is not None:
        assert sent.headers["content-type"] == "application/json"


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=str)
def test_the_headers_are_the_documented_ones(endpoint: Endpoint) -> None:
    platform = Platform(endpoint)
    CALLS[endpoint.number](
        ScpClient(Connection(CREDENTIALS, httpx.MockTransport(platform), now=lambda: 1.5)), endpoint
    )
    headers = platform.asked[0].headers
    assert headers["Scp-Accesskey"] == "AK"
    assert len(headers["Scp-Signature"]) == 44
    assert headers["Scp-Timestamp"] == "1500"
    assert headers["Scp-ClientType"] == "Openapi"
    assert headers["Accept-Language"] == "en-US"
    assert headers["Scp-Api-Version"] == "multinodegpucluster 1.2"
    assert "Scp-AccountId" not in headers


def test_only_the_filters_given_are_sent() -> None:
    asked: list[httpx.Request] = []
    calls: tuple[tuple[str, Callable[[ScpClient], object]], ...] = (
        ("1.7", ScpClient.list_nodes),
        ("1.6", ScpClient.list_products),
        ("1.8", ScpClient.list_node_pools),
    )
    for number, call in calls:
        platform = Platform(next(endpoint for endpoint in ENDPOINTS if endpoint.number == number))
        call(ScpClient(Connection(CREDENTIALS, httpx.MockTransport(platform))))
        asked.append(platform.asked[0])
    assert set(asked[0].url.params) == {"page", "size", "sort"}
    assert [str(request.url.query) for request in asked[1:]] == ["b''", "b''"]


# Over HTTP, with a signature that is checked.


@pytest.fixture
def scp() -> Iterator[EmulatedScp]:
    with run_emulator() as platform:
        yield platform


def test_a_node_is_created_changed_moved_and_deleted(scp: EmulatedScp) -> None:
    client = scp.client
    assert IMAGE in [image.id for image in client.list_images("kr-west1")]
    assert H100 in [product.id for product in client.list_products("SCALE", IMAGE)]
    (pool,) = client.list_node_pools(SUBNET, node_pool_id=POOL)
    assert pool.cluster_fabric_details == ()

    first = client.create_nodes(build_create_request("fabric-a", "a-001", "a-002"))
    second = client.create_nodes(build_create_request("fabric-b", "b-001", "b-002"))
    assert [node.id for node in client.list_nodes(cluster_fabric_name="fabric-a")] == first
    assert client.get_node(first[0]).state == "CREATING"
    assert client.get_node(first[0]).cluster_fabric_id is None
    scp.move_clock(1000)

    (own_fabric,) = client.list_fabrics(
        cluster_fabric_name="fabric-a", state="RUNNING", node_pool_id=POOL
    )
    (there,) = client.list_fabrics(cluster_fabric_name="fabric-b")
    assert [
        member.gpu_node_id for member in client.get_fabric(own_fabric.id).gpu_node_details
    ] == first
    (pool,) = client.list_node_pools(cluster_fabric_id=own_fabric.id)
    assert own_fabric.id in [
        cluster_fabric_detail.cluster_fabric_id
        for cluster_fabric_detail in pool.cluster_fabric_details
    ]

    client.assign_nat(first[0], PUBLIC_IP)
    client.modify_members(there.id, own_fabric.id, second[:1])
    client.stop_nodes(first[1:])
    client.lock_node(second[1])
    scp.move_clock(1000)
    assert client.get_node(first[0]).policy_use_nat
    assert client.get_node(first[1]).state == "STOPPED"
    assert client.get_node(second[0]).cluster_fabric_id == own_fabric.id
    assert client.get_node(second[1]).lock_enabled
    assert [node.id for node in client.list_nodes(cluster_fabric_id=own_fabric.id)] == [
        *first,
        second[0],
    ]

    client.release_nat(first[0])
    client.start_nodes(first[1:])
    client.unlock_node(second[1])
    scp.move_clock(1000)
    client.delete_nodes([*first, *second])
    scp.move_clock(1000)
    assert (client.list_nodes(), client.list_fabrics()) == ([], [])
    with pytest.raises(NotFound):
        client.get_node(first[0])

    requests = set(scp.list_requests())
    for endpoint in ENDPOINTS:
        path = re.sub(r"\\{\w+\\}", "[0-9a-f]{32}", re.escape(endpoint.path))
        assert any(m == endpoint.method and re.fullmatch(path, p) for m, p in requests), str(
            endpoint
        )


def test_all_fields_of_a_created_node_are_read(scp: EmulatedScp) -> None:
    (id_, _) = scp.client.create_nodes(build_create_request("fabric-a", "a-001", "a-002"))
    node = scp.client.get_node(id_)
    assert _to_plain_values(node).keys() == add_newer_fields(NODE).keys()
    assert (node.gpu_node_name, node.network_id, node.root_account) == ("a-001", SUBNET, "root")
    assert node.product_type_id == H100

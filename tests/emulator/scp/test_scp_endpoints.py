"""Test all 16 endpoints of the platform document: verbs, paths, parameters, bodies, answers."""

import re
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from emulator.scp.scp_client import (
    H100,
    PASSWORD,
    POOL,
    PUBLIC_IP,
    Json,
    ScpClient,
    build_create_body,
    build_server,
)

from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.scp import VIEWER_ACCESS_KEY, VIEWER_SECRET_KEY
from gpuform.providers.emulator.store import Store

ASYNC = {"account_id", "request_id", "resource_id"}
ACTION = {"gpu_node_id"}
NODE = {
    "account_id", "cluster_fabric_id", "cluster_fabric_name", "created_at", "created_by",
    "gpu_node_name", "id", "image_id", "image_version", "init_script", "lock_enabled",
    "modified_at", "modified_by", "network_id", "node_pool_id", "os_type", "pfs_ip", "policy_ip",
    "policy_nat", "policy_use_nat", "product_type_id", "region_id", "root_account", "server_type",
    "state", "time_zone", "vpc_id",
}  # fmt: skip
FABRIC = {
    "account_id", "cluster_name", "created_at", "created_by", "description", "gpu_node_details",
    "id", "modified_at", "modified_by", "node_pool_id", "pirp_id", "product_id", "region_id",
    "server_type", "state", "used_server_count",
}  # fmt: skip
FABRIC_MEMBER = {
    "gpu_node_id", "gpu_node_name", "policy_ip", "product_type_id", "server_type", "state",
}  # fmt: skip
IMAGE = {
    "created_at", "id", "name", "os_distro", "priority", "scp_image_type", "scp_os_version",
}  # fmt: skip
PRODUCT = {
    "created_at", "created_by", "description", "id", "modified_at", "modified_by", "name",
    "product_attrs", "state", "type",
}  # fmt: skip
PRODUCT_ATTRS = {
    "compute_class_type_name", "compute_class_type_value", "cpu_value", "disk_unit", "disk_value",
    "gpu_model", "memory_value",
}  # fmt: skip
UNKNOWN = "0" * 32


@dataclass(frozen=True)
class Endpoint:
    """`query` has an example for each parameter; `{node}` and the like stand for real ids."""

    number: str
    method: str
    path: str
    status: int
    fields: set[str]
    query: dict[str, str] = field(default_factory=dict)
    body: Any = None
    listed: str | None = None
    item: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


IDS = {"gpu_node_ids": ["{node}"]}
PAGING = {"size": "20", "page": "0", "sort": "created_at:desc"}
ENDPOINTS = (
    Endpoint("1.1", "POST", "/v1/gpu-nodes/{gpu_node_id}/public-nat-ip", 202, ACTION,
             body={"public_ip_address_id": PUBLIC_IP}),
    Endpoint("1.2", "POST", "/v1/gpu-nodes", 202, ASYNC,
             body=build_create_body("c-001", "c-002", fabric="fabric-c")),
    Endpoint("1.3", "DELETE", "/v1/gpu-nodes", 202, ASYNC, body=IDS),
    Endpoint("1.4", "GET", "/v1/cluster-fabrics", 200, {"cluster_fabrics", "count"},
             {**PAGING, "cluster_fabric_name": "fabric-a", "state": "RUNNING",
              "node_pool_id": POOL},
             listed="cluster_fabrics", item=FABRIC),
    Endpoint("1.5", "GET", "/v1/gpu-nodes/images", 200, {"images"},
             {"region_id": "kr-west1"}, listed="images", item=IMAGE),
    Endpoint("1.6", "GET", "/v1/gpu-nodes/products", 200, {"products"},
             {"type": "SCALE", "image_id": "IMAGE-7XFMaJpLsapKvskFMjCtmm"},
             listed="products", item=PRODUCT),
    Endpoint("1.7", "GET", "/v1/gpu-nodes", 200, {"gpu_nodes", "count"},
             {**PAGING, "gpu_node_name": "a-001", "state": "RUNNING", "ip": "192.168.0.1",
              "vpc_id": "e58348b1bc9148e5af86500fd4ef99ca", "cluster_fabric_name": "fabric-a",
              "cluster_fabric_id": "{fabric}"},
             listed="gpu_nodes", item=NODE),
    Endpoint("1.8", "GET", "/v1/cluster-fabrics/node-pools", 200, {"node_pools", "count"},
             {"subnet_id": "ab313c43291e4b678f4bacffe10768ae", "cluster_fabric_id": "{fabric}",
              "node_pool_id": POOL},
             listed="node_pools", item={"cluster_fabric_details", "node_pool_id"}),
    Endpoint("1.9", "PUT", "/v1/gpu-nodes/{gpu_node_id}/lock", 200, ACTION),
    Endpoint("1.10", "POST", "/v1/cluster-fabrics/modify-members", 202, ASYNC,
             body={"before_cluster_fabric_id": "{fabric}", "after_cluster_fabric_id": "{other}",
                   "gpu_node_id_list": ["{node}"]}),
    Endpoint("1.11", "DELETE", "/v1/gpu-nodes/{gpu_node_id}/public-nat-ip", 202, ACTION),
    Endpoint("1.12", "GET", "/v1/cluster-fabrics/{cluster_fabric_id}", 200, FABRIC),
    Endpoint("1.13", "GET", "/v1/gpu-nodes/{gpu_node_id}", 200, NODE),
    Endpoint("1.14", "POST", "/v1/gpu-nodes/start", 202, ASYNC, body=IDS),
    Endpoint("1.15", "POST", "/v1/gpu-nodes/stop", 202, ASYNC, body=IDS),
    Endpoint("1.16", "PUT", "/v1/gpu-nodes/{gpu_node_id}/unlock", 200, ACTION),
)  # fmt: skip
each_endpoint = pytest.mark.parametrize("endpoint", ENDPOINTS, ids=str)


@dataclass(frozen=True)
class Prepared:
    """Two fabrics of one node pool, and a node of the first that is ready for the endpoint."""

    scp: ScpClient
    ids: dict[str, str]

    def filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        return value.format(**self.ids) if isinstance(value, str) and "{" in value else value

    def ask(self, endpoint: Endpoint, **headers: Any) -> httpx.Response:
        query = str(httpx.QueryParams(self.filled(endpoint.query)))
        path = self.filled(endpoint.path) + (f"?{query}" if query else "")
        return self.scp.send(endpoint.method, path, self.filled(endpoint.body), **headers)


@pytest.fixture
def prepared(scp: ScpClient, control: Any, fabric: Json, request: Any) -> Prepared:
    endpoint = request.node.callspec.params["endpoint"]
    scp.create(build_create_body("b-001", "b-002", fabric="fabric-b"))
    node = fabric["gpu_node_details"][0]["gpu_node_id"]
    control.advance(3600)
    if endpoint.number == "1.11":
        scp.request(
            "POST", f"/v1/gpu-nodes/{node}/public-nat-ip", {"public_ip_address_id": PUBLIC_IP}
        )
    if endpoint.number == "1.14":
        scp.request("POST", "/v1/gpu-nodes/stop", {"gpu_node_ids": [node]})
    control.advance(3600)
    other = scp.get_fabrics()["fabric-b"]["id"]
    ids = {"node": node, "gpu_node_id": node, "fabric": fabric["id"], "other": other}
    return Prepared(scp, {**ids, "cluster_fabric_id": fabric["id"]})


def test_the_routes_are_those_of_the_document() -> None:
    with Store(None) as store:
        rules = create_app(store, Clock(store)).url_map.iter_rules()
        served = {
            (method, re.sub("<(.*?)>", r"{\1}", rule.rule.removeprefix("/scp")))
            for rule in rules
            for method in rule.methods - {"HEAD", "OPTIONS"}
            if rule.rule.startswith("/scp/v1/")
        }
    assert len(ENDPOINTS) == len({endpoint.number for endpoint in ENDPOINTS}) == 16
    assert served == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}


@each_endpoint
def test_an_endpoint_answers_as_documented(endpoint: Endpoint, prepared: Prepared) -> None:
    answer = prepared.ask(endpoint)
    assert answer.status_code == endpoint.status, answer.text
    content = answer.json()
    assert set(content) == endpoint.fields
    if endpoint.listed:
        items = content[endpoint.listed]
        assert items
        assert all(set(item) == endpoint.item for item in items)
        assert content.get("count", len(items)) == len(items)
    if endpoint.fields == ASYNC:
        assert re.fullmatch("[0-9a-f]{32}", content["account_id"])
        assert re.fullmatch("req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", content["request_id"])
    if endpoint.fields == ACTION:
        assert content == {"gpu_node_id": prepared.ids["node"]}


@pytest.mark.parametrize(
    "endpoint",
    [endpoint for endpoint in ENDPOINTS if endpoint.listed or isinstance(endpoint.body, dict)],
    ids=str,
)
def test_a_parameter_that_is_not_documented_is_refused(
    endpoint: Endpoint, prepared: Prepared
) -> None:
    if endpoint.listed:
        for name in ("limit", "region", *(f"x_{parameter}" for parameter in endpoint.query)):
            query = {**prepared.filled(endpoint.query), name: "1"}
            message = prepared.scp.require_refusal(
                "GET", f"{endpoint.path}?{httpx.QueryParams(query)}"
            )
            assert name in message
    if isinstance(endpoint.body, dict):
        body = prepared.filled(endpoint.body)
        for name in body:
            misspelt = {f"{key}x" if key == name else key: body[key] for key in body}
            message = prepared.scp.require_refusal(
                endpoint.method, prepared.filled(endpoint.path), misspelt
            )
            assert f"{name}x: not a field" in message


@each_endpoint
def test_without_a_signature_nothing_happens(endpoint: Endpoint, prepared: Prepared) -> None:
    before = prepared.scp.get_states()
    answer = prepared.scp.http.request(
        endpoint.method,
        prepared.scp.url + prepared.filled(endpoint.path),
        json=prepared.filled(endpoint.body),
    )
    assert answer.status_code == 401
    assert "Scp-Signature" in answer.json()["errors"][0]["detail"]
    assert prepared.scp.get_states() == before


@each_endpoint
def test_a_viewer_may_read_and_not_write(endpoint: Endpoint, prepared: Prepared) -> None:
    before = prepared.scp.get_states()
    answer = prepared.ask(endpoint, keys=(VIEWER_ACCESS_KEY, VIEWER_SECRET_KEY))
    assert answer.status_code == (200 if endpoint.method == "GET" else 403)
    assert prepared.scp.get_states() == before


@pytest.mark.parametrize(
    "endpoint",
    [
        endpoint
        for endpoint in ENDPOINTS
        if "_id}" in endpoint.path or "{node}" in str(endpoint.body)
    ],
    ids=str,
)
def test_an_id_that_does_not_exist_is_404(endpoint: Endpoint, prepared: Prepared) -> None:
    wrong = Prepared(prepared.scp, {**prepared.ids, "node": UNKNOWN, "gpu_node_id": UNKNOWN,
                                    "cluster_fabric_id": UNKNOWN})  # fmt: skip
    answer = wrong.ask(endpoint)
    assert answer.status_code == 404
    (error,) = answer.json()["errors"]
    assert set(error) == {"detail", "status", "title", "code", "request_id"}
    assert UNKNOWN in error["detail"]


def test_a_fixed_name_wins_over_an_id(scp: ScpClient) -> None:
    assert "images" in scp.get("/v1/gpu-nodes/images?region_id=kr-west1")
    assert "products" in scp.get("/v1/gpu-nodes/products")
    assert "node_pools" in scp.get("/v1/cluster-fabrics/node-pools")
    for name in ("start", "stop"):
        assert "required" in scp.require_refusal("POST", f"/v1/gpu-nodes/{name}", {})
        assert scp.require_refusal("GET", f"/v1/gpu-nodes/{name}", status=404)


def test_a_fabric_shows_its_members(fabric: Json) -> None:
    assert fabric["used_server_count"] == len(fabric["gpu_node_details"]) == 2
    for member in fabric["gpu_node_details"]:
        assert set(member) == FABRIC_MEMBER
    assert {node["gpu_node_name"] for node in fabric["gpu_node_details"]} == {"a-001", "a-002"}
    assert fabric["product_id"] == H100


def test_a_product_has_its_attributes_as_texts(scp: ScpClient) -> None:
    for product in scp.get("/v1/gpu-nodes/products")["products"]:
        assert set(product["product_attrs"]) == PRODUCT_ATTRS
        assert all(isinstance(value, str) for value in product["product_attrs"].values())


def test_images_differ_by_region_and_products_by_image(scp: ScpClient) -> None:
    def images(region: str) -> set[str]:
        images = scp.get(f"/v1/gpu-nodes/images?region_id={region}")["images"]
        return {image["id"] for image in images}

    west, east = images("kr-west1"), images("kr-east1")
    assert west & east
    assert west - east
    assert east - west
    (only,) = east - west
    of_all = scp.get("/v1/gpu-nodes/products")["products"]
    of_one = scp.get(f"/v1/gpu-nodes/products?image_id={only}")["products"]
    assert 0 < len(of_one) < len(of_all)
    assert scp.get("/v1/gpu-nodes/products?type=NONE") == {"products": []}
    for query in ("", "?region_id=", "?region_id=null", "?region_id=mars"):
        assert "region_id" in scp.require_refusal("GET", f"/v1/gpu-nodes/images{query}")


def test_node_pools_name_their_fabrics(scp: ScpClient, fabric: Json) -> None:
    pools = scp.get("/v1/cluster-fabrics/node-pools")["node_pools"]
    details = {pool["node_pool_id"]: pool["cluster_fabric_details"] for pool in pools}
    assert len(details) > 2
    assert details.pop(POOL) == [
        {
            "cluster_fabric_id": fabric["id"],
            "cluster_fabric_name": "fabric-a",
            "node_pool_id": POOL,
        }
    ]
    assert not any(details.values())
    for query in ("subnet_id=x", f"cluster_fabric_id={UNKNOWN}", "node_pool_id=x"):
        listed_pools = scp.get(f"/v1/cluster-fabrics/node-pools?{query}")
        assert listed_pools == {"count": 0, "node_pools": []}


def test_a_read_renames_fields_of_the_create_and_leaves_some_out(
    scp: ScpClient, control: Any
) -> None:
    server_body = build_server(
        "gpu-node-001", ip_address="192.168.0.77", nat_enabled=True, public_ip_address_id=PUBLIC_IP
    )
    body = build_create_body("gpu-node-002", init_script="#!/bin/sh", lock_enabled=True)
    body["server_details"].append(server_body)
    body["tags"] = [{"key": "team", "value": "tag-value"}]
    id_ = scp.create(body)[1]
    control.advance(3600)
    node = scp.get_node(id_)
    assert (node["network_id"], node["vpc_id"]) == (body["subnet_id"], body["vpc_id"])
    assert (node["policy_ip"], node["policy_use_nat"]) == ("192.168.0.77", True)
    assert node["policy_nat"]
    assert (node["root_account"], node["product_type_id"]) == ("root", H100)
    assert (node["init_script"], node["lock_enabled"]) == ("#!/bin/sh", True)
    assert len(set(node["pfs_ip"])) == 2
    for unseen in (PASSWORD, "tag-value", PUBLIC_IP, "server_type_id"):
        assert unseen not in str(node)
    other = scp.get_node(scp.create(build_create_body("b-001", "b-002", fabric="fabric-b"))[0])
    assert (other["init_script"], other["policy_nat"], other["policy_use_nat"]) == ("", None, False)


@pytest.mark.parametrize("left_out", [("init_script", "lock_enabled", "tags"), ()])
def test_optional_fields_may_be_null(scp: ScpClient, left_out: tuple[str, ...]) -> None:
    body = build_create_body("a-001", "a-002", init_script=None, lock_enabled=None, tags=None)
    for name in left_out:
        del body[name]
    for server_body in body["server_details"]:
        for name in ("ip_address", "nat_enabled", "public_ip_address_id"):
            if left_out:
                del server_body[name]
            else:
                server_body[name] = None
    node = scp.get_node(scp.create(body)[0])
    assert (node["init_script"], node["lock_enabled"]) == ("", False)


def test_the_versions_are_listed_without_a_signature(scp: ScpClient) -> None:
    for slash in ("", "/"):
        answer = scp.http.get(f"{scp.url}{slash}")
        assert answer.status_code == 200
        versions = answer.json()["versions"]
        assert [
            (version["id"], version["status"], version["not_before"]) for version in versions
        ] == [
            ("v1.3", "SUPPORTED", ""),
            ("v1.2", "CURRENT", ""),
            ("v1.1", "DEPRECATED", "2026-03-31"),
            ("v1.0", "DEPRECATED", "2025-12-31"),
        ]
        assert versions[0]["links"] == [{"href": f"{scp.url}/v1", "rel": "self"}]


def test_a_deprecated_version_is_marked_and_another_refused(scp: ScpClient) -> None:
    nodes = "/v1/gpu-nodes"
    for number, not_before in (("1.1", "31 Mar 2026"), ("1.0", "31 Dec 2025")):
        version = f"multinodegpucluster {number}"
        answer = scp.send("GET", nodes, Scp_Api_Version=version)
        assert answer.status_code == 200
        assert answer.headers["Scp-Api-Version"] == version
        assert not_before in answer.headers["Sunset"]
        assert re.fullmatch("@[0-9]+", answer.headers["Deprecation"])
    current = scp.send("GET", nodes)
    assert current.headers["Scp-Api-Version"] == "multinodegpucluster 1.2"
    assert "Deprecation" not in current.headers
    for wrong in ("multinodegpucluster 1.4", "1.2", "virtualserver 1.2"):
        answer = scp.send("GET", nodes, Scp_Api_Version=wrong)
        assert answer.status_code == 400
        assert wrong in answer.json()["errors"][0]["detail"]

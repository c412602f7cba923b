"""Describe SCP's node pool, GPU node and fabric for the conformance suite.

The suite uses the version of the API that gpuform itself would use, by the variable
`SCP_API_VERSION`: all hosts and processes of a run inherit it.
"""

import base64
import hmac
import os
import time
from typing import Any

from conformance.kind_descriptions import (
    AnswerForm,
    Change,
    KindDescription,
    Objects,
    PlatformApi,
    Request,
)

from gpuform.providers.emulator.scp import ACCESS_KEY, SECRET_KEY
from gpuform.schemas.scp import outputs, wire

_NODES = "/v1/gpu-nodes"
_POOL = "POOL001-krw1a"
_PRODUCT = "f90e8ef54cc2451b825608e9f95f7bcb"
_UBUNTU = "IMAGE-4mQzWvT9hLxRbYc2NfKpJd"
_PUBLIC_IP = "0123456789abcdef0123456789abcdef"
_PASSWORD = "Planted#1pass"
_SCRIPT = "echo planted-in-the-init-script-of-nodes"

VERSION = os.environ.get("SCP_API_VERSION") or outputs.CURRENT_VERSION
VARIABLES = {"SCP_API_VERSION": VERSION}
"""For processes that do not inherit the variables of the tests."""
HAS_ZONES = VERSION == outputs.ZONE_VERSION
_ZONE = {"zone": "kr-west1-a"} if HAS_ZONES else {}

_MADE = {
    "image_id": "IMAGE-7XFMaJpLsapKvskFMjCtmm",
    "server_type_id": _PRODUCT,
    "region_id": "kr-west1",
    "vpc_id": "e58348b1bc9148e5af86500fd4ef99ca",
    "subnet_id": "ab313c43291e4b678f4bacffe10768ae",
    "os_user_password": _PASSWORD,
    "init_script": _SCRIPT,
    **_ZONE,
}
_MADE_MEANT = {
    "GpuNode.id",
    "GpuNode.gpu_node_name",
    "GpuNode.state",
    "GpuNode.cluster_fabric_id",
    "GpuNode.cluster_fabric_name",
    "GpuNode.node_pool_id",
    "GpuNode.image_id",
    "GpuNode.region_id",
    "GpuNode.vpc_id",
    "GpuNode.network_id",
    "GpuNode.policy_ip",
    "GpuNode.created_at",
    "GpuNode.zone",
    "ClusterFabric.id",
    "ClusterFabric.cluster_name",
    "ClusterFabric.state",
    "ClusterFabric.node_pool_id",
    "FabricMember.gpu_node_id",
    "FabricMember.gpu_node_name",
    "FabricMember.state",
}


def _build_create_body(fabric: dict[str, Any], *names: str) -> Request:
    """Return the body of a create of nodes with these names."""
    sent = {key: value for key, value in _MADE.items() if key not in {"server_type_id", "zone"}}
    servers = [
        {
            "gpu_node_name": name,
            "server_type_id": _PRODUCT,
            "ip_address": None,
            "nat_enabled": False,
            "public_ip_address_id": None,
            **_ZONE,
        }
        for name in names
    ]
    body = {
        **sent,
        "os_user_id": "root",
        "cluster_fabric_details": fabric,
        "server_details": servers,
        "lock_enabled": False,
        "tags": [],
    }
    return Request("POST", _NODES, body)


def _build_logged_create(fabric: dict[str, Any], *names: str) -> Request:
    """Return the body of a create in the emulator's log, without secrets."""
    sent = _build_create_body(fabric, *names)
    hidden = {"os_user_password": "[secret]", "init_script": "[secret]"}
    return Request(sent.method, sent.path, {**sent.body, **hidden})


def _build_fabric(name: str, id_: str | None = None) -> dict[str, Any]:
    return {"cluster_fabric_name": name, "node_pool_id": _POOL, "cluster_fabric_id": id_}


def _build_wrong_zone(inputs: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return inputs without the zone that API 1.3 requires, or with one that API 1.2 lacks."""
    if HAS_ZONES:
        return {name: value for name, value in inputs.items() if name != "zone"}, "zone"
    return {**inputs, "zone": "kr-west1-a"}, "zone"


def build_other_fabric(name: str) -> Request:
    """Return the create of two nodes of somebody else, in the fabric `name`."""
    return _build_create_body(_build_fabric(name), f"{name}-001", f"{name}-002")


_PLATFORM: dict[str, Any] = {
    "platform": "scp",
    "key_variable": "SCP_TF_SECRET_KEY",
    "key_config": "scp:secretKey",
    "key": SECRET_KEY,
    "request_paths": "^/v1/",
    "unplanted_fields": frozenset(_MADE_MEANT),
    "answer_forms": (
        AnswerForm("^/v1/gpu-nodes/[0-9a-f]{32}$", wire.GpuNode),
        AnswerForm("^/v1/gpu-nodes$", wire.GpuNode, "gpu_nodes"),
        AnswerForm("^/v1/cluster-fabrics/[0-9a-f]{32}$", wire.ClusterFabric),
        AnswerForm("^/v1/cluster-fabrics$", wire.ClusterFabric, "cluster_fabrics"),
    ),
}
_OF_NODES: dict[str, Any] = {
    **_PLATFORM,
    "listed_as": "gpu_nodes",
    "object_path": "^/v1/gpu-nodes/[0-9a-f]{32}$",
    "wire": wire.GpuNode,
    "pending_status": "CREATING",
    "failed_status": "ERROR",
    "deleting_statuses": frozenset({"terminating"}),
    "names_are_unique": True,
    "secret_inputs": frozenset({"os_user_password", "init_script"}),
    "capacity_fault": {"capacity": True},
    "control_path": "scp/gpu-nodes",
    "outside_delete": Request("DELETE", _NODES, {"gpu_node_ids": "{parts}"}),
}

_NODE_POOL = {
    "node_pool_id": _POOL,
    "cluster_fabric_name": "fabric1",
    "gpu_node_name_prefix": "train",
    "count": 3,
    **_MADE,
}


def _group_pools(objects: Objects) -> list[dict[str, Any]]:
    """Group nodes with a common prefix into a pool with the fabric's name."""
    grouped: dict[str, list[Any]] = {}
    for node in objects:
        grouped.setdefault(node["name"].rpartition("-")[0], []).append(node)
    return [
        {
            "id": f"{_POOL}/{'fabric1' if prefix == 'train' else prefix}/{prefix}",
            "name": prefix,
            "status": nodes[0]["status"],
            "parts": [node["id"] for node in sorted(nodes, key=lambda item: item["name"])],
        }
        for prefix, nodes in grouped.items()
    ]


NODE_POOL = KindDescription(
    **_OF_NODES,
    kind="NodePool",
    valid_inputs=_NODE_POOL,
    name_field="gpu_node_name_prefix",
    unique_fields=["cluster_fabric_name"],
    in_place=Change(
        {**_NODE_POOL, "state": "STOPPED"},
        "state",
        Request("POST", f"{_NODES}/stop", {"gpu_node_ids": "{parts}"}),
    ),
    replacing=Change({**_NODE_POOL, "image_id": _UBUNTU}, "image_id"),
    invalid_inputs=[
        ({**_NODE_POOL, "count": 0}, "count"),
        ({**_NODE_POOL, "cluster_fabric_name": "fabric-"}, "cluster_fabric_name"),
        ({**_NODE_POOL, "os_user_password": "short"}, "os_user_password"),
        ({**_NODE_POOL, "image_id": "IMAGE-of-nobody"}, "image_id"),
        ({**_NODE_POOL, "server_type_id": "g2v192m1920_metal"}, "server_type_id"),
        ({**_NODE_POOL, "gpu_type": "H100"}, "gpu_type"),
        ({**_NODE_POOL, "node_pool_id": "POOL001-krw1b"}, "node_pool_id"),
        ({**_NODE_POOL, "nodes": {"a": {}}}, "count"),
        _build_wrong_zone(_NODE_POOL),
        ({**_NODE_POOL, "counts": 3}, "counts"),
    ],
    create=_build_logged_create(_build_fabric("fabric1"), "train-001", "train-002", "train-003"),
    outside_update=Request("DELETE", _NODES, {"gpu_node_ids": ["{part}"]}),
    outside_drift={"count": 2},
    convert_objects=_group_pools,
    unrelated_values=frozenset(
        {
            "count",  # of a list
            "gpu_nodes.cluster_fabric_id",  # the pool's is that of the fabric of its name
            "gpu_nodes.state",  # a state that nobody knows is neither running nor stopped
            "gpu_nodes.time_zone",  # of the operating system, not of the schedule
        }
    ),
)

_GPU_NODE = {
    "gpu_node_name": "solo",
    "cluster_fabric_id": "{base}",
    "nat_enabled": False,
    **_MADE,
}
_NAT = {"public_ip_address_id": _PUBLIC_IP}


def _select_nodes(objects: Objects) -> list[dict[str, Any]]:
    """Return the nodes except the creators of the fabric."""
    return [{**item, "parts": [item["id"]]} for item in objects if item["name"][:4] != "base"]


GPU_NODE = KindDescription(
    **_OF_NODES,
    kind="GpuNode",
    valid_inputs=_GPU_NODE,
    name_field="gpu_node_name",
    in_place=Change(
        {**_GPU_NODE, "nat_enabled": True, **_NAT},
        "nat_enabled",
        Request("POST", f"{_NODES}/{{id}}/public-nat-ip", _NAT),
    ),
    replacing=Change({**_GPU_NODE, "image_id": _UBUNTU}, "image_id"),
    invalid_inputs=[
        ({**_GPU_NODE, "cluster_fabric_id": ""}, "cluster_fabric_id"),
        ({**_GPU_NODE, "cluster_fabric_id": "f" * 32}, "cluster_fabric_id"),
        ({**_GPU_NODE, "nat_enabled": True}, "public_ip_address_id"),
        ({**_GPU_NODE, "os_user_password": "short"}, "os_user_password"),
        ({**_GPU_NODE, "image_id": "IMAGE-of-nobody"}, "image_id"),
        _build_wrong_zone(_GPU_NODE),
        ({**_GPU_NODE, "gpu_node_nam": "x"}, "gpu_node_nam"),
    ],
    create=_build_logged_create(_build_fabric("base", "{base}"), "solo"),
    outside_update=Request("POST", f"{_NODES}/{{id}}/public-nat-ip", _NAT),
    outside_drift={"nat_enabled": True},
    convert_objects=_select_nodes,
    requirements=[_build_create_body(_build_fabric("base"), "base-001", "base-002")],
    requirements_listed_as="fabrics",
    unrelated_values=frozenset({"state", "time_zone"}),  # as of a pool's nodes
)

_FABRIC = {"node_pool_id": _POOL, "cluster_fabric_name": "base"}


def _list_fabrics(objects: Objects) -> list[dict[str, Any]]:
    return [{**item, "id": f"{_POOL}/{item['name']}", "parts": []} for item in objects]


FABRIC = KindDescription(
    **_PLATFORM,
    kind="Fabric",
    valid_inputs=_FABRIC,
    name_field="cluster_fabric_name",
    replacing=Change({**_FABRIC, "cluster_fabric_name": "other"}, "cluster_fabric_name"),
    invalid_inputs=[
        ({**_FABRIC, "cluster_fabric_name": "no"}, "cluster_fabric_name"),
        # API 1.3 lists pools only of a subnet and a zone, which a fabric does not declare.
        *([] if HAS_ZONES else [({**_FABRIC, "node_pool_id": "POOL001-krw1b"}, "node_pool_id")]),
        ({"cluster_fabric_name": "base"}, "node_pool_id"),
        ({**_FABRIC, "cluster_fabric": "base"}, "cluster_fabric"),
    ],
    listed_as="fabrics",
    convert_objects=_list_fabrics,
    pending_status="CREATING",
    failed_status="ERROR",
    object_path="^/v1/cluster-fabrics/[0-9a-f]{32}$",
    wire=wire.ClusterFabric,
    requirements=[_build_create_body(_build_fabric("base"), "base-001", "base-002")],
    requirements_listed_as="fabrics",
    unrelated_values=frozenset(  # what it is looked for by
        {"cluster_fabrics.node_pool_id", "cluster_fabrics.region_id"}
    ),
)

KINDS = (NODE_POOL, GPU_NODE, FABRIC)


def _sign(method: str, url: str) -> dict[str, str]:
    moment = str(int(time.time() * 1000))
    signed_text = f"{method}{url}{moment}{ACCESS_KEY}Openapi"
    digest = hmac.digest(SECRET_KEY.encode(), signed_text.encode(), "sha256")
    return {
        "Scp-Accesskey": ACCESS_KEY,
        "Scp-Signature": base64.b64encode(digest).decode(),
        "Scp-Timestamp": moment,
        "Scp-ClientType": "Openapi",
        outputs.VERSION_HEADER: outputs.format_version_header(VERSION),
    }


APIS = {
    "scp": PlatformApi(
        prefix="/scp",
        headers=_sign,
        not_found_answer={"errors": [{"detail": "The GPU Node is not found.", "status": 404}]},
        empty_list_answer={"count": 0, "gpu_nodes": [], "cluster_fabrics": []},
        list_paths="/v1/gpu-nodes$|/v1/cluster-fabrics$",
    ),
}

"""The SCP reference, 'Multi-node GPU Cluster' 1.2, as data: its 16 endpoints with their examples.

Written down from the document, and from nothing else in this repository.
"""

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

ID = "20c507a036c447cdb3b19468d8ea62ac"
ASYNC: Json = {
    "account_id": "f5c8e56a4d9b49a8bd89e14758a32d53",
    "request_id": "req-002daa83-52d9-41e8-9b0f-d31d35610f65",
    "resource_id": ID,
}
ACTION: Json = {"gpu_node_id": ID}
CHOSEN: Json = {"gpu_node_ids": [ID]}
NODE: Json = {
    "account_id": "f5c8e56a4d9b49a8bd89e14758a32d53",
    "cluster_fabric_id": "20c507a036c447cdb3b19468d8ea62ac",
    "cluster_fabric_name": "cluster001",
    "created_at": "2024-05-17T00:23:17Z",
    "created_by": "90dddfc2b1e04edba54ba2b41539a9ac",
    "gpu_node_name": "gpu-node-001",
    "id": "0fdd87aab8cb46f59b7c1f81ed03fb3e",
    "image_id": "IMAGE-7XFMaJpLsapKvskFMjCtmm",
    "image_version": "RHEL 8.7 for BM",
    "init_script": "init script",
    "lock_enabled": True,
    "modified_at": "2024-05-17T00:23:17Z",
    "modified_by": "90dddfc2b1e04edba54ba2b41539a9ac",
    "network_id": "ab313c43291e4b678f4bacffe10768ae",
    "node_pool_id": "POOL001-krw1a",
    "os_type": "WINDOWS",
    "pfs_ip": ["10.252.128.2", "10.252.128.3"],
    "policy_ip": "192.168.0.1",
    "policy_nat": "192.168.0.1",
    "policy_use_nat": True,
    "product_type_id": "f90e8ef54cc2451b825608e9f95f7bcb",
    "region_id": "kr-west1",
    "root_account": "rootaccount",
    "server_type": "s1v8m32_metal",
    "state": "RUNNING",
    "time_zone": "Asia/Seoul",
    "vpc_id": "e58348b1bc9148e5af86500fd4ef99ca",
}
FABRIC: Json = {
    "account_id": "f5c8e56a4d9b49a8bd89e14758a32d53",
    "cluster_name": "cluster001",
    "created_at": "2024-05-17T00:23:17Z",
    "created_by": "90dddfc2b1e04edba54ba2b41539a9ac",
    "description": "description",
    "gpu_node_details": [
        {
            "gpu_node_id": "20c507a036c447cdb3b19468d8ea62ac",
            "gpu_node_name": "gpu-node-001",
            "policy_ip": "192.168.0.1",
            "product_type_id": "f90e8ef54cc2451b825608e9f95f7bcb",
            "server_type": "s1v8m32_metal",
            "state": "RUNNING",
        }
    ],
    "id": "0fdd87aab8cb46f59b7c1f81ed03fb3e",
    "modified_at": "2024-05-17T00:23:17Z",
    "modified_by": "90dddfc2b1e04edba54ba2b41539a9ac",
    "node_pool_id": "POOL001-krw1a",
    "pirp_id": "20",
    "product_id": "f90e8ef54cc2451b825608e9f95f7bcb",
    "region_id": "kr-west1",
    "server_type": "s1v8m32_metal",
    "state": "RUNNING",
    "used_server_count": 20,
}
CREATE: Json = {
    "cluster_fabric_details": {
        "cluster_fabric_id": "20c507a036c447cdb3b19468d8ea62ac",
        "cluster_fabric_name": "cluster001",
        "node_pool_id": "POOL001-krw1a",
    },
    "image_id": "IMAGE-7XFMaJpLsapKvskFMjCtmm",
    "init_script": "init script",
    "lock_enabled": True,
    "os_user_id": "user001",
    "os_user_password": "password",
    "region_id": "kr-west1",
    "server_details": [
        {
            "gpu_node_name": "gpu-node-001",
            "ip_address": "192.168.0.1",
            "nat_enabled": True,
            "public_ip_address_id": "20c507a036c447cdb3b19468d8ea62ac",
            "server_type_id": "f90e8ef54cc2451b825608e9f95f7bcb",
        }
    ],
    "subnet_id": "ab313c43291e4b678f4bacffe10768ae",
    "tags": [{"key": "", "value": ""}],
    "vpc_id": "e58348b1bc9148e5af86500fd4ef99ca",
}
MOVE: Json = {
    "after_cluster_fabric_id": "20c507a036c447cdb3b19468d8ea62ac",
    "before_cluster_fabric_id": "20c507a036c447cdb3b19468d8ea62ac",
    "gpu_node_id_list": ["20c507a036c447cdb3b19468d8ea62ac"],
}
IMAGES: Json = {
    "images": [
        {
            "created_at": "2024-07-11 08:56:59",
            "id": "IMAGE-7XFMaJpLsapKvskFMjCtmm",
            "name": "RHEL 8.8 for BM",
            "os_distro": "RHEL",
            "priority": 20,
            "scp_image_type": "STANDARD",
            "scp_os_version": "8.7",
        }
    ]
}
PRODUCTS: Json = {
    "products": [
        {
            "created_at": "2024-05-17T00:23:17Z",
            "created_by": "90dddfc2b1e04edba54ba2b41539a9ac",
            "description": "vCPU 16 │ Memory 128G │ Disk 480G",
            "id": "SCALE",
            "modified_at": "2024-05-17T00:23:17Z",
            "modified_by": "90dddfc2b1e04edba54ba2b41539a9ac",
            "name": "s2v16m128_metal",
            "product_attrs": {
                "compute_class_type_name": "GPU H100 Metal-2",
                "compute_class_type_value": "g2_mteal",
                "cpu_value": "64",
                "disk_unit": "GB",
                "disk_value": "480",
                "gpu_model": "H100",
                "memory_value": "128",
            },
            "state": "AVAILABLE",
            "type": "SCALE",
        }
    ]
}
POOLS: Json = {
    "count": 20,
    "node_pools": [{"cluster_fabric_details": [], "node_pool_id": "POOL001-krw1a"}],
}


@dataclass(frozen=True)
class Endpoint:
    """`query` has the parameters with their examples; `body` and `answer` are the examples."""

    number: str
    method: str
    path: str
    status: int
    answer: Json = field(repr=False)
    query: dict[str, str] = field(default_factory=dict)
    body: Json | None = None

    def __str__(self) -> str:
        return f"{self.number} {self.method} {self.path}"


_PAGES = {"size": "20", "page": "0", "sort": "created_at:desc"}
_NODE = "/v1/gpu-nodes/{gpu_node_id}"

ENDPOINTS = (
    Endpoint(
        "1.1", "POST", f"{_NODE}/public-nat-ip", 202, ACTION, body={"public_ip_address_id": ""}
    ),
    Endpoint("1.2", "POST", "/v1/gpu-nodes", 202, ASYNC, body=CREATE),
    Endpoint("1.3", "DELETE", "/v1/gpu-nodes", 202, ASYNC, body=CHOSEN),
    Endpoint(
        "1.4",
        "GET",
        "/v1/cluster-fabrics",
        200,
        {"cluster_fabrics": [FABRIC], "count": 20},
        query={
            **_PAGES,
            "cluster_fabric_name": "cluster001",
            "state": "RUNNING",
            "node_pool_id": "POOL001-krw1a",
        },
    ),
    Endpoint("1.5", "GET", "/v1/gpu-nodes/images", 200, IMAGES, query={"region_id": "kr-west1"}),
    Endpoint(
        "1.6",
        "GET",
        "/v1/gpu-nodes/products",
        200,
        PRODUCTS,
        query={"type": "SCALE", "image_id": "IMAGE-7XFMaJpLsapKvskFMjCtmm"},
    ),
    Endpoint(
        "1.7",
        "GET",
        "/v1/gpu-nodes",
        200,
        {"count": 20, "gpu_nodes": [NODE]},
        query={
            **_PAGES,
            "gpu_node_name": "gpu-node-001",
            "state": "RUNNING",
            "ip": "192.168.0.1",
            "vpc_id": "e58348b1bc9148e5af86500fd4ef99ca",
            "cluster_fabric_name": "cluster001",
            "cluster_fabric_id": "20c507a036c447cdb3b19468d8ea62ac",
        },
    ),
    Endpoint(
        "1.8",
        "GET",
        "/v1/cluster-fabrics/node-pools",
        200,
        POOLS,
        query={
            "subnet_id": "ab313c43291e4b678f4bacffe10768ae",
            "cluster_fabric_id": "20c507a036c447cdb3b19468d8ea62ac",
            "node_pool_id": "POOL001-krw1a",
        },
    ),
    Endpoint("1.9", "PUT", f"{_NODE}/lock", 200, ACTION),
    Endpoint("1.10", "POST", "/v1/cluster-fabrics/modify-members", 202, ASYNC, body=MOVE),
    Endpoint("1.11", "DELETE", f"{_NODE}/public-nat-ip", 202, ACTION),
    Endpoint("1.12", "GET", "/v1/cluster-fabrics/{cluster_fabric_id}", 200, FABRIC),
    Endpoint("1.13", "GET", _NODE, 200, NODE),
    Endpoint("1.14", "POST", "/v1/gpu-nodes/start", 202, ASYNC, body=CHOSEN),
    Endpoint("1.15", "POST", "/v1/gpu-nodes/stop", 202, ASYNC, body=CHOSEN),
    Endpoint("1.16", "PUT", f"{_NODE}/unlock", 200, ACTION),
)


def add_newer_fields(answer: Json) -> Json:
    """Return an answer of API 1.2 with the fields of API 1.3 as they are parsed when missing."""
    if "gpu_nodes" in answer:
        return {**answer, "gpu_nodes": [add_newer_fields(node) for node in answer["gpu_nodes"]]}
    return {**answer, "zone": ""} if answer.keys() == NODE.keys() else answer

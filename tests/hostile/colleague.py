"""Play a colleague with another key of the same account, who creates objects of the same names."""

import json
import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

import httpx
from hostile.fakes.answers import PlatformRequest
from hostile.fakes.simulation import COLLEAGUE, PlatformObject, Simulation
from hostile.planted import COLLEAGUES_KEY, CONFIG_SECRET, OTHER_SECRET
from hostile.signing import sign

Json = dict[str, Any]


GUEST: Json = {
    "id": "guest-1",
    "gpus": {"count": 1, "memory": 4096, "gpus": [{"modelName": "L4", "memory": 4096}]},
    "vcpus": {"count": 8},
    "memory": 4096,
    "swap": 0,
    "storage": {"disks": 1, "size": 1024},
    "network": {"interfaces": 1, "txBandwidth": 100, "rxBandwidth": 100},
}
"""The entry of a node of the colleague's in a cluster of ours."""


class Colleague:
    """A colleague who works over HTTP, as every client does."""

    def __init__(self, url: str, simulation: Simulation, requests: "ColleagueRequests") -> None:
        self._simulation = simulation
        self._requests = requests
        self._http = httpx.Client(
            base_url=url,
            headers={"User-Agent": COLLEAGUE},
            trust_env=False,
            verify=False,
            timeout=30,
        )

    def close(self) -> None:
        self._http.close()

    def create(self, kind: str, likeness: str) -> None:
        """Create an object with `equal` or `other` properties than our stack's object."""
        self._send(*self._requests.build_create(kind, likeness))

    def create_crowd(self, count: int) -> None:
        """Make objects of other names, which fill the lists."""
        for number in range(count):
            kind = self._requests.kinds[number % len(self._requests.kinds)]
            self._send(*self._requests.build_create(kind, "equal", f"-other-{number}"))

    def race_request(self, likeness: str, request: PlatformRequest) -> None:
        """Create the same object as our request in progress."""
        if likeness in ("join", "leave"):
            self._move_guest_in(likeness, request.path[-1])
            return
        if request.method != "POST":
            return
        body = json.loads(json.dumps(request.body).replace(CONFIG_SECRET, OTHER_SECRET))
        if likeness == "other":
            body = self._requests.change_body(body)
        address = f"/{self._requests.platform}/{'/'.join(request.path)}"
        self._send(request.method, address, body)

    def change_own_object(self, rng: random.Random) -> None:
        platform_object = self._choose_own_object(rng)
        if platform_object is not None:
            self._send(*self._requests.build_change(platform_object))

    def delete_own_object(self, rng: random.Random) -> None:
        platform_object = self._choose_own_object(rng)
        if platform_object is not None:
            self._send(*self._requests.build_delete(platform_object))

    def move_guest(self, visit_kind: str) -> None:
        """Make a node of the colleague join or leave our cluster, if the platform permits."""
        clusters = self._simulation.list_existing("aios", "cluster")
        if clusters:
            self._move_guest_in(visit_kind, clusters[0].id)

    def _move_guest_in(self, visit_kind: str, cluster_id: str) -> None:
        """Insert the first entry, which changes the positions of our entries."""
        if self._requests.platform != "aios":
            return
        is_there = (
            self._simulation.find_object("aios", "node", f"{cluster_id}/{GUEST['id']}") is not None
        )
        if is_there != (visit_kind == "leave"):
            return
        update: Json = {"$push": {"nodes.nodeData": {"$each": [GUEST], "$position": 0}}}
        sum_change = 1
        if visit_kind == "leave":
            update, sum_change = {"$pull": {"nodes.nodeData": {"id": GUEST["id"]}}}, -1
        sums = {"nodes.count": sum_change, "memory": sum_change * GUEST["memory"]}
        address = f"/aios/clusters/{quote(cluster_id, safe='')}"
        self._send("PUT", address, {**update, "$inc": sums})

    def list_own_objects(self) -> list[PlatformObject]:
        return [
            item
            for item in self._simulation.objects
            if item.creator == COLLEAGUE and item.is_alive(self._simulation.now)
        ]

    def _choose_own_object(self, rng: random.Random) -> PlatformObject | None:
        own = self.list_own_objects()
        return rng.choice(own) if own else None

    def _send(self, method: str, address: str, body: Any) -> None:
        """Send a request, and accept a refusal of the platform."""
        headers = self._requests.build_headers(
            method, f"{self._http.base_url}".rstrip("/") + address
        )
        self._http.request(method, address, json=body, headers=headers)


@dataclass
class ColleagueRequests(ABC):
    """The colleague's requests to one platform."""

    simulation: Simulation

    platform: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]

    @abstractmethod
    def build_create(self, kind: str, likeness: str, name: str = "") -> tuple[str, str, Any]:
        """Return the create of an object with the stack's name plus `name`."""

    @abstractmethod
    def change_body(self, body: Json) -> Json: ...

    @abstractmethod
    def build_change(self, platform_object: PlatformObject) -> tuple[str, str, Any]: ...

    @abstractmethod
    def build_delete(self, platform_object: PlatformObject) -> tuple[str, str, Any]: ...

    def build_headers(self, method: str, url: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {COLLEAGUES_KEY}"}


class TogetherRequests(ColleagueRequests):
    platform = "together"
    kinds = ("cluster", "volume")
    _PATHS: ClassVar[dict[str, str]] = {
        "cluster": "/together/v1/compute/clusters",
        "volume": "/together/v1/compute/clusters/storage/volumes",
    }
    _BODIES: ClassVar[dict[str, Json]] = {
        "cluster": {
            "cluster_name": "training",
            "region": "us-central-8",
            "gpu_type": "H100_SXM",
            "num_gpus": 16,
            "cuda_version": "12.6",
            "nvidia_driver_version": "560",
            "billing_type": "ON_DEMAND",
        },
        "volume": {"volume_name": "training-data", "region": "us-central-8", "size_tib": 5},
    }

    def build_create(self, kind: str, likeness: str, name: str = "") -> tuple[str, str, Any]:
        body = dict(self._BODIES[kind])
        field = "cluster_name" if kind == "cluster" else "volume_name"
        body[field] += name
        return "POST", self._PATHS[kind], body if likeness == "equal" else self.change_body(body)

    def change_body(self, body: Json) -> Json:
        return {**body, **({"num_gpus": 64} if "num_gpus" in body else {"size_tib": 77})}

    def build_change(self, platform_object: PlatformObject) -> tuple[str, str, Any]:
        if platform_object.kind == "cluster":
            gpus = platform_object.data["num_gpus"] + 8
            return (
                "PUT",
                f"{self._PATHS['cluster']}/{quote(platform_object.id, safe='')}",
                {"num_gpus": gpus},
            )
        size = platform_object.data["size_tib"] + 1
        return "PUT", self._PATHS["volume"], {"volume_id": platform_object.id, "size_tib": size}

    def build_delete(self, platform_object: PlatformObject) -> tuple[str, str, Any]:
        return (
            "DELETE",
            f"{self._PATHS[platform_object.kind]}/{quote(platform_object.id, safe='')}",
            None,
        )


class ScpRequests(ColleagueRequests):
    platform = "scp"
    kinds = ("node",)

    def build_create(self, kind: str, likeness: str, name: str = "") -> tuple[str, str, Any]:
        body: Json = {
            "cluster_fabric_details": {
                "cluster_fabric_id": None,
                "cluster_fabric_name": f"train-a{name}",
                "node_pool_id": "POOL001-krw1a",
            },
            "image_id": "IMAGE-7XFMaJpLsapKvskFMjCtmm",
            "os_user_id": "root",
            "os_user_password": OTHER_SECRET,
            "region_id": "kr-west1",
            "server_details": [
                {
                    "gpu_node_name": f"train{name}-00{number}",
                    "nat_enabled": False,
                    "server_type_id": "f90e8ef54cc2451b825608e9f95f7bcb",
                }
                for number in (1, 2)
            ],
            "subnet_id": "ab313c43291e4b678f4bacffe10768ae",
            "vpc_id": "e58348b1bc9148e5af86500fd4ef99ca",
        }
        return "POST", "/scp/v1/gpu-nodes", body if likeness == "equal" else self.change_body(body)

    def change_body(self, body: Json) -> Json:
        return {**body, "subnet_id": "00000000000000000000000000000077"}

    def build_change(self, platform_object: PlatformObject) -> tuple[str, str, Any]:
        lock = "unlock" if platform_object.data["lock_enabled"] else "lock"
        return "PUT", f"/scp/v1/gpu-nodes/{quote(platform_object.id, safe='')}/{lock}", None

    def build_delete(self, platform_object: PlatformObject) -> tuple[str, str, Any]:
        return "DELETE", "/scp/v1/gpu-nodes", {"gpu_node_ids": [platform_object.id]}

    def build_headers(self, method: str, url: str) -> dict[str, str]:
        moment = str(int(self.simulation.now * 1000))
        return {
            "Scp-Accesskey": COLLEAGUES_KEY,
            "Scp-Timestamp": moment,
            "Scp-ClientType": "Openapi",
            "Scp-Signature": sign(COLLEAGUES_KEY, method, url, moment, COLLEAGUES_KEY),
        }


class TensorOneRequests(ColleagueRequests):
    platform = "tensorone"
    kinds = ("cluster",)
    _BODY: ClassVar[Json] = {
        "name": "workbench",
        "gpu_type": "A100",
        "gpu_count": 2,
        "storage_gb": 500,
        "region": "us-west-2",
        "project_id": "proj_456",
        "environment_variables": {"TOKEN": OTHER_SECRET},
        "tags": {"team": "research"},
    }

    def build_create(self, kind: str, likeness: str, name: str = "") -> tuple[str, str, Any]:
        body = {**self._BODY, "name": f"{self._BODY['name']}{name}"}
        return (
            "POST",
            "/tensorone/v1/clusters",
            body if likeness == "equal" else self.change_body(body),
        )

    def change_body(self, body: Json) -> Json:
        return {**body, "gpu_count": 8}

    def build_change(self, platform_object: PlatformObject) -> tuple[str, str, Any]:
        return "PUT", self._build_address(platform_object), {"description": "Mine"}

    def build_delete(self, platform_object: PlatformObject) -> tuple[str, str, Any]:
        return (
            "DELETE",
            self._build_address(platform_object),
            {"confirm_deletion": "DELETE", "force": True},
        )

    def _build_address(self, platform_object: PlatformObject) -> str:
        return f"/tensorone/v1/clusters/{quote(platform_object.id, safe='')}"


class AiosRequests(ColleagueRequests):
    platform = "aios"
    kinds = ("cluster",)

    def build_create(self, kind: str, likeness: str, name: str = "") -> tuple[str, str, Any]:
        totals = {"count": 0, "memory": 0}
        body: Json = {
            "id": f"east-001{name}",
            "regionId": "us-east-1",
            "nodes": {"count": 0, "nodeData": []},
            "gpus": totals,
            "vcpus": {"count": 0},
            "memory": 0,
            "swap": 0,
            "storage": {"disks": 0, "size": 0},
            "network": {"interfaces": 0, "txBandwidth": 0, "rxBandwidth": 0},
            "config": {"publicHostname": "east-001.example.net"},
            "tags": ["gpu", "training"],
            "clusterMetadata": {
                "name": "east",
                "description": "Trains.",
                "owner": "AI Infrastructure",
            },
        }
        return "POST", "/aios/clusters", body if likeness == "equal" else self.change_body(body)

    def change_body(self, body: Json) -> Json:
        if "header" in body:
            changed = {**body["body"]["spec"]["values"], "tags": ["mine"]}
            return {**body, "body": {"spec": {"values": changed}}}
        return {**body, "tags": ["mine"]}

    def build_change(self, platform_object: PlatformObject) -> tuple[str, str, Any]:
        cluster = platform_object.data.get("cluster", platform_object.id)
        return "PUT", f"/aios/clusters/{quote(cluster, safe='')}", {"$set": {"tags": ["changed"]}}

    def build_delete(self, platform_object: PlatformObject) -> tuple[str, str, Any]:
        return (
            "DELETE",
            f"/aios/clusters/{quote(platform_object.data.get('cluster', platform_object.id))}",
            None,
        )


REQUESTS: dict[str, type[ColleagueRequests]] = {
    requests.platform: requests
    for requests in (TogetherRequests, ScpRequests, TensorOneRequests, AiosRequests)
}

"""A client of the emulated SCP that signs requests as documented, for the tests beside it."""

import base64
import hashlib
import hmac
import time
from typing import Any

import httpx

from gpuform.providers.emulator.scp import ACCESS_KEY, SECRET_KEY

H100 = "f90e8ef54cc2451b825608e9f95f7bcb"
POOL = "POOL001-krw1a"
PASSWORD = "Train#no#9!"
PUBLIC_IP = "20c507a036c447cdb3b19468d8ea62ac"
NEW_NODE_SECONDS = 900
Json = dict[str, Any]


class ScpClient:
    """Sends requests: `send` returns the answer, the others check the status and return data."""

    def __init__(self, url: str, http: httpx.Client) -> None:
        self.url = url
        self.http = http

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content: str | None = None,
        keys: tuple[str, str] = (ACCESS_KEY, SECRET_KEY),
        **headers: str,
    ) -> httpx.Response:
        """Send a signed request and return the answer: `body` as JSON, or `content` as it is.

        `headers` are named with `_` for `-` and win over those that sign the request.
        """
        unsigned_request = self.http.build_request(
            method, self.url + path, json=body, content=content
        )
        url = self.url[: self.url.index("/", 8)] + unsigned_request.url.raw_path.decode()
        timestamp = str(round(time.time() * 1000))
        message = f"{method}{url}{timestamp}{keys[0]}Openapi"
        digest = hmac.new(keys[1].encode(), message.encode(), hashlib.sha256).digest()
        signed = {
            "Scp-Accesskey": keys[0],
            "Scp-Signature": base64.b64encode(digest).decode(),
            "Scp-Timestamp": timestamp,
            "Scp-ClientType": "Openapi",
            "Accept-Language": "en-US",
            "Scp-Api-Version": "multinodegpucluster 1.2",
        }
        extra_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        unsigned_request.headers.update({**signed, **extra_headers})
        return self.http.send(unsigned_request)

    def get(self, path: str) -> Any:
        answer = self.send("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def request(self, method: str, path: str, body: object = None) -> Any:
        answer = self.send(method, path, body)
        assert answer.status_code in {200, 202}, answer.text
        return answer.json()

    def require_refusal(
        self, method: str, path: str, body: object = None, *, status: int = 400
    ) -> str:
        """Return the message of a refusal with `status`."""
        answer = self.send(method, path, body)
        assert answer.status_code == status, answer.text
        (error,) = answer.json()["errors"]
        detail = error["detail"]
        return detail if isinstance(detail, str) else " | ".join(detail)

    # Nodes and fabrics.

    def create(self, body: Json) -> list[str]:
        """Create nodes, and return the ids from a list in the order of the request."""
        self.request("POST", "/v1/gpu-nodes", body)
        listed = self.get("/v1/gpu-nodes?size=1000&sort=created_at:asc")["gpu_nodes"]
        ids = {node["gpu_node_name"]: node["id"] for node in listed}
        return [ids[server_body["gpu_node_name"]] for server_body in body["server_details"]]

    def get_node(self, node_id: str) -> Json:
        node: Json = self.get(f"/v1/gpu-nodes/{node_id}")
        return node

    def get_states(self) -> dict[str, str]:
        nodes = self.get("/v1/gpu-nodes?size=1000")["gpu_nodes"]
        return {node["gpu_node_name"]: node["state"] for node in nodes}

    def get_fabrics(self) -> dict[str, Json]:
        fabrics = self.get("/v1/cluster-fabrics?size=1000")["cluster_fabrics"]
        return {fabric["cluster_name"]: fabric for fabric in fabrics}

    def delete(self, *ids: str) -> None:
        self.request("DELETE", "/v1/gpu-nodes", {"gpu_node_ids": ids})


def build_create_body(*names: str, fabric: str = "fabric-a", pool: str = POOL, **more: Any) -> Json:
    """Return the body of a create. `more` replaces fields; `fabric_id` joins a fabric."""
    details = {
        "cluster_fabric_id": more.pop("fabric_id", None),
        "cluster_fabric_name": fabric,
        "node_pool_id": pool,
    }
    return {
        "cluster_fabric_details": details,
        "image_id": "IMAGE-7XFMaJpLsapKvskFMjCtmm",
        "init_script": None,
        "lock_enabled": False,
        "os_user_id": "root",
        "os_user_password": PASSWORD,
        "region_id": "kr-west1",
        "server_details": [build_server(name) for name in names],
        "subnet_id": "ab313c43291e4b678f4bacffe10768ae",
        "tags": [],
        "vpc_id": "e58348b1bc9148e5af86500fd4ef99ca",
        **more,
    }


def build_server(name: str, **more: Any) -> Json:
    return {
        "gpu_node_name": name,
        "ip_address": None,
        "nat_enabled": False,
        "public_ip_address_id": None,
        "server_type_id": H100,
        **more,
    }

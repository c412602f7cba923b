"""A client of the emulated TensorOne for the tests beside it."""

from typing import Any

import httpx

from gpuform.providers.emulator.tensorone import KEY

Json = dict[str, Any]

NEW_SECONDS = 180


class TensorOneClient:
    """Sends requests: `send` returns the answer, the others check the status and return data."""

    def __init__(self, url: str, http: httpx.Client) -> None:
        self.url = url
        self.http = http

    def send(
        self, method: str, path: str, body: Any = None, *, key: str = KEY, **query: Any
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        url = f"{self.url}/clusters{path}"
        return self.http.request(method, url, json=body, headers=headers, params=query)

    def request(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        answer = self.send(method, path, body, **query)
        assert answer.status_code in {200, 201}, answer.text
        content = answer.json()
        assert content["success"] is True
        return content["data"]

    def require_refusal(self, method: str, path: str, body: Any = None, **query: Any) -> Json:
        answer = self.send(method, path, body, **query)
        assert answer.status_code >= 400, answer.text
        error: Json = answer.json()
        assert error["code"] == answer.status_code
        assert set(error) >= {"error", "message", "code", "request_id", "timestamp"}
        return error

    def create(self, **more: Any) -> str:
        return str(self.request("POST", "", build_create_body(**more))["id"])

    def get_status(self, cluster_id: str) -> str:
        return str(self.request("GET", f"/{cluster_id}")["status"])

    def list_names(self, **query: Any) -> list[str]:
        return [cluster["name"] for cluster in self.request("GET", "", **query)["clusters"]]


def build_create_body(**more: Any) -> Json:
    """Return the body of a create. `more` replaces its fields."""
    return {
        "name": "train",
        "gpu_type": "A100",
        "gpu_count": 4,
        "storage_gb": 1000,
        "region": "us-west-2",
        "project_id": "proj_456",
        **more,
    }

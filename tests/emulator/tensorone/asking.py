"""The emulated platform, asked by a few lines."""

from typing import Any

import httpx

from gpuform.providers.emulator.tensorone import KEY

Json = dict[str, Any]

NEW_SECONDS = 180


class Api:
    """`ask` gives the answer as it is; the others insist on its status and give the content."""

    def __init__(self, url: str, http: httpx.Client) -> None:
        self.url = url
        self.http = http

    def ask(
        self, method: str, path: str, body: Any = None, *, key: str = KEY, **query: Any
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        url = f"{self.url}/clusters{path}"
        return self.http.request(method, url, json=body, headers=headers, params=query)

    def do(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        answer = self.ask(method, path, body, **query)
        assert answer.status_code in {200, 201}, answer.text
        content = answer.json()
        assert content["success"] is True
        return content["data"]

    def refused(self, method: str, path: str, body: Any = None, **query: Any) -> Json:
        answer = self.ask(method, path, body, **query)
        assert answer.status_code >= 400, answer.text
        error: Json = answer.json()
        assert error["code"] == answer.status_code
        assert set(error) >= {"error", "message", "code", "request_id", "timestamp"}
        return error

    def create(self, **more: Any) -> str:
        return str(self.do("POST", "", new_cluster(**more))["id"])

    def status(self, cluster_id: str) -> str:
        return str(self.do("GET", f"/{cluster_id}")["status"])

    def names(self, **query: Any) -> list[str]:
        return [each["name"] for each in self.do("GET", "", **query)["clusters"]]


def new_cluster(**more: Any) -> Json:
    """The body of a create. `more` replaces its fields."""
    return {
        "name": "train",
        "gpu_type": "A100",
        "gpu_count": 4,
        "storage_gb": 1000,
        "region": "us-west-2",
        "project_id": "proj_456",
        **more,
    }

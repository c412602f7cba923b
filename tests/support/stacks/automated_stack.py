"""Provide a stack on an emulator of its own, for tests of the Python API."""

import json
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuform.stacks.operations import SelectedStack

TOPOLOGY = """\
config:
  gpus: {type: integer, default: 16}
  token: {type: string, secret: true, default: hunter2hunter2}
shared_volumes:
  data: {platform: together, volume_name: training-data, region: us-central-8, size_tib: 5}
clusters:
  train:
    platform: together
    cluster_name: training
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: "{{ config.gpus }}"
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND
    volume_id: "{{ shared_volumes.data.id }}"
outputs:
  status: "{{ clusters.train.status }}"
  token: "{{ config.token }}"
"""
MAIN = 'from gpuform.stacks import run\n\nrun("topology.yaml")\n'


@dataclass(frozen=True)
class AutomatedStack:
    """A selected stack, its project's folder, and the URL of its emulator."""

    stack: SelectedStack
    folder: Path
    url: str

    def request(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        key = self.stack.env_vars["TOGETHER_API_KEY"]
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/{path}", data, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    @property
    def platform_clusters(self) -> list[Any]:
        return list(self.request("GET", "_emulator/objects")["together"]["clusters"])

    def resize(self, gpus: int) -> None:
        """Change the cluster's size on the platform, without the stack, and let two hours pass."""
        (cluster,) = self.request("GET", "together/v1/compute/clusters")["clusters"]
        path = f"together/v1/compute/clusters/{cluster['cluster_id']}"
        self.request("PUT", path, {"num_gpus": gpus})
        self.request("POST", "_emulator/clock", {"advance": 7200})

"""Provide a ready emulated cluster and its scheduler, over real HTTPS."""

import base64
import json
import os
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.context.run_context import EmulatorClock
from gpuform.providers.emulator.server import Server, serve
from gpuform.providers.emulator.together import ADMIN_KEY
from gpuform.providers.kubernetes.client import KubernetesClient, get_kubernetes_client
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler

CLUSTER = {
    "cluster_name": "train",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 24,
    "billing_type": "ON_DEMAND",
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
    "shared_volume": {"volume_name": "data", "size_tib": 1, "region": "us-central-8"},
}


@dataclass(frozen=True)
class Cluster:
    server: Server
    id: str
    kubeconfig: str

    @property
    def client(self) -> KubernetesClient:
        return get_kubernetes_client(self.kubeconfig, "train")

    @property
    def scheduler(self) -> KubernetesScheduler:
        return KubernetesScheduler(self.client)

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.scheduler.list_nodes()]

    def map_jobs_to_nodes(self) -> dict[str, str]:
        """Return the node of each job."""
        return {job.id: node.name for node in self.scheduler.list_nodes() for job in node.jobs}

    def send_control(self, method: str, path: str, body: object = None) -> Any:
        return send_request(self.server, method, f"/_emulator{path}", body)

    def add_fault(self, **rule: object) -> None:
        self.send_control("POST", "/faults", rule)

    def add_pod(self, name: str, **fields: object) -> None:
        self.send_control("POST", f"/kubernetes/{self.id}/pods", {"name": name, **fields})

    def list_requests(self) -> list[dict[str, Any]]:
        requests = self.send_control("GET", "/requests")
        return [request for request in requests if request["platform"] == "kubernetes"]


def send_request(server: Server, method: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    request = urllib.request.Request(server.url + path, data, headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


@pytest.fixture(scope="session")
def kubernetes_server() -> Iterator[Server]:
    with serve(seed="tests", start=1_750_000_000.0, smallest_wait=120.0) as server:
        yield server


@pytest.fixture
def cluster(
    kubernetes_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """Yield a cluster with three workers and a shared volume `data` of 1 TiB.

    No test may leave a temporary file.
    """
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(folder))
    server = kubernetes_server
    send_request(server, "POST", "/_emulator/reset")
    made = send_request(server, "POST", "/together/v1/compute/clusters", CLUSTER)
    server.clock.advance(3600)
    path = f"/together/v1/compute/clusters/{made['cluster_id']}"
    kubeconfig = base64.b64decode(send_request(server, "GET", path)["kube_config"]).decode()
    ready_cluster = Cluster(server, made["cluster_id"], kubeconfig)
    with (
        closing(EmulatorClock(server.url)) as clock,
        closing(ready_cluster.client),
        use_context(ProviderContext(clock=clock)),
    ):
        yield ready_cluster
    assert list(folder.iterdir()) == []

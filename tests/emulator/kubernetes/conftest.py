"""An emulated cluster that is ready, and the official client of its Kubernetes API."""

import base64
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config
from together import Together


@dataclass(frozen=True)
class Kube:
    """The API of one cluster."""

    cluster_id: str
    kubeconfig: dict[str, Any]
    api: client.ApiClient
    control: Any

    @staticmethod
    def create_client(kubeconfig: dict[str, Any]) -> client.ApiClient:
        settings = client.Configuration()
        config.load_kube_config_from_dict(kubeconfig, client_configuration=settings)
        settings.retries = False
        return client.ApiClient(settings)

    @property
    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.api)

    def add_pod(self, name: str, **fields: object) -> dict[str, Any]:
        pod: dict[str, Any] = self.control.call(
            "POST", f"/kubernetes/{self.cluster_id}/pods", {"name": name, **fields}
        )
        return pod

    def list_ended_pods(self) -> dict[str, str]:
        notes = self.control.call("GET", f"/kubernetes/{self.cluster_id}/ended")
        return {note["pod"]: note["how"] for note in notes}

    def node_names(self) -> list[str]:
        return [node.metadata.name for node in self.core.list_node().items]

    def pod_names(self, namespace: str = "default") -> list[str]:
        return [pod.metadata.name for pod in self.core.list_namespaced_pod(namespace).items]


@pytest.fixture
def kube(together: Together, cluster_args: dict[str, Any], control: Any) -> Iterator[Kube]:
    """Return a cluster of three workers with a shared volume `data` of 1 TiB."""
    volume = {"volume_name": "data", "size_tib": 1, "region": cluster_args["region"]}
    cluster = together.clusters.create(**{**cluster_args, "num_gpus": 24}, shared_volume=volume)
    control.advance(3600)
    kubeconfig_text = base64.b64decode(together.clusters.retrieve(cluster.cluster_id).kube_config)
    kubeconfig = yaml.safe_load(kubeconfig_text)
    with Kube.create_client(kubeconfig) as api:
        yield Kube(cluster.cluster_id, kubeconfig, api, control)


@pytest.fixture
def kubectl_config(kube: Kube, tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(kube.kubeconfig))
    return path


@pytest.fixture(autouse=True)
def _no_files_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the official client a folder of the test for the certificates that it leaves behind."""
    monkeypatch.setattr(tempfile, "tempdir", os.fspath(tmp_path))

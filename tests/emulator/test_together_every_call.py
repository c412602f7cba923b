"""Test every call of the unchanged PyPI client in one life of clusters, volumes and repairs.

The client validates every answer strictly against its own models, and no answer may have a field
that those models lack.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from platforms.together_sdk import SdkUse, list_sdk_calls
from pydantic import BaseModel
from together import NotFoundError, Together
from together.types import Cluster

from gpuform.providers.emulator.server import Server
from gpuform.providers.emulator.together import ADMIN_KEY

GPU_TYPES = {"H100_SXM": ("us-central-8", 8), "GB200_SXM": ("eu-north-1", 4)}
"""A region and the GPUs of a node, by GPU type."""
MODE: Any = "REMEDIATION_MODE_VM_ONLY"
HOUR = 3600
OLDER_FIELDS = {"node_name"}
"""Fields that only older servers send, and the SDK no longer has."""


class StrictTransport(httpx.HTTPTransport):
    """Records method and path of every request.

    The first status of a cluster is `Scheduled`, which the platform's command line knows and the
    SDK's enumeration lacks: the client gets the next status instead.
    """

    def __init__(self) -> None:
        super().__init__(verify=False)
        self.sent_calls: set[str] = set()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.sent_calls.add(f"{request.method} {request.url.path.removeprefix('/together/v1')}")
        response = super().handle_request(request)
        content = response.read().replace(
            b'"status":"Scheduled"', b'"status":"WaitingForControlPlaneNodes"'
        )
        headers = [pair for pair in response.headers.items() if pair[0] != "content-length"]
        return httpx.Response(response.status_code, headers=headers, content=content)


@pytest.fixture
def transport() -> Iterator[StrictTransport]:
    with StrictTransport() as transport:
        yield transport


@pytest.fixture
def strict(emulator: Server, transport: StrictTransport) -> Iterator[Together]:
    with httpx.Client(transport=transport) as http_client:
        yield Together(
            api_key=ADMIN_KEY,
            base_url=f"{emulator.url}/together",
            max_retries=0,
            http_client=http_client,
            _strict_response_validation=True,
        )


def list_unknown_fields(model: BaseModel, before: str = "") -> Iterator[str]:
    """Yield the paths of the fields of an answer that the SDK's model lacks."""
    yield from (f"{before}{name}" for name in model.model_extra or ())
    for name in type(model).model_fields:
        value = getattr(model, name)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, BaseModel):
                yield from list_unknown_fields(item, f"{before}{name}.")


def check(answer: Any) -> Any:
    """Return an answer after the check that its fields are those of the SDK."""
    assert {path.rpartition(".")[2] for path in list_unknown_fields(answer)} <= OLDER_FIELDS
    return answer


def propose_repair(emulator: Server, cluster: Cluster, worker: int) -> str:
    """Let the platform propose the repair of a worker whose GPU has fallen off the bus (Xid 79)."""
    alert = {"alert_name": "DmesgXidError", "xid_codes": [79], "slurm_reason": "drained"}
    body = {
        "cluster_id": cluster.cluster_id,
        "instance_name": cluster.gpu_worker_nodes[worker].host_name,
        "alerts": [alert],
    }
    url = f"{emulator.url}/_emulator/together/remediations"
    return str(httpx.post(url, json=body, verify=False).raise_for_status().json()["id"])


@dataclass(frozen=True)
class Scene:
    """The strict client, the clock, and one kind of node."""

    client: Together
    control: Any
    emulator: Server
    gpu_type: Any

    @property
    def region(self) -> str:
        return GPU_TYPES[self.gpu_type][0]

    def get_node_count(self, num_gpus: int) -> int:
        return num_gpus // GPU_TYPES[self.gpu_type][1]

    def create_volume(self) -> str:
        """Create a volume and enlarge it to 2 TiB; return its id."""
        storage = self.client.clusters.storage
        volume = check(storage.create(region=self.region, size_tib=1, volume_name="data"))
        self.control.advance(HOUR)
        check(storage.update(volume_id=volume.volume_id, size_tib=2))
        self.control.advance(HOUR)
        assert check(storage.retrieve(volume.volume_id)).size_tib == 2
        return str(volume.volume_id)

    def create_cluster(self, volume_id: str) -> Cluster:
        """Create a cluster of 16 GPUs on the first driver of the region, and return it ready."""
        clusters = self.client.clusters
        offers = {offer.name: offer for offer in check(clusters.list_regions()).regions}
        assert self.gpu_type in offers[self.region].supported_instance_types
        driver = offers[self.region].driver_versions[0]
        created = check(
            clusters.create(
                billing_type="ON_DEMAND",
                cluster_name="train",
                gpu_type=self.gpu_type,
                num_gpus=16,
                nvidia_version_id=driver.id,
                region=self.region,
                volume_id=volume_id,
                cluster_type="SLURM",
                slurm_shm_size_gib=64,
                add_ons=[{"add_on_type": "dashboard", "name": "board"}],
                oidc_config={
                    "client_id": "c",
                    "group_claim": "groups",
                    "group_prefix": "g:",
                    "issuer_url": "https://issuer.test",
                    "username_claim": "email",
                    "username_prefix": "u:",
                },
            )
        )
        self.control.advance(HOUR)
        cluster: Cluster = check(clusters.retrieve(created.cluster_id))
        assert (cluster.status, cluster.nvidia_driver_version_id) == ("Ready", driver.id)
        assert (cluster.cuda_version, cluster.os_image) == (driver.cuda_version, driver.os)
        return cluster

    def resize_cluster(self, cluster_id: str, num_gpus: int, num_preemptible_gpus: int) -> Cluster:
        """Give the cluster these GPUs, and return it with the nodes that it has then."""
        check(
            self.client.clusters.update(
                cluster_id, num_gpus=num_gpus, num_preemptible_gpus=num_preemptible_gpus
            )
        )
        self.control.advance(HOUR)
        (cluster,) = check(self.client.clusters.list()).clusters
        assert cluster.allocated_preemptible_gpus == num_preemptible_gpus
        node_count = self.get_node_count(num_gpus + num_preemptible_gpus)
        assert len(cluster.gpu_worker_nodes) == node_count
        return cluster  # type: ignore[no-any-return]

    def repair_first_and_last_worker(self, cluster: Cluster) -> None:
        """Approve the repair of one worker, request that of the last; reject and cancel others."""
        remediations = self.client.clusters.remediations
        machines = [
            {"cluster_id": cluster.cluster_id, "instance_id": str(node.instance_id)}
            for node in cluster.gpu_worker_nodes
        ]
        proposals = [propose_repair(self.emulator, cluster, worker) for worker in range(3)]
        check(remediations.approve(proposals[0], **machines[0], comment="seen"))
        check(remediations.reject(proposals[1], **machines[1], comment="no"))
        check(remediations.cancel(proposals[2], **machines[2]))
        requested = check(remediations.create(**machines[-1], mode=MODE, reason="slow"))
        self.control.advance(HOUR)
        for machine in machines[1:3]:
            (listed,) = check(remediations.list(**machine)).remediations
            assert listed.state == "CANCELLED"
        for repair_id, machine in ((proposals[0], machines[0]), (requested.id, machines[-1])):
            assert check(remediations.retrieve(repair_id, **machine)).state == "SUCCEEDED"

    def delete_all(self, cluster_id: str, volume_id: str) -> None:
        """Delete the cluster, then the volume, until neither exists."""
        clusters, storage = self.client.clusters, self.client.clusters.storage
        check(clusters.delete(cluster_id))
        self.control.advance(HOUR)
        with pytest.raises(NotFoundError):
            clusters.retrieve(cluster_id)
        assert check(storage.delete(volume_id)).success
        self.control.advance(HOUR)
        assert check(storage.list()).volumes == []


@pytest.mark.parametrize("gpu_type", GPU_TYPES)
def test_the_official_client_makes_every_call_and_reads_every_answer(
    strict: Together, transport: StrictTransport, control: Any, emulator: Server, gpu_type: str
) -> None:
    scene = Scene(strict, control, emulator, gpu_type)
    volume_id = scene.create_volume()
    created = scene.create_cluster(volume_id)
    assert {node.num_gpus for node in created.gpu_worker_nodes} == {GPU_TYPES[gpu_type][1]}
    # The last worker is a preemptible one.
    before = scene.resize_cluster(created.cluster_id, 24, 8)
    scene.repair_first_and_last_worker(before)
    after = check(strict.clusters.retrieve(created.cluster_id))
    nodes_before, nodes_after = (
        [node.node_id for node in cluster.gpu_worker_nodes] for cluster in (before, after)
    )
    assert set(nodes_before) - set(nodes_after) == {nodes_before[0], nodes_before[-1]}
    assert sum(node.num_gpus for node in after.gpu_worker_nodes) == 24 + 8
    scene.resize_cluster(created.cluster_id, 8, 0)
    scene.delete_all(created.cluster_id, volume_id)
    sdk = SdkUse()
    for call in list_sdk_calls():
        request = re.sub(r"{\w+}", "[^/]+", sdk.get_http_call(call))
        assert any(re.fullmatch(request, sent) for sent in transport.sent_calls), call.name

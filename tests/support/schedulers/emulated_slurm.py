"""A SLURM cluster on a running emulator."""

import base64
import json
import urllib.request
from dataclasses import dataclass
from typing import Any

from gpuform.providers.emulator.server import Server
from gpuform.providers.emulator.together import ADMIN_KEY

_CLUSTER = {
    "cluster_name": "train",
    "cluster_type": "SLURM",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 24,
    "billing_type": "ON_DEMAND",
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
    "slurm_shm_size_gib": 64,
    "shared_volume": {"volume_name": "data", "size_tib": 1, "region": "us-central-8"},
}
NODES = tuple(f"slurm-worker-{index}" for index in range(3))


@dataclass(frozen=True)
class SlurmCluster:
    """`kubeconfig` (YAML) is what its Slurm is reached by."""

    url: str
    id: str
    kubeconfig: str

    def control(self, method: str, path: str, body: object = None) -> Any:
        return _asked(method, f"{self.url}/_emulator{path}", body)

    def slurm(self, method: str, path: str, body: object = None) -> Any:
        return self.control(method, f"/slurm/{self.id}{path}", body)

    def submit(self, **wanted: object) -> str:
        """The id of a new job."""
        return str(self.slurm("POST", "/jobs", wanted)["label"])

    def run(self, *command: str) -> tuple[str, str, int]:
        told = self.slurm("POST", "/run", {"command": command})
        return told["stdout"], told["stderr"], told["code"]

    def states(self) -> dict[str, str]:
        return {job["label"]: job["state"] for job in self.slurm("GET", "/jobs")}

    def advance(self, seconds: float) -> None:
        self.control("POST", "/clock", {"advance": seconds})

    def resize(self, num_gpus: int) -> None:
        """Asks the platform for another size, and for nothing else."""
        _asked("PUT", f"{self.url}/together/v1/compute/clusters/{self.id}", {"num_gpus": num_gpus})


def slurm_cluster(server: Server) -> SlurmCluster:
    """A new one of three nodes, ready."""
    clusters = f"{server.url}/together/v1/compute/clusters"
    made = _asked("POST", clusters, _CLUSTER)
    server.clock.advance(3600)
    ready = _asked("GET", f"{clusters}/{made['cluster_id']}")
    kubeconfig = base64.b64decode(ready["kube_config"]).decode()
    return SlurmCluster(server.url, made["cluster_id"], kubeconfig)


def _asked(method: str, url: str, body: object = None) -> Any:
    headers = {"Authorization": f"Bearer {ADMIN_KEY}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method)) as told:
        return json.load(told)

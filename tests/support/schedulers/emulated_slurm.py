"""Create a Slurm cluster on a running emulator, and submit jobs to the cluster."""

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
    """A Together cluster with Slurm; `kubeconfig` (YAML) gives access to its Slurm."""

    url: str
    id: str
    kubeconfig: str

    def call_emulator(self, method: str, path: str, body: object = None) -> Any:
        return _send(method, f"{self.url}/_emulator{path}", body)

    def call_slurm(self, method: str, path: str, body: object = None) -> Any:
        return self.call_emulator(method, f"/slurm/{self.id}{path}", body)

    def submit(self, **fields: object) -> str:
        """Submit a job with these fields, and return the id."""
        return str(self.call_slurm("POST", "/jobs", fields)["label"])

    def run_command(self, *command: str) -> tuple[str, str, int]:
        """Run a command of Slurm in the cluster, and return stdout, stderr and exit code."""
        answer = self.call_slurm("POST", "/run", {"command": command})
        return answer["stdout"], answer["stderr"], answer["code"]

    def get_job_states(self) -> dict[str, str]:
        return {job["label"]: job["state"] for job in self.call_slurm("GET", "/jobs")}

    def advance(self, seconds: float) -> None:
        self.call_emulator("POST", "/clock", {"advance": seconds})

    def resize(self, num_gpus: int) -> None:
        """Ask the platform for another number of GPUs, without a drain."""
        _send("PUT", f"{self.url}/together/v1/compute/clusters/{self.id}", {"num_gpus": num_gpus})


def create_slurm_cluster(server: Server) -> SlurmCluster:
    """Create a cluster of three nodes, and move the clock until the cluster is ready."""
    clusters = f"{server.url}/together/v1/compute/clusters"
    created = _send("POST", clusters, _CLUSTER)
    server.clock.advance(3600)
    description = _send("GET", f"{clusters}/{created['cluster_id']}")
    kubeconfig = base64.b64decode(description["kube_config"]).decode()
    return SlurmCluster(server.url, created["cluster_id"], kubeconfig)


def _send(method: str, url: str, body: object = None) -> Any:
    headers = {"Authorization": f"Bearer {ADMIN_KEY}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(
        urllib.request.Request(url, data, headers, method=method)
    ) as answer:
        return json.load(answer)

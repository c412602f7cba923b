"""Runs that take nodes on which jobs run, by every path and both schedulers, to be killed.

A job of two minutes runs on the node that goes. SCP knows no scheduler: the one of its nodes is the
Kubernetes of a Together cluster beside them, whose workers have the same names.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conformance.aios_kinds import GPU_NODE as ENTRY
from conformance.described import Described, Request
from conformance.emulated import Platform
from conformance.scp_kinds import GPU_NODE, NODE_POOL
from conformance.together_kinds import CLUSTER

from gpuform.providers.draining import Scheduler
from gpuform.providers.kubernetes.client import client_by
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.slurm import slurm_scheduler
from gpuform.schemas.slurm import SlurmInputs
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.values import unwrap_secrets

Inputs = Mapping[str, Any]

JOB: Final = "jobs.json"
"""In the project's folder: what runs where, for who looks after a death."""

SECONDS: Final = 120.0
_BUSY: Final = 1
"""The number of the node with the job."""
_KUBECONFIG: Final = "kubeconfig"

_SLURM = {"cluster_type": "SLURM", "slurm_shm_size_gib": 64}
_DRAIN = {"kubernetes": {"kubeconfig": _KUBECONFIG}}
_POOL = {
    **{name: value for name, value in NODE_POOL.good.items() if name != "count"},
    "cluster_fabric_name": "train-worker",
    "gpu_node_name_prefix": "train-worker",
    "nodes": {str(number): {"ip_address": f"192.168.0.8{number}"} for number in range(3)},
    "drain": _DRAIN,
}
_NODE = {"gpu_node_name": f"train-worker-{_BUSY}", "drain": _DRAIN}


@dataclass(frozen=True)
class Taking:
    """What is declared before and after; nothing: a destroy."""

    kind: Described
    before: Inputs
    after: Inputs | None

    def inputs(self, placed: Described) -> tuple[Inputs, Inputs | None]:
        """With what the kind needs on the platform."""
        good = placed.good if self.kind in (GPU_NODE, ENTRY) else {}
        return {**good, **self.before}, None if self.after is None else {**good, **self.after}


def _with(own: Inputs) -> Inputs:
    nodes = {**_POOL["nodes"], str(_BUSY): own}
    return {**_POOL, "nodes": nodes}


def _takings() -> dict[str, Taking]:
    found = {
        "shrink-pool": Taking(
            NODE_POOL, _POOL, {**_POOL, "nodes": {key: _POOL["nodes"][key] for key in "02"}}
        ),
        "replace-pool-node": Taking(NODE_POOL, _POOL, _with({"ip_address": "192.168.0.99"})),
        "stop-pool-node": Taking(
            NODE_POOL, _POOL, _with({**_POOL["nodes"][str(_BUSY)], "state": "STOPPED"})
        ),
        "roll-out-pool": Taking(
            NODE_POOL,
            {**_POOL, "rollout": {}},
            {**_POOL, "rollout": {}, "image_id": NODE_POOL.replacing.inputs["image_id"]},
        ),
        "replace-pool": Taking(
            NODE_POOL, _POOL, {**_POOL, "image_id": NODE_POOL.replacing.inputs["image_id"]}
        ),
        "destroy-pool": Taking(NODE_POOL, _POOL, None),
        "stop-node": Taking(GPU_NODE, _NODE, {**_NODE, "state": "STOPPED"}),
        "destroy-node": Taking(GPU_NODE, _NODE, None),
        "destroy-entry": Taking(ENTRY, {"node_id": _worker(), "drain": _DRAIN}, None),
    }
    other = {"gpu_type": CLUSTER.replacing.inputs["gpu_type"]}
    for scheduler, own in (("kubernetes", {}), ("slurm", _SLURM)):
        cluster = {**CLUSTER.good, **own}
        rolled = {**cluster, "rollout": {"strategy": "replace_cluster"}}
        found |= {
            f"shrink-cluster-{scheduler}": Taking(
                CLUSTER, cluster, {**cluster, "num_gpus": 8, "drain": {"nodes": [_worker()]}}
            ),
            f"replace-cluster-{scheduler}": Taking(CLUSTER, cluster, {**cluster, **other}),
            f"roll-out-cluster-{scheduler}": Taking(CLUSTER, rolled, {**rolled, **other}),
            f"destroy-cluster-{scheduler}": Taking(CLUSTER, cluster, None),
        }
    return found


def _worker() -> str:
    return f"train-worker-{_BUSY}"


TAKINGS: Final = _takings()


@dataclass(frozen=True)
class Jobs:
    """The one job of a project: who gives it its node, until when, and how the node is taken."""

    cluster: str
    is_slurm: bool
    taken_by: str
    until: float

    @classmethod
    def start(
        cls, platform: Platform, folder: Path, taking: Taking, ids: Mapping[str, str]
    ) -> None:
        """`ids` are those of the nodes or of the cluster in the state, by name."""
        if taking.kind is CLUSTER:
            (cluster,) = ids.values()
            taken_by = cluster
        else:
            made = platform.send(
                CLUSTER, Request("POST", "/compute/clusters", {**CLUSTER.good, "num_gpus": 32})
            )
            cluster, taken_by = made["cluster_id"], ids[_worker()].rpartition("/")[2]
            platform.advance(7200)
            (folder / _KUBECONFIG).write_text(_kubeconfig(platform, cluster))
        is_slurm = taking.before.get("cluster_type") == "SLURM"
        if is_slurm:
            job = {"name": "train", "nodes": [f"slurm-worker-{_BUSY}"], "runs_for": SECONDS}
            path = f"/_emulator/slurm/{cluster}/jobs"
        else:
            job = {"name": "train", "namespace": "ml", "node": _worker(), "runs_for": SECONDS}
            path = f"/_emulator/kubernetes/{cluster}/pods"
        platform.http.post(path, json=job).raise_for_status()
        now = float(platform.http.get("/_emulator/clock").json()["now"])
        kept = {"cluster": cluster, "is_slurm": is_slurm, "taken_by": taken_by}
        (folder / JOB).write_text(json.dumps({**kept, "until": now + SECONDS}))

    @classmethod
    def of(cls, folder: Path) -> "Jobs":
        return cls(**json.loads((folder / JOB).read_text()))

    def assert_unharmed(self, platform: Platform) -> None:
        """Nothing took the job's node before its end, and every node that is left takes jobs."""
        requests = platform.http.get("/_emulator/requests").json()
        early = [
            each
            for each in requests
            if each["method"] in ("DELETE", "POST", "PUT")
            and self.taken_by in f"{each['path']} {each['body']}"
            and not each["path"].endswith(("/nodes", "/lock", "/unlock"))
            and each["time"] < self.until
        ]
        assert early == [], f"taken from under a job: {early}"
        if self._exists(platform):
            found = self._scheduler(platform).nodes()
            cordoned = [node.name for node in found if node.is_cordoned]
            assert not cordoned, f"still cordoned: {cordoned}"

    def _exists(self, platform: Platform) -> bool:
        return self.cluster in platform.ids(CLUSTER)

    def _scheduler(self, platform: Platform) -> Scheduler:
        text = _kubeconfig(platform, self.cluster)
        if self.is_slurm:
            return slurm_scheduler(SlurmInputs(), kubeconfig=text, cluster="train")
        return KubernetesScheduler(client_by(text, "train"))


def ids_of(entry: ResourceState) -> dict[str, str]:
    """The ids of a pool's nodes by their names, else that of the object."""
    nodes = unwrap_secrets(entry.outputs.get("gpu_nodes"))
    if isinstance(nodes, Mapping):
        return {each["gpu_node_name"]: each["id"] for each in nodes.values()}
    name = entry.outputs.get("gpu_node_name") or entry.outputs.get("node_id")
    return {str(name): entry.id}


def _kubeconfig(platform: Platform, cluster: str) -> str:
    shown = platform.send(CLUSTER, Request("GET", f"/compute/clusters/{cluster}"))
    return base64.b64decode(shown["kube_config"]).decode()

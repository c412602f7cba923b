"""Define runs that remove nodes with jobs, in every way and with both schedulers, to be killed.

A job of two minutes runs on the removed node. SCP and AIOS have no scheduler of their own: their
nodes have the names of the workers of a Together cluster, whose scheduler they use.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx
from conformance.aios_kinds import GPU_NODE as ENTRY
from conformance.emulated import Platform
from conformance.kind_descriptions import Change, KindDescription, Request
from conformance.scp_kinds import GPU_NODE, NODE_POOL, build_other_fabric
from conformance.together_kinds import CLUSTER

from gpuform.providers.draining import Scheduler
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.slurm.processes import CommandOutput
from gpuform.providers.slurm.scheduler import create_slurm_scheduler
from gpuform.providers.values import unwrap_secrets
from gpuform.schemas.policies.drain import SlurmInputs
from gpuform.stacks.engine.state import ResourceState

Inputs = Mapping[str, Any]

JOB: Final = "jobs.json"
"""The file of the project's folder that records the running job for the check after a kill."""

JOB_SECONDS: Final = 120.0
_BUSY_NODE: Final = 1
"""The number of the node with the job."""
_KUBECONFIG: Final = "kubeconfig"

_SCHEDULERS: Final = {
    "kubernetes": ("train-worker", {"kubernetes": {"kubeconfig": _KUBECONFIG}}, {}),
    "slurm": (
        "slurm-worker",
        {"slurm": {"via": "local"}},
        {"cluster_type": "SLURM", "slurm_shm_size_gib": 64},
    ),
}
"""What its nodes are called, how SCP and AIOS declare it, and what a Together cluster has then."""

_MOVED = replace(
    GPU_NODE,
    requirements=[*GPU_NODE.requirements, build_other_fabric("base2")],
    in_place=Change({**GPU_NODE.valid_inputs, "cluster_fabric_id": "{base2}"}, "cluster_fabric_id"),
)
"""A node, and two fabrics of others."""


@dataclass(frozen=True)
class NodeRemoval:
    """The declarations before and after a removal; no declaration after: a destroy.

    `cluster_inputs` are the inputs of the Together cluster whose scheduler the nodes use. `fault`
    is how a node to be repaired is broken: `proposed` (a repair by the platform), `not_ready` or
    `failed` (both reported by the platform).
    """

    kind: KindDescription
    node: str
    before: Inputs
    after: Inputs | None
    cluster_inputs: Inputs
    """What a Together cluster has that its scheduler is."""
    fault: str = ""
    """How the node is broken, that is repaired: `proposed` by the platform, `not_ready`, or
    `failed` by the platform's word."""

    def break_node(self, platform: Platform, id_: str) -> None:
        """Break the node, and wait until the fault counts; do nothing without `fault`.

        `id_` is that of its cluster or, of a node of SCP, its own.
        """
        worker = f"train-worker-{_BUSY_NODE}"
        if self.fault == "proposed":
            body = {"cluster_id": id_, "instance_name": worker}
            platform.http.post("/_emulator/together/remediations", json=body).raise_for_status()
        elif self.fault == "failed":
            path = f"/_emulator/scp/gpu-nodes/{id_}"
            platform.http.post(path, json={"state": "ERROR"}).raise_for_status()
        elif self.fault:
            path = f"/_emulator/kubernetes/{id_}/nodes/{worker}"
            platform.http.post(path, json={"ready": False}).raise_for_status()
            platform.advance(600)

    def build_inputs(self, kind: KindDescription) -> tuple[Inputs, Inputs | None]:
        """Return the inputs before and after the removal; None after a destroy."""
        is_alone = self.kind in (GPU_NODE, ENTRY, _MOVED)
        good = kind.valid_inputs if is_alone else {}
        moved = kind.in_place.inputs if self.kind is _MOVED else good
        return {**good, **self.before}, None if self.after is None else {**moved, **self.after}


def _build_removals(scheduler: str) -> Iterator[tuple[str, NodeRemoval]]:
    prefix, drain, own = _SCHEDULERS[scheduler]
    busy = f"{prefix}-{_BUSY_NODE}"
    yield from (
        (path, NodeRemoval(kind, busy, before, after, own))
        for path, kind, before, after in (
            *_build_pool_removals(prefix, drain),
            *_build_node_removals(busy, drain),
            *_build_cluster_removals({**CLUSTER.valid_inputs, **own}),
        )
    )
    remade = {"repair": {"approve": "automatic"}}
    for path, kind, before in (
        ("repair-pool-node", NODE_POOL, {**_build_pool(prefix, drain), **remade}),
        ("repair-node", GPU_NODE, {"gpu_node_name": busy, "drain": drain, **remade}),
    ):
        yield path, NodeRemoval(kind, busy, before, before, own, "failed")
    for broken in ("proposed", "not_ready"):
        repair = {"on": ["platform", "not_ready"], "approve": "automatic", "not_ready_for": "5m"}
        cluster = {**CLUSTER.valid_inputs, **own, "num_gpus": 24, "repair": repair}
        if broken == "not_ready":
            cluster["repair"] = {**repair, "modes": ["REBOOT_VM"]}
        path = f"repair-{broken.replace('_', '-')}-node"
        yield path, NodeRemoval(CLUSTER, busy, cluster, cluster, own, broken)


_Path = tuple[str, KindDescription, Inputs, Inputs | None]


def _build_pool(prefix: str, drain: Inputs) -> dict[str, Any]:
    return {
        **{name: value for name, value in NODE_POOL.valid_inputs.items() if name != "count"},
        "cluster_fabric_name": prefix,
        "gpu_node_name_prefix": prefix,
        "nodes": {str(number): {"ip_address": f"192.168.0.8{number}"} for number in range(3)},
        "drain": drain,
    }


def _build_pool_removals(prefix: str, drain: Inputs) -> Iterator[_Path]:
    pool = _build_pool(prefix, drain)
    addresses = pool["nodes"]
    image = {"image_id": NODE_POOL.replacing.inputs["image_id"]}

    def change_busy_node(**own: Any) -> Inputs:
        key = str(_BUSY_NODE)
        return {**pool, "nodes": {**addresses, key: {**addresses[key], **own}}}

    remaining = {key: own for key, own in addresses.items() if key != str(_BUSY_NODE)}
    yield "shrink-pool", NODE_POOL, pool, {**pool, "nodes": remaining}
    yield "replace-pool-node", NODE_POOL, pool, change_busy_node(ip_address="192.168.0.99")
    yield "stop-pool-node", NODE_POOL, pool, change_busy_node(state="STOPPED")
    yield "roll-out-pool", NODE_POOL, {**pool, "rollout": {}}, {**pool, "rollout": {}, **image}
    yield "replace-pool", NODE_POOL, pool, {**pool, **image}
    yield "destroy-pool", NODE_POOL, pool, None


def _build_node_removals(busy: str, drain: Inputs) -> Iterator[_Path]:
    node = {"gpu_node_name": busy, "drain": drain}
    yield "stop-node", GPU_NODE, node, {**node, "state": "STOPPED"}
    yield "move-node", _MOVED, node, node
    yield "destroy-node", GPU_NODE, node, None
    yield "destroy-entry", ENTRY, {"node_id": busy, "drain": drain}, None


def _build_cluster_removals(cluster: Inputs) -> Iterator[_Path]:
    other = {"gpu_type": CLUSTER.replacing.inputs["gpu_type"]}
    rolled = {**cluster, "rollout": {"strategy": "replace_cluster"}}
    fewer = {"num_gpus": 8, "drain": {"nodes": [f"train-worker-{_BUSY_NODE}"]}}
    yield "shrink-cluster", CLUSTER, cluster, {**cluster, **fewer}
    yield "replace-cluster", CLUSTER, cluster, {**cluster, **other}
    yield "roll-out-cluster", CLUSTER, rolled, {**rolled, **other}
    yield "destroy-cluster", CLUSTER, cluster, None


NODE_REMOVALS: Final[Mapping[str, Mapping[str, NodeRemoval]]] = {
    scheduler_kind: dict(_build_removals(scheduler_kind)) for scheduler_kind in _SCHEDULERS
}
"""By scheduler and path."""


def build_local_runner(
    http: httpx.Client, notify: Callable[[str], None]
) -> Callable[..., CommandOutput]:
    """Return a replacement for `LocalCommandRunner.run`, over the Slurm of the project's job.

    `notify` gets the text of each command that has finished.
    """

    def run(_: object, command: Sequence[str], *, is_change: bool = False) -> CommandOutput:
        cluster = RunningJob.load(Path.cwd()).cluster
        return run_slurm_command(http, cluster, command, notify, is_change=is_change)

    return run


def run_slurm_command(
    http: httpx.Client,
    cluster: str,
    command: Sequence[str],
    notify: Callable[[str], None],
    *,
    is_change: bool,
) -> CommandOutput:
    path = f"/_emulator/slurm/{cluster}/run"
    answer = http.post(path, json={"command": [*command]}).raise_for_status().json()
    notify(f"{'POST' if is_change else 'GET'} {' '.join(command[:3])}")
    return CommandOutput(answer["stdout"], answer["stderr"], answer["code"])


@dataclass(frozen=True)
class RunningJob:
    """The one job of a project: its scheduler, its node, and its end.

    `taken_by` is the id of the node or cluster whose deletion removes the node. `is_repair`: the
    node is repaired, once; `is_remade`: the repair recreates it.
    """

    cluster: str
    is_slurm: bool
    taken_by: str
    until: float
    is_repair: bool = False
    is_remade: bool = False

    @classmethod
    def start(
        cls, platform: Platform, folder: Path, removal: NodeRemoval, ids: Mapping[str, str]
    ) -> None:
        """Break the node if declared, start the job, and write a record into `folder`.

        `ids` are the ids of the nodes or of the cluster in the state, by name.
        """
        if removal.kind is CLUSTER:
            (cluster,) = ids.values()
            taken_by = cluster
            removal.break_node(platform, cluster)
        else:
            body = {**CLUSTER.valid_inputs, "num_gpus": 32, **removal.cluster_inputs}
            created_cluster = platform.send(CLUSTER, Request("POST", "/compute/clusters", body))
            cluster, taken_by = created_cluster["cluster_id"], ids[removal.node].rpartition("/")[2]
            removal.break_node(platform, taken_by)
            platform.advance(7200)
            (folder / _KUBECONFIG).write_text(_fetch_kubeconfig(platform, cluster))
        is_slurm = bool(removal.cluster_inputs)
        if is_slurm:
            job = {"name": "train", "nodes": [removal.node], "runs_for": JOB_SECONDS}
            path = f"/_emulator/slurm/{cluster}/jobs"
        else:
            job = {
                "name": "train",
                "namespace": "ml",
                "node": removal.node,
                "runs_for": JOB_SECONDS,
            }
            path = f"/_emulator/kubernetes/{cluster}/pods"
        platform.http.post(path, json=job).raise_for_status()
        now = float(platform.http.get("/_emulator/clock").json()["now"])
        record = {"cluster": cluster, "is_slurm": is_slurm, "taken_by": taken_by}
        record["is_repair"] = bool(removal.fault) and removal.kind is CLUSTER
        record["is_remade"] = removal.fault == "failed"
        (folder / JOB).write_text(json.dumps({**record, "until": now + JOB_SECONDS}))

    @classmethod
    def load(cls, folder: Path) -> "RunningJob":
        """Return the recorded job of `folder`."""
        return cls(**json.loads((folder / JOB).read_text()))

    def assert_unharmed(self, platform: Platform) -> None:
        """Assert that the job ended before any removal, and remaining nodes are schedulable."""
        requests = platform.http.get("/_emulator/requests").json()
        early = [
            request
            for request in requests
            if request["method"] in ("DELETE", "POST", "PUT")
            and self.taken_by in f"{request['path']} {request['body']}"
            and not request["path"].endswith(("/nodes", "/lock", "/unlock"))
            and request["time"] < self.until
        ]
        assert early == [], f"taken from under a job: {early}"
        if self._exists(platform):
            nodes = self._get_scheduler(platform).list_nodes()
            cordoned = [node.name for node in nodes if node.is_cordoned]
            assert not cordoned, f"still cordoned: {cordoned}"

        if self.is_repair:
            assert self._list_repair_states(platform) == ["SUCCEEDED"]
        if self.is_remade:
            deleted = {
                str(request["body"]) for request in requests if request["method"] == "DELETE"
            }
            assert len(deleted) == 1, f"not one node was taken: {deleted}"
            assert self.taken_by in deleted.pop()

    def _list_repair_states(self, platform: Platform) -> list[str]:
        """Return the states of all requested or proposed repairs."""
        cluster_answer = platform.send(CLUSTER, Request("GET", f"/compute/clusters/{self.cluster}"))
        nodes = [*cluster_answer["gpu_worker_nodes"], *cluster_answer["deleted_gpu_worker_nodes"]]
        remediations = []
        for node in nodes:
            path = f"/compute/clusters/{self.cluster}/instances/{node['instance_id']}/remediations"
            remediations += platform.send(CLUSTER, Request("GET", path))["remediations"]
        return [item["state"] for item in remediations]

    def _exists(self, platform: Platform) -> bool:
        return self.cluster in platform.list_ids(CLUSTER)

    def _get_scheduler(self, platform: Platform) -> Scheduler:
        kubeconfig = _fetch_kubeconfig(platform, self.cluster)
        if self.is_slurm:
            return create_slurm_scheduler(SlurmInputs(), kubeconfig=kubeconfig, cluster="train")
        return KubernetesScheduler(get_kubernetes_client(kubeconfig, "train"))


def map_ids_by_name(entry: ResourceState) -> dict[str, str]:
    """Return the ids of a pool's nodes by name, or the id of the object."""
    nodes = unwrap_secrets(entry.outputs.get("gpu_nodes"))
    if isinstance(nodes, Mapping):
        return {node["gpu_node_name"]: node["id"] for node in nodes.values()}
    name = entry.outputs.get("gpu_node_name") or entry.outputs.get("node_id")
    return {str(name): entry.id}


def _fetch_kubeconfig(platform: Platform, cluster: str) -> str:
    cluster_answer = platform.send(CLUSTER, Request("GET", f"/compute/clusters/{cluster}"))
    return base64.b64decode(cluster_answer["kube_config"]).decode()

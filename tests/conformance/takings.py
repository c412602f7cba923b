"""Define runs that remove nodes with jobs, by every way and both schedulers, to be killed.

A job of two minutes runs on the node that goes. SCP and AIOS know no scheduler: the one of their
nodes is that of a Together cluster beside them, whose workers have the same names.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx
from conformance.aios_kinds import GPU_NODE as ENTRY
from conformance.described import Change, Described, Request
from conformance.emulated import Platform
from conformance.scp_kinds import GPU_NODE, NODE_POOL, build_other_fabric
from conformance.together_kinds import CLUSTER

from gpuform.providers.draining import Scheduler
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.slurm import create_slurm_scheduler
from gpuform.providers.slurm.processes import CommandOutput
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
    needs=[*GPU_NODE.needs, build_other_fabric("base2")],
    in_place=Change({**GPU_NODE.good, "cluster_fabric_id": "{base2}"}, "cluster_fabric_id"),
)
"""A node, and two fabrics of others."""


@dataclass(frozen=True)
class Taking:
    """The declarations before and after a removal; no declaration after: a destroy."""

    kind: Described
    node: str
    before: Inputs
    after: Inputs | None
    cluster: Inputs
    """What a Together cluster has that its scheduler is."""
    broken: str = ""
    """How the node is broken, that is repaired: `proposed` by the platform, `not_ready`, or
    `failed` by the platform's word."""

    def break_node(self, platform: Platform, id_: str) -> None:
        """The platform or Kubernetes says that the node is broken, for long enough.

        `id_` is that of its cluster, or its own.
        """
        worker = f"train-worker-{_BUSY}"
        if self.broken == "proposed":
            body = {"cluster_id": id_, "instance_name": worker}
            platform.http.post("/_emulator/together/remediations", json=body).raise_for_status()
        elif self.broken == "failed":
            path = f"/_emulator/scp/gpu-nodes/{id_}"
            platform.http.post(path, json={"state": "ERROR"}).raise_for_status()
        elif self.broken:
            path = f"/_emulator/kubernetes/{id_}/nodes/{worker}"
            platform.http.post(path, json={"ready": False}).raise_for_status()
            platform.advance(600)

    def inputs(self, placed: Described) -> tuple[Inputs, Inputs | None]:
        """Return the inputs, with the requirements of the kind on the platform."""
        is_alone = self.kind in (GPU_NODE, ENTRY, _MOVED)
        good = placed.good if is_alone else {}
        moved = placed.in_place.inputs if self.kind is _MOVED else good
        return {**good, **self.before}, None if self.after is None else {**moved, **self.after}


def _build_removals(scheduler: str) -> Iterator[tuple[str, Taking]]:
    prefix, drain, own = _SCHEDULERS[scheduler]
    busy = f"{prefix}-{_BUSY}"
    yield from (
        (path, Taking(kind, busy, before, after, own))
        for path, kind, before, after in (
            *_build_pool_removals(prefix, drain),
            *_build_node_removals(busy, drain),
            *_build_cluster_removals({**CLUSTER.good, **own}),
        )
    )
    remade = {"repair": {"approve": "automatic"}}
    for path, kind, before in (
        ("repair-pool-node", NODE_POOL, {**_build_pool(prefix, drain), **remade}),
        ("repair-node", GPU_NODE, {"gpu_node_name": busy, "drain": drain, **remade}),
    ):
        yield path, Taking(kind, busy, before, before, own, "failed")
    for broken in ("proposed", "not_ready"):
        repair = {"on": ["platform", "not_ready"], "approve": "automatic", "not_ready_for": "5m"}
        cluster = {**CLUSTER.good, **own, "num_gpus": 24, "repair": repair}
        if broken == "not_ready":
            cluster["repair"] = {**repair, "modes": ["REBOOT_VM"]}
        path = f"repair-{broken.replace('_', '-')}-node"
        yield path, Taking(CLUSTER, busy, cluster, cluster, own, broken)


_Path = tuple[str, Described, Inputs, Inputs | None]


def _build_pool(prefix: str, drain: Inputs) -> dict[str, Any]:
    return {
        **{name: value for name, value in NODE_POOL.good.items() if name != "count"},
        "cluster_fabric_name": prefix,
        "gpu_node_name_prefix": prefix,
        "nodes": {str(number): {"ip_address": f"192.168.0.8{number}"} for number in range(3)},
        "drain": drain,
    }


def _build_pool_removals(prefix: str, drain: Inputs) -> Iterator[_Path]:
    pool = _build_pool(prefix, drain)
    addresses = pool["nodes"]
    image = {"image_id": NODE_POOL.replacing.inputs["image_id"]}

    def other(**own: Any) -> Inputs:
        key = str(_BUSY)
        return {**pool, "nodes": {**addresses, key: {**addresses[key], **own}}}

    remaining = {key: own for key, own in addresses.items() if key != str(_BUSY)}
    yield "shrink-pool", NODE_POOL, pool, {**pool, "nodes": remaining}
    yield "replace-pool-node", NODE_POOL, pool, other(ip_address="192.168.0.99")
    yield "stop-pool-node", NODE_POOL, pool, other(state="STOPPED")
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
    fewer = {"num_gpus": 8, "drain": {"nodes": [f"train-worker-{_BUSY}"]}}
    yield "shrink-cluster", CLUSTER, cluster, {**cluster, **fewer}
    yield "replace-cluster", CLUSTER, cluster, {**cluster, **other}
    yield "roll-out-cluster", CLUSTER, rolled, {**rolled, **other}
    yield "destroy-cluster", CLUSTER, cluster, None


TAKINGS: Final[Mapping[str, Mapping[str, Taking]]] = {
    each: dict(_build_removals(each)) for each in _SCHEDULERS
}
"""By scheduler and path."""


def run_locally(http: httpx.Client, notify: Callable[[str], None]) -> Callable[..., CommandOutput]:
    """Slurm's commands of this machine, as a method: they reach the Slurm of the project's jobs.

    Each is told when it is done.
    """

    def run(_: object, command: Sequence[str], *, is_change: bool = False) -> CommandOutput:
        cluster = Jobs.of(Path.cwd()).cluster
        return run_in(http, cluster, command, notify, is_change=is_change)

    return run


def run_in(
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
class Jobs:
    """The one job of a project: who gives it its node, until when, and how the node is taken.

    `is_repair`: the node is repaired, once; `is_remade`: by making it anew.
    """

    cluster: str
    is_slurm: bool
    taken_by: str
    until: float
    is_repair: bool = False
    is_remade: bool = False

    @classmethod
    def start(
        cls, platform: Platform, folder: Path, taking: Taking, ids: Mapping[str, str]
    ) -> None:
        """Start the job; `ids` are those of the nodes or of the cluster in the state, by name."""
        if taking.kind is CLUSTER:
            (cluster,) = ids.values()
            taken_by = cluster
            taking.break_node(platform, cluster)
        else:
            body = {**CLUSTER.good, "num_gpus": 32, **taking.cluster}
            created_cluster = platform.send(CLUSTER, Request("POST", "/compute/clusters", body))
            cluster, taken_by = created_cluster["cluster_id"], ids[taking.node].rpartition("/")[2]
            taking.break_node(platform, taken_by)
            platform.advance(7200)
            (folder / _KUBECONFIG).write_text(_fetch_kubeconfig(platform, cluster))
        is_slurm = bool(taking.cluster)
        if is_slurm:
            job = {"name": "train", "nodes": [taking.node], "runs_for": SECONDS}
            path = f"/_emulator/slurm/{cluster}/jobs"
        else:
            job = {"name": "train", "namespace": "ml", "node": taking.node, "runs_for": SECONDS}
            path = f"/_emulator/kubernetes/{cluster}/pods"
        platform.http.post(path, json=job).raise_for_status()
        now = float(platform.http.get("/_emulator/clock").json()["now"])
        record = {"cluster": cluster, "is_slurm": is_slurm, "taken_by": taken_by}
        record["is_repair"] = bool(taking.broken) and taking.kind is CLUSTER
        record["is_remade"] = taking.broken == "failed"
        (folder / JOB).write_text(json.dumps({**record, "until": now + SECONDS}))

    @classmethod
    def of(cls, folder: Path) -> "Jobs":
        return cls(**json.loads((folder / JOB).read_text()))

    def assert_unharmed(self, platform: Platform) -> None:
        """Check that no removal preceded the job's end; remaining nodes are schedulable."""
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
            nodes = self._scheduler(platform).list_nodes()
            cordoned = [node.name for node in nodes if node.is_cordoned]
            assert not cordoned, f"still cordoned: {cordoned}"

        if self.is_repair:
            assert self._repairs(platform) == ["SUCCEEDED"]
        if self.is_remade:
            deleted = {
                str(request["body"]) for request in requests if request["method"] == "DELETE"
            }
            assert len(deleted) == 1, f"not one node was taken: {deleted}"
            assert self.taken_by in deleted.pop()

    def _repairs(self, platform: Platform) -> list[str]:
        """Return the states of all requested or proposed repairs."""
        cluster_answer = platform.send(CLUSTER, Request("GET", f"/compute/clusters/{self.cluster}"))
        nodes = [*cluster_answer["gpu_worker_nodes"], *cluster_answer["deleted_gpu_worker_nodes"]]
        remediations = []
        for node in nodes:
            path = f"/compute/clusters/{self.cluster}/instances/{node['instance_id']}/remediations"
            remediations += platform.send(CLUSTER, Request("GET", path))["remediations"]
        return [item["state"] for item in remediations]

    def _exists(self, platform: Platform) -> bool:
        return self.cluster in platform.ids(CLUSTER)

    def _scheduler(self, platform: Platform) -> Scheduler:
        kubeconfig = _fetch_kubeconfig(platform, self.cluster)
        if self.is_slurm:
            return create_slurm_scheduler(SlurmInputs(), kubeconfig=kubeconfig, cluster="train")
        return KubernetesScheduler(get_kubernetes_client(kubeconfig, "train"))


def ids_of(entry: ResourceState) -> dict[str, str]:
    """Return the ids of a pool's nodes by name, or the id of the object."""
    nodes = unwrap_secrets(entry.outputs.get("gpu_nodes"))
    if isinstance(nodes, Mapping):
        return {node["gpu_node_name"]: node["id"] for node in nodes.values()}
    name = entry.outputs.get("gpu_node_name") or entry.outputs.get("node_id")
    return {str(name): entry.id}


def _fetch_kubeconfig(platform: Platform, cluster: str) -> str:
    cluster_answer = platform.send(CLUSTER, Request("GET", f"/compute/clusters/{cluster}"))
    return base64.b64decode(cluster_answer["kube_config"]).decode()

"""Whether the workers of a cluster can be used, as its own Kubernetes and Slurm say.

Together calls a cluster Ready by its machines. That a kubelet is silent, or that Slurm has a node
down, only the schedulers know (Together reference, 'Monitoring': `kubectl get nodes`, `sinfo`).
A look is one request to Kubernetes, and one command of Slurm where it is one of Slurm; nothing is
sent again, for what they say is beside what the platform says.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpuform.providers.context import PollResult, ProviderContext, get_current_context
from gpuform.providers.draining import answered
from gpuform.providers.errors import Cancelled, GpuformError
from gpuform.providers.kubernetes.client import client_by
from gpuform.providers.kubernetes.nodes import (
    NodeState,
    node_states,
    time_within,
    unix_time,
)
from gpuform.providers.lifetime import written
from gpuform.providers.slurm import Node, slurm_scheduler
from gpuform.providers.together.cluster_view import (
    ObservedCluster,
    decode_kube_config,
    is_preemptible,
    list_live_workers,
)
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.schemas.slurm import SlurmInputs
from gpuform.schemas.together import wire
from gpuform.schemas.together.statuses import ClusterStatus

PATIENCE: Final = 900.0
"""Seconds in which a worker that is not Ready may become so: it may only be starting anew."""

MISSING: Final = "missing"
_CORDONED: Final = "Ready, cordoned"
_DRAINED: Final = "drained"
_SHOWN: Final = 3
_LONGEST: Final = 200
_ASKED: Final = (ClusterStatus.READY, ClusterStatus.DEGRADED)


@dataclass(frozen=True, slots=True)
class Workers:
    """What the schedulers say, by host name, in the words of the outputs.

    `failing` has a sentence for each that cannot be used, and `since` when that began, where it is
    told. `unasked` says who could not be asked.
    """

    kubernetes: Mapping[str, str]
    slurm: Mapping[str, str]
    failing: Mapping[str, str] = field(default_factory=dict)
    since: Mapping[str, str] = field(default_factory=dict)
    unasked: str = ""

    def can_use(self, name: str) -> bool:
        """Whether every scheduler that was asked can give it jobs, or could if nobody forbade."""
        told = (self.kubernetes.get(name), self.slurm.get(name))
        return name in self.kubernetes and name not in self.failing and MISSING not in told


def with_workers(
    call: ProviderContext, seen: ObservedCluster, cluster: wire.Cluster, slurm: SlurmInputs
) -> ObservedCluster:
    """What was seen of a cluster, with what its schedulers say of the workers.

    A cluster is not ready while a worker is not. Without an answer it is as the platform says, and
    `call` hears which look was not made.
    """
    if cluster.status not in _ASKED or not cluster.kube_config:
        return seen
    found = look_at_workers(call, cluster, slurm)
    if found.unasked:
        call.on_skipped_check(f"workers of cluster {cluster.cluster_name}: {found.unasked}")
    return replace(seen, outputs=_outputs(seen, found, call))


def waited_for(
    look: PollResult[ObservedCluster], found: Workers, waited: float
) -> PollResult[ObservedCluster]:
    """A look of somebody who has `waited` so many seconds for workers alone."""
    value = replace(look.value, outputs=_outputs(look.value, found, get_current_context()))
    if not found.failing:
        return replace(look, value=value)
    reason = _text([*found.failing.values()])
    failed = None
    if waited >= PATIENCE:
        failed = f"{reason}; look at it with kubectl, and repair it: `gpuform repair`"
    return PollResult(value, f"{look.phase}, but {reason}", failure=failed)


def look_at_workers(call: ProviderContext, cluster: wire.Cluster, slurm: SlurmInputs) -> Workers:
    """Asks both; one that cannot be asked does not keep the other from it. Raises Cancelled."""
    workers = list_live_workers(cluster)
    kube_config = decode_kube_config(cluster.kube_config.get_secret_value()) or ""
    name, unasked = cluster.cluster_name, []
    nodes: Mapping[str, NodeState] = {}
    in_slurm: Mapping[str, Node] = {}
    try:
        nodes = answered(call, lambda: node_states(client_by(kube_config, name)))
        if workers and not any(each.host_name in nodes for each in workers):
            nodes, text = {}, "Kubernetes has no node with the name of any of them"
            unasked.append(text)
    except Cancelled:
        raise
    except GpuformError as error:
        unasked.append(f"Kubernetes could not be asked: {_line(error)}")
    if cluster.cluster_type == "SLURM" and (nodes or slurm.via != "exec"):
        try:
            scheduler = slurm_scheduler(slurm, kubeconfig=kube_config, cluster=name)
            in_slurm = answered(call, scheduler.states)
        except Cancelled:
            raise
        except GpuformError as error:
            unasked.append(f"Slurm could not be asked: {_line(error)}")
    return _workers(workers, nodes, in_slurm, "; ".join(unasked))


def worker_notices(seen: Mapping[str, Any]) -> Iterator[Notice]:
    """What there is to know of workers by outputs, beside why the cluster is not ready."""
    told = seen.get("gpu_worker_nodes")
    for node in told if isinstance(told, list) else ():
        name = node.get("host_name") or node.get("node_id")
        if node.get("kubernetes") == _CORDONED:
            yield _notice(f"worker {name} takes no new pods: it is cordoned in Kubernetes")
        if node.get("kubernetes") == MISSING:
            yield _notice(f"worker {name} is no node of its Kubernetes")
        in_slurm = str(node.get("slurm") or "")
        if in_slurm.startswith(_DRAINED):
            yield _notice(f"worker {name} takes no new jobs: it is {in_slurm} in Slurm")
        if in_slurm == MISSING:
            yield _notice(f"worker {name} is no node of its Slurm")
    if seen.get("workers_not_asked"):
        yield _notice(f"its workers could not be looked at: {seen['workers_not_asked']}")


def has_failing_workers(seen: Mapping[str, Any]) -> bool:
    """Whether a worker of these outputs could not be used when it was last seen."""
    told = seen.get("gpu_worker_nodes")
    nodes = told if isinstance(told, list) else []
    return any(
        str(node.get("kubernetes") or "").startswith("NotReady")
        or str(node.get("slurm") or "").startswith("unusable")
        for node in nodes
    )


def _workers(
    workers: Sequence[wire.GpuWorkerNode],
    nodes: Mapping[str, NodeState],
    in_slurm: Mapping[str, Node],
    unasked: str,
) -> Workers:
    kubernetes: dict[str, str] = {}
    slurm: dict[str, str] = {}
    failing: dict[str, str] = {}
    since: dict[str, str] = {}
    for worker in workers:
        name = worker.host_name
        node, other = nodes.get(name), in_slurm.get(worker.slurm_worker_hostname or name)
        if nodes:
            kubernetes[name] = _in_kubernetes(node)
        if in_slurm:
            slurm[name] = _in_slurm(other)
        if is_preemptible(worker):
            continue  # it may be on its way out, which is no failure
        if node is not None and not node.is_ready:
            failing[name] = f"worker {name} is NotReady in Kubernetes: {_short(node.trouble)}"
            since[name] = _since(worker, node)
        elif other is not None and other.is_failed:
            failing[name] = f"worker {name} cannot be used by Slurm: {_trouble(other)}"
    return Workers(kubernetes, slurm, failing, since, unasked)


def _since(worker: wire.GpuWorkerNode, node: NodeState) -> str:
    """Return since when a node is not Ready, if that is in the time of this very machine."""
    phases = [unix_time(each.transition_time) for each in worker.phase_transitions]
    began = min((moment for moment in phases if moment is not None), default=0.0)
    return time_within(node.since, began, math.inf)


def _in_kubernetes(node: NodeState | None) -> str:
    if node is None:
        return MISSING
    if not node.is_ready:
        return f"NotReady: {_short(node.trouble)}"
    return _CORDONED if node.is_cordoned else "Ready"


def _in_slurm(node: Node | None) -> str:
    if node is None:
        return MISSING
    if node.is_failed:
        return f"unusable: {_trouble(node)}"
    if node.is_drained:
        return f"{_DRAINED} ({_short(node.reason)})" if node.reason else _DRAINED
    return "usable"


def _trouble(node: Node) -> str:
    return f"{node.trouble} ({_short(node.reason)})" if node.reason else node.trouble


def _outputs(seen: ObservedCluster, found: Workers, call: ProviderContext) -> Any:
    outputs, before = seen.outputs, _unusable(call.stored_properties)
    moment = call.clock.now()
    now = written(moment)
    nodes = [
        each.model_copy(
            update={
                "kubernetes": found.kubernetes.get(each.host_name),
                "slurm": found.slurm.get(each.host_name),
                # Nobody tells, or not of this machine: it is as long as we have seen it.
                "unusable_since": (
                    found.since.get(each.host_name)
                    or time_within(before.get((each.host_name, each.instance_id)), 0.0, moment)
                    or now
                    if each.host_name in found.failing
                    else None
                ),
            }
        )
        for each in outputs.gpu_worker_nodes
    ]
    told: dict[str, Any] = {
        "gpu_worker_nodes": nodes,
        "workers_not_asked": found.unasked or None,
    }
    if outputs.ready and found.failing:
        reason = _text([*found.failing.values()])
        told |= {"ready": False, "not_ready_reason": reason}
    return outputs.model_copy(update=told)


def _unusable(seen: Mapping[str, Any]) -> dict[tuple[str, str | None], str]:
    """Return since when each worker of these outputs could not be used, by name and machine."""
    told = seen.get("gpu_worker_nodes")
    nodes = told if isinstance(told, list) else []
    return {
        (str(node.get("host_name")), node.get("instance_id")): str(node["unusable_since"])
        for node in nodes
        if node.get("unusable_since")
    }


def _text(failing: Sequence[str]) -> str:
    more = len(failing) - _SHOWN
    return "; ".join([*failing[:_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def _notice(text: str) -> Notice:
    return Notice(kind=NoticeKind.WORKERS, text=text)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _line(error: GpuformError) -> str:
    return " ".join(error.message.split())

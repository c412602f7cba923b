"""Read from a cluster's own Kubernetes and Slurm whether its workers can be used.

The operations of a cluster (`cluster`) and its repairs (`repairing`) call this module. Together
calls a cluster Ready by its machines. Only the schedulers know that a kubelet is silent or that
Slurm has a node down (document 003, "Monitoring": `kubectl get nodes`, `sinfo`).

One read is one request to Kubernetes, and one command of Slurm for a cluster of type SLURM. Nothing
is repeated after a failure: the schedulers only add to what the platform reports.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpuform.providers.context import PollResult, ProviderContext
from gpuform.providers.draining import call_interruptibly
from gpuform.providers.errors import Cancelled, GpuformError
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.kubernetes.scheduler import (
    KubernetesNodeState,
    accept_time_between,
    list_node_states,
    parse_time,
)
from gpuform.providers.lifetime import format_moment
from gpuform.providers.slurm.parsing import SlurmNode
from gpuform.providers.slurm.scheduler import create_slurm_scheduler
from gpuform.providers.together.cluster_view import (
    ObservedCluster,
    decode_kube_config,
    is_preemptible,
    list_live_workers,
)
from gpuform.schemas.policies.drain import SlurmInputs
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.schemas.together import wire
from gpuform.schemas.together.outputs import ClusterStatus

READY_TIMEOUT_S: Final = 900.0
"""Seconds in which a worker that is not Ready may become so: it may only be restarting."""

MISSING: Final = "missing"
_CORDONED: Final = "Ready, cordoned"
_DRAINED: Final = "drained"
_MAX_LISTED_FAILURES: Final = 3
_MAX_REASON_LENGTH: Final = 200
_STATUSES_WITH_SCHEDULERS: Final = (ClusterStatus.READY, ClusterStatus.DEGRADED)


@dataclass(frozen=True, slots=True)
class WorkerStates:
    """What the schedulers report of the workers, by host name.

    `kubernetes` and `slurm` have the words of the outputs. `failures` has a sentence for each
    worker that cannot be used, and `failing_since` when that began, where a scheduler reports the
    time. `unreachable` names the schedulers that did not answer, and why.
    """

    kubernetes: Mapping[str, str]
    slurm: Mapping[str, str]
    failures: Mapping[str, str] = field(default_factory=dict)
    failing_since: Mapping[str, str] = field(default_factory=dict)
    unreachable: str = ""

    def can_use(self, name: str) -> bool:
        """Return True if every scheduler can give the worker jobs, cordons aside.

        False for a worker that Kubernetes was not asked about.
        """
        states = (self.kubernetes.get(name), self.slurm.get(name))
        return name in self.kubernetes and name not in self.failures and MISSING not in states


def add_worker_states(
    context: ProviderContext, observed: ObservedCluster, cluster: wire.Cluster, slurm: SlurmInputs
) -> ObservedCluster:
    """Return an observed cluster with the state of each worker in the schedulers.

    The cluster is not ready while a worker cannot be used. Without a kubeconfig, or in a status
    without running schedulers, nothing is asked or changed. A scheduler that does not answer is
    reported to `context.on_skipped_check`.
    """
    if cluster.status not in _STATUSES_WITH_SCHEDULERS or not cluster.kube_config:
        return observed
    states = read_worker_states(context, cluster, slurm)
    if states.unreachable:
        context.on_skipped_check(
            f"the workers of cluster {cluster.cluster_name}: {states.unreachable}"
        )
    return replace(observed, outputs=_build_outputs(observed, states, context))


def add_workers_to_poll(
    context: ProviderContext,
    poll: Callable[[], PollResult[ObservedCluster]],
    last_cluster: Sequence[wire.Cluster],
    slurm: SlurmInputs,
) -> Callable[[], PollResult[ObservedCluster]]:
    """Return `poll`, or a poll which also waits for the workers if workers were unusable before.

    Such a poll fails once only workers have been missing for `READY_TIMEOUT_S`. `last_cluster` has
    the cluster that `poll` read last.
    """
    if not _has_failing_workers(context.stored_properties):
        return poll
    polled_since: list[float] = []

    def poll_workers_too() -> PollResult[ObservedCluster]:
        poll_result = poll()
        if not poll_result.is_done:
            return poll_result
        states = read_worker_states(context, last_cluster[0], slurm)
        # the time counts from the moment when only the workers are missing
        polled_since[:] = polled_since or [context.clock.now()]
        outputs = _build_outputs(poll_result.value, states, context)
        value = replace(poll_result.value, outputs=outputs)
        if not states.failures:
            return replace(poll_result, value=value)
        reason = _join_failures([*states.failures.values()])
        failure = None
        if context.clock.now() - polled_since[0] >= READY_TIMEOUT_S:
            failure = f"{reason}; look at the node with kubectl; to repair it, run `gpuform repair`"
        return PollResult(value, f"{poll_result.phase}, but {reason}", failure=failure)

    return poll_workers_too


def read_worker_states(
    context: ProviderContext, cluster: wire.Cluster, slurm: SlurmInputs
) -> WorkerStates:
    """Return the workers' states in Kubernetes and, for a cluster of type SLURM, in Slurm.

    A scheduler that cannot be asked, and a Kubernetes without any of the workers, is named in
    `unreachable`. A Slurm that is reached through Kubernetes is not asked if Kubernetes has failed.

    Raises:
        Cancelled: the run was interrupted.
    """
    workers = list_live_workers(cluster)
    kube_config = decode_kube_config(cluster.kube_config.get_secret_value()) or ""
    cluster_name, unreachable = cluster.cluster_name, []
    nodes: Mapping[str, KubernetesNodeState] = {}
    slurm_nodes: Mapping[str, SlurmNode] = {}
    try:
        nodes = call_interruptibly(
            context, lambda: list_node_states(get_kubernetes_client(kube_config, cluster_name))
        )
        if workers and not any(worker.host_name in nodes for worker in workers):
            # a kubeconfig of another cluster would otherwise show every worker as missing
            nodes, mismatch = {}, "Kubernetes has no node with the name of any worker"
            unreachable.append(mismatch)
    except Cancelled:
        raise
    except GpuformError as error:
        unreachable.append(f"Kubernetes did not answer: {_to_single_line(error)}")
    # through `exec` Slurm is reached by a pod: without Kubernetes there is no way
    if cluster.cluster_type == "SLURM" and (nodes or slurm.via != "exec"):
        try:
            scheduler = create_slurm_scheduler(slurm, kubeconfig=kube_config, cluster=cluster_name)
            slurm_nodes = call_interruptibly(context, scheduler.get_nodes_by_name)
        except Cancelled:
            raise
        except GpuformError as error:
            unreachable.append(f"Slurm did not answer: {_to_single_line(error)}")
    return _build_worker_states(workers, nodes, slurm_nodes, "; ".join(unreachable))


def find_worker_notices(outputs: Mapping[str, Any]) -> Iterator[Notice]:
    """Yield notices about workers cordoned, drained or missing in a scheduler, by the outputs.

    One more notice names the schedulers that did not answer. NotReady and unusable workers have
    no notice here.
    """
    reported_workers = outputs.get("gpu_worker_nodes")
    for node in reported_workers if isinstance(reported_workers, list) else ():
        name = node.get("host_name") or node.get("node_id")
        if node.get("kubernetes") == _CORDONED:
            yield _build_notice(f"worker {name} takes no new pods: it is cordoned in Kubernetes")
        if node.get("kubernetes") == MISSING:
            yield _build_notice(f"worker {name} is not a node of its Kubernetes")
        in_slurm = str(node.get("slurm") or "")
        if in_slurm.startswith(_DRAINED):
            yield _build_notice(f"worker {name} takes no new jobs: it is {in_slurm} in Slurm")
        if in_slurm == MISSING:
            yield _build_notice(f"worker {name} is not a node of its Slurm")
    if outputs.get("workers_not_asked"):
        yield _build_notice(f"the state of its workers is unknown: {outputs['workers_not_asked']}")


def _has_failing_workers(outputs: Mapping[str, Any]) -> bool:
    """Return True if a worker in the outputs is NotReady in Kubernetes or unusable in Slurm."""
    reported_workers = outputs.get("gpu_worker_nodes")
    nodes = reported_workers if isinstance(reported_workers, list) else []
    return any(
        str(node.get("kubernetes") or "").startswith("NotReady")
        or str(node.get("slurm") or "").startswith("unusable")
        for node in nodes
    )


def _build_worker_states(
    workers: Sequence[wire.GpuWorkerNode],
    nodes: Mapping[str, KubernetesNodeState],
    slurm_nodes: Mapping[str, SlurmNode],
    unreachable: str,
) -> WorkerStates:
    """Combine the schedulers' nodes to the states and failures of the workers.

    An empty `nodes` or `slurm_nodes` means that the scheduler was not read. A failure is NotReady
    in Kubernetes, or unusable in Slurm; a missing worker is none. A preemptible worker has a state,
    but never a failure.
    """
    kubernetes: dict[str, str] = {}
    slurm: dict[str, str] = {}
    failures: dict[str, str] = {}
    failing_since: dict[str, str] = {}
    for worker in workers:
        name = worker.host_name
        node, slurm_node = nodes.get(name), slurm_nodes.get(worker.slurm_worker_hostname or name)
        if nodes:
            kubernetes[name] = _describe_kubernetes_state(node)
        if slurm_nodes:
            # an outage of Slurm must not show every worker as missing there
            slurm[name] = _describe_slurm_state(slurm_node)
        if is_preemptible(worker):
            continue  # it may be on its way out, which is no failure
        if node is not None and not node.is_ready:
            failures[name] = (
                f"worker {name} is NotReady in Kubernetes: {_cut_reason(node.not_ready_reason)}"
            )
            failing_since[name] = _find_failing_since(worker, node)
        elif slurm_node is not None and slurm_node.is_failed:
            failures[name] = (
                f"Slurm cannot use worker {name}: {_describe_slurm_trouble(slurm_node)}"
            )
    return WorkerStates(kubernetes, slurm, failures, failing_since, unreachable)


def _find_failing_since(worker: wire.GpuWorkerNode, node: KubernetesNodeState) -> str:
    """Return when the node stopped being Ready; empty for a time before this machine."""
    phase_times = [
        parse_time(transition.transition_time) for transition in worker.phase_transitions
    ]
    first_phase_at = min(
        (phase_time for phase_time in phase_times if phase_time is not None), default=0.0
    )
    return accept_time_between(node.not_ready_since, first_phase_at, math.inf)


def _describe_kubernetes_state(node: KubernetesNodeState | None) -> str:
    """Return a worker's state in Kubernetes: missing, NotReady with reason, cordoned or Ready.

    None is a worker that Kubernetes does not have.
    """
    if node is None:
        return MISSING
    if not node.is_ready:
        return f"NotReady: {_cut_reason(node.not_ready_reason)}"
    return _CORDONED if node.is_cordoned else "Ready"


def _describe_slurm_state(node: SlurmNode | None) -> str:
    """Return a worker's state in Slurm: missing, unusable or drained with reason, or usable.

    None is a worker that Slurm does not have.
    """
    if node is None:
        return MISSING
    if node.is_failed:
        return f"unusable: {_describe_slurm_trouble(node)}"
    if node.is_drained:
        return f"{_DRAINED} ({_cut_reason(node.reason)})" if node.reason else _DRAINED
    return "usable"


def _describe_slurm_trouble(node: SlurmNode) -> str:
    """Return Slurm's states of an unusable node, with the reason in brackets if there is one."""
    return (
        f"{node.unusable_states} ({_cut_reason(node.reason)})"
        if node.reason
        else node.unusable_states
    )


def _build_outputs(
    observed: ObservedCluster, states: WorkerStates, context: ProviderContext
) -> Any:
    """Return the cluster's outputs with the workers' states; not ready while one has a failure.

    A failure keeps the start time of the stored outputs for the same machine.
    """
    outputs, earlier_failing_since = (
        observed.outputs,
        _collect_unusable_since(context.stored_properties),
    )
    read_at = context.clock.now()
    read_at_text = format_moment(read_at)
    nodes = [
        worker.model_copy(
            update={
                "kubernetes": states.kubernetes.get(worker.host_name),
                "slurm": states.slurm.get(worker.host_name),
                # Without a time from the scheduler or from an earlier read of this machine, the
                # failure counts from now.
                "unusable_since": (
                    states.failing_since.get(worker.host_name)
                    or accept_time_between(
                        earlier_failing_since.get((worker.host_name, worker.instance_id)),
                        0.0,
                        read_at,
                    )
                    or read_at_text
                    if worker.host_name in states.failures
                    else None
                ),
            }
        )
        for worker in outputs.gpu_worker_nodes
    ]
    changed_outputs: dict[str, Any] = {
        "gpu_worker_nodes": nodes,
        "workers_not_asked": states.unreachable or None,
    }
    if outputs.ready and states.failures:
        reason = _join_failures([*states.failures.values()])
        changed_outputs |= {"ready": False, "not_ready_reason": reason}
    return outputs.model_copy(update=changed_outputs)


def _collect_unusable_since(outputs: Mapping[str, Any]) -> dict[tuple[str, str | None], str]:
    """Return the start of each worker's failure, by name and machine."""
    reported_workers = outputs.get("gpu_worker_nodes")
    nodes = reported_workers if isinstance(reported_workers, list) else []
    return {
        (str(node.get("host_name")), node.get("instance_id")): str(node["unusable_since"])
        for node in nodes
        if node.get("unusable_since")
    }


def _join_failures(failures: Sequence[str]) -> str:
    """Join the first `_MAX_LISTED_FAILURES` failures, and say how many more there are."""
    omitted_count = len(failures) - _MAX_LISTED_FAILURES
    return "; ".join(
        [
            *failures[:_MAX_LISTED_FAILURES],
            *([f"and {omitted_count} more"] if omitted_count > 0 else []),
        ]
    )


def _build_notice(message: str) -> Notice:
    """Build a notice about a cluster's workers."""
    return Notice(kind=NoticeKind.WORKERS, text=message)


def _cut_reason(reason: str) -> str:
    """Cut a reason to `_MAX_REASON_LENGTH` characters, with an ellipsis."""
    return reason if len(reason) <= _MAX_REASON_LENGTH else f"{reason[:_MAX_REASON_LENGTH]}..."


def _to_single_line(error: GpuformError) -> str:
    """Return the error's message in one line."""
    return " ".join(error.message.split())

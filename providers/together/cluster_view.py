"""Read a Together cluster as outputs, and say whether it accepts work and how far credit has run
out.

Statuses and the meaning of Ready are from the Together reference and the platform's SDK; there is
no "Failed" status, so failure is read from phases and nodes.

The reference names the parameters of the tests; their course is told by the phases of the cluster
alone (the platform's SDK): no figure, and no node by itself.

Reserved compute runs until its end; compute on demand is paused, then decommissioned; access to
storage is revoked in the end.
"""

import base64
import binascii
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from gpuform.providers.context import PollResult
from gpuform.providers.operations import Observed
from gpuform.providers.together.repairs import proposals, remediation_of
from gpuform.schemas.models import WireModel
from gpuform.schemas.policies.certification import CategoryResult
from gpuform.schemas.resource_facts import Credit, CreditState
from gpuform.schemas.together import wire
from gpuform.schemas.together.drivers import driver_name, driver_pair
from gpuform.schemas.together.outputs import ClusterOutputs
from gpuform.schemas.together.statuses import (
    CLUSTER_FAILED,
    CLUSTER_READY,
    CLUSTER_STUCK,
    FAILED_CLUSTER_PHASES,
    FAILED_NODE_PHASES,
    PAUSED_PHASES,
    ClusterStatus,
    VolumeStatus,
    unix_time,
)

_TESTS: Final = {
    "CLUSTER_PHASE_RUNNING_ACCEPTANCE_TESTS": "acceptance/tests",
    "CLUSTER_PHASE_RUNNING_NCCL_TESTS": "acceptance/nccl",
}
"""The phase of each test -> what the result is called."""
_PASSED: Final = frozenset({*_TESTS, "CLUSTER_PHASE_READY"})
"""The phases that follow a test that has passed; after another one nobody knows."""


def acceptance_results(
    cluster: wire.Cluster, workers: Sequence[wire.GpuWorkerNode]
) -> list[CategoryResult]:
    """The last result of each test that has ended, over the workers that were there by then."""
    dated = [each for each in cluster.phase_transitions if unix_time(each.transition_time)]
    phases = sorted(dated, key=lambda each: unix_time(each.transition_time) or 0.0)
    found: dict[str, CategoryResult] = {}
    for begun, ended in pairwise(phases):
        category = _TESTS.get(begun.phase)
        if category is not None:
            found[category] = CategoryResult(
                category=category,
                nodes=[each.host_name for each in workers if _was_there(each, ended)],
                passed=ended.phase in _PASSED,
                at=ended.transition_time,
            )
    return list(found.values())


def is_accepted(values: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    """Whether the tests are declared, and prove all workers of these outputs.

    Of a cluster that is not there yet they will, or it never becomes ready.
    """
    declared = values.get("acceptance_tests_params")
    if not isinstance(declared, Mapping) or declared.get("enabled") is not True:
        return False
    if not seen:
        return True
    results = [CategoryResult.model_validate(each) for each in seen.get("acceptance") or ()]
    workers = {str(each.get("host_name")) for each in seen.get("gpu_worker_nodes") or ()}
    return bool(results) and all(each.passed and workers <= {*each.nodes} for each in results)


def _was_there(worker: wire.GpuWorkerNode, ended: wire.PhaseTransition) -> bool:
    """Whether a worker's first phase is older than the end of a test; not so where nobody tells."""
    moments = [unix_time(each.transition_time) for each in worker.phase_transitions]
    first = min((each for each in moments if each is not None), default=None)
    end = unix_time(ended.transition_time)
    return first is not None and end is not None and first <= end


GPUS_PER_NODE: Final = 8

Seen = Observed[ClusterOutputs]


def look_at(
    cluster: wire.Cluster, num_gpus: int, *, may_have_more: bool = False
) -> PollResult[Seen]:
    """A cluster as seen by somebody who waits for `num_gpus` GPUs, or more where it may."""
    nodes, wanted = len(live_workers(cluster)), num_gpus // GPUS_PER_NODE
    is_ready = cluster.status in CLUSTER_READY
    has_nodes = nodes == wanted and cluster.num_gpus == num_gpus
    done = is_ready and (nodes >= wanted if may_have_more else has_nodes)
    phase = cluster.status or "no status"
    if is_ready and not done:
        phase = f"{phase} with {nodes} of {wanted} nodes"
    failed = None if done else _failure(cluster)
    outputs = ClusterOutputs(
        ready=done,
        not_ready_reason=None if done else (failed or phase),
        status=cluster.status,
        placed_region=cluster.region or None,
        placed_gpu_type=cluster.gpu_type or None,
        kube_config=decoded_kube_config(cluster.kube_config.get_secret_value()),
        control_plane_nodes=[each.model_dump() for each in cluster.control_plane_nodes],
        gpu_worker_nodes=[
            {**each.model_dump(), "remediation": remediation_of(each)}
            for each in cluster.gpu_worker_nodes
        ],
        faults=proposals(standard_workers(cluster)),
        acceptance=acceptance_results(cluster, standard_workers(cluster)),
        volumes=[each.model_dump() for each in cluster.volumes],
        driver_version=_driver_version(cluster),
        allocated_preemptible_gpus=cluster.allocated_preemptible_gpus,
        duration_hours=cluster.duration_hours,
        created_at=cluster.created_at,
        first_ready_at=cluster.first_ready_at,
        paused_at=_paused_at(cluster),
        reserved_until=cluster.reservation_end_time,
    )
    return PollResult(Observed(_inputs(cluster), outputs), phase, is_done=done, failure=failed)


def decoded_kube_config(text: str) -> str | None:
    """The kubeconfig's YAML; the platform sends base64, and "" until there is one."""
    if not text:
        return None
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return text


def _inputs(cluster: wire.Cluster) -> dict[str, Any]:
    """What the platform returns of a declaration; "" is what it does not say."""
    cuda, driver = cluster.cuda_version, cluster.nvidia_driver_version
    if cluster.driver_version and not (cuda and driver):
        cuda, driver = driver_pair(cluster.driver_version)
    days = cluster.duration_hours
    has_add_ons = "add_ons" in cluster.model_fields_set
    found = {
        "cluster_name": cluster.cluster_name,
        "region": cluster.region,
        "gpu_type": cluster.gpu_type,
        "num_gpus": cluster.num_gpus or None,
        "cuda_version": cuda,
        "nvidia_driver_version": driver,
        "billing_type": cluster.billing_type,
        "duration_days": days // 24 if days and cluster.billing_type == "RESERVED" else None,
        "cluster_type": cluster.cluster_type,
        "volume_id": cluster.volumes[0].volume_id if cluster.volumes else None,
        "capacity_pool_id": cluster.capacity_pool_id,
        "num_capacity_pool_gpus": cluster.num_capacity_pool_gpus,
        "num_preemptible_gpus": cluster.desired_preemptible_gpus,
        "num_reserved_gpus": cluster.num_reserved_gpus,
        "reservation_start_time": cluster.reservation_start_time,
        "reservation_end_time": cluster.reservation_end_time,
        "project_id": cluster.project_id,
        "install_traefik": cluster.install_traefik,
        "oidc_config": _dumped(cluster.oidc_config),
        "cluster_config": _dumped(cluster.cluster_config),
        "add_ons": [_dumped(each) for each in cluster.add_ons] if has_add_ons else None,
        "slurm_shm_size_gib": cluster.slurm_shm_size_gib,
    }
    return {name: None if value == "" else value for name, value in found.items()}


def _dumped(part: WireModel | None) -> dict[str, Any] | None:
    return None if part is None else part.model_dump(exclude_none=True)


def is_elastic(declared: Mapping[str, Any], cluster: wire.Cluster) -> bool:
    """Whether the platform changes the number of nodes by itself.

    Preemptible nodes come and go beside the standard ones that num_gpus counts (Together docs,
    'Preemptible compute').
    """
    return bool(
        declared.get("auto_scale")
        or declared.get("num_preemptible_gpus")
        or cluster.desired_preemptible_gpus
        or cluster.allocated_preemptible_gpus
    )


def explains(known: Mapping[str, Any], cluster: wire.Cluster) -> bool:
    """Whether the platform's own doing explains its GPU count, given the declared one."""
    declared = known.get("num_gpus")
    if declared is None:
        return False
    coming = max(cluster.desired_preemptible_gpus or 0, cluster.allocated_preemptible_gpus)
    most = declared + coming
    if known.get("auto_scale"):
        most = max(most, (known.get("auto_scale_max_gpus") or math.inf) + coming)
    return bool(declared <= cluster.num_gpus <= most)


def live_workers(cluster: wire.Cluster) -> list[wire.GpuWorkerNode]:
    """Those that are not on their way out."""
    return [
        node
        for node in cluster.gpu_worker_nodes
        if not (node.deleted_at or node.marked_for_deletion)
    ]


def standard_workers(cluster: wire.Cluster) -> list[wire.GpuWorkerNode]:
    """Those that num_gpus counts; preemptible ones come and go by themselves."""
    return [node for node in live_workers(cluster) if not is_preemptible(node)]


def is_preemptible(node: wire.GpuWorkerNode) -> bool:
    """Whether it may be taken back: its name says so (Together docs, 'Preemptible compute')."""
    return "preemptible" in node.host_name


def _failure(cluster: wire.Cluster) -> str | None:
    """Why the cluster will not become Ready by itself, if so."""
    if cluster.status in CLUSTER_FAILED:
        return CLUSTER_STUCK.get(cluster.status, f"its status is {cluster.status}")
    if _last_phase(cluster.phase_transitions) in FAILED_CLUSTER_PHASES:
        return f"it is in {_last_phase(cluster.phase_transitions)}"
    nodes: tuple[wire.ControlPlaneNode | wire.GpuWorkerNode, ...]
    nodes = (*cluster.control_plane_nodes, *cluster.gpu_worker_nodes)
    for node in nodes:
        if _last_phase(node.phase_transitions) in FAILED_NODE_PHASES:
            return f"its node {node.host_name or node.node_id} failed"
    return None


def _last_phase(transitions: Sequence[wire.PhaseTransition]) -> str:
    last = _last(transitions)
    return last.phase if last else ""


def _last(transitions: Iterable[wire.PhaseTransition]) -> wire.PhaseTransition | None:
    return max(transitions, key=lambda each: unix_time(each.transition_time) or 0, default=None)


def _paused_at(cluster: wire.Cluster) -> str | None:
    """When the phase began that a pause is told by; None for what is not paused."""
    phase = PAUSED_PHASES.get(cluster.status)
    last = _last(each for each in cluster.phase_transitions if each.phase == phase)
    return last.transition_time if last else None


def _driver_version(cluster: wire.Cluster) -> str | None:
    try:
        return driver_name(cluster.cuda_version, cluster.nvidia_driver_version)
    except ValueError:
        return cluster.driver_version or None


_PAUSED: Final = (ClusterStatus.ON_DEMAND_COMPUTE_PAUSED, ClusterStatus.PAUSED)


def cluster_credit(values: Mapping[str, Any], seen: Mapping[str, Any]) -> Credit | None:
    """Of a cluster of these inputs and outputs; None where nothing is known of it."""
    status, until = seen.get("status"), str(seen.get("reserved_until") or "")
    is_reserved = values.get("billing_type") in ("RESERVED", "SCHEDULED_CAPACITY")
    end = f"until {until}" if until else "until the end of its reservation"
    if status not in _PAUSED:
        if is_reserved:
            return Credit(state=CreditState.RUNS, text=f"is reserved and runs {end}", at=until)
        return Credit(state=CreditState.RUNS, next="is paused") if status else None
    since = str(seen.get("paused_at") or "")
    told = f"since {since}" if since else "since a moment that Together does not tell"
    if status == ClusterStatus.PAUSED:
        text = f"no credit is left: it has been paused {told}"
    else:
        text = f"no credit is left: its on-demand compute has been paused {told}"
        text += f"; what is reserved of it runs {end}" if is_reserved else ""
    what = "its on-demand compute is decommissioned"
    return Credit(state=CreditState.STOPPED, text=text, at=since, next=what)


def volume_credit(seen: Mapping[str, Any]) -> Credit | None:
    """Of a volume of these outputs."""
    status = seen.get("status")
    if status == VolumeStatus.ACCESS_REVOKED:
        text = "no credit is left: access to its data has been revoked"
        return Credit(state=CreditState.REVOKED, text=text)
    return Credit(state=CreditState.RUNS, next="access to its data is revoked") if status else None

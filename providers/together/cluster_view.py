"""Together's GPU cluster as it is seen: outputs, the inputs that the platform returns, and Ready.

Statuses and the meaning of Ready are from the Together reference and the platform's SDK; there is
no "Failed" status, so failure is read from phases and nodes.
"""

import base64
import binascii
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gpuform.providers.actions import Observed
from gpuform.providers.calls import Look
from gpuform.providers.together.acceptance import acceptance_results
from gpuform.providers.together.repairs import proposals, remediation_of
from gpuform.schemas.models import WireModel
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
)
from gpuform.schemas.together.timestamps import unix_time

GPUS_PER_NODE: Final = 8

Seen = Observed[ClusterOutputs]


def look_at(cluster: wire.Cluster, num_gpus: int, *, may_have_more: bool = False) -> Look[Seen]:
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
    return Look(Observed(_inputs(cluster), outputs), phase, done=done, failed=failed)


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

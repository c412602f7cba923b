"""Convert a Together cluster to inputs and outputs, and judge how ready and how paid it is.

Every module of this package that reads a cluster calls this one; it sends no request.

Statuses and the meaning of Ready are from the API reference and the platform's SDK. No status means
"failed", so failure is read from phases and nodes.

The reference names the parameters of acceptance tests. Their progress shows in the phases of the
cluster only (the platform's SDK): no figures, and no node by itself.

When credit runs out, reserved compute runs until its end, on-demand compute is paused, then
decommissioned, and access to storage is revoked last (document 003, "Credit Exhaustion").
"""

import base64
import binascii
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from gpuform.providers.context import PollResult
from gpuform.providers.operations import Observed
from gpuform.providers.together.repairs import (
    build_remediation_outputs,
    find_proposed_repairs,
    shorten_to_line,
)
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.models import WireModel
from gpuform.schemas.policies.certification import CategoryResult
from gpuform.schemas.resource_facts import Credit, CreditState, Notice, NoticeKind
from gpuform.schemas.together import wire
from gpuform.schemas.together.cluster_parts import find_ssh_authority
from gpuform.schemas.together.drivers import (
    format_driver_version,
    get_node_gpus,
    is_same_version,
    parse_driver_version,
    parse_operating_system,
)
from gpuform.schemas.together.outputs import (
    FAILED_CLUSTER_PHASES,
    FAILED_CLUSTER_STATUSES,
    FAILED_NODE_PHASES,
    PAUSED_PHASES,
    READY_CLUSTER_STATUSES,
    STUCK_CLUSTER_MESSAGES,
    ClusterOutputs,
    ClusterStatus,
    NodeEventOutputs,
    VolumeStatus,
)
from gpuform.schemas.values import to_unix_time

_CATEGORY_BY_TEST_PHASE: Final = {
    "CLUSTER_PHASE_RUNNING_ACCEPTANCE_TESTS": "acceptance/tests",
    "CLUSTER_PHASE_RUNNING_NCCL_TESTS": "acceptance/nccl",
}
"""Phase of each acceptance test -> category of its result."""
_PHASES_AFTER_PASSED_TEST: Final = frozenset({*_CATEGORY_BY_TEST_PHASE, "CLUSTER_PHASE_READY"})
"""Phases that prove the test before them passed; any other next phase proves nothing."""


def collect_acceptance_results(
    cluster: wire.Cluster, workers: Sequence[wire.GpuWorkerNode]
) -> list[CategoryResult]:
    """Return the last result of each finished acceptance test.

    A result covers the workers that existed when the test ended. No field has a result: the phase
    that follows a test shows whether the test passed.
    """
    dated_transitions = [
        transition
        for transition in cluster.phase_transitions
        if to_unix_time(transition.transition_time)
    ]
    transitions = sorted(
        dated_transitions, key=lambda transition: to_unix_time(transition.transition_time) or 0.0
    )
    result_by_category: dict[str, CategoryResult] = {}
    # no field has a test's result: the phase that follows shows whether it passed
    for begun_phase, next_phase in pairwise(transitions):
        category = _CATEGORY_BY_TEST_PHASE.get(begun_phase.phase)
        if category is not None:
            result_by_category[category] = CategoryResult(
                category=category,
                nodes=[
                    worker.host_name
                    for worker in workers
                    if _was_present_before(worker, next_phase)
                ],
                passed=next_phase.phase in _PHASES_AFTER_PASSED_TEST,
                at=next_phase.transition_time,
            )
    return list(result_by_category.values())


def are_workers_accepted(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> bool:
    """Return True if the declared acceptance tests are enabled and have passed on all workers.

    Every recorded result must have passed and list every worker in the outputs: a worker that
    joined later makes it False, and so do missing results. Without outputs the answer is True as
    soon as the tests are enabled: a new cluster that fails them never becomes Ready.
    """
    tests = inputs.get("acceptance_tests_params")
    if not isinstance(tests, Mapping) or tests.get("enabled") is not True:
        return False
    if not outputs:
        return True
    results = [
        CategoryResult.model_validate(raw_result) for raw_result in outputs.get("acceptance") or ()
    ]
    worker_names = {
        str(worker.get("host_name")) for worker in outputs.get("gpu_worker_nodes") or ()
    }
    # a worker that joined after the test is not covered by it
    return bool(results) and all(
        result.passed and worker_names <= {*result.nodes} for result in results
    )


def _was_present_before(worker: wire.GpuWorkerNode, test_end: wire.PhaseTransition) -> bool:
    """Return True if a worker's first phase is older than the end of a test; False if unknown."""
    phase_times = [
        to_unix_time(transition.transition_time) for transition in worker.phase_transitions
    ]
    first_seen_at = min(
        (phase_time for phase_time in phase_times if phase_time is not None), default=None
    )
    ended_at = to_unix_time(test_end.transition_time)
    return first_seen_at is not None and ended_at is not None and first_seen_at <= ended_at


ObservedCluster = Observed[ClusterOutputs]


def evaluate_cluster(
    cluster: wire.Cluster, num_gpus: int, *, may_have_more: bool = False
) -> PollResult[ObservedCluster]:
    """Return the poll result of a cluster: ready with `num_gpus` GPUs, not yet ready, or failed.

    The value has the inputs and outputs of the cluster in each case.

    Args:
        cluster: the cluster as the platform reports it.
        num_gpus: the number of GPUs to wait for, without preemptible ones.
        may_have_more: more nodes than that, and another reported GPU count, are no reason to wait.
    """
    node_count, wanted_nodes = len(list_live_workers(cluster)), count_nodes(cluster, num_gpus)
    # Together calls a cluster Ready while nodes still join or leave, so the nodes are counted as
    # well
    is_ready = cluster.status in READY_CLUSTER_STATUSES
    has_nodes = node_count == wanted_nodes and cluster.num_gpus == num_gpus
    is_done = is_ready and (node_count >= wanted_nodes if may_have_more else has_nodes)
    phase = cluster.status or "no status"
    if is_ready and not is_done:
        phase = f"{phase} with {node_count} of {wanted_nodes} nodes"
    # a node that failed is no failure of a cluster with enough other nodes
    failure = None if is_done else _find_failure(cluster)
    outputs = ClusterOutputs(
        ready=is_done,
        not_ready_reason=None if is_done else (failure or phase),
        status=cluster.status,
        placed_region=cluster.region or None,
        placed_gpu_type=cluster.gpu_type or None,
        kube_config=decode_kube_config(cluster.kube_config.get_secret_value()),
        control_plane_nodes=[node.model_dump() for node in cluster.control_plane_nodes],
        gpu_worker_nodes=[
            {**worker.model_dump(), "remediation": build_remediation_outputs(worker)}
            for worker in cluster.gpu_worker_nodes
        ],
        node_events=_list_node_events(cluster),
        faults=find_proposed_repairs(list_standard_workers(cluster)),
        acceptance=collect_acceptance_results(cluster, list_standard_workers(cluster)),
        ssh_ca_issuer=_find_ssh_ca_issuer(cluster),
        volumes=[volume.model_dump() for volume in cluster.volumes],
        driver_version=_format_driver_version(cluster),
        installed_version_id=cluster.nvidia_driver_version_id or None,
        os_image=cluster.os_image or parse_operating_system(cluster.cuda_version),
        allocated_preemptible_gpus=cluster.allocated_preemptible_gpus,
        duration_hours=cluster.duration_hours,
        created_at=cluster.created_at,
        first_ready_at=cluster.first_ready_at,
        paused_at=_find_pause_time(cluster),
        reserved_until=cluster.reservation_end_time,
    )
    return PollResult(
        Observed(_extract_inputs(cluster), outputs), phase, is_done=is_done, failure=failure
    )


def _find_ssh_ca_issuer(cluster: wire.Cluster) -> str | None:
    """Return the issuer of the SSH certificates of a cluster with `ssh_ca_enabled`, or None.

    No document says that `oidc_config` names Together's own issuer: another one is left out.
    """
    has_authority = cluster.cluster_config is not None and cluster.cluster_config.ssh_ca_enabled
    issuer = cluster.oidc_config.issuer_url if has_authority and cluster.oidc_config else None
    return issuer if find_ssh_authority(issuer) else None


def decode_kube_config(encoded: str) -> str | None:
    """Return the kubeconfig as YAML, from base64 or from YAML; None for an empty text.

    Text that is not base64 is returned unchanged.
    """
    if not encoded:
        return None
    # the platform sends base64; a text that is none is taken for the YAML itself
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return encoded


def _extract_inputs(cluster: wire.Cluster) -> dict[str, Any]:
    """Return the input fields as reported by the platform; None for an unreported field.

    Of several volumes the first one counts; only a RESERVED cluster has `duration_days`.
    """
    cuda_version, driver_version = cluster.cuda_version, cluster.nvidia_driver_version
    # an answer may have one combined name instead of the two versions
    if cluster.driver_version and not (cuda_version and driver_version):
        cuda_version, driver_version = parse_driver_version(cluster.driver_version)
    hours = cluster.duration_hours
    # a server that omits the list says nothing about add-ons; an empty list says that there are
    # none
    has_add_ons = "add_ons" in cluster.model_fields_set
    inputs = {
        "cluster_name": cluster.cluster_name,
        "region": cluster.region,
        "gpu_type": cluster.gpu_type,
        "num_gpus": cluster.num_gpus or None,
        "cuda_version": cuda_version,
        "nvidia_driver_version": driver_version,
        "billing_type": cluster.billing_type,
        "duration_days": hours // 24 if hours and cluster.billing_type == "RESERVED" else None,
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
        "oidc_config": _dump_part(cluster.oidc_config),
        "cluster_config": _dump_part(cluster.cluster_config),
        "add_ons": [_dump_part(add_on) for add_on in cluster.add_ons] if has_add_ons else None,
        "slurm_shm_size_gib": cluster.slurm_shm_size_gib,
    }
    # the platform sends "" for a field without a value
    return {name: None if value == "" else value for name, value in inputs.items()}


def _dump_part(part: WireModel | None) -> dict[str, Any] | None:
    """Return the fields of a part without None values; None for an absent part."""
    return None if part is None else part.model_dump(exclude_none=True)


def is_elastic(declared: Mapping[str, Any], cluster: wire.Cluster) -> bool:
    """Return True if the platform may change the number of the cluster's nodes on its own.

    That is so with `auto_scale`, and with preemptible GPUs, which come and go beside the standard
    nodes that num_gpus counts (Together docs, 'Preemptible compute').
    """
    return bool(
        declared.get("auto_scale")
        or declared.get("num_preemptible_gpus")
        or cluster.desired_preemptible_gpus
        or cluster.allocated_preemptible_gpus
    )


def is_within_scaling_range(known_inputs: Mapping[str, Any], cluster: wire.Cluster) -> bool:
    """Return True if the reported GPU count is the declared one or more, as far as scaling may add.

    Preemptible GPUs and `auto_scale` may add GPUs; `auto_scale` without a maximum adds any number.
    False without a declared count.
    """
    declared = known_inputs.get("num_gpus")
    if declared is None:
        return False
    max_gpus = declared + _count_preemptible_gpus(cluster)
    if known_inputs.get("auto_scale"):
        max_gpus = max(max_gpus, find_scaling_maximum(known_inputs, cluster) or math.inf)
    return bool(declared <= cluster.num_gpus <= max_gpus)


def find_scaling_maximum(known_inputs: Mapping[str, Any], cluster: wire.Cluster) -> int | None:
    """Return up to how many GPUs `auto_scale` may grow the cluster, with its preemptible ones.

    None without `auto_scale`, or without a declared maximum.
    """
    max_gpus = known_inputs.get("auto_scale_max_gpus")
    if not known_inputs.get("auto_scale") or not max_gpus:
        return None
    return int(max_gpus) + _count_preemptible_gpus(cluster)


def _count_preemptible_gpus(cluster: wire.Cluster) -> int:
    """Return how many preemptible GPUs the cluster has, or is to have if these are more."""
    return max(cluster.desired_preemptible_gpus or 0, cluster.allocated_preemptible_gpus)


def get_gpus_per_node(cluster: wire.Cluster) -> int:
    """Return how many GPUs a node of the cluster has; that of its type if no worker reports any.

    Workers with GB200 have 4 GPUs; `num_gpus` of the cluster is a multiple of 8 all the same.
    """
    # a worker that has just joined, or has lost a GPU, may report fewer than the others
    reported_count = max((node.num_gpus for node in cluster.gpu_worker_nodes), default=0)
    return reported_count or get_node_gpus(cluster.gpu_type)


def count_nodes(cluster: wire.Cluster, num_gpus: int) -> int:
    """Return how many nodes of the cluster have `num_gpus` GPUs."""
    return num_gpus // get_gpus_per_node(cluster)


def list_live_workers(cluster: wire.Cluster) -> list[wire.GpuWorkerNode]:
    """Return the workers neither deleted nor marked for deletion."""
    return [
        node
        for node in cluster.gpu_worker_nodes
        if not (node.deleted_at or node.marked_for_deletion)
    ]


def list_standard_workers(cluster: wire.Cluster) -> list[wire.GpuWorkerNode]:
    """Return the live workers without preemptible ones, as num_gpus counts nodes."""
    return [node for node in list_live_workers(cluster) if not is_preemptible(node)]


def is_preemptible(node: wire.GpuWorkerNode) -> bool:
    """Return True if a worker is preemptible by its host name: Together may reclaim the node.

    From Together docs, 'Preemptible compute'.
    """
    # no field says so, but the host name contains the word
    return "preemptible" in node.host_name


_MAX_NODE_EVENTS: Final = 20


def _list_node_events(cluster: wire.Cluster) -> list[NodeEventOutputs]:
    """Return the cluster's newest events of nodes, the newest last.

    At most `_MAX_NODE_EVENTS` are returned, each with a shortened message.
    """
    events = sorted(
        cluster.node_lifecycle_events, key=lambda event: to_unix_time(event.timestamp) or 0.0
    )
    return [
        NodeEventOutputs(
            node_id=event.node_id,
            reason=event.reason,
            message=shorten_to_line(event.message),
            at=event.timestamp,
        )
        for event in events[-_MAX_NODE_EVENTS:]
    ]


def build_node_event_notices(
    old_outputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> Iterator[Notice]:
    """Yield a notice for each node event which the old outputs lack.

    These events explain a number of nodes that has changed. Old outputs of earlier versions have
    no events: then nothing is new.
    """
    old_events, events = old_outputs.get("node_events"), outputs.get("node_events")
    if not isinstance(old_events, list) or not isinstance(events, list):
        return
    for event in events:
        if event not in old_events:
            at = str(event.get("at") or "")
            yield Notice(kind=NoticeKind.WORKERS, text=_format_node_event(event), at=at)


def _format_node_event(event: Mapping[str, Any]) -> str:
    """Return an event of the outputs in words, as `train-0 left (TogetherPreempted)`."""
    return f"{event.get('message') or 'a node has changed'} ({event.get('reason')})"


_MAX_EXPLAINING_EVENTS: Final = 3


def find_node_count_notices(outputs: Mapping[str, Any]) -> Iterator[Notice]:
    """Yield a notice if the number of nodes does not fit the number of GPUs.

    The notice has the last three events that may explain the difference. Yields nothing without
    such events, or while a number is unknown. The numbers are the last applied or observed ones: a
    planned number needs no explanation.
    """
    nodes, events = outputs.get("gpu_worker_nodes"), outputs.get("node_events")
    num_gpus, preemptible_gpus = outputs.get("num_gpus"), outputs.get("num_preemptible_gpus") or 0
    if not nodes or not isinstance(events, list) or not isinstance(num_gpus, int | float):
        return
    reported_count = max(node.get("num_gpus") or 0 for node in nodes)
    gpu_type = outputs.get("placed_gpu_type") or outputs.get("gpu_type")
    gpus_per_node = reported_count or get_node_gpus(gpu_type)
    wanted_count = int((num_gpus + preemptible_gpus) // gpus_per_node)
    # The SDK names TogetherScaledUp and TogetherPreempted; other reasons may explain either.
    contrary = "TogetherScaledUp" if len(nodes) < wanted_count else "TogetherPreempted"
    explaining = [event for event in events if event.get("reason") != contrary]
    if len(nodes) != wanted_count and explaining:
        event_list = "; ".join(map(_format_node_event, explaining[-_MAX_EXPLAINING_EVENTS:]))
        yield Notice(
            kind=NoticeKind.WORKERS,
            text=f"the cluster has {len(nodes)} nodes instead of {wanted_count}: {event_list}",
            at=str(explaining[-1].get("at") or ""),
        )


def _find_failure(cluster: wire.Cluster) -> str | None:
    """Return why status, phase or a node keep the cluster from becoming Ready, or None."""
    if cluster.status in FAILED_CLUSTER_STATUSES:
        return STUCK_CLUSTER_MESSAGES.get(cluster.status, f"its status is {cluster.status}")
    if _get_last_phase(cluster.phase_transitions) in FAILED_CLUSTER_PHASES:
        return f"it is in {_get_last_phase(cluster.phase_transitions)}"
    nodes: tuple[wire.ControlPlaneNode | wire.GpuWorkerNode, ...]
    nodes = (*cluster.control_plane_nodes, *cluster.gpu_worker_nodes)
    for node in nodes:
        if _get_last_phase(node.phase_transitions) in FAILED_NODE_PHASES:
            return f"its node {node.host_name or node.node_id} failed"
    return None


def _get_last_phase(transitions: Sequence[wire.PhaseTransition]) -> str:
    """Return the phase of the latest transition; empty without transitions."""
    last_transition = _find_last_transition(transitions)
    return last_transition.phase if last_transition else ""


def _find_last_transition(
    transitions: Iterable[wire.PhaseTransition],
) -> wire.PhaseTransition | None:
    """Return the latest transition, or None without any; an unreadable time is the oldest."""
    return max(
        transitions,
        key=lambda transition: to_unix_time(transition.transition_time) or 0,
        default=None,
    )


def _find_pause_time(cluster: wire.Cluster) -> str | None:
    """Return when the cluster's pause began; None if not paused, or if no transition shows."""
    phase = PAUSED_PHASES.get(cluster.status)
    last_transition = _find_last_transition(
        transition for transition in cluster.phase_transitions if transition.phase == phase
    )
    return last_transition.transition_time if last_transition else None


def _format_driver_version(cluster: wire.Cluster) -> str | None:
    """Return the declared name for the cluster's versions, else the platform's name, or None."""
    try:
        return format_driver_version(cluster.cuda_version, cluster.nvidia_driver_version)
    except ValueError:
        # no declared name stands for these two versions
        return cluster.driver_version or None


def find_system_changes(
    old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
) -> Iterator[FieldChange]:
    """Yield the replacement of a cluster whose nodes have another system than the declared one.

    Yields nothing for a CUDA version without a system (`12.6`), which Together completes as the
    region allows, nor if the system of the nodes is unknown. A change of the version itself is not
    this function's.
    """
    installed_version = old_outputs.get("cuda_version")
    declared_version = declared.get("cuda_version")
    if not isinstance(installed_version, str) or not isinstance(declared_version, str):
        return
    installed_system = parse_operating_system(str(old_outputs.get("os_image") or ""))
    declared_system = parse_operating_system(declared_version)
    is_other_system = installed_system and declared_system not in {None, installed_system}
    if is_other_system and is_same_version(installed_version, declared_version):
        yield FieldChange(
            "cuda_version",
            Action.UPDATE,
            installed_version,
            declared_version,
            replaces=True,
            because=f"the nodes run {installed_system}",
        )


_PAUSED_STATUSES: Final = (ClusterStatus.ON_DEMAND_COMPUTE_PAUSED, ClusterStatus.PAUSED)


def describe_cluster_credit(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Credit | None:
    """Return how a lack of credit affects a cluster, now and next; None if unknown."""
    status, until = outputs.get("status"), str(outputs.get("reserved_until") or "")
    is_reserved = inputs.get("billing_type") in ("RESERVED", "SCHEDULED_CAPACITY")
    end = f"until {until}" if until else "until the end of its reservation"
    # reserved compute is prepaid: no lack of credit stops it before its end
    if status not in _PAUSED_STATUSES:
        if is_reserved:
            return Credit(state=CreditState.RUNS, text=f"is reserved and runs {end}", at=until)
        return Credit(state=CreditState.RUNS, next="is paused") if status else None
    since = str(outputs.get("paused_at") or "")
    since_text = f"since {since}" if since else "since an unknown time"
    if status == ClusterStatus.PAUSED:
        message = f"no credit is left: the cluster has been paused {since_text}"
    else:
        message = f"no credit is left: its on-demand compute has been paused {since_text}"
        message += f"; its reserved compute runs {end}" if is_reserved else ""
    next_step = "its on-demand compute is decommissioned"
    return Credit(state=CreditState.STOPPED, text=message, at=since, next=next_step)


def describe_volume_credit(outputs: Mapping[str, Any]) -> Credit | None:
    """Return how a lack of credit affects a volume, now and next; None if unknown."""
    status = outputs.get("status")
    if status == VolumeStatus.ACCESS_REVOKED:
        message = "no credit is left: access to its data has been revoked"
        return Credit(state=CreditState.REVOKED, text=message)
    return Credit(state=CreditState.RUNS, next="access to its data is revoked") if status else None

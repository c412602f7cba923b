"""Describe the access, usage, placement and replacement of Together's clusters and volumes.

The lifecycles of `cluster` and `shared_volume` call this module with stored inputs and outputs; it
sends no request.

Document 003, "Access Methods": a kubeconfig, `<node-address>.cloud.together.ai` for each worker,
and Slurm's login node, whose users have names of their own. Today's clusters are reached through a
jump host of their own (`ssh -J ada@ssh.t-....cloud.together.ai ada@slurm-login`, as the cluster's
page in Together's web interface shows; the SDK's ClusterConfig has `jumphost_enabled`). No endpoint
reports the address of the jump host: people declare it as `ssh_jump`. A cluster with
`ssh_ca_enabled` accepts short-lived SSH certificates; `schemas.together.ssh_issuer` derives who
signs them, and the bastion.

Document 003, "Billing": on demand by the hour, RESERVED prepaid for its days, preemptible GPUs
beside those that num_gpus counts.

Together reports a cluster's region, and each worker's host name and name in Slurm (API reference,
'Get GPU cluster', `gpu_worker_nodes`), but neither switches nor fabrics.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from gpuform.providers.lifecycle.traits import (
    extract_placement,
    find_number,
    find_text,
    list_unknown_fields,
)
from gpuform.providers.lifetime import format_moment
from gpuform.providers.operations import Guard
from gpuform.providers.permissions import Permission
from gpuform.schemas.access import Access, Host, is_valid_jump_host
from gpuform.schemas.policies.lifetime import has_expiry
from gpuform.schemas.resource_facts import (
    Billing,
    Expense,
    NodeHealth,
    NodePlacement,
    NodeRecord,
    ResourcePlacement,
    ResourceUsage,
)
from gpuform.schemas.timeline import AgendaEntry
from gpuform.schemas.together.cluster_parts import find_ssh_authority
from gpuform.schemas.together.outputs import FAILED_NODE_PHASES, ClusterStatus
from gpuform.schemas.values import UNKNOWN, parse_count, to_unix_time

_SSH_DOMAIN: Final = ".cloud.together.ai"
_LOGIN_NODE: Final = "slurm-login"
_DOWN_PHASES: Final = frozenset(
    {"pending", "scheduling", "booting", "bootstrapping", "failed", "paused", "succeeded"}
)
"""Phases of a node that is not running.

Unknown phases of newer servers count as running, so that people can try to connect.
"""


def describe_cluster_access(outputs: Mapping[str, Any]) -> Access:
    """Return how people connect to a cluster: kubeconfig, workers and Slurm's login node.

    A Slurm cluster runs on Kubernetes and therefore has a kubeconfig as well. A malformed jump host
    is ignored.
    """
    is_slurm = outputs.get("cluster_type") == "SLURM"
    jump_host = find_text(outputs, "ssh_jump")
    # the value ends up in an SSH configuration: anything but a plain host is dropped
    jump_host = jump_host if is_valid_jump_host(jump_host) else ""
    authority = find_ssh_authority(find_text(outputs, "ssh_issuer", "ssh_ca_issuer"))
    workers = tuple(
        _build_worker_hosts(outputs, jump_host, is_behind_bastion=authority is not None)
    )
    # the bare name: the connection goes through the jump host, which knows it
    login_host = Host(node=_LOGIN_NODE, address=_LOGIN_NODE, role="login", jump=jump_host)
    reason = find_text(outputs, "not_ready_reason", "status") or "its status is unknown"
    return Access(
        name=find_text(outputs, "cluster_name"),
        kubeconfig=find_text(outputs, "kube_config") or None,
        no_kubeconfig=f"Together has no kubeconfig for it yet: {reason}",
        hosts=(*([login_host] if is_slurm and workers else []), *workers),
        no_hosts=f"it has no nodes yet: {reason}",
        ssh_authority=authority,
        prefers="slurm" if is_slurm else "kubectl",
    )


def to_ssh_address(host_name: str) -> str:
    """Return the address of a worker's SSH server: the host name with Together's domain.

    Returns "" for an empty host name.
    """
    is_complete = not host_name or host_name.endswith(_SSH_DOMAIN)
    return host_name if is_complete else host_name + _SSH_DOMAIN


def _build_worker_hosts(
    outputs: Mapping[str, Any], jump_host: str, *, is_behind_bastion: bool
) -> Iterator[Host]:
    """Yield the SSH host of each worker, with the reason if the worker is not running.

    Behind the bastion of an SSH certificate authority, a worker is reached by its bare name.
    """
    for node in outputs.get("gpu_worker_nodes") or ():
        name = find_text(node, "host_name")
        phase = find_text(node, "status").removeprefix("NODE_PHASE_")
        address = name if is_behind_bastion else to_ssh_address(name)
        # the platform's phases begin with NODE_PHASE_, which people need not read
        reason = f"it is {phase}" if phase.lower() in _DOWN_PHASES else ""
        yield Host.from_address(
            name or find_text(node, "node_id"), address, jump=jump_host, because=reason
        )


_BILLING: Final = {"RESERVED": Billing.RESERVED, "SCHEDULED_CAPACITY": Billing.SCHEDULED}
_RUNNING_STATUSES: Final = (ClusterStatus.READY, ClusterStatus.DEGRADED)


def describe_cluster_usage(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> ResourceUsage:
    """Return the resource usage and the expenses of a cluster.

    The observed region and GPU type count before the declared ones: a search for capacity may have
    placed the cluster elsewhere. A reservation's end counts as an expiry, except for ON_DEMAND.
    """
    placed_values = {**inputs, **extract_placement(outputs)}
    region, gpu_type = find_text(placed_values, "region"), find_text(placed_values, "gpu_type")
    billing_type = find_text(inputs, "billing_type")
    # both fields set an end, but an on-demand cluster runs until it is deleted
    reserved = any(inputs.get(name) for name in ("duration_days", "reservation_end_time"))
    return ResourceUsage(
        region=region,
        gpu_types=(gpu_type,) if gpu_type else (),
        expires=has_expiry(inputs) or (reserved and billing_type != "ON_DEMAND"),
        running=find_text(outputs, "status") in _RUNNING_STATUSES,
        reserved=billing_type == "RESERVED",
        paid_until=find_text({**inputs, **outputs}, "reserved_until", "reservation_end_time"),
        unknown=list_unknown_fields(
            placed_values, region="region", gpu_types="gpu_type", expires="duration_days"
        ),
        expenses=tuple(_list_expenses(inputs, outputs, region, gpu_type)),
    )


def describe_volume_usage(inputs: Mapping[str, Any]) -> ResourceUsage:
    """Return the resource usage and the expense of a shared volume."""
    region = find_text(inputs, "region")
    return ResourceUsage(
        region=region,
        unknown=list_unknown_fields(inputs, region="region"),
        expenses=(_build_storage_expense(inputs, region),),
    )


def _list_expenses(
    inputs: Mapping[str, Any], outputs: Mapping[str, Any], region: str, gpu_type: str
) -> Iterator[Expense]:
    """Yield the expenses for GPUs by way of billing, the volume, and automatic scaling.

    Automatic scaling counts with its maximum. An amount of None is unknown.
    """
    for billing, amount in _count_gpus_by_billing(inputs, outputs):
        if amount != 0:
            yield Expense(
                what="gpus",
                amount=amount,
                platform="together",
                gpu_type=gpu_type,
                region=region,
                billing=billing,
            )
    volume = inputs.get("shared_volume")
    if isinstance(volume, Mapping):
        outlives = volume.get("is_lifecycle_independent") is True
        # a volume that is created with the cluster is deleted with it, unless declared otherwise
        storage = _build_storage_expense(volume, find_text(volume, "region"))
        yield storage.model_copy(update={"outlives": outlives})
    # GPUs that may be added by themselves are listed with their maximum, so that a budget sees them
    if inputs.get("auto_scale") is True:
        max_gpus, num_gpus = (
            find_number(inputs, "auto_scale_max_gpus"),
            find_number(inputs, "num_gpus"),
        )
        extra_gpus = None if max_gpus is None or num_gpus is None else max(0, max_gpus - num_gpus)
        yield Expense(
            what="gpus",
            amount=extra_gpus or None,
            platform="together",
            gpu_type=gpu_type,
            region=region,
            because="automatic scaling decides their number",
        )


def _count_gpus_by_billing(
    inputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> Iterator[tuple[Billing, float | None]]:
    """Yield the number of GPUs for each way of billing, 0 included; None for an unknown number.

    Preemptible GPUs count as declared, or as allocated if there are more.
    """
    total, pooled = find_number(inputs, "num_gpus"), find_number(inputs, "num_capacity_pool_gpus")
    declared = inputs.get("billing_type")
    billing = _BILLING.get(str(declared), Billing.ON_DEMAND)
    if declared is UNKNOWN:
        total = None
    own_gpus = None if total is None or pooled is None else max(0, total - pooled)
    yield Billing.CAPACITY_POOL, pooled
    # the reserved part is prepaid, the rest of the cluster is billed by the hour
    if billing is Billing.RESERVED and inputs.get("num_reserved_gpus") is not None:
        reserved = find_number(inputs, "num_reserved_gpus")
        yield Billing.RESERVED, reserved
        on_demand_gpus = (
            None if own_gpus is None or reserved is None else max(0, own_gpus - reserved)
        )
        yield Billing.ON_DEMAND, on_demand_gpus
    else:
        yield billing, own_gpus
    desired_preemptible = find_number(inputs, "num_preemptible_gpus")
    allocated_preemptible = find_number(outputs, "allocated_preemptible_gpus")
    # A requested preemptible GPU costs money once allocated, which may be at any time.
    yield (
        Billing.PREEMPTIBLE,
        None
        if desired_preemptible is None
        else max(desired_preemptible, allocated_preemptible or 0),
    )


def _build_storage_expense(declared: Mapping[str, Any], region: str) -> Expense:
    """Build the expense for the declared `size_tib`; the amount is None if unknown."""
    return Expense(
        what="storage",
        amount=find_number(declared, "size_tib"),
        unit="TiB",
        platform="together",
        region=region,
    )


def describe_cluster_placement(outputs: Mapping[str, Any]) -> ResourcePlacement:
    """Return the named workers of a cluster with region and addresses.

    A cluster has its own Kubernetes and possibly its own Slurm.
    """
    workers = outputs.get("gpu_worker_nodes")
    reported_workers = workers if isinstance(workers, list | tuple) else ()
    nodes = [worker for worker in reported_workers if isinstance(worker, Mapping)]
    return ResourcePlacement(
        name=find_text(outputs, "cluster_name"),
        region=find_text(outputs, "placed_region", "region"),
        nodes=tuple(_build_node_placement(node) for node in nodes if find_text(node, "host_name")),
        has_own_scheduler=True,
        kubeconfig=find_text(outputs, "kube_config") or None,
        # neither is in any answer of the platform
        untold=("fabrics", "switches"),
    )


def _build_node_placement(worker: Mapping[str, Any]) -> NodePlacement:
    """Build the placement of a worker from host name, name in Slurm and SSH address."""
    return NodePlacement(
        name=find_text(worker, "host_name"),
        slurm=find_text(worker, "slurm_worker_hostname"),
        address=to_ssh_address(find_text(worker, "host_name")),
    )


def list_cluster_nodes(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[NodeRecord]:
    """Return the workers of a cluster for an inventory.

    Together reports no account, and no creation time of a worker that was not added later.
    """
    placed_values = {**inputs, **extract_placement(outputs)}
    added_at = {
        find_text(event, "node_id"): find_text(event, "at")
        for event in outputs.get("node_events") or ()
        if find_text(event, "reason") == _ADDED
    }
    faulty_nodes = {find_text(fault, "node") for fault in outputs.get("faults") or ()}
    return [
        NodeRecord(
            node_id=find_text(worker, "node_id"),
            health_state=_find_worker_health(worker, faulty_nodes),
            instance_id=find_text(worker, "instance_id") or find_text(worker, "node_id"),
            created_at=added_at.get(find_text(worker, "node_id"))
            or find_text(outputs, "created_at"),
            hardware_type=find_text(placed_values, "gpu_type"),
            gpu_count=parse_count(worker.get("num_gpus")),
            project_id=find_text({**inputs, **outputs}, "project_id"),
            in_use=_is_switched_on(worker),
            region=find_text(placed_values, "region"),
            name=find_text(worker, "host_name"),
        )
        for worker in outputs.get("gpu_worker_nodes") or ()
        if find_text(worker, "node_id")
    ]


_ADDED: Final = "TogetherScaledUp"
"""The reason of the event of an added worker (the platform's SDK)."""


def _is_switched_on(worker: Mapping[str, Any]) -> bool | None:
    """Return whether a worker runs; None for a worker without a phase."""
    phase = find_text(worker, "status").removeprefix("NODE_PHASE_").lower()
    return phase not in _DOWN_PHASES if phase else None


def _find_worker_health(worker: Mapping[str, Any], faulty_nodes: Collection[str]) -> NodeHealth:
    """Return the health of a worker: a fault of any source makes it unhealthy.

    A worker that does not run yet is of unknown health.
    """
    if find_text(worker, "status") in FAILED_NODE_PHASES or find_text(worker, "host_name") in (
        faulty_nodes
    ):
        return NodeHealth.UNHEALTHY
    return NodeHealth.HEALTHY if _is_switched_on(worker) else NodeHealth.UNKNOWN


def list_reservations(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[AgendaEntry]:
    """Return the line of a reserved cluster in the calendar; none for an ON_DEMAND cluster.

    The end that Together reports comes first, then the declared one. A RESERVED cluster without
    either ends its days after its creation.
    """
    billing, days = find_text(inputs, "billing_type"), find_number(inputs, "duration_days")
    if billing not in _BILLING:
        return []
    start = to_unix_time(find_text(inputs, "reservation_start_time"))
    created = to_unix_time(find_text(outputs, "created_at"))
    start = created if start is None else start
    end = to_unix_time(
        find_text(outputs, "reserved_until") or find_text(inputs, "reservation_end_time")
    )
    if end is None and start is not None and days:
        end = start + days * _DAY_S
    reserved = find_number(inputs, "num_reserved_gpus") or find_number(inputs, "num_gpus")
    length = round((end - start) / _DAY_S, 1) if start is not None and end is not None else days
    parts = [f"reservation of {reserved:g} GPUs" if reserved else "reservation"]
    parts += [f"of capacity pool {pool}"] if (pool := find_text(inputs, "capacity_pool_id")) else []
    parts += [f"for {length:g} days"] if length else []
    return [
        AgendaEntry(
            kind="reservation",
            text=" ".join(parts),
            start="" if start is None else format_moment(start),
            end="" if end is None else format_moment(end),
        )
    ]


_DAY_S: Final = 86400.0


def describe_cluster_replacement(names: Collection[str], declared: Mapping[str, Any]) -> str:
    """Return a sentence for the plan about which cluster exists first.

    With a `rollout` that is the new one; without one the sentence says what a `rollout` would
    do. Returns "" without a `rollout` if `names`, the changed fields, have the volume.
    """
    if declared.get("rollout") is not None:
        return (
            "gpuform creates the new cluster first, and deletes the old one when no job runs "
            "on it; both cost money until then"
        )
    # the data is on the old volume, whichever cluster exists first
    if "volume_id" in names:
        return ""
    return "with a `rollout` gpuform creates the new cluster before it deletes the old one"


def find_cluster_deletion_guard(old_outputs: Mapping[str, Any]) -> Guard | None:
    """Return the guard of a RESERVED cluster, which is prepaid; None for any other cluster.

    From document 003, "Billing".
    """
    if old_outputs.get("billing_type") != "RESERVED":
        return None
    name = old_outputs.get("cluster_name", "")
    because = f"cluster {name} is RESERVED, which is prepaid and not refunded"
    return Guard(Permission.DESTROY_RESERVED, because)

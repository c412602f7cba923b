"""Report the access, resource usage and placement of Together's clusters and volumes.

From the Together reference, 'Access Methods': a kubeconfig, `<node-address>.cloud.together.ai` for
each worker, and Slurm's login node, whose users have names of their own. Today's clusters are
reached through a jump host of their own (`ssh -J ada@ssh.t-....cloud.together.ai ada@slurm-login`,
as the cluster's page in Together's web interface shows it; the SDK's ClusterConfig has
`jumphost_enabled`). No API tells its address: it is declared, as `ssh_jump`.

From the Together reference, 'Billing': on demand by the hour, RESERVED prepaid for its days,
preemptible GPUs beside those that num_gpus counts.

The Together reference tells a cluster's region, and each worker's host name and name in Slurm ('Get
GPU cluster', `gpu_worker_nodes`). It tells neither switches nor fabrics.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuform.providers.declared import not_known, number_of, placed, text_of
from gpuform.schemas.access import Access, Host, is_jump
from gpuform.schemas.policies.lifetime import has_end
from gpuform.schemas.resource_facts import Billing, Expense, Footprint, PlacedNode, Placement
from gpuform.schemas.together.statuses import ClusterStatus
from gpuform.schemas.values import UNKNOWN

_DOMAIN: Final = ".cloud.together.ai"
_LOGIN: Final = "slurm-login"
_NOT_UP: Final = frozenset(
    {"pending", "scheduling", "booting", "bootstrapping", "failed", "paused", "succeeded"}
)
"""Phases of a node that is not up; another word, of a newer server, keeps nobody from trying."""


def cluster_access(seen: Mapping[str, Any]) -> Access:
    """Slurm runs on Kubernetes, so that its clusters have a kubeconfig as well."""
    is_slurm = seen.get("cluster_type") == "SLURM"
    jump = text_of(seen, "ssh_jump")
    jump = jump if is_jump(jump) else ""
    workers = tuple(_workers(seen, jump))
    why = text_of(seen, "not_ready_reason", "status") or "its status is not known"
    return Access(
        name=text_of(seen, "cluster_name"),
        kubeconfig=text_of(seen, "kube_config") or None,
        no_kubeconfig=f"Together gives out none yet: {why}",
        hosts=(*([_login(jump)] if is_slurm and workers else []), *workers),
        no_hosts=f"it has no nodes yet: {why}",
        prefers="slurm" if is_slurm else "kubectl",
    )


def ssh_address(host_name: str) -> str:
    """Where a worker's SSH server is; empty without a host name."""
    is_whole = not host_name or host_name.endswith(_DOMAIN)
    return host_name if is_whole else host_name + _DOMAIN


def _login(jump: str) -> Host:
    return Host(node=_LOGIN, address=_LOGIN, role="login", jump=jump)


def _workers(seen: Mapping[str, Any], jump: str) -> Iterator[Host]:
    for node in seen.get("gpu_worker_nodes") or ():
        name = text_of(node, "host_name")
        phase = text_of(node, "status").removeprefix("NODE_PHASE_")
        address = ssh_address(name)
        because = f"it is {phase}" if phase.lower() in _NOT_UP else ""
        yield Host.of(name or text_of(node, "node_id"), address, jump=jump, because=because)


_BILLING: Final = {
    "RESERVED": Billing.RESERVED,
    "SCHEDULED_CAPACITY": Billing.SCHEDULED,
}
_RUNNING: Final = (ClusterStatus.READY, ClusterStatus.DEGRADED)


def cluster_footprint(values: Mapping[str, Any], seen: Mapping[str, Any]) -> Footprint:
    """Where a search for capacity may place it elsewhere, what was seen is true."""
    place = {**values, **placed(seen)}
    region, gpu_type = text_of(place, "region"), text_of(place, "gpu_type")
    billing_type = text_of(values, "billing_type")
    reserved = any(values.get(name) for name in ("duration_days", "reservation_end_time"))
    return Footprint(
        region=region,
        gpu_types=(gpu_type,) if gpu_type else (),
        expires=has_end(values) or (reserved and billing_type != "ON_DEMAND"),
        running=text_of(seen, "status") in _RUNNING,
        reserved=billing_type == "RESERVED",
        paid_until=text_of({**values, **seen}, "reserved_until", "reservation_end_time"),
        unknown=not_known(place, region="region", gpu_types="gpu_type", expires="duration_days"),
        expenses=tuple(_expenses(values, seen, region, gpu_type)),
    )


def volume_footprint(values: Mapping[str, Any]) -> Footprint:
    region = text_of(values, "region")
    return Footprint(
        region=region,
        unknown=not_known(values, region="region"),
        expenses=(_storage(values, region),),
    )


def _expenses(
    values: Mapping[str, Any], seen: Mapping[str, Any], region: str, gpu_type: str
) -> Iterator[Expense]:
    for billing, amount in _counts(values, seen):
        if amount != 0:
            yield Expense(
                what="gpus",
                amount=amount,
                platform="together",
                gpu_type=gpu_type,
                region=region,
                billing=billing,
            )
    volume = values.get("shared_volume")
    if isinstance(volume, Mapping):
        outlives = volume.get("is_lifecycle_independent") is True
        storage = _storage(volume, text_of(volume, "region"))
        yield storage.model_copy(update={"outlives": outlives})
    if values.get("auto_scale") is True:
        most, now = number_of(values, "auto_scale_max_gpus"), number_of(values, "num_gpus")
        more = None if most is None or now is None else max(0, most - now)
        yield Expense(
            what="gpus",
            amount=more or None,
            platform="together",
            gpu_type=gpu_type,
            region=region,
            because="automatic scaling decides how many of them there are",
        )


def _counts(
    values: Mapping[str, Any], seen: Mapping[str, Any]
) -> Iterator[tuple[Billing, float | None]]:
    """How many GPUs are paid for in which way."""
    total, pooled = number_of(values, "num_gpus"), number_of(values, "num_capacity_pool_gpus")
    declared = values.get("billing_type")
    billing = _BILLING.get(str(declared), Billing.ON_DEMAND)
    if declared is UNKNOWN:
        total = None
    own = None if total is None or pooled is None else max(0, total - pooled)
    yield Billing.CAPACITY_POOL, pooled
    if billing is Billing.RESERVED and values.get("num_reserved_gpus") is not None:
        reserved = number_of(values, "num_reserved_gpus")
        yield Billing.RESERVED, reserved
        rest = None if own is None or reserved is None else max(0, own - reserved)
        yield Billing.ON_DEMAND, rest
    else:
        yield billing, own
    wanted = number_of(values, "num_preemptible_gpus")
    there = number_of(seen, "allocated_preemptible_gpus")
    # What is wanted is paid for once it is there, which may be at any time.
    yield Billing.PREEMPTIBLE, None if wanted is None else max(wanted, there or 0)


def _storage(values: Mapping[str, Any], region: str) -> Expense:
    return Expense(
        what="storage",
        amount=number_of(values, "size_tib"),
        unit="TiB",
        platform="together",
        region=region,
    )


def cluster_placement(seen: Mapping[str, Any]) -> Placement:
    """The workers of a cluster, which has a Kubernetes, and perhaps a Slurm, of its own."""
    workers = seen.get("gpu_worker_nodes")
    told = workers if isinstance(workers, list | tuple) else ()
    nodes = [each for each in told if isinstance(each, Mapping)]
    return Placement(
        name=text_of(seen, "cluster_name"),
        region=text_of(seen, "placed_region", "region"),
        nodes=tuple(_node(each) for each in nodes if text_of(each, "host_name")),
        has_own_scheduler=True,
        kubeconfig=text_of(seen, "kube_config") or None,
        untold=("fabrics", "switches"),
    )


def _node(worker: Mapping[str, Any]) -> PlacedNode:
    return PlacedNode(
        name=text_of(worker, "host_name"),
        slurm=text_of(worker, "slurm_worker_hostname"),
        address=ssh_address(text_of(worker, "host_name")),
    )

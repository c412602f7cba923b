"""Define the outputs of a TensorOne cluster, its statuses, and why it has stopped.

Outputs are never compared. Values that change all the time (utilization, cost so far, idle time)
are left out: `gpuform` asks the platform for them when they are needed.

Statuses are from TensorOne's documentation ('List Clusters'); a status in none of these sets counts
as pending. The platform reports no reason of a stop. A cluster was stopped by a limit of its
``auto_terminate`` if it has reached the limit, or if the text of its status says so.
"""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field

from gpuform.schemas.models import OutputModel, OutputPart, optional_field
from gpuform.schemas.policies.repair import NodeFault
from gpuform.schemas.resource_facts import Credit, CreditState
from gpuform.schemas.rules import Secret
from gpuform.schemas.tensorone.wire import AutoTerminate, Cluster, Cost
from gpuform.schemas.values import to_unix_time


class AlertOutputs(OutputPart):
    type: str | None = optional_field("Kind of the alert, such as high_gpu_utilization.")
    severity: str | None = optional_field("Severity of the alert, as the platform reports it.")
    message: str | None = optional_field("The message of the alert.")
    triggered_at: str | None = optional_field("When the alert began.")


class SnapshotOutputs(OutputPart):
    id: str = Field(description="Id of the snapshot, for restore_snapshot.")
    name: str | None = optional_field("Name of the snapshot.")
    size_gb: float | None = optional_field("Size of the snapshot.")
    created_at: str | None = optional_field("When the snapshot was created.")


class FirewallRuleOutputs(OutputPart):
    direction: str | None = optional_field("Direction: inbound or outbound.")
    protocol: str | None = optional_field("Protocol, such as tcp.")
    port_range: str | None = optional_field("A port, or two with a hyphen.")
    source: str | None = optional_field("The network from which the rule allows connections.")
    description: str | None = optional_field("Purpose of the rule.")


class VolumeOutputs(OutputPart):
    name: str | None = optional_field("Name of the volume.")
    mount_path: str | None = optional_field("Where the volume is mounted.")
    size_gb: float | None = optional_field("Size of the volume.")
    type: str | None = optional_field("Kind of storage, such as nvme.")
    encrypted: bool | None = optional_field("Whether the volume is encrypted.")


class CostBreakdownOutputs(OutputPart):
    gpu_cost: float | None = optional_field("Cost of the GPUs.")
    cpu_cost: float | None = optional_field("Cost of the processor cores.")
    memory_cost: float | None = optional_field("Cost of the memory.")
    storage_cost: float | None = optional_field("Cost of the storage.")
    network_cost: float | None = optional_field("Cost of the network.")


class SshConnectionOutputs(OutputPart):
    host: str = Field(description="Host to log in to.")
    port: int = Field(default=22, description="Port of the host's SSH server.")
    username: str | None = optional_field("User who logs in.")


class ClusterOutputs(OutputModel):
    """A cluster as the platform reports it. Times are the platform's own text.

    A cluster that its own auto-termination has stopped is `ready`, because that was declared;
    `stopped_by` says so.
    """

    status: str = Field(description="Status, as the platform reports it.")
    placed_region: str | None = optional_field(
        "Region of the cluster: the declared one, or an alternative."
    )
    placed_gpu_type: str | None = optional_field(
        "Type of the cluster's GPUs: the declared one, or an alternative."
    )
    status_message: str | None = optional_field("The platform's message about the cluster.")
    last_status_change: str | None = optional_field("Since when the cluster has the status.")
    stopped_by: str | None = optional_field(
        "Why the cluster stopped: a limit of auto_terminate, or idleness."
    )
    restored_snapshot: str | None = optional_field("The snapshot that gpuform restored at a start.")
    private_ip: str | None = optional_field("Address inside the platform.")
    public_ip: str | None = optional_field("Public address.")
    proxy_url: str | None = optional_field("Web address of the cluster.")
    port_urls: dict[str, str] = Field(
        default={}, description="Web addresses of the mapped ports, by internal port."
    )
    ssh_command: Annotated[str | None, Secret] = optional_field(
        "Command that logs in as root.", repr=False
    )
    ssh_connection: Annotated[SshConnectionOutputs | None, Secret] = optional_field(
        "The parts of ssh_command.", repr=False
    )
    firewall_rules: list[FirewallRuleOutputs] = Field(
        default=[], description="Rules of the platform's firewall, in its order; a change is drift."
    )
    project_name: str | None = optional_field("Name of the cluster's project.")
    owner_id: str | None = optional_field("Id of the cluster's owner.")
    owner_email: str | None = optional_field("Email address of the cluster's owner.")
    template_name: str | None = optional_field("Name of the cluster's template.")
    template_version: str | None = optional_field(
        "Version of the template, as the platform shows it."
    )
    made_from_version: str | None = optional_field(
        "Version of the template when gpuform first observed the cluster."
    )
    availability_zone: str | None = optional_field("Zone of the region.")
    storage_type: str | None = optional_field("Kind of storage, such as nvme.")
    gpu_health: str | None = optional_field("Health of the GPUs.")
    storage_health: str | None = optional_field("Health of the storage.")
    network_health: str | None = optional_field("Health of the network.")
    docker_health: str | None = optional_field("Health of the container runtime.")
    faults: list[NodeFault] = Field(
        default=[], description="Faults of the cluster, as last observed."
    )
    maybe_busy: str | None = optional_field(
        "If the cluster is broken: why gpuform cannot be sure that nothing runs on it."
    )
    restarted_at: str | None = optional_field(
        "When gpuform restarted the broken cluster, in UTC, while it is still broken."
    )
    alerts: list[AlertOutputs] = Field(default=[], description="Warnings of the platform.")
    current_hourly_rate: float | None = optional_field("Cost of an hour, in currency.")
    currency: str | None = optional_field("Currency of all costs.")
    daily_estimate: float | None = optional_field("Projected cost of a day.")
    weekly_estimate: float | None = optional_field("Projected cost of a week.")
    monthly_estimate: float | None = optional_field("Projected cost of a month.")
    cost_breakdown: CostBreakdownOutputs | None = optional_field("Cost of an hour, by purpose.")
    volumes: list[VolumeOutputs] = Field(
        default=[], description="Volumes of the cluster; storage_gb is the sum of their sizes."
    )
    estimated_termination: str | None = optional_field(
        "When the platform expects auto_terminate to stop the cluster."
    )
    snapshots: list[SnapshotOutputs] = Field(default=[], description="Snapshots of the cluster.")
    hidden_variables: list[str] = Field(
        default=[], description="Variables whose values the platform does not show."
    )
    python_version: str | None = optional_field("Python in the image.")
    cuda_version: str | None = optional_field("CUDA in the image.")
    driver_version: str | None = optional_field("Driver of the GPUs.")
    docker_version: str | None = optional_field("Docker of the host.")
    created_at: str | None = optional_field("When the cluster was created.")
    updated_at: str | None = optional_field(
        "When the platform last changed the cluster; older answers are ignored."
    )


class ClusterStatus(StrEnum):
    """The documented statuses, and ``deleting``, which the answer to a delete has."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    ERROR = "error"
    # Not in the list of statuses: a delete answers with it.
    DELETING = "deleting"


STABLE_STATUSES: Final = frozenset({ClusterStatus.RUNNING, ClusterStatus.STOPPED})
"""Statuses that do not change by themselves and are no failures."""

FAILED_STATUSES: Final = frozenset({ClusterStatus.ERROR, ClusterStatus.DELETING})
"""Statuses that do not become stable by themselves."""


def is_before(earlier: str | None, later: str | None) -> bool:
    """Return True if both texts are times and the first is before the second."""
    first, second = to_unix_time(earlier), to_unix_time(later)
    return first is not None and second is not None and first < second


_AUTO_TERMINATION: Final = re.compile(r"auto[- _]?terminat", re.IGNORECASE)
_NO_CREDIT: Final = re.compile(r"insufficient[ _]credit|(no|out of) credit", re.IGNORECASE)
_ROUNDING_HOURS: Final = 0.01
"""The platform rounds durations to two decimals."""


def find_stopping_limit(cluster: Cluster) -> str | None:
    """Return why auto-termination has stopped a cluster: the reached limit for messages, or None.

    Such as `auto-termination, idle for 60 minutes`; only `auto-termination` if no limit was reached
    and the text of the status says so. None for a cluster that is not stopped, was stopped
    otherwise, or has no auto-termination.
    """
    limits = cluster.auto_terminate
    if cluster.status != ClusterStatus.STOPPED or limits is None or not limits.enabled:
        return None
    # numbers first: the text of the status is not documented
    reached_limit = next(_find_reached_limits(limits, cluster.cost or Cost()), None)
    if reached_limit:
        return f"auto-termination, {reached_limit}"
    is_reported = _AUTO_TERMINATION.search(cluster.status_details.message or "")
    return "auto-termination" if is_reported else None


def read_credit(outputs: Mapping[str, Any]) -> Credit | None:
    """Return whether a cluster runs, or was stopped for lack of credit; None without a status.

    The lack of credit is found in `status_message`. TensorOne documents the error code
    INSUFFICIENT_CREDITS, but not the text of this message: the reading is gpuform's.
    """
    status, message = outputs.get("status"), str(outputs.get("status_message") or "")
    if status not in (ClusterStatus.STOPPED, ClusterStatus.ERROR) or not _NO_CREDIT.search(message):
        return Credit(state=CreditState.RUNS) if status else None
    since = str(outputs.get("updated_at") or "")
    since_text = f", since {since} at the latest" if since else ""
    return Credit(
        state=CreditState.STOPPED, text=f"no credit is left: it is {status}{since_text}", at=since
    )


def _find_reached_limits(limits: AutoTerminate, cost: Cost) -> Iterator[str]:
    """Yield each reached limit of a cluster's auto-termination, as a phrase for messages."""
    idle, hours_run, spent = (
        limits.current_idle_minutes,
        cost.billing_period.duration_hours,
        cost.session_cost,
    )
    if limits.idle_minutes and idle is not None and idle >= limits.idle_minutes:
        yield f"idle for {_format_count(limits.idle_minutes, 'minute')}"
    max_hours = limits.max_runtime_hours
    # the platform rounds to two decimals
    if max_hours and hours_run is not None and hours_run >= max_hours - _ROUNDING_HOURS:
        yield f"running for {_format_count(max_hours, 'hour')}"
    if limits.cost_limit_usd and spent is not None and spent >= limits.cost_limit_usd:
        yield f"cost of {limits.cost_limit_usd:g} USD"


def _format_count(number: float, unit: str) -> str:
    """Return a number with the unit: `1 hour`, `60 minutes`."""
    return f"{number:g} {unit}" + ("" if number == 1 else "s")

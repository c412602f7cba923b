"""Define the outputs of a TensorOne cluster beside its inputs.

Outputs are never compared. Values that change all the time (utilization, cost so far, idle time)
are left out: `gpuform` asks the platform for them when they are needed.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gpuform.schemas.models import OutputModel
from gpuform.schemas.policies.repair import NodeFault
from gpuform.schemas.rules import Secret


class _OutputPart(BaseModel):
    model_config = ConfigDict(frozen=True)


class AlertOutputs(_OutputPart):
    type: str | None = Field(
        default=None, description="Kind of the alert, such as high_gpu_utilization."
    )
    severity: str | None = Field(
        default=None, description="Severity of the alert, as the platform reports it."
    )
    message: str | None = Field(default=None, description="The message of the alert.")
    triggered_at: str | None = Field(default=None, description="When the alert began.")


class SnapshotOutputs(_OutputPart):
    id: str = Field(description="Id of the snapshot, for restore_snapshot.")
    name: str | None = Field(default=None, description="Name of the snapshot.")
    size_gb: float | None = Field(default=None, description="Size of the snapshot.")
    created_at: str | None = Field(default=None, description="When the snapshot was created.")


class FirewallRuleOutputs(_OutputPart):
    direction: str | None = Field(default=None, description="Direction: inbound or outbound.")
    protocol: str | None = Field(default=None, description="Protocol, such as tcp.")
    port_range: str | None = Field(default=None, description="A port, or two with a hyphen.")
    source: str | None = Field(
        default=None, description="The network from which the rule allows connections."
    )
    description: str | None = Field(default=None, description="Purpose of the rule.")


class VolumeOutputs(_OutputPart):
    name: str | None = Field(default=None, description="Name of the volume.")
    mount_path: str | None = Field(default=None, description="Where the volume is mounted.")
    size_gb: float | None = Field(default=None, description="Size of the volume.")
    type: str | None = Field(default=None, description="Kind of storage, such as nvme.")
    encrypted: bool | None = Field(default=None, description="Whether the volume is encrypted.")


class CostBreakdownOutputs(_OutputPart):
    gpu_cost: float | None = Field(default=None, description="Cost of the GPUs.")
    cpu_cost: float | None = Field(default=None, description="Cost of the processor cores.")
    memory_cost: float | None = Field(default=None, description="Cost of the memory.")
    storage_cost: float | None = Field(default=None, description="Cost of the storage.")
    network_cost: float | None = Field(default=None, description="Cost of the network.")


class SshConnectionOutputs(_OutputPart):
    host: str = Field(description="Host to log in to.")
    port: int = Field(default=22, description="Port of the host's SSH server.")
    username: str | None = Field(default=None, description="User who logs in.")


class ClusterOutputs(OutputModel):
    """A cluster as the platform reports it. Times are the platform's own text.

    A cluster that its own auto-termination has stopped is `ready`, because that was declared;
    `stopped_by` says so.
    """

    status: str = Field(description="Status, as the platform reports it.")
    placed_region: str | None = Field(
        default=None, description="Region of the cluster: the declared one, or an alternative."
    )
    placed_gpu_type: str | None = Field(
        default=None, description="Type of the cluster's GPUs: the declared one, or an alternative."
    )
    status_message: str | None = Field(
        default=None, description="The platform's message about the cluster."
    )
    last_status_change: str | None = Field(
        default=None, description="Since when the cluster has the status."
    )
    stopped_by: str | None = Field(
        default=None, description="Why the cluster stopped: a limit of auto_terminate, or idleness."
    )
    restored_snapshot: str | None = Field(
        default=None, description="The snapshot that gpuform restored at a start."
    )
    private_ip: str | None = Field(default=None, description="Address inside the platform.")
    public_ip: str | None = Field(default=None, description="Public address.")
    proxy_url: str | None = Field(default=None, description="Web address of the cluster.")
    port_urls: dict[str, str] = Field(
        default={}, description="Web addresses of the mapped ports, by internal port."
    )
    ssh_command: Annotated[str | None, Secret] = Field(
        default=None, repr=False, description="Command that logs in as root."
    )
    ssh_connection: Annotated[SshConnectionOutputs | None, Secret] = Field(
        default=None, repr=False, description="The parts of ssh_command."
    )
    firewall_rules: list[FirewallRuleOutputs] = Field(
        default=[],
        description="Rules of the platform's firewall, in its order; a change is drift.",
    )
    project_name: str | None = Field(default=None, description="Name of the cluster's project.")
    owner_id: str | None = Field(default=None, description="Id of the cluster's owner.")
    owner_email: str | None = Field(
        default=None, description="Email address of the cluster's owner."
    )
    template_name: str | None = Field(default=None, description="Name of the cluster's template.")
    template_version: str | None = Field(
        default=None, description="Version of the template, as the platform shows it."
    )
    made_from_version: str | None = Field(
        default=None, description="Version of the template when gpuform first observed the cluster."
    )
    availability_zone: str | None = Field(default=None, description="Zone of the region.")
    storage_type: str | None = Field(default=None, description="Kind of storage, such as nvme.")
    gpu_health: str | None = Field(default=None, description="Health of the GPUs.")
    storage_health: str | None = Field(default=None, description="Health of the storage.")
    network_health: str | None = Field(default=None, description="Health of the network.")
    docker_health: str | None = Field(default=None, description="Health of the container runtime.")
    faults: list[NodeFault] = Field(
        default=[], description="Faults of the cluster, as last observed."
    )
    maybe_busy: str | None = Field(
        default=None,
        description="If the cluster is broken: why gpuform cannot be sure that nothing runs on it.",
    )
    restarted_at: str | None = Field(
        default=None,
        description="When gpuform restarted the broken cluster, in UTC, while it is still broken.",
    )
    alerts: list[AlertOutputs] = Field(default=[], description="Warnings of the platform.")
    current_hourly_rate: float | None = Field(
        default=None, description="Cost of an hour, in currency."
    )
    currency: str | None = Field(default=None, description="Currency of all costs.")
    daily_estimate: float | None = Field(default=None, description="Projected cost of a day.")
    weekly_estimate: float | None = Field(default=None, description="Projected cost of a week.")
    monthly_estimate: float | None = Field(default=None, description="Projected cost of a month.")
    cost_breakdown: CostBreakdownOutputs | None = Field(
        default=None, description="Cost of an hour, by purpose."
    )
    volumes: list[VolumeOutputs] = Field(
        default=[], description="Volumes of the cluster; storage_gb is the sum of their sizes."
    )
    estimated_termination: str | None = Field(
        default=None, description="When the platform expects auto_terminate to stop the cluster."
    )
    snapshots: list[SnapshotOutputs] = Field(default=[], description="Snapshots of the cluster.")
    hidden_variables: list[str] = Field(
        default=[], description="Variables whose values the platform does not show."
    )
    python_version: str | None = Field(default=None, description="Python in the image.")
    cuda_version: str | None = Field(default=None, description="CUDA in the image.")
    driver_version: str | None = Field(default=None, description="Driver of the GPUs.")
    docker_version: str | None = Field(default=None, description="Docker of the host.")
    created_at: str | None = Field(default=None, description="When the cluster was created.")
    updated_at: str | None = Field(
        default=None,
        description="When the platform last changed the cluster; older answers are ignored.",
    )

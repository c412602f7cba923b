"""Define the outputs of a TensorOne cluster beside its inputs.

Outputs are never compared. Values that change all the time (utilization, cost so far, idle time)
are left
out: `gpuform` asks the platform for them when they are needed.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gpuform.schemas.models import OutputModel
from gpuform.schemas.policies.repair import NodeFault
from gpuform.schemas.rules import Secret


class _OutputPart(BaseModel):
    model_config = ConfigDict(frozen=True)


class AlertOutputs(_OutputPart):
    type: str | None = Field(default=None, description="Kind, such as high_gpu_utilization.")
    severity: str | None = Field(default=None, description="Severity, in the platform's words.")
    message: str | None = Field(default=None, description="What is the matter.")
    triggered_at: str | None = Field(default=None, description="Since when.")


class SnapshotOutputs(_OutputPart):
    id: str = Field(description="Id, for restore_snapshot.")
    name: str | None = Field(default=None, description="Its name.")
    size_gb: float | None = Field(default=None, description="Its size.")
    created_at: str | None = Field(default=None, description="When it was made.")


class FirewallRuleOutputs(_OutputPart):
    direction: str | None = Field(default=None, description="inbound or outbound.")
    protocol: str | None = Field(default=None, description="Protocol, such as tcp.")
    port_range: str | None = Field(default=None, description="A port, or two with a hyphen.")
    source: str | None = Field(default=None, description="The network that it lets in.")
    description: str | None = Field(default=None, description="What it is for.")


class VolumeOutputs(_OutputPart):
    name: str | None = Field(default=None, description="Its name.")
    mount_path: str | None = Field(default=None, description="Where it is mounted.")
    size_gb: float | None = Field(default=None, description="Its size.")
    type: str | None = Field(default=None, description="Kind of storage, such as nvme.")
    encrypted: bool | None = Field(default=None, description="Whether it is encrypted.")


class CostBreakdownOutputs(_OutputPart):
    gpu_cost: float | None = Field(default=None, description="Of the GPUs.")
    cpu_cost: float | None = Field(default=None, description="Of the processor cores.")
    memory_cost: float | None = Field(default=None, description="Of the memory.")
    storage_cost: float | None = Field(default=None, description="Of the storage.")
    network_cost: float | None = Field(default=None, description="Of the network.")


class SshConnectionOutputs(_OutputPart):
    host: str = Field(description="Host to log in to.")
    port: int = Field(default=22, description="Port of its SSH server.")
    username: str | None = Field(default=None, description="Who logs in.")


class ClusterOutputs(OutputModel):
    """A cluster as the platform reports it. Times are the platform's own text.

    A cluster that its own auto-termination has stopped is `ready`, because that was declared;
    `stopped_by`
    says so.
    """

    status: str = Field(description="Status, in the platform's words.")
    placed_region: str | None = Field(
        default=None, description="Region where it is: the declared one, or an alternative."
    )
    placed_gpu_type: str | None = Field(
        default=None, description="Type of its GPUs: the declared one, or an alternative."
    )
    status_message: str | None = Field(default=None, description="What the platform says of it.")
    last_status_change: str | None = Field(
        default=None, description="Since when it has the status."
    )
    stopped_by: str | None = Field(
        default=None, description="What has stopped it: a limit of auto_terminate, or idleness."
    )
    restored_snapshot: str | None = Field(
        default=None, description="The snapshot that gpuform has restored at a start."
    )
    private_ip: str | None = Field(default=None, description="Address inside the platform.")
    public_ip: str | None = Field(default=None, description="Public address.")
    proxy_url: str | None = Field(default=None, description="Its web address.")
    port_urls: dict[str, str] = Field(
        default={}, description="Web addresses of the mapped ports, by internal port."
    )
    ssh_command: Annotated[str | None, Secret] = Field(
        default=None, repr=False, description="Command that logs in as root."
    )
    ssh_connection: Annotated[SshConnectionOutputs | None, Secret] = Field(
        default=None, repr=False, description="The same in parts."
    )
    firewall_rules: list[FirewallRuleOutputs] = Field(
        default=[],
        description="What the platform's firewall lets through, in its order; a change of it is "
        "drift.",
    )
    project_name: str | None = Field(default=None, description="Name of its project.")
    owner_id: str | None = Field(default=None, description="Id of who owns it.")
    owner_email: str | None = Field(default=None, description="Address of who owns it.")
    template_name: str | None = Field(default=None, description="Name of its template.")
    template_version: str | None = Field(
        default=None, description="Version of its template, as the platform shows it."
    )
    made_from_version: str | None = Field(
        default=None, description="The version of its template when gpuform first saw it."
    )
    availability_zone: str | None = Field(default=None, description="Where in the region it is.")
    storage_type: str | None = Field(default=None, description="Kind of storage, such as nvme.")
    gpu_health: str | None = Field(default=None, description="Health of the GPUs.")
    storage_health: str | None = Field(default=None, description="Health of the storage.")
    network_health: str | None = Field(default=None, description="Health of the network.")
    docker_health: str | None = Field(default=None, description="Health of the container runtime.")
    faults: list[NodeFault] = Field(
        default=[], description="What is broken about it, as it was last seen."
    )
    maybe_busy: str | None = Field(
        default=None, description="Why it is not known to have no work, where it is broken."
    )
    restarted_at: str | None = Field(
        default=None,
        description="When gpuform has restarted it because it was broken, in UTC, if it is so yet.",
    )
    alerts: list[AlertOutputs] = Field(default=[], description="What the platform warns of.")
    current_hourly_rate: float | None = Field(
        default=None, description="Cost of an hour, in currency."
    )
    currency: str | None = Field(default=None, description="Currency of all costs.")
    daily_estimate: float | None = Field(default=None, description="Projected cost of a day.")
    weekly_estimate: float | None = Field(default=None, description="Projected cost of a week.")
    monthly_estimate: float | None = Field(default=None, description="Projected cost of a month.")
    cost_breakdown: CostBreakdownOutputs | None = Field(
        default=None, description="What an hour of it costs, by what it is for."
    )
    volumes: list[VolumeOutputs] = Field(
        default=[], description="Its volumes, of which storage_gb is the sum."
    )
    estimated_termination: str | None = Field(
        default=None, description="When the platform reckons that its auto_terminate stops it."
    )
    snapshots: list[SnapshotOutputs] = Field(default=[], description="Its snapshots.")
    hidden_variables: list[str] = Field(
        default=[], description="Variables whose values the platform does not show."
    )
    python_version: str | None = Field(default=None, description="Python in the image.")
    cuda_version: str | None = Field(default=None, description="CUDA in the image.")
    driver_version: str | None = Field(default=None, description="Driver of the GPUs.")
    docker_version: str | None = Field(default=None, description="Docker of the host.")
    created_at: str | None = Field(default=None, description="When it was made.")
    updated_at: str | None = Field(
        default=None, description="When the platform last changed it; no older answer is believed."
    )

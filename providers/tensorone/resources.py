"""TensorOne's resources for programs.

Generated from the input models: python -m gpuform.providers.codegen
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, Unpack

import pulumi

from gpuform.providers.resource import PlatformResource
from gpuform.providers.shared_types import (
    IdleArguments,
    IdleValues,
    NodeFaultValues,
    ScheduleArguments,
    ScheduleValues,
)
from gpuform.providers.tensorone.cluster import ClusterLifecycle

__all__ = ["Cluster"]

Protocol = Literal["tcp", "udp"]
Approve = Literal["reviewed", "automatic"]
On = Literal["platform"]
Region = Literal["us-east-1", "us-west-2", "eu-west-1", "ap-southeast-1"]
GpuType = Literal["A100", "H100", "RTX4090", "V100", "T4", "RTX3090"]
State = Literal["running", "stopped"]
RequireHealthy = Literal["gpu", "storage", "network", "docker"]


class PortMappingArguments(TypedDict):
    """A port of the cluster that is reachable from outside."""

    internal_port: pulumi.Input[int]
    """Port inside the cluster."""
    external_port: NotRequired[pulumi.Input[int] | None]
    """Port outside; the platform's choice when not declared."""
    protocol: NotRequired[pulumi.Input[Protocol] | None]
    """Protocol: tcp or udp."""
    description: NotRequired[pulumi.Input[str] | None]
    """Purpose of the port."""


class AutoTerminateArguments(TypedDict):
    """When the platform stops the cluster by itself."""

    enabled: NotRequired[pulumi.Input[bool] | None]
    """Whether the platform stops the cluster by itself."""
    idle_minutes: NotRequired[pulumi.Input[int] | None]
    """Minutes without work after which the platform stops the cluster."""
    max_runtime_hours: NotRequired[pulumi.Input[int] | None]
    """Hours of running after which the platform stops the cluster."""
    cost_limit_usd: NotRequired[pulumi.Input[float] | None]
    """Cost at which the platform stops the cluster, in USD."""


class ClusterRepairArguments(TypedDict):
    """When a broken cluster is restarted, and who must have seen the plan."""

    approve: NotRequired[pulumi.Input[Approve] | None]
    """reviewed: a person must see the plan first (by the prompt of `up`, a saved plan, or --allow
    repair). automatic: `up --yes` and `repair --yes` repair. reviewed if not declared."""
    on: NotRequired[pulumi.Input[Sequence[pulumi.Input[On]]] | None]
    """Which reports count: platform, the status of the cluster or the health of the cluster's
    GPUs."""


class AlternativeArguments(TypedDict):
    """Another region, another GPU type, or both. Omitted properties stay as declared."""

    region: NotRequired[pulumi.Input[Region] | None]
    """The region to try."""
    gpu_type: NotRequired[pulumi.Input[GpuType] | None]
    """The type of GPU to try."""


class OnNoCapacityArguments(TypedDict):
    """What to do while the platform has no free GPUs, instead of failing at once."""

    alternatives: NotRequired[pulumi.Input[Sequence[pulumi.Input[AlternativeArguments]]] | None]
    """The alternatives for a new cluster, in this order."""
    wait_minutes: NotRequired[pulumi.Input[int] | None]
    """How long to keep trying, in minutes."""


class ClusterArguments(TypedDict):
    """A GPU cluster: one host with up to 8 GPUs."""

    name: pulumi.Input[str]
    """Name of the cluster: 3 to 64 letters, digits and hyphens."""
    description: NotRequired[pulumi.Input[str] | None]
    """Purpose of the cluster."""
    gpu_type: pulumi.Input[GpuType]
    """Type of GPU, such as A100. (replaces)"""
    gpu_count: pulumi.Input[int]
    """Number of GPUs, 1 to 8; a change stops and starts the cluster."""
    storage_gb: pulumi.Input[int]
    """Storage in GB, at least 50; it can only grow, which stops and starts the cluster. (in place,
    grow-only)"""
    region: pulumi.Input[Region]
    """Region, such as us-west-2. (replaces)"""
    project_id: pulumi.Input[str]
    """Project of the cluster. (replaces)"""
    cpu_cores: NotRequired[pulumi.Input[int] | None]
    """Processor cores; the platform's choice when not declared. A change stops and starts the
    cluster."""
    memory_gb: NotRequired[pulumi.Input[int] | None]
    """Memory in GB; the platform's choice when not declared. A change stops and starts the
    cluster."""
    template_id: NotRequired[pulumi.Input[str] | None]
    """Template with an image, instead of docker_image. (replaces)"""
    docker_image: NotRequired[pulumi.Input[str] | None]
    """Image, instead of template_id; a change stops and starts the cluster."""
    environment_variables: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[str]]] | None]
    """Environment variables, which may be secrets. Variables whose values the platform hides are
    not compared. (in place, secret)"""
    ssh_enabled: NotRequired[pulumi.Input[bool] | None]
    """Whether people can log in. (replaces, write-only)"""
    ssh_public_keys: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]] | None]
    """Public keys of the users who log in. (replaces, write-only)"""
    port_mappings: NotRequired[pulumi.Input[Sequence[pulumi.Input[PortMappingArguments]]] | None]
    """Ports that are reachable from outside."""
    security_groups: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]] | None]
    """Ids of security groups."""
    auto_terminate: NotRequired[pulumi.Input[AutoTerminateArguments] | None]
    """When the platform stops the cluster by itself. Such a stop is not drift; --allow
    start-terminated starts the cluster again."""
    tags: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[str]]] | None]
    """Tags."""
    state: NotRequired[pulumi.Input[State] | None]
    """running or stopped."""
    require_healthy: NotRequired[pulumi.Input[Sequence[pulumi.Input[RequireHealthy]]] | None]
    """Health checks that must pass while the cluster runs. Until then the cluster is not ready, and
    a create or an update waits. (recorded, nothing is sent)"""
    repair: NotRequired[pulumi.Input[ClusterRepairArguments] | None]
    """A setting of gpuform, never sent: whether to restart the cluster (stop and start) when its
    status is error or the health of its GPUs is bad. gpuform never restarts it while its GPUs are
    in use or their use is unknown, except with --allow evict-jobs. (recorded, nothing is sent)"""
    restore_snapshot: NotRequired[pulumi.Input[str] | None]
    """Id of a snapshot to start from, once; declaring another snapshot stops and starts the
    cluster. (in place, write-only)"""
    final_snapshot: NotRequired[pulumi.Input[bool] | None]
    """Whether a last snapshot is created before the cluster is deleted. (in place, write-only)"""
    final_snapshot_name: NotRequired[pulumi.Input[str] | None]
    """Name of the last snapshot. (in place, write-only)"""
    on_no_capacity: NotRequired[pulumi.Input[OnNoCapacityArguments] | None]
    """A setting of gpuform, never sent: what to do while TensorOne has no free GPUs. The
    alternatives are tried in order, then all again every minute for wait_minutes; the start of a
    cluster waits, too. (nothing)"""
    expires: NotRequired[pulumi.Input[str] | None]
    """When `gpuform expire` destroys the resource: at the end of a date in UTC, or at a moment with
    an offset. Every plan of the week before shows a notice. (recorded, nothing is sent)"""
    ttl: NotRequired[pulumi.Input[str] | None]
    """How long after the creation `gpuform expire` destroys the resource, instead of expires; a day
    has 24 hours. A replacement starts again. (recorded, nothing is sent)"""
    schedule: NotRequired[pulumi.Input[ScheduleArguments] | None]
    """The hours in which the resource runs: `gpuform expire` stops it when they end, and starts it
    when they begin. A stop outside of these hours is not drift, and `up` does not start the
    resource. (recorded, nothing is sent)"""
    idle: NotRequired[pulumi.Input[IdleArguments] | None]
    """When the GPUs of the resource are idle, so that `gpuform expire` stops it. The resource stays
    stopped until idle is removed, or --allow start-terminated starts it. (recorded, nothing is
    sent)"""


if TYPE_CHECKING:

    class PortMappingValues(TypedDict):
        """A port of the cluster that is reachable from outside."""

        internal_port: int
        """Port inside the cluster."""
        external_port: NotRequired[int]
        """Port outside; the platform's choice when not declared."""
        protocol: NotRequired[str]
        """Protocol: tcp or udp."""
        description: NotRequired[str]
        """Purpose of the port."""

    class AutoTerminateValues(TypedDict):
        """When the platform stops the cluster by itself."""

        enabled: NotRequired[bool]
        """Whether the platform stops the cluster by itself."""
        idle_minutes: NotRequired[int]
        """Minutes without work after which the platform stops the cluster."""
        max_runtime_hours: NotRequired[int]
        """Hours of running after which the platform stops the cluster."""
        cost_limit_usd: NotRequired[float]
        """Cost at which the platform stops the cluster, in USD."""

    class ClusterRepairValues(TypedDict):
        """When a broken cluster is restarted, and who must have seen the plan."""

        approve: NotRequired[str]
        """reviewed: a person must see the plan first (by the prompt of `up`, a saved plan, or
        --allow repair). automatic: `up --yes` and `repair --yes` repair. reviewed if not
        declared."""
        on: NotRequired[list[str]]
        """Which reports count: platform, the status of the cluster or the health of the cluster's
        GPUs."""

    class AlternativeValues(TypedDict):
        """Another region, another GPU type, or both."""

        region: NotRequired[str]
        """The region to try."""
        gpu_type: NotRequired[str]
        """The type of GPU to try."""

    class OnNoCapacityValues(TypedDict):
        """What to do while the platform has no free GPUs, instead of failing at once."""

        alternatives: NotRequired[list[AlternativeValues]]
        """The alternatives for a new cluster, in this order."""
        wait_minutes: NotRequired[int]
        """How long to keep trying, in minutes."""

    class SshConnectionValues(TypedDict):
        host: str
        """Host to log in to."""
        port: int
        """Port of the host's SSH server."""
        username: NotRequired[str]
        """User who logs in."""

    class FirewallRuleValues(TypedDict):
        direction: NotRequired[str]
        """Direction: inbound or outbound."""
        protocol: NotRequired[str]
        """Protocol, such as tcp."""
        port_range: NotRequired[str]
        """A port, or two with a hyphen."""
        source: NotRequired[str]
        """The network from which the rule allows connections."""
        description: NotRequired[str]
        """Purpose of the rule."""

    class AlertValues(TypedDict):
        type: NotRequired[str]
        """Kind of the alert, such as high_gpu_utilization."""
        severity: NotRequired[str]
        """Severity of the alert, as the platform reports it."""
        message: NotRequired[str]
        """The message of the alert."""
        triggered_at: NotRequired[str]
        """When the alert began."""

    class CostBreakdownValues(TypedDict):
        gpu_cost: NotRequired[float]
        """Cost of the GPUs."""
        cpu_cost: NotRequired[float]
        """Cost of the processor cores."""
        memory_cost: NotRequired[float]
        """Cost of the memory."""
        storage_cost: NotRequired[float]
        """Cost of the storage."""
        network_cost: NotRequired[float]
        """Cost of the network."""

    class VolumeValues(TypedDict):
        name: NotRequired[str]
        """Name of the volume."""
        mount_path: NotRequired[str]
        """Where the volume is mounted."""
        size_gb: NotRequired[float]
        """Size of the volume."""
        type: NotRequired[str]
        """Kind of storage, such as nvme."""
        encrypted: NotRequired[bool]
        """Whether the volume is encrypted."""

    class SnapshotValues(TypedDict):
        id: str
        """Id of the snapshot, for restore_snapshot."""
        name: NotRequired[str]
        """Name of the snapshot."""
        size_gb: NotRequired[float]
        """Size of the snapshot."""
        created_at: NotRequired[str]
        """When the snapshot was created."""

else:
    PortMappingValues = dict[str, Any]
    AutoTerminateValues = dict[str, Any]
    ClusterRepairValues = dict[str, Any]
    AlternativeValues = dict[str, Any]
    OnNoCapacityValues = dict[str, Any]
    SshConnectionValues = dict[str, Any]
    FirewallRuleValues = dict[str, Any]
    AlertValues = dict[str, Any]
    CostBreakdownValues = dict[str, Any]
    VolumeValues = dict[str, Any]
    SnapshotValues = dict[str, Any]


class Cluster(PlatformResource, module="gpuform.tensorone", name="Cluster"):
    """A GPU cluster: one host with up to 8 GPUs."""

    _lifecycle = ClusterLifecycle

    name: pulumi.Output[str]
    """Name of the cluster: 3 to 64 letters, digits and hyphens."""
    description: pulumi.Output[str | None]
    """Purpose of the cluster."""
    gpu_type: pulumi.Output[str]
    """Type of GPU, such as A100."""
    gpu_count: pulumi.Output[int]
    """Number of GPUs, 1 to 8; a change stops and starts the cluster."""
    storage_gb: pulumi.Output[int]
    """Storage in GB, at least 50; it can only grow, which stops and starts the cluster."""
    region: pulumi.Output[str]
    """Region, such as us-west-2."""
    project_id: pulumi.Output[str]
    """Project of the cluster."""
    cpu_cores: pulumi.Output[int | None]
    """Processor cores; the platform's choice when not declared. A change stops and starts the
    cluster."""
    memory_gb: pulumi.Output[int | None]
    """Memory in GB; the platform's choice when not declared. A change stops and starts the
    cluster."""
    template_id: pulumi.Output[str | None]
    """Template with an image, instead of docker_image."""
    docker_image: pulumi.Output[str | None]
    """Image, instead of template_id; a change stops and starts the cluster."""
    environment_variables: pulumi.Output[dict[str, str] | None]
    """Environment variables, which may be secrets. Variables whose values the platform hides are
    not compared."""
    ssh_enabled: pulumi.Output[bool | None]
    """Whether people can log in."""
    ssh_public_keys: pulumi.Output[list[str] | None]
    """Public keys of the users who log in."""
    port_mappings: pulumi.Output[list[PortMappingValues] | None]
    """Ports that are reachable from outside."""
    security_groups: pulumi.Output[list[str] | None]
    """Ids of security groups."""
    auto_terminate: pulumi.Output[AutoTerminateValues | None]
    """When the platform stops the cluster by itself. Such a stop is not drift; --allow
    start-terminated starts the cluster again."""
    tags: pulumi.Output[dict[str, str] | None]
    """Tags."""
    state: pulumi.Output[str | None]
    """running or stopped."""
    require_healthy: pulumi.Output[list[str] | None]
    """Health checks that must pass while the cluster runs. Until then the cluster is not ready, and
    a create or an update waits."""
    repair: pulumi.Output[ClusterRepairValues | None]
    """A setting of gpuform, never sent: whether to restart the cluster (stop and start) when its
    status is error or the health of its GPUs is bad. gpuform never restarts it while its GPUs are
    in use or their use is unknown, except with --allow evict-jobs."""
    restore_snapshot: pulumi.Output[str | None]
    """Id of a snapshot to start from, once; declaring another snapshot stops and starts the
    cluster."""
    final_snapshot: pulumi.Output[bool | None]
    """Whether a last snapshot is created before the cluster is deleted."""
    final_snapshot_name: pulumi.Output[str | None]
    """Name of the last snapshot."""
    on_no_capacity: pulumi.Output[OnNoCapacityValues | None]
    """A setting of gpuform, never sent: what to do while TensorOne has no free GPUs. The
    alternatives are tried in order, then all again every minute for wait_minutes; the start of a
    cluster waits, too."""
    expires: pulumi.Output[str | None]
    """When `gpuform expire` destroys the resource: at the end of a date in UTC, or at a moment with
    an offset. Every plan of the week before shows a notice."""
    ttl: pulumi.Output[str | None]
    """How long after the creation `gpuform expire` destroys the resource, instead of expires; a day
    has 24 hours. A replacement starts again."""
    schedule: pulumi.Output[ScheduleValues | None]
    """The hours in which the resource runs: `gpuform expire` stops it when they end, and starts it
    when they begin. A stop outside of these hours is not drift, and `up` does not start the
    resource."""
    idle: pulumi.Output[IdleValues | None]
    """When the GPUs of the resource are idle, so that `gpuform expire` stops it. The resource stays
    stopped until idle is removed, or --allow start-terminated starts it."""
    ready: pulumi.Output[bool]
    """Whether the resource is usable now."""
    not_ready_reason: pulumi.Output[str | None]
    """Why the resource is not usable; absent if it is."""
    status: pulumi.Output[str]
    """Status, as the platform reports it."""
    placed_region: pulumi.Output[str | None]
    """Region of the cluster: the declared one, or an alternative."""
    placed_gpu_type: pulumi.Output[str | None]
    """Type of the cluster's GPUs: the declared one, or an alternative."""
    status_message: pulumi.Output[str | None]
    """The platform's message about the cluster."""
    last_status_change: pulumi.Output[str | None]
    """Since when the cluster has the status."""
    stopped_by: pulumi.Output[str | None]
    """Why the cluster stopped: a limit of auto_terminate, or idleness."""
    restored_snapshot: pulumi.Output[str | None]
    """The snapshot that gpuform restored at a start."""
    private_ip: pulumi.Output[str | None]
    """Address inside the platform."""
    public_ip: pulumi.Output[str | None]
    """Public address."""
    proxy_url: pulumi.Output[str | None]
    """Web address of the cluster."""
    port_urls: pulumi.Output[dict[str, str]]
    """Web addresses of the mapped ports, by internal port."""
    ssh_command: pulumi.Output[str | None]
    """Command that logs in as root."""
    ssh_connection: pulumi.Output[SshConnectionValues | None]
    """The parts of ssh_command."""
    firewall_rules: pulumi.Output[list[FirewallRuleValues]]
    """Rules of the platform's firewall, in its order; a change is drift."""
    project_name: pulumi.Output[str | None]
    """Name of the cluster's project."""
    owner_id: pulumi.Output[str | None]
    """Id of the cluster's owner."""
    owner_email: pulumi.Output[str | None]
    """Email address of the cluster's owner."""
    template_name: pulumi.Output[str | None]
    """Name of the cluster's template."""
    template_version: pulumi.Output[str | None]
    """Version of the template, as the platform shows it."""
    made_from_version: pulumi.Output[str | None]
    """Version of the template when gpuform first observed the cluster."""
    availability_zone: pulumi.Output[str | None]
    """Zone of the region."""
    storage_type: pulumi.Output[str | None]
    """Kind of storage, such as nvme."""
    gpu_health: pulumi.Output[str | None]
    """Health of the GPUs."""
    storage_health: pulumi.Output[str | None]
    """Health of the storage."""
    network_health: pulumi.Output[str | None]
    """Health of the network."""
    docker_health: pulumi.Output[str | None]
    """Health of the container runtime."""
    faults: pulumi.Output[list[NodeFaultValues]]
    """Faults of the cluster, as last observed."""
    maybe_busy: pulumi.Output[str | None]
    """If the cluster is broken: why gpuform cannot be sure that nothing runs on it."""
    restarted_at: pulumi.Output[str | None]
    """When gpuform restarted the broken cluster, in UTC, while it is still broken."""
    alerts: pulumi.Output[list[AlertValues]]
    """Warnings of the platform."""
    current_hourly_rate: pulumi.Output[float | None]
    """Cost of an hour, in currency."""
    currency: pulumi.Output[str | None]
    """Currency of all costs."""
    daily_estimate: pulumi.Output[float | None]
    """Projected cost of a day."""
    weekly_estimate: pulumi.Output[float | None]
    """Projected cost of a week."""
    monthly_estimate: pulumi.Output[float | None]
    """Projected cost of a month."""
    cost_breakdown: pulumi.Output[CostBreakdownValues | None]
    """Cost of an hour, by purpose."""
    volumes: pulumi.Output[list[VolumeValues]]
    """Volumes of the cluster; storage_gb is the sum of their sizes."""
    estimated_termination: pulumi.Output[str | None]
    """When the platform expects auto_terminate to stop the cluster."""
    snapshots: pulumi.Output[list[SnapshotValues]]
    """Snapshots of the cluster."""
    hidden_variables: pulumi.Output[list[str]]
    """Variables whose values the platform does not show."""
    python_version: pulumi.Output[str | None]
    """Python in the image."""
    cuda_version: pulumi.Output[str | None]
    """CUDA in the image."""
    driver_version: pulumi.Output[str | None]
    """Driver of the GPUs."""
    docker_version: pulumi.Output[str | None]
    """Docker of the host."""
    created_at: pulumi.Output[str | None]
    """When the cluster was created."""
    updated_at: pulumi.Output[str | None]
    """When the platform last changed the cluster; older answers are ignored."""

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[ClusterArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)

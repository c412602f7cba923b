"""TensorOne's resources for programs.

Generated from the input models: python -m gpuform.providers.codegen
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, Unpack

import pulumi

from gpuform.providers.resource import PlatformResource
from gpuform.providers.tensorone.cluster import ClusterLifecycle

__all__ = ["Cluster"]

Protocol = Literal[
    "tcp",
    "udp",
]

Approve = Literal[
    "reviewed",
    "automatic",
]

On = Literal["platform"]

Region = Literal[
    "us-east-1",
    "us-west-2",
    "eu-west-1",
    "ap-southeast-1",
]

GpuType = Literal[
    "A100",
    "H100",
    "RTX4090",
    "V100",
    "T4",
    "RTX3090",
]

Days = Literal[
    "mon",
    "tue",
    "wed",
    "thu",
    "fri",
    "sat",
    "sun",
]

Then = Literal["stop"]

State = Literal[
    "running",
    "stopped",
]

RequireHealthy = Literal[
    "gpu",
    "storage",
    "network",
    "docker",
]


class PortMappingArguments(TypedDict):
    """A port of the cluster that is reachable from outside."""

    # Port inside the cluster.
    internal_port: pulumi.Input[int]
    # Port outside; the platform's choice when not declared.
    external_port: NotRequired[pulumi.Input[int] | None]
    # Protocol: tcp or udp.
    protocol: NotRequired[pulumi.Input[Protocol] | None]
    # Purpose of the port.
    description: NotRequired[pulumi.Input[str] | None]


class AutoTerminateArguments(TypedDict):
    """When the platform stops the cluster by itself."""

    # Whether the platform stops the cluster by itself.
    enabled: NotRequired[pulumi.Input[bool] | None]
    # Minutes without work after which the platform stops the cluster.
    idle_minutes: NotRequired[pulumi.Input[int] | None]
    # Hours of running after which the platform stops the cluster.
    max_runtime_hours: NotRequired[pulumi.Input[int] | None]
    # Cost at which the platform stops the cluster, in USD.
    cost_limit_usd: NotRequired[pulumi.Input[float] | None]


class ClusterRepairArguments(TypedDict):
    """When a broken cluster is restarted, and who must have seen the plan."""

    # reviewed: a person must see the plan first (by the prompt of `up`, a saved plan, or --allow
    # repair). automatic: `up --yes` and `repair --yes` repair. reviewed if not declared.
    approve: NotRequired[pulumi.Input[Approve] | None]
    # Which reports count: platform, the status of the cluster or the health of the cluster's GPUs.
    on: NotRequired[pulumi.Input[Sequence[pulumi.Input[On]]] | None]


class AlternativeArguments(TypedDict):
    """Another region, another GPU type, or both. Omitted properties stay as declared."""

    # The region to try.
    region: NotRequired[pulumi.Input[Region] | None]
    # The type of GPU to try.
    gpu_type: NotRequired[pulumi.Input[GpuType] | None]


class OnNoCapacityArguments(TypedDict):
    """What to do while the platform has no free GPUs, instead of failing at once."""

    # The alternatives for a new cluster, in this order.
    alternatives: NotRequired[pulumi.Input[Sequence[pulumi.Input[AlternativeArguments]]] | None]
    # How long to keep trying, in minutes.
    wait_minutes: NotRequired[pulumi.Input[int] | None]


class ScheduleArguments(TypedDict):
    """The hours in which a resource runs. Outside of them `gpuform expire` stops it."""

    # The days on which the resource starts; all when not declared.
    days: NotRequired[pulumi.Input[Sequence[pulumi.Input[Days]]] | None]
    # When the resource starts, in time_zone.
    start: pulumi.Input[str]
    # When the resource stops: on the next day if the time is not after start; 24:00 is midnight.
    stop: pulumi.Input[str]
    # IANA name of the time zone. When daylight saving time skips a time, the moment of the change
    # counts; when a time occurs twice, start is the first and stop the second.
    time_zone: pulumi.Input[str]


IdleArguments = TypedDict(
    "IdleArguments",
    {
        # Utilization in percent below which a GPU is idle.
        "below": pulumi.Input[str],
        # How long the GPUs must be idle without a break, 30m to 7d.
        "for": pulumi.Input[str],
        # The action of `gpuform expire`: stop, the default.
        "then": NotRequired[pulumi.Input[Then] | None],
    },
)
"""When the GPUs of the resource count as idle; then `gpuform expire` stops the resource."""


class ClusterArguments(TypedDict):
    """A GPU cluster: one host with up to 8 GPUs."""

    # Name of the cluster: 3 to 64 letters, digits and hyphens.
    name: pulumi.Input[str]
    # Purpose of the cluster.
    description: NotRequired[pulumi.Input[str] | None]
    # Type of GPU, such as A100. (replaces)
    gpu_type: pulumi.Input[GpuType]
    # Number of GPUs, 1 to 8; a change stops and starts the cluster.
    gpu_count: pulumi.Input[int]
    # Storage in GB, at least 50; it can only grow, which stops and starts the cluster. (in place,
    # grow-only)
    storage_gb: pulumi.Input[int]
    # Region, such as us-west-2. (replaces)
    region: pulumi.Input[Region]
    # Project of the cluster. (replaces)
    project_id: pulumi.Input[str]
    # Processor cores; the platform's choice when not declared. A change stops and starts the
    # cluster.
    cpu_cores: NotRequired[pulumi.Input[int] | None]
    # Memory in GB; the platform's choice when not declared. A change stops and starts the cluster.
    memory_gb: NotRequired[pulumi.Input[int] | None]
    # Template with an image, instead of docker_image. (replaces)
    template_id: NotRequired[pulumi.Input[str] | None]
    # Image, instead of template_id; a change stops and starts the cluster.
    docker_image: NotRequired[pulumi.Input[str] | None]
    # Environment variables, which may be secrets. Variables whose values the platform hides are not
    # compared. (in place, secret)
    environment_variables: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[str]]] | None]
    # Whether people can log in. (replaces, write-only)
    ssh_enabled: NotRequired[pulumi.Input[bool] | None]
    # Public keys of the users who log in. (replaces, write-only)
    ssh_public_keys: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]] | None]
    # Ports that are reachable from outside.
    port_mappings: NotRequired[pulumi.Input[Sequence[pulumi.Input[PortMappingArguments]]] | None]
    # Ids of security groups.
    security_groups: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]] | None]
    # When the platform stops the cluster by itself. Such a stop is not drift; --allow
    # start-terminated starts the cluster again.
    auto_terminate: NotRequired[pulumi.Input[AutoTerminateArguments] | None]
    # Tags.
    tags: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[str]]] | None]
    # running or stopped.
    state: NotRequired[pulumi.Input[State] | None]
    # Health checks that must pass while the cluster runs. Until then the cluster is not ready, and
    # a create or an update waits. (recorded, nothing is sent)
    require_healthy: NotRequired[pulumi.Input[Sequence[pulumi.Input[RequireHealthy]]] | None]
    # A setting of gpuform, never sent: whether to restart the cluster (stop and start) when its
    # status is error or the health of its GPUs is bad. gpuform never restarts it while its GPUs are
    # in use or their use is unknown, except with --allow evict-jobs. (recorded, nothing is sent)
    repair: NotRequired[pulumi.Input[ClusterRepairArguments] | None]
    # Id of a snapshot to start from, once; declaring another snapshot stops and starts the cluster.
    # (in place, write-only)
    restore_snapshot: NotRequired[pulumi.Input[str] | None]
    # Whether a last snapshot is created before the cluster is deleted. (in place, write-only)
    final_snapshot: NotRequired[pulumi.Input[bool] | None]
    # Name of the last snapshot. (in place, write-only)
    final_snapshot_name: NotRequired[pulumi.Input[str] | None]
    # A setting of gpuform, never sent: what to do while TensorOne has no free GPUs. The
    # alternatives are tried in order, then all again every minute for wait_minutes; the start of a
    # cluster waits, too. (nothing)
    on_no_capacity: NotRequired[pulumi.Input[OnNoCapacityArguments] | None]
    # When `gpuform expire` destroys the resource: at the end of a date in UTC, or at a moment with
    # an offset. Every plan of the week before shows a notice. (recorded, nothing is sent)
    expires: NotRequired[pulumi.Input[str] | None]
    # How long after the creation `gpuform expire` destroys the resource, instead of expires; a day
    # has 24 hours. A replacement starts again. (recorded, nothing is sent)
    ttl: NotRequired[pulumi.Input[str] | None]
    # The hours in which the resource runs: `gpuform expire` stops it when they end, and starts it
    # when they begin. A stop outside of these hours is not drift, and `up` does not start the
    # resource. (recorded, nothing is sent)
    schedule: NotRequired[pulumi.Input[ScheduleArguments] | None]
    # When the GPUs of the resource are idle, so that `gpuform expire` stops it. The resource stays
    # stopped until idle is removed, or --allow start-terminated starts it. (recorded, nothing is
    # sent)
    idle: NotRequired[pulumi.Input[IdleArguments] | None]


class Cluster(PlatformResource, module="gpuform.tensorone", name="Cluster"):
    """A GPU cluster: one host with up to 8 GPUs."""

    _lifecycle = ClusterLifecycle

    name: pulumi.Output[str]
    description: pulumi.Output[str | None]
    gpu_type: pulumi.Output[str]
    gpu_count: pulumi.Output[int]
    storage_gb: pulumi.Output[int]
    region: pulumi.Output[str]
    project_id: pulumi.Output[str]
    cpu_cores: pulumi.Output[int | None]
    memory_gb: pulumi.Output[int | None]
    template_id: pulumi.Output[str | None]
    docker_image: pulumi.Output[str | None]
    environment_variables: pulumi.Output[dict[str, str] | None]
    ssh_enabled: pulumi.Output[bool | None]
    ssh_public_keys: pulumi.Output[list[str] | None]
    port_mappings: pulumi.Output[list[dict[str, Any]] | None]
    security_groups: pulumi.Output[list[str] | None]
    auto_terminate: pulumi.Output[dict[str, Any] | None]
    tags: pulumi.Output[dict[str, str] | None]
    state: pulumi.Output[str | None]
    require_healthy: pulumi.Output[list[str] | None]
    repair: pulumi.Output[dict[str, Any] | None]
    restore_snapshot: pulumi.Output[str | None]
    final_snapshot: pulumi.Output[bool | None]
    final_snapshot_name: pulumi.Output[str | None]
    on_no_capacity: pulumi.Output[dict[str, Any] | None]
    expires: pulumi.Output[str | None]
    ttl: pulumi.Output[str | None]
    schedule: pulumi.Output[dict[str, Any] | None]
    idle: pulumi.Output[dict[str, Any] | None]
    ready: pulumi.Output[bool]
    not_ready_reason: pulumi.Output[str | None]
    status: pulumi.Output[str]
    placed_region: pulumi.Output[str | None]
    placed_gpu_type: pulumi.Output[str | None]
    status_message: pulumi.Output[str | None]
    last_status_change: pulumi.Output[str | None]
    stopped_by: pulumi.Output[str | None]
    restored_snapshot: pulumi.Output[str | None]
    private_ip: pulumi.Output[str | None]
    public_ip: pulumi.Output[str | None]
    proxy_url: pulumi.Output[str | None]
    port_urls: pulumi.Output[dict[str, str]]
    ssh_command: pulumi.Output[str | None]
    ssh_connection: pulumi.Output[dict[str, Any] | None]
    firewall_rules: pulumi.Output[list[dict[str, Any]]]
    project_name: pulumi.Output[str | None]
    owner_id: pulumi.Output[str | None]
    owner_email: pulumi.Output[str | None]
    template_name: pulumi.Output[str | None]
    template_version: pulumi.Output[str | None]
    made_from_version: pulumi.Output[str | None]
    availability_zone: pulumi.Output[str | None]
    storage_type: pulumi.Output[str | None]
    gpu_health: pulumi.Output[str | None]
    storage_health: pulumi.Output[str | None]
    network_health: pulumi.Output[str | None]
    docker_health: pulumi.Output[str | None]
    faults: pulumi.Output[list[dict[str, Any]]]
    maybe_busy: pulumi.Output[str | None]
    restarted_at: pulumi.Output[str | None]
    alerts: pulumi.Output[list[dict[str, Any]]]
    current_hourly_rate: pulumi.Output[float | None]
    currency: pulumi.Output[str | None]
    daily_estimate: pulumi.Output[float | None]
    weekly_estimate: pulumi.Output[float | None]
    monthly_estimate: pulumi.Output[float | None]
    cost_breakdown: pulumi.Output[dict[str, Any] | None]
    volumes: pulumi.Output[list[dict[str, Any]]]
    estimated_termination: pulumi.Output[str | None]
    snapshots: pulumi.Output[list[dict[str, Any]]]
    hidden_variables: pulumi.Output[list[str]]
    python_version: pulumi.Output[str | None]
    cuda_version: pulumi.Output[str | None]
    driver_version: pulumi.Output[str | None]
    docker_version: pulumi.Output[str | None]
    created_at: pulumi.Output[str | None]
    updated_at: pulumi.Output[str | None]

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[ClusterArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)

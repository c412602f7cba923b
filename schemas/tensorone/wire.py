"""Define what TensorOne's API sends: the cluster of the platform's document, field by field.

Only a cluster's id is required: other answers may have less. Statuses are text, since a newer
server may send others; the known ones are in ``statuses.py``. A measured number stays whole or
broken, as it came. The values of the environment are kept out of every message: they may be tokens.
"""

from collections.abc import Callable
from math import isfinite
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, WrapValidator

from gpuform.schemas.ids import ForeignName, Id, Line
from gpuform.schemas.models import WireList, WireModel


def _or_none(value: Any, read: Callable[[Any], Any]) -> Any:
    try:
        return read(value)
    except ValidationError:
        return None


Number = int | float
Told = Annotated[Number | None, WrapValidator(_or_none)]
"""A number that is only shown: what is none is nothing, and spoils no answer."""


def _strict(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and isfinite(value) else None


Measured = Annotated[Number | None, BeforeValidator(_strict)]
"""A number that something is decided by: no text, no truth value and no NaN is one."""

Words = Annotated[str | None, WrapValidator(_or_none)]
"""A text that is only shown, likewise."""


class HealthChecks(WireModel):
    gpu_health: Words = None
    storage_health: Words = None
    network_health: Words = None
    docker_health: Words = None


class StatusDetails(WireModel):
    message: str | None = None
    last_status_change: Words = None
    health_checks: HealthChecks = HealthChecks()


class Configuration(WireModel):
    gpu_type: str | None = None
    gpu_count: int | None = None
    cpu_cores: int | None = None
    memory_gb: int | None = None
    storage_gb: int | None = None
    storage_type: str | None = None
    region: str | None = None
    availability_zone: str | None = None


class ProjectInfo(WireModel):
    project_id: Line | None = None
    project_name: Words = None
    owner_id: Words = None
    owner_email: Words = None


class TemplateInfo(WireModel):
    template_id: Line | None = None
    template_name: Words = None
    template_version: Words = None
    docker_image: str | None = None


class SshConnection(WireModel):
    """How to log in as root."""

    host: str | None = None
    port: int | None = None
    username: str | None = None
    status: str | None = None
    connection_string: SecretStr | None = None
    last_connection: str | None = None


class PortMapping(WireModel):
    internal_port: int = 0
    external_port: int | None = None
    protocol: str | None = None
    description: str | None = None
    url: str | None = None
    status: str | None = None


class FirewallRule(WireModel):
    """``port_range`` is text: one port, or two with a hyphen; ``source`` is a network."""

    direction: Words = None
    protocol: Words = None
    port_range: Words = None
    source: Words = None
    description: Words = None


class Network(WireModel):
    private_ip: str | None = None
    public_ip: str | None = None
    proxy_url: str | None = None
    ssh_connection: SshConnection = SshConnection()
    port_mappings: tuple[PortMapping, ...] = ()
    security_groups: tuple[str, ...] = ()
    firewall_rules: tuple[FirewallRule, ...] = ()


class CurrentMetrics(WireModel):
    """Utilization is in percent."""

    timestamp: Words = None
    gpu_utilization: Measured = None
    gpu_memory_utilization: Told = None
    cpu_utilization: Told = None
    memory_utilization: Told = None
    storage_utilization: Told = None
    network_rx_mbps: Told = None
    network_tx_mbps: Told = None
    temperature_celsius: Told = None
    power_usage_watts: Measured = None


class Course(WireModel):
    """A measured value over the window."""

    avg: Measured = None
    min: Measured = None
    max: Measured = None
    trend: Words = None


class CostEfficiency(WireModel):
    utilization_score: Told = None
    cost_per_compute_hour: Told = None


class HistoricalMetrics(WireModel):
    window: Words = None
    gpu_utilization: Course = Course()
    memory_utilization: Course = Course()
    cost_efficiency: CostEfficiency = CostEfficiency()


class Alert(WireModel):
    type: str | None = None
    severity: str | None = None
    message: str | None = None
    triggered_at: str | None = None


class Metrics(WireModel):
    current: CurrentMetrics = CurrentMetrics()
    historical: HistoricalMetrics = HistoricalMetrics()
    alerts: tuple[Alert, ...] = ()


class CostBreakdown(WireModel):
    gpu_cost: Told = None
    cpu_cost: Told = None
    memory_cost: Told = None
    storage_cost: Told = None
    network_cost: Told = None


class BillingPeriod(WireModel):
    start: str | None = None
    current: str | None = None
    duration_hours: Number | None = None


class CostProjections(WireModel):
    daily_estimate: Number | None = None
    weekly_estimate: Number | None = None
    monthly_estimate: Number | None = None


class Cost(WireModel):
    current_hourly_rate: Number | None = None
    currency: str | None = None
    session_cost: Number | None = None
    total_lifetime_cost: Told = None
    cost_breakdown: CostBreakdown = CostBreakdown()
    billing_period: BillingPeriod = BillingPeriod()
    cost_projections: CostProjections = CostProjections()


class StorageVolume(WireModel):
    name: Words = None
    size_gb: Told = None
    used_gb: Told = None
    mount_path: Words = None
    type: Words = None
    encrypted: Annotated[bool | None, WrapValidator(_or_none)] = None


class Snapshot(WireModel):
    id: Line = ""
    name: str | None = None
    size_gb: Number | None = None
    created_at: str | None = None


class Storage(WireModel):
    volumes: tuple[StorageVolume, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()


class RuntimeInfo(WireModel):
    python_version: str | None = None
    cuda_version: str | None = None
    driver_version: str | None = None
    docker_version: str | None = None


class Environment(WireModel):
    """``secrets`` are the names of variables whose values the platform does not show."""

    variables: dict[str, SecretStr] = Field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    runtime_info: RuntimeInfo = RuntimeInfo()


class AutoTerminate(WireModel):
    enabled: bool | None = None
    idle_minutes: int | None = None
    max_runtime_hours: Number | None = None
    cost_limit_usd: Number | None = None
    estimated_termination: Words = None
    current_idle_minutes: Measured = None


class Cluster(WireModel):
    """A cluster. A part that an answer leaves out, as a list may, is None."""

    id: Id
    name: ForeignName = ""
    description: str | None = None
    status: str = ""
    status_details: StatusDetails = StatusDetails()
    configuration: Configuration | None = None
    project_info: ProjectInfo = ProjectInfo()
    template_info: TemplateInfo = TemplateInfo()
    network: Network | None = None
    metrics: Metrics | None = None
    cost: Cost | None = None
    storage: Storage = Storage()
    environment: Environment | None = None
    auto_terminate: AutoTerminate | None = None
    uptime_seconds: Measured = None
    created_at: str | None = None
    updated_at: str | None = None
    last_accessed: Words = None
    tags: dict[str, str] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the answer has all that a declaration or an output is read from."""
        parts = (self.configuration, self.network, self.metrics, self.cost, self.environment)
        return None not in parts


class Meta(WireModel):
    """About the answer: ``data_freshness_seconds`` is how old its data is."""

    request_id: Line | None = None
    response_time_ms: Number | None = None
    cache_hit: bool = False
    data_freshness_seconds: Number = 0


class ClusterAnswer(WireModel):
    success: bool = True
    data: Cluster
    meta: Meta = Meta()


class Pagination(WireModel):
    page: int = 1
    limit: int | None = None
    total: int | None = None
    total_pages: int = 1


class ClusterPage(WireList):
    clusters: tuple[Cluster, ...]
    pagination: Pagination = Pagination()


class ClusterListAnswer(WireModel):
    """The document has no list; its form is ours."""

    success: bool = True
    data: ClusterPage
    meta: Meta = Meta()


class Accepted(WireModel):
    """The answer to a delete, of which nothing is needed."""

    success: bool = True


class SeenTemplate(TemplateInfo):
    """A template, by what clusters tell of it."""

    cluster_ids: tuple[str, ...] = Field(default=(), description="The clusters made from it.")


class SeenProject(ProjectInfo):
    """A project and its owner, by what clusters tell of it."""

    cluster_ids: tuple[str, ...] = Field(default=(), description="Its clusters.")


class ClusterMetrics(WireModel):
    """What changes of a cluster all the time."""

    metrics: Metrics = Metrics()
    cost: Cost = Cost()
    volumes: tuple[StorageVolume, ...] = ()
    auto_terminate: AutoTerminate = AutoTerminate()
    uptime_seconds: Told = None
    last_accessed: Words = None
    last_connection: Words = None

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """That of a cluster; a part that its answer leaves out is empty."""
        network = cluster.network
        return cls(
            metrics=cluster.metrics or Metrics(),
            cost=cluster.cost or Cost(),
            volumes=cluster.storage.volumes,
            auto_terminate=cluster.auto_terminate or AutoTerminate(),
            uptime_seconds=cluster.uptime_seconds,
            last_accessed=cluster.last_accessed,
            last_connection=network.ssh_connection.last_connection if network else None,
        )

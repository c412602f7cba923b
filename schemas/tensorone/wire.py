"""Define the requests and answers of TensorOne's API, field by field as documented.

Used by TensorOne's client. Only a cluster's id is required: other answers may have less. Statuses
are text, since a newer server may send others; `outputs.py` lists the known ones. A measured number
stays an integer or a float, as sent. Values of environment variables may be tokens, so they are
secret strings.

The bodies of requests are from TensorOne's documentation, 'GPU Clusters'. A body has the declared
fields and nothing else: the platform keeps what an update leaves out.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, WrapValidator

from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.models import ForeignName, Id, Line, WireList, WireModel
from gpuform.schemas.policies.lifetime import LIFETIME_FIELDS as LIFETIME
from gpuform.schemas.tensorone.inputs import UPDATE_FIELDS, ClusterInputs


def _read_or_none(value: Any, read: Callable[[Any], Any]) -> Any:
    """Return a part of TensorOne's answer by `read`; None if the value has another form."""
    try:
        return read(value)
    except ValidationError:
        return None


Number = int | float
LenientNumber = Annotated[Number | None, WrapValidator(_read_or_none)]
"""A number that is only shown.

Anything else becomes None, so that it does not make an answer unreadable.
"""


def _read_finite_number(value: Any) -> Any:
    """Return a reported number; None for other types, NaN and infinity."""
    # a boolean is an int in Python
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and isfinite(value) else None


StrictNumber = Annotated[Number | None, BeforeValidator(_read_finite_number)]
"""A number that decisions depend on. A text, a boolean or NaN becomes None."""

LenientText = Annotated[str | None, WrapValidator(_read_or_none)]
"""A text that is only shown. Anything else becomes None."""


class HealthChecks(WireModel):
    gpu_health: LenientText = None
    storage_health: LenientText = None
    network_health: LenientText = None
    docker_health: LenientText = None


class StatusDetails(WireModel):
    message: str | None = None
    last_status_change: LenientText = None
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
    project_name: LenientText = None
    owner_id: LenientText = None
    owner_email: LenientText = None


class TemplateInfo(WireModel):
    template_id: Line | None = None
    template_name: LenientText = None
    template_version: LenientText = None
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

    direction: LenientText = None
    protocol: LenientText = None
    port_range: LenientText = None
    source: LenientText = None
    description: LenientText = None


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

    timestamp: LenientText = None
    gpu_utilization: StrictNumber = None
    gpu_memory_utilization: LenientNumber = None
    cpu_utilization: LenientNumber = None
    memory_utilization: LenientNumber = None
    storage_utilization: LenientNumber = None
    network_rx_mbps: LenientNumber = None
    network_tx_mbps: LenientNumber = None
    temperature_celsius: LenientNumber = None
    power_usage_watts: StrictNumber = None


class MetricHistory(WireModel):
    """Statistics of a metric over the window."""

    avg: StrictNumber = None
    min: StrictNumber = None
    max: StrictNumber = None
    trend: LenientText = None


class CostEfficiency(WireModel):
    utilization_score: LenientNumber = None
    cost_per_compute_hour: LenientNumber = None


class HistoricalMetrics(WireModel):
    window: LenientText = None
    gpu_utilization: MetricHistory = MetricHistory()
    memory_utilization: MetricHistory = MetricHistory()
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
    gpu_cost: LenientNumber = None
    cpu_cost: LenientNumber = None
    memory_cost: LenientNumber = None
    storage_cost: LenientNumber = None
    network_cost: LenientNumber = None


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
    total_lifetime_cost: LenientNumber = None
    cost_breakdown: CostBreakdown = CostBreakdown()
    billing_period: BillingPeriod = BillingPeriod()
    cost_projections: CostProjections = CostProjections()


class StorageVolume(WireModel):
    name: LenientText = None
    size_gb: LenientNumber = None
    # Measured all the time, so never part of a comparison.
    used_gb: LenientNumber = None
    mount_path: LenientText = None
    type: LenientText = None
    encrypted: Annotated[bool | None, WrapValidator(_read_or_none)] = None


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
    # Names only: the platform never returns values of secrets.
    secrets: tuple[str, ...] = ()
    runtime_info: RuntimeInfo = RuntimeInfo()


class AutoTerminate(WireModel):
    enabled: bool | None = None
    idle_minutes: int | None = None
    max_runtime_hours: Number | None = None
    cost_limit_usd: Number | None = None
    estimated_termination: LenientText = None
    current_idle_minutes: StrictNumber = None


class Cluster(WireModel):
    """A cluster. A part that an answer leaves out, as the one of a list may, is None."""

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
    uptime_seconds: StrictNumber = None
    created_at: str | None = None
    # Reads may be served from a cache: an answer older than the known one is ignored.
    updated_at: str | None = None
    last_accessed: LenientText = None
    tags: dict[str, str] | None = None

    @property
    def is_complete(self) -> bool:
        """Return True if the answer has all parts with inputs and outputs of a cluster."""
        parts = (self.configuration, self.network, self.metrics, self.cost, self.environment)
        return None not in parts


class Meta(WireModel):
    """Metadata of an answer. ``data_freshness_seconds`` is the age of its data."""

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
    """A page of clusters. The documentation shows no list, so this form is our reading."""

    success: bool = True
    data: ClusterPage
    meta: Meta = Meta()


class Accepted(WireModel):
    """The answer to a delete. gpuform needs nothing of it."""

    success: bool = True


class ListedTemplate(TemplateInfo):
    """A template, as the clusters created from it report it."""

    cluster_ids: tuple[str, ...] = Field(
        default=(), description="The clusters created from the template."
    )


class ListedProject(ProjectInfo):
    """A project and its owner, as its clusters report it."""

    cluster_ids: tuple[str, ...] = Field(default=(), description="Clusters of the project.")


class ClusterMetrics(WireModel):
    """The values of a cluster that change all the time."""

    metrics: Metrics = Metrics()
    cost: Cost = Cost()
    volumes: tuple[StorageVolume, ...] = ()
    auto_terminate: AutoTerminate = AutoTerminate()
    uptime_seconds: LenientNumber = None
    last_accessed: LenientText = None
    last_connection: LenientText = None

    @classmethod
    def from_cluster(cls, cluster: Cluster) -> Self:
        """Return the metrics of a cluster. A part that the answer leaves out is empty."""
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


Body = dict[str, Any]

NOT_IN_CREATE: Final = frozenset(
    {
        "state",
        "require_healthy",
        "restore_snapshot",
        "final_snapshot",
        "final_snapshot_name",
        "on_no_capacity",
        "idle",
        "repair",
        *LIFETIME,
    }
)
"""Inputs that a create request does not have: fields of other requests, and settings of gpuform."""

SECRET_MEMBERS: Final = ("environment_variables",)
"""Members of request bodies whose values no message may contain."""


def build_create(inputs: ClusterInputs) -> Body:
    """Return the JSON for creating a cluster, by ``POST /clusters``.

    A cluster that is to restore a snapshot, or to be stopped, is created without being started.
    """
    body = {
        name: value for name, value in inputs.dump_declared().items() if name not in NOT_IN_CREATE
    }
    if inputs.state == "stopped" or inputs.restore_snapshot is not None:
        # a snapshot is restored by the first start
        body["auto_start"] = False
    return body


def build_update(inputs: ClusterInputs, changes: Sequence[FieldChange]) -> Body:
    """Return the JSON for updating a cluster: each changed field with its complete value.

    Request: ``PUT /clusters/{id}``. Fields that an update request cannot have are left out, and a
    field that is no longer declared is sent only if it has a default. The body may be empty.
    """
    declared, body = inputs.dump_declared(), Body()
    for change in changes:
        name = change.path.split(".")[0].split("[")[0]
        if name in UPDATE_FIELDS and change.action is not Action.KEEP:
            # the update request replaces the complete field, so a changed part is not enough
            body[name] = declared.get(name, change.after)
    return body


def build_start(configuration: Mapping[str, Any], snapshot: str | None) -> Body:
    """Return the JSON for starting a cluster with a changed configuration and a snapshot.

    Request: ``POST /clusters/{id}/start``. ``snapshot`` is the snapshot to restore; None for none.
    """
    body = Body()
    if configuration:
        body["update_configuration"] = dict(configuration)
    if snapshot is not None:
        body["restore_from_snapshot"] = snapshot
    return body


def build_delete(*, final_snapshot: bool, snapshot_name: str | None) -> Body:
    """Return the JSON for deleting a cluster, with the platform's required confirmation.

    Request: ``DELETE /clusters/{id}``. With ``final_snapshot`` the platform keeps a last snapshot;
    without, ``snapshot_name`` does not count.
    """
    # 'Delete Cluster' lists the confirmation as optional, but requires the text DELETE
    body: Body = {"confirm_deletion": "DELETE"}
    if final_snapshot:
        body["create_final_snapshot"] = True
        if snapshot_name is not None:
            body["snapshot_name"] = snapshot_name
    return body

"""List the clusters of a TensorOne account, for commands and for programs, and what it may declare.

`gpuform.providers.catalog` calls `list_existing_objects` to compare an account with the states of
stacks, and Pulumi programs call the other functions. Credentials come from the environment, then
from the running program's configuration (`tensorone:apiKey`). Every function raises GpuformError
when the platform does not answer. TensorOne has no lists of regions and GPU types: the offers are
those of the documentation ('Create Cluster').
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, get_args

from gpuform.providers.catalog import GPU_TYPE, REGION, ExistingObject, Offer
from gpuform.providers.errors import GpuformError
from gpuform.providers.operations import Settings, get_lookup_settings
from gpuform.providers.tensorone.client import get_client
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.inputs import GpuType, Region
from gpuform.schemas.tensorone.outputs import ClusterStatus
from gpuform.schemas.tensorone.wire import (
    Cluster,
    ClusterMetrics,
    Environment,
    ListedProject,
    ListedTemplate,
    Network,
)
from gpuform.schemas.values import to_unix_time


def list_existing_objects(settings: Settings) -> list[ExistingObject]:
    """Return the clusters of the account, without clusters in deletion.

    Sends one request for each page of the list. `hourly_cost` is the current rate.

    Raises:
        GpuformError: TensorOne does not answer.
    """
    clusters = (reading.cluster for reading in get_client(settings).list_clusters())
    return [
        _to_existing_object(cluster)
        for cluster in clusters
        if cluster.status != ClusterStatus.DELETING
    ]


def _to_existing_object(cluster: wire.Cluster) -> ExistingObject:
    """Convert a cluster to an entry of an account's inventory."""
    cost = cluster.cost or wire.Cost()
    project = cluster.project_info
    return ExistingObject(
        "tensorone",
        "Cluster",
        cluster.id,
        cluster.name,
        region=(cluster.configuration and cluster.configuration.region) or "",
        tags=cluster.tags,
        status=cluster.status,
        owner=project.owner_email or project.owner_id or "",
        created_at=to_unix_time(cluster.created_at),
        hourly_cost=cost.current_hourly_rate,
        currency=cost.currency or "",
    )


WINDOWS: Final = ("1h", "6h", "24h", "7d")
"""Values of `metrics_window` that the platform accepts ('Get Cluster Details')."""


def clusters(
    name: str | None = None,
    region: str | None = None,
    status: str | None = None,
    *,
    gpu_type: str | None = None,
    project_id: str | None = None,
    template_id: str | None = None,
) -> Sequence[Cluster]:
    """Return the clusters with every given value, sorted by name and without secrets.

    Environment variables and SSH commands are removed. No document says that a list has every part
    of a cluster: a missing part is None.

    Args:
        name: None matches every name; the other filters work alike.
        region: name of the region.
        status: word of the platform, such as `running`.
        gpu_type: type of the GPUs.
        project_id: id of the cluster's project.
        template_id: id of the template that the cluster was created from.
    """
    filters = (name, region, status, gpu_type, project_id, template_id)
    matching_clusters = [
        cluster
        for cluster in _list_clusters()
        if all(
            value in (None, cluster_value)
            for value, cluster_value in zip(filters, _get_filter_values(cluster), strict=True)
        )
    ]
    return [
        _remove_secrets(cluster)
        for cluster in sorted(matching_clusters, key=lambda cluster: cluster.name)
    ]


def templates() -> Sequence[ListedTemplate]:
    """Return the templates of existing clusters, by id; the API cannot list all templates."""
    return [
        ListedTemplate(**users[0].template_info.model_dump(), cluster_ids=_list_ids(users))
        for users in _group_clusters(lambda cluster: cluster.template_info.template_id)
    ]


def projects() -> Sequence[ListedProject]:
    """Return the projects of existing clusters, sorted by id; the API cannot list all projects."""
    return [
        ListedProject(**members[0].project_info.model_dump(), cluster_ids=_list_ids(members))
        for members in _group_clusters(lambda cluster: cluster.project_info.project_id)
    ]


def _group_clusters(get_id: Callable[[Cluster], str | None]) -> Iterator[list[Cluster]]:
    """Yield the clusters with a common id, sorted by id; clusters without an id are left out."""
    clusters_by_id: dict[str, list[Cluster]] = {}
    for cluster in _list_clusters():
        if shared_id := get_id(cluster):
            clusters_by_id.setdefault(shared_id, []).append(cluster)
    return (clusters for _, clusters in sorted(clusters_by_id.items()))


def _list_ids(clusters: Sequence[Cluster]) -> tuple[str, ...]:
    """Return the sorted ids of clusters which share a template or a project."""
    return tuple(sorted(cluster.id for cluster in clusters))


def metrics(cluster_id: str, window: str = "1h") -> ClusterMetrics:
    """Return the metrics and the cost of a cluster, now and over a window (1h, 6h, 24h, 7d).

    Raises:
        GpuformError: `window` is another one, the cluster does not exist, or TensorOne does not
            answer.
    """
    if window not in WINDOWS:
        raise GpuformError(
            f"tensorone: {window!r} is not a window: use one of {', '.join(WINDOWS)}"
        )
    cluster = get_client(get_lookup_settings()).get_cluster(cluster_id, window).cluster
    return ClusterMetrics.from_cluster(cluster)


def _list_clusters() -> Iterator[Cluster]:
    """Request all clusters, with secrets, by the settings of look-ups."""
    return (reading.cluster for reading in get_client(get_lookup_settings()).list_clusters())


def _get_filter_values(cluster: Cluster) -> tuple[str | None, ...]:
    """Return the cluster's values in the order of the filters of `clusters`."""
    configuration = cluster.configuration
    region, gpu_type = (
        (configuration.region, configuration.gpu_type) if configuration else (None, None)
    )
    project, template = cluster.project_info.project_id, cluster.template_info.template_id
    return (cluster.name, region, cluster.status, gpu_type, project, template)


def _remove_secrets(cluster: Cluster) -> Cluster:
    """Return a copy of the cluster without environment variables and SSH command."""
    environment, network = cluster.environment or Environment(), cluster.network or Network()
    ssh = network.ssh_connection.model_copy(update={"connection_string": None})
    changed_parts = {
        # a program may print or export what a lookup returns
        "environment": environment.model_copy(update={"variables": {}}),
        "network": network.model_copy(update={"ssh_connection": ssh}),
    }
    return cluster.model_copy(update=changed_parts)


def list_offers(_settings: Settings, _regions: Sequence[str]) -> Iterator[Offer]:
    """Yield the documented regions and GPU types without a request."""
    for region in get_args(Region):
        yield Offer("tensorone", REGION, region, "region", region)
    for gpu_type in get_args(GpuType):
        yield Offer("tensorone", GPU_TYPE, gpu_type, "gpu_type", gpu=gpu_type)

"""List the clusters that exist in the account of the API key.

`gpuform.providers.offering` calls `list_existing_objects` to compare an account with the states of
stacks.
"""

from gpuform.providers.offering import ExistingObject
from gpuform.providers.operations import Settings
from gpuform.providers.tensorone.client import get_client
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.statuses import ClusterStatus, to_unix_time


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

"""List the clusters and shared volumes of the API key's project and of `TOGETHER_PROJECT_ID`'s.

`gpuform.providers.offering` calls `list_existing_objects` to compare an account with the states of
stacks.
"""

from collections.abc import Iterator, Sequence

from gpuform.providers.offering import ExistingObject
from gpuform.providers.operations import Settings
from gpuform.providers.together.client import get_client
from gpuform.providers.together.projects import get_default_project
from gpuform.schemas.together import wire
from gpuform.schemas.together.statuses import ClusterStatus, VolumeStatus, to_unix_time


def list_existing_objects(settings: Settings) -> list[ExistingObject]:
    """Return the clusters and shared volumes, without objects in deletion.

    Sends two list requests for the project of the key, and two for that of the variable, which
    names the project of new objects. A volume has the region of a cluster with that volume, or
    none, because Together reports no region of a volume.

    Raises:
        GpuformError: Together does not answer.
    """
    client = get_client(settings)
    project_ids = dict.fromkeys((None, get_default_project(settings)))
    clusters_by_id = {
        cluster.cluster_id: cluster
        for project_id in project_ids
        for cluster in client.list_clusters(project_id)
    }
    volumes_by_id = {
        volume.volume_id: volume
        for project_id in project_ids
        for volume in client.list_volumes(project_id)
    }
    clusters, volumes = [*clusters_by_id.values()], [*volumes_by_id.values()]
    # the list of volumes has no region, the list of clusters has
    region_by_volume = {
        volume.volume_id: cluster.region for cluster in clusters for volume in cluster.volumes
    }
    return [*_list_clusters(clusters), *_list_volumes(volumes, region_by_volume)]


def _list_clusters(clusters: Sequence[wire.Cluster]) -> Iterator[ExistingObject]:
    """Yield the clusters, without clusters in deletion, as entries of an account's inventory."""
    for cluster in clusters:
        if cluster.status != ClusterStatus.DELETING:
            yield ExistingObject(
                "together",
                "Cluster",
                cluster.cluster_id,
                cluster.cluster_name,
                region=cluster.region,
                status=cluster.status,
                created_at=to_unix_time(cluster.created_at),
            )


def _list_volumes(
    volumes: Sequence[wire.Volume], region_by_volume: dict[str, str]
) -> Iterator[ExistingObject]:
    """Yield the volumes, without volumes in deletion, as entries of an account's inventory.

    A volume missing in `region_by_volume` has an empty region.
    """
    for volume in volumes:
        if volume.status != VolumeStatus.DELETING:
            region = region_by_volume.get(volume.volume_id, "")
            yield ExistingObject(
                "together",
                "SharedVolume",
                volume.volume_id,
                volume.volume_name,
                region=region,
                status=volume.status,
                # only what Together reports may end up in a declaration
                listed_inputs={"region": region} if region else {},
            )

"""Look up the clusters and shared volumes of a Together project for Pulumi programs.

Credentials come from the environment, then from the running program's configuration
(`together:apiKey`). Every function raises GpuformError when the platform does not answer.
"""

from collections.abc import Sequence
from typing import TypeVar

from pydantic import SecretStr

from gpuform.providers.operations import get_lookup_settings
from gpuform.providers.together.client import get_client
from gpuform.schemas.together.wire import Cluster, ListedVolume

ClusterOrVolume = TypeVar("ClusterOrVolume", Cluster, ListedVolume)


def clusters(
    cluster_name: str | None = None,
    region: str | None = None,
    status: str | None = None,
    *,
    project_id: str | None = None,
) -> Sequence[Cluster]:
    """Return the clusters with every given value, sorted by name and without kubeconfigs.

    The API filters its list by project only (API reference, 'List all GPU clusters').

    Args:
        cluster_name: None matches every name; the other filters work alike.
        region: name of the region.
        status: word of the platform, such as `Ready`.
        project_id: None means the project of the API key.
    """
    filters = {"cluster_name": cluster_name, "region": region, "status": status}
    matching_clusters = [
        cluster for cluster in _list_clusters(project_id) if _matches(cluster, filters)
    ]
    # a program may print or export what a lookup returns
    without_secrets = {"kube_config": SecretStr("")}
    return [
        cluster.model_copy(update=without_secrets)
        for cluster in _sort_by(matching_clusters, "cluster_name")
    ]


def volumes(
    volume_name: str | None = None,
    region: str | None = None,
    status: str | None = None,
    *,
    project_id: str | None = None,
) -> Sequence[ListedVolume]:
    """Return the shared volumes with every given value, sorted by name.

    Together reports no region of a volume: `region` is that of a cluster that mounts the volume. A
    volume that no cluster mounts has no region, and no filter by region finds it.

    Args:
        volume_name: None matches every name; the other filters work alike.
        region: name of the region.
        status: word of the platform, such as `available`.
        project_id: None means the project of the API key.
    """
    clusters_by_volume: dict[str, list[Cluster]] = {}
    for cluster in _list_clusters(project_id):
        for volume in cluster.volumes:
            clusters_by_volume.setdefault(volume.volume_id, []).append(cluster)
    listed_volumes = []
    for raw_volume in get_client(get_lookup_settings()).list_volumes(project_id):
        mounting_clusters = clusters_by_volume.get(raw_volume.volume_id, [])
        mount_details = {
            "region": mounting_clusters[0].region or None if mounting_clusters else None,
            "cluster_ids": tuple(
                mounting_cluster.cluster_id for mounting_cluster in mounting_clusters
            ),
        }
        listed_volumes.append(
            ListedVolume.model_validate({**raw_volume.model_dump(), **mount_details})
        )
    filters = {"volume_name": volume_name, "region": region, "status": status}
    return _sort_by(
        [listed for listed in listed_volumes if _matches(listed, filters)], "volume_name"
    )


def _list_clusters(project_id: str | None) -> Sequence[Cluster]:
    """Request the clusters of a project, with kubeconfigs, by the settings of look-ups."""
    return get_client(get_lookup_settings()).list_clusters(project_id)


def _matches(item: Cluster | ListedVolume, filters: dict[str, str | None]) -> bool:
    """Return True if the item has the value of every filter; None matches any value."""
    return all(value in (None, getattr(item, name)) for name, value in filters.items())


def _sort_by(items: list[ClusterOrVolume], field: str) -> list[ClusterOrVolume]:
    """Return the items sorted by the text of one field."""
    return sorted(items, key=lambda item: str(getattr(item, field)))

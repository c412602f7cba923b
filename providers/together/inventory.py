"""List what an account of Together has and is offered, for commands and for Pulumi programs.

`gpuform.providers.catalog` calls `list_existing_objects` to compare an account with the states of
stacks, and programs call `clusters` and `volumes`. Credentials come from the environment, then from
the running program's configuration (`together:apiKey`). Every function raises GpuformError when the
platform does not answer. The offers say what a region supports, not what is free there (document
003, "List Regions").
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from pydantic import SecretStr

from gpuform.providers.catalog import DRIVER, GPU_TYPE, REGION, ExistingObject, Offer
from gpuform.providers.operations import Settings, get_lookup_settings
from gpuform.providers.together.client import get_client
from gpuform.providers.together.regions import get_default_project
from gpuform.schemas.together import wire
from gpuform.schemas.together.drivers import format_driver_version
from gpuform.schemas.together.outputs import ClusterStatus, VolumeStatus
from gpuform.schemas.together.wire import Cluster, DriverVersion, ListedVolume
from gpuform.schemas.values import to_unix_time


def list_existing_objects(settings: Settings) -> list[ExistingObject]:
    """Return the clusters and shared volumes, without objects in deletion.

    Asks for the objects of the API key's own project and, if an environment variable names the
    project of new objects, for those of that project: two requests each. Together reports no region
    of a volume: it is that of a cluster with the volume, else empty.

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
        cluster for cluster in _request_clusters(project_id) if _matches(cluster, filters)
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
    for cluster in _request_clusters(project_id):
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


def _request_clusters(project_id: str | None) -> Sequence[Cluster]:
    """Request the clusters of a project, with kubeconfigs, by the settings of look-ups."""
    return get_client(get_lookup_settings()).list_clusters(project_id)


def _matches(item: Cluster | ListedVolume, filters: dict[str, str | None]) -> bool:
    """Return True if the item has the value of every filter; None matches any value."""
    return all(value in (None, getattr(item, name)) for name, value in filters.items())


def _sort_by(items: list[ClusterOrVolume], field: str) -> list[ClusterOrVolume]:
    """Return the items sorted by the text of one field."""
    return sorted(items, key=lambda item: str(getattr(item, field)))


def list_offers(settings: Settings, _regions: Sequence[str]) -> Iterator[Offer]:
    """Yield an offer for each region, GPU type and driver, from one request.

    All regions are listed, whatever `_regions`.

    Raises:
        GpuformError: Together does not answer.
    """
    for region in get_client(settings).list_regions():
        name = region.name
        yield Offer("together", REGION, name, "region", name)
        for gpu_type in region.supported_instance_types:
            yield Offer("together", GPU_TYPE, gpu_type, "gpu_type", name, gpu=gpu_type)
        # two versions of the list may stand for one declared name: offer the name once
        systems_by_driver: dict[tuple[str, str], list[str]] = {}
        for version in region.driver_versions:
            systems_by_driver.setdefault(_describe_driver(version), []).append(version.os or "")
        for (driver, versions), systems in systems_by_driver.items():
            system_names = " or ".join(filter(None, systems))
            description = f"{versions}, {system_names}" if system_names else versions
            yield Offer("together", DRIVER, driver, "driver_version", name, description)


def _describe_driver(version: DriverVersion) -> tuple[str, str]:
    """Return the declared name of a driver version and the two versions behind the name."""
    pair = f"CUDA {version.cuda_version}, NVIDIA driver {version.nvidia_driver_version}"
    try:
        return format_driver_version(version.cuda_version, version.nvidia_driver_version), pair
    except ValueError:
        # a form of version number that no declared name exists for: show what the platform calls it
        return version.id or pair, pair

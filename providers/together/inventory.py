"""What an account of Together holds: clusters and shared volumes of the key's project."""

from collections.abc import Iterator, Sequence

from gpuform.providers.actions import Settings
from gpuform.providers.offering import Held
from gpuform.providers.together.client import client_for
from gpuform.schemas.together import wire
from gpuform.schemas.together.statuses import ClusterStatus, VolumeStatus, unix_time


def held(settings: Settings) -> list[Held]:
    """Two lists. A volume's region is that of a cluster which has it, and else not told."""
    client = client_for(settings)
    clusters = client.clusters()
    regions = {volume.volume_id: each.region for each in clusters for volume in each.volumes}
    return [*_clusters(clusters), *_volumes(client.volumes(), regions)]


def _clusters(clusters: Sequence[wire.Cluster]) -> Iterator[Held]:
    for each in clusters:
        if each.status != ClusterStatus.DELETING:
            yield Held(
                "together",
                "Cluster",
                each.cluster_id,
                each.cluster_name,
                region=each.region,
                status=each.status,
                created_at=unix_time(each.created_at),
            )


def _volumes(volumes: Sequence[wire.Volume], regions: dict[str, str]) -> Iterator[Held]:
    for each in volumes:
        if each.status != VolumeStatus.DELETING:
            region = regions.get(each.volume_id, "")
            yield Held(
                "together",
                "SharedVolume",
                each.volume_id,
                each.volume_name,
                region=region,
                status=each.status,
                told={"region": region} if region else {},
            )

"""What a project of Together has, for programs: clusters and shared volumes.

The credentials are those of the environment, else of the running program's configuration
(`together:apiKey`). Every function raises GpuformError when the platform does not answer.
"""

from collections.abc import Sequence
from typing import TypeVar

from pydantic import SecretStr

from gpuform.providers.actions import lookup_settings
from gpuform.providers.together.client import client_for
from gpuform.schemas.together.wire import Cluster, ListedVolume

Found = TypeVar("Found", Cluster, ListedVolume)


def clusters(
    cluster_name: str | None = None,
    region: str | None = None,
    status: str | None = None,
    *,
    project_id: str | None = None,
) -> Sequence[Cluster]:
    """The clusters that have every value given, by name; without their kubeconfig.

    The list of the API takes no filter but the project (API reference, 'List all GPU clusters').
    """
    wanted = {"cluster_name": cluster_name, "region": region, "status": status}
    found = [each for each in _clusters(project_id) if _has(each, wanted)]
    hidden = {"kube_config": SecretStr("")}
    return [each.model_copy(update=hidden) for each in _sorted(found, "cluster_name")]


def volumes(
    volume_name: str | None = None,
    region: str | None = None,
    status: str | None = None,
    *,
    project_id: str | None = None,
) -> Sequence[ListedVolume]:
    """The shared volumes that have every value given, by name.

    Together tells no region of a volume: it is that of a cluster which mounts it. One that no
    cluster mounts has none, and is not found by region.
    """
    mounting: dict[str, list[Cluster]] = {}
    for cluster in _clusters(project_id):
        for volume in cluster.volumes:
            mounting.setdefault(volume.volume_id, []).append(cluster)
    found = []
    for each in client_for(lookup_settings()).volumes(project_id):
        users = mounting.get(each.volume_id, [])
        told = {
            "region": users[0].region or None if users else None,
            "cluster_ids": tuple(user.cluster_id for user in users),
        }
        found.append(ListedVolume.model_validate({**each.model_dump(), **told}))
    wanted = {"volume_name": volume_name, "region": region, "status": status}
    return _sorted([each for each in found if _has(each, wanted)], "volume_name")


def _clusters(project_id: str | None) -> Sequence[Cluster]:
    return client_for(lookup_settings()).clusters(project_id)


def _has(found: Cluster | ListedVolume, wanted: dict[str, str | None]) -> bool:
    return all(value in (None, getattr(found, name)) for name, value in wanted.items())


def _sorted(found: list[Found], name: str) -> list[Found]:
    return sorted(found, key=lambda each: str(getattr(each, name)))

"""List the cluster records of an AIOS registry, with the nodes of each.

`providers.offering` calls `list_existing_objects` to compare a platform with the states of stacks.
"""

from gpuform.providers.aios.client import get_client
from gpuform.providers.offering import ExistingObject
from gpuform.providers.operations import Settings
from gpuform.schemas.aios import wire


def list_existing_objects(settings: Settings) -> list[ExistingObject]:
    """Return every record, by one query; no price of the hardware is known."""
    return [
        ExistingObject(
            "aios",
            "Cluster",
            cluster.id,
            cluster.id,
            region=cluster.region_id or "",
            tags=dict.fromkeys(cluster.tags or ()),
            status=cluster.status or "",
            owner=(cluster.cluster_metadata and cluster.cluster_metadata.owner) or "",
            created_at=wire.parse_object_id_time(cluster.object_id),
        )
        for cluster in get_client(settings).query_clusters({})
    ]

"""List the cluster records of an AIOS registry, with the nodes of each.

`providers.offering` calls `held` to compare a platform with the states of stacks.
"""

from gpuform.providers.aios.client import client_for
from gpuform.providers.offering import Held
from gpuform.providers.operations import Settings
from gpuform.schemas.aios import wire


def held(settings: Settings) -> list[Held]:
    """Return every record, by one query; no price of the hardware is known."""
    return [
        Held(
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
        for cluster in client_for(settings).query_clusters({})
    ]

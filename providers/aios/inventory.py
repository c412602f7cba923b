"""What a registry of AIOS holds: records of clusters, with the nodes that each has."""

from gpuform.providers.aios.client import client_for
from gpuform.providers.offering import Held
from gpuform.providers.operations import Settings
from gpuform.schemas.aios import wire


def held(settings: Settings) -> list[Held]:
    """One query. A record costs nothing by itself; what its hardware costs is not told."""
    return [
        Held(
            "aios",
            "Cluster",
            each.id,
            each.id,
            region=each.region_id or "",
            tags=dict.fromkeys(each.tags or ()),
            status=each.status or "",
            owner=(each.cluster_metadata and each.cluster_metadata.owner) or "",
            created_at=wire.parse_object_id_time(each.object_id),
        )
        for each in client_for(settings).query({})
    ]

"""List the cluster records of an AIOS registry, for commands and for programs.

`providers.catalog` calls `list_existing_objects` to compare a platform with the states of stacks,
and programs call `clusters`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.providers.aios.client import Envelope, get_client
from gpuform.providers.catalog import ExistingObject
from gpuform.providers.operations import Settings, get_lookup_settings
from gpuform.schemas.aios import wire
from gpuform.schemas.aios.wire import Cluster


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


def clusters(
    filter: Mapping[str, Any] | None = None,  # noqa: A002 - Mongo's name
    *,
    envelope: Envelope = "raw",
) -> Sequence[Cluster]:
    """Return the records which pass a Mongo filter, or all records without a filter.

    The address is that of the environment, else of the running program's configuration
    (`aios:registryUrl`).

    Args:
        filter: has the registry's own names: `{"gpus.count": {"$gte": 2}}`. The answer is checked
            against the filter.
        envelope: "raw" sends the filter as documented, "wrapped" sends `{"query": ...}` to a
            registry that ignores a raw filter and would answer with all records.

    Raises:
        GpuformError: the registry does not answer, or the filter cannot be checked.
    """
    return get_client(get_lookup_settings()).query_clusters(filter or {}, envelope)

"""Look up records of the AIOS registry, for programs."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.providers.aios.client import Envelope, get_client
from gpuform.providers.operations import get_lookup_settings
from gpuform.schemas.aios.wire import Cluster


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

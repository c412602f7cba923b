"""What the registry has, for programs."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.providers.aios.client import Envelope, client_for
from gpuform.providers.operations import lookup_settings
from gpuform.schemas.aios.wire import Cluster


def clusters(
    filter: Mapping[str, Any] | None = None,  # noqa: A002 - Mongo's name
    *,
    envelope: Envelope = "raw",
) -> Sequence[Cluster]:
    """The records that pass a Mongo filter; without one, all.

    The filter has the registry's own names: `{"gpus.count": {"$gte": 2}}`. What the registry
    answers is checked against it. `envelope` says how it is sent: "raw", as documented, or
    "wrapped" in `{"query": ...}`, which spares a registry that wants that a list of all. The
    address is that of the environment, else of the running program's configuration
    (`aios:registryUrl`). Raises GpuformError when the registry does not answer, or for a filter
    that cannot be checked.
    """
    return client_for(lookup_settings()).query(filter or {}, envelope)

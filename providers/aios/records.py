"""Changes of a record that take several looks: the place of an entry, an answer that was lost."""

from collections.abc import Callable, Sequence

from gpuform.providers.aios.client import AiosClient
from gpuform.providers.call import Call
from gpuform.providers.errors import NotFound, ServerError, UnknownOutcome
from gpuform.schemas.aios import wire
from gpuform.schemas.aios.updates import Request

ATTEMPTS = 5
PAUSE = 2.0
"""Seconds before a look at what became of a request whose answer was lost."""

HARDWARE_STAYS = (
    "deleting it deletes the registry's record alone: the hardware goes on existing, and costing"
)


def find(client: AiosClient, cluster_id: str) -> wire.Cluster | None:
    """The record now; None when there is none."""
    try:
        return client.shared_clusters().one(cluster_id)
    except NotFound:
        return None


def change(
    call: Call,
    client: AiosClient,
    cluster_id: str,
    wanted: Callable[[wire.Cluster], Sequence[Request]],
) -> None:
    """Sends what `wanted` says is left to do, until that is nothing or all of it was answered.

    A request that must not be repeated is followed by another look when its answer was lost. Raises
    NotFound when there is no record.
    """
    with client.editing(cluster_id):
        for attempt in range(1, ATTEMPTS + 1):
            found = client.cluster(cluster_id)
            try:
                for request in wanted(found):
                    _check_places(call, request, client.update(cluster_id, request))
            except (UnknownOutcome, ServerError):
                if attempt == ATTEMPTS:
                    raise
                call.sleep(PAUSE)
            else:
                return


def _check_places(call: Call, request: Request, answered: wire.Cluster) -> None:
    """Somebody who removes an entry at the same moment moves those behind it."""
    entries = answered.nodes.node_data
    for placed in request.placed:
        here = entries[placed.index].id if placed.index < len(entries) else None
        if here != placed.node_id:
            call.on_warning(
                f"while node {placed.node_id} of cluster {answered.id} was changed, somebody "
                f"removed another one, and the entry of {here or 'no node'} may have got its "
                "values: run `gpuform refresh`, and look at the record"
            )

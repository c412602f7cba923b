"""Changes of a record that take several looks: the place of an entry, an answer that was lost."""

from collections.abc import Callable, Sequence

from gpuform.providers.aios.client import AiosClient
from gpuform.providers.call import Call
from gpuform.providers.errors import NotFound
from gpuform.providers.waiting import Look, wait_until
from gpuform.schemas.aios import wire
from gpuform.schemas.aios.updates import Request

INTERVAL = 5.0
PATIENCE = 120.0
"""Seconds between looks at what became of a change, and in which it has to be answered."""

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
    """Sends what `wanted` says is left to do, until all of it was answered.

    A request that must not be repeated is followed by another look when its answer was lost. Raises
    NotFound when there is no record, NotReady when the registry does not answer for a while.
    """

    def probe() -> Look[None]:
        for request in wanted(client.cluster(cluster_id)):
            if request.placed:
                _check_places(call, request, client.update(cluster_id, request))
            else:
                client.apply(cluster_id, request)
        return Look(None, "changed", done=True)

    with client.editing(cluster_id):
        what = f"change of cluster {cluster_id}"
        wait_until(call, probe, what=what, interval=INTERVAL, limit=PATIENCE)


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

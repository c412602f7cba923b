"""Changes of a record that take several looks: the place of an entry, an answer that was lost."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gpuform.providers.aios.client import AiosClient
from gpuform.providers.calls import Call, Look, wait_until
from gpuform.providers.creating import Candidate, covers, is_of_another_time
from gpuform.providers.errors import GpuformError, NotFound
from gpuform.providers.records import Target
from gpuform.schemas.aios import wire
from gpuform.schemas.aios.updates import Request

INTERVAL = 5.0
PATIENCE = 120.0
"""Seconds between looks at what became of a change, and in which it has to be answered."""

SENT: Final = {"properties": "those declared"}
"""What a create has sent, as evidence."""

HARDWARE_STAYS = (
    "deleting it deletes the registry's record alone: the hardware goes on existing, and costing"
)


def find(client: AiosClient, cluster_id: str) -> wire.Cluster | None:
    """The record now; None when there is none."""
    try:
        return client.shared_clusters().one(cluster_id)
    except NotFound:
        return None


def compared(found: Mapping[str, Any], declared: Mapping[str, Any]) -> Mapping[str, str]:
    """Whether a document is as declared. Its texts are people's: no record may have them."""
    return SENT if covers(found, declared) else {"properties": "others"}


def is_still_there(call: Call, target: Target, present: Sequence[Candidate]) -> bool:
    """Whether what an earlier attempt made is there: its id alone is no proof, for people choose
    it, and somebody may have made another one since."""
    intent = call.intents.find(call.urn, target)
    return any(intent is not None and not is_of_another_time(each, intent) for each in present)


def is_another(call: Call, object_id: object) -> bool:
    """Whether somebody has made a record or an entry anew since the state was written."""
    known, now = call.known.get("object_id"), wire.own_id(object_id)
    return known is not None and now is not None and known != now


def gone(what: str) -> GpuformError:
    """The error of a change to what somebody else has made in its place."""
    return GpuformError(
        f"{what} is gone from the registry: somebody has made another one under its id",
        hint="refresh (`gpuform refresh`): the state then lets go of it",
    )


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
        for request in wanted(client.shared_clusters().alone(cluster_id)):
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

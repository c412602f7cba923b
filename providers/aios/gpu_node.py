"""One node of a cluster's record: an entry of `nodes.nodeData`, with its part of the sums.

Mongo applies one update to one record as a whole, so that the entry and the sums change together,
whoever else adds nodes at the same time.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuform.providers.actions import Observed, Settings, Timeouts
from gpuform.providers.aios.client import client_for
from gpuform.providers.aios.records import (
    HARDWARE_STAYS,
    SENT,
    change,
    compared,
    find,
    gone,
    is_another,
    is_still_there,
)
from gpuform.providers.aios.taking import EntryTaking
from gpuform.providers.calls import Call
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.errors import GpuformError, NotFound, NotReady, ServerError
from gpuform.providers.http import contradicted
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.records import Target
from gpuform.schemas.aios import wire
from gpuform.schemas.aios.documents import declared_node
from gpuform.schemas.aios.inputs import GpuNodeInputs
from gpuform.schemas.aios.outputs import GpuNodeOutputs
from gpuform.schemas.aios.updates import Request, node_added, node_changed, node_removed
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.drain import Leaving
from gpuform.schemas.models import Problem

Seen = Observed[GpuNodeOutputs]


class GpuNodeActions:
    """The verbs of an entry."""

    def __init__(self, settings: Settings) -> None:
        self._client = client_for(settings)

    def planning_problems(self, call: Call, values: Mapping[str, Any]) -> Iterator[Problem]:  # noqa: ARG002 - the shape of Actions
        """The registry has nothing to look up."""
        return iter(())

    def create(self, call: Call, want: GpuNodeInputs) -> str:
        """Adds the entry; its cluster has to have a record."""
        cluster_id, node_id = want.cluster_id, want.node_id
        id_ = f"{cluster_id}/{node_id}"

        def candidates() -> list[Candidate]:
            found = find(self._client, cluster_id)
            if found is None:
                call.refuse_to_make()
                raise GpuformError(
                    f"cluster_id: the registry has no cluster {cluster_id}",
                    hint="declare it as an aios.Cluster, and give that as cluster_id",
                )
            entries = [each for each in found.nodes.node_data if each.id == node_id]
            return [
                Candidate(
                    id_,
                    wire.moment_of(each.object_id),
                    shown=compared(declared_node(each), _entry(want)),
                )
                for each in entries
            ]

        def send() -> str:
            self._client.apply(cluster_id, Request(node_added(_entry(want))))
            return id_

        target = Target("aios", "GpuNode", node_id, region=cluster_id)
        creation = Creation(
            target,
            candidates,
            exists=lambda _id: is_still_there(call, target, candidates()),
            attempts=[Attempt(send, cluster_id, sent=SENT)],
            clock_ahead=lambda: self._client.clock_ahead,
        )
        return create_once(call, creation)

    def settle(self, call: Call, id_: str, want: GpuNodeInputs) -> Seen:
        """An entry that is there can be used."""
        seen = self.read(call, id_, {})
        if seen is None:
            raise NotReady(f"node {want.node_id} is not in the record of {want.cluster_id}")
        return seen

    def read(self, call: Call, id_: str, known: Mapping[str, Any]) -> Seen | None:  # noqa: ARG002 - the shape of Actions
        """None when the record has no such entry, or there is no record."""
        cluster_id, _, node_id = id_.partition("/")
        found = find(self._client, cluster_id)
        if found is None:
            call.falls_with = cluster_id
            return None
        entry = _entry_of(found, node_id)
        if entry is None or is_another(call, entry.object_id):
            return None
        inputs = declared_node(entry)
        inputs["node_id"] = inputs.pop("id")
        outputs = GpuNodeOutputs(ready=True, object_id=wire.own_id(entry.object_id))
        return Observed({"cluster_id": cluster_id, **inputs}, outputs)

    def update(
        self,
        call: Call,
        id_: str,
        want: GpuNodeInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """The changed paths of the entry, and what that changes of the sums."""
        names = {"id", *(change.path.partition(".")[0] for change in changes)}
        node = {name: value for name, value in _entry(want).items() if name in names}

        def left(found: wire.Cluster) -> list[Request]:
            entry = found.entry(want.node_id)
            if entry is not None and is_another(call, entry.object_id):
                raise gone(f"node {id_}")
            request = node_changed(found, node)
            return [request] if request else []

        change(call, self._client, want.cluster_id, left)

    def leaving(self, call: Call, id_: str, want: GpuNodeInputs) -> Leaving | None:  # noqa: ARG002 - the shape of TakesNodes
        """None: a change takes no node."""
        return None

    def all_leaving(
        self,
        call: Call,
        id_: str,
        known: Mapping[str, Any],
        because: str,  # noqa: ARG002 - the shape of TakesNodes
    ) -> Leaving | None:
        """The node."""
        return _taking(call, id_, known).leaving([id_.partition("/")[2]])

    def release(self, call: Call, id_: str, known: Mapping[str, Any]) -> None:
        """Uncordons the node whose entry is gone."""
        _taking(call, id_, known).release()

    def delete(self, call: Call, id_: str, known: Mapping[str, Any]) -> None:
        """Removes the entry when no job runs on the node; one that is not there is no error."""
        cluster_id, _, node_id = id_.partition("/")

        def left(found: wire.Cluster) -> list[Request]:
            entry = _entry_of(found, node_id)
            is_ours = entry is not None and not is_another(call, entry.object_id)
            return [Request(node_removed(found, node_id))] if is_ours else []

        try:
            with _taking(call, id_, known).taken([node_id]):
                change(call, self._client, cluster_id, left)
        except NotFound as error:
            if find(self._client, cluster_id) is not None:
                raise contradicted(error, "it is still there") from None


class GpuNodeLifecycle(Lifecycle[GpuNodeInputs, GpuNodeOutputs]):
    """An entry of a record of the AIOS registry."""

    platform = "aios"
    kind = "GpuNode"
    inputs = GpuNodeInputs
    outputs = GpuNodeOutputs
    timeouts = Timeouts(create=600, update=600, delete=600)
    actions = GpuNodeActions
    id_example = "west-vision-001/node-1"
    remains = HARDWARE_STAYS


def _taking(call: Call, id_: str, declared: Mapping[str, Any]) -> EntryTaking:
    return EntryTaking(call, id_, f"node {id_}", declared)


def _entry_of(found: wire.Cluster, node_id: str) -> wire.Node | None:
    """The entry of a record; None where the record tells its nodes, and has none of that id.

    Raises ServerError where it does not tell them.
    """
    if "nodes" not in found.model_fields_set or "node_data" not in found.nodes.model_fields_set:
        raise ServerError(
            f"aios: the answer about cluster {found.id} tells no nodes",
            method="GET",
            path=f"/clusters/{found.id}",
            status=200,
        )
    return found.entry(node_id)


def _entry(want: GpuNodeInputs) -> dict[str, Any]:
    """The declaration as a node of a cluster."""
    declared = want.declared()
    return {
        "id": declared.pop("node_id"),
        **{k: v for k, v in declared.items() if k not in ("cluster_id", "drain")},
    }

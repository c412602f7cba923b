"""Add, change and remove one node of a cluster's record: an entry of `nodes.nodeData`.

Mongo applies one update to one record at once, so that the entry and the sums change together. The
sums are computed from the entries that the record has, and corrected until they agree with what the
registry answers, whoever else adds nodes at the same time.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpuform.providers.aios.client import Duplicate, client_for
from gpuform.providers.aios.records import (
    HARDWARE_STAYS,
    SENT,
    change,
    compared,
    confirm,
    find,
    find_alone,
    find_present,
    gone,
    is_another,
    is_still_there,
    look_past_lag,
    require_gone,
    require_nodes,
    unfinished,
    warn_of_gaps,
)
from gpuform.providers.aios.taking import EntryTaking
from gpuform.providers.context import ProviderContext
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.errors import GpuformError, NotFound, NotReady, ServerError
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.records import Target
from gpuform.schemas.aios import wire
from gpuform.schemas.aios.documents import entry_to_declared
from gpuform.schemas.aios.inputs import GpuNodeInputs, GpuNodeOutputs
from gpuform.schemas.aios.updates import (
    UpdateRequest,
    build_last_entry_removal,
    build_node_addition,
    build_node_change,
    build_node_removal,
    build_sums_request,
)
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.drain import RemovedNodes

Seen = Observed[GpuNodeOutputs]

_NOT_OF_ENTRY: Final = frozenset({"cluster_id", "node_id", "drain"})
"""Inputs that an entry of a record does not have under their names."""


class GpuNodeActions:
    """The verbs of an entry."""

    def __init__(self, settings: Settings) -> None:
        self._client = client_for(settings)

    def planning_problems(
        self,
        call: ProviderContext,  # noqa: ARG002 - the shape of ResourceOperations
        values: Mapping[str, Any],  # noqa: ARG002 - the shape of ResourceOperations
    ) -> Iterator[Problem]:
        """The registry has nothing to look up."""
        return iter(())

    def create(self, call: ProviderContext, inputs: GpuNodeInputs) -> str:
        """Add the entry and return its id; its cluster has to have a record."""
        cluster_id, node_id = inputs.cluster_id, inputs.node_id
        id_ = f"{cluster_id}/{node_id}"
        looked: list[tuple[wire.Cluster, wire.Cluster | None]] = []

        def candidates() -> list[Candidate]:
            answered = self._client.last_answered(cluster_id)
            record = find_present(call, self._client, cluster_id, lambda it: not it.entry(node_id))
            if record is None:
                call.refuse_creation()
                raise GpuformError(
                    f"cluster_id: the registry has no cluster {cluster_id}",
                    hint="declare it as an aios.Cluster, and give that as cluster_id",
                )
            looked[:] = [(require_nodes(record), answered)]
            entries = [each for each in record.nodes.node_data if each.id == node_id]
            return [
                Candidate(
                    id_,
                    wire.parse_object_id_time(each.object_id),
                    shown=compared(entry_to_declared(each), _entry(inputs)),
                )
                for each in entries
            ]

        def send() -> str:
            self._add(*looked[0], _entry(inputs))
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

    def _add(
        self, looked: wire.Cluster, answered: wire.Cluster | None, entry: Mapping[str, Any]
    ) -> None:
        """Add an entry by one request, and take it back if somebody has added one of that id.

        `looked` is the record that a look has shown, `answered` what the last write before it has
        left.
        """
        cluster_id = looked.id
        with self._client.editing(cluster_id):
            # Other threads may have added nodes since the look. What neither shows of the sums,
            # `wait_until_ready` corrects.
            latest = self._client.last_answered(cluster_id)
            base = looked if latest is None or latest is answered else latest
            record = require_nodes(
                self._client.update(cluster_id, build_node_addition(base, entry))
            )
            number = sum(each.id == entry["id"] for each in record.nodes.node_data)
            if number > 1:
                self._client.update(cluster_id, build_last_entry_removal(record, entry))
        if number != 1:
            kind = Duplicate if number else ServerError
            problem = "had one of that id already" if number else "does not show it in its answer"
            raise kind(
                f"aios: node {entry['id']} was sent to cluster {cluster_id}, which {problem}",
                method="PUT",
                path=f"/clusters/{cluster_id}",
                status=200,
            )

    def wait_until_ready(
        self,
        call: ProviderContext,
        object_id: str,  # noqa: ARG002 - the shape of ResourceOperations
        inputs: GpuNodeInputs,
    ) -> Seen:
        """Wait until the record has the entry once, as declared, and its sums with it."""
        entry, cluster_id = _entry(inputs), inputs.cluster_id

        def plan(record: wire.Cluster) -> UpdateRequest | None:
            return build_node_change(record, entry)

        # A GET may be older than the last change, and show an earlier entry of the same id.
        record = self._client.last_answered(cluster_id) if call.just_created else None
        if record is None or record.entry(inputs.node_id) is None or plan(record):
            record = change(call, self._client, cluster_id, plan)
        warn_of_gaps(call, record)
        entries = [each for each in record.nodes.node_data if each.id == inputs.node_id]
        if not entries:
            raise NotReady(f"node {inputs.node_id} is not in the record of {cluster_id}")
        seen = _observed(cluster_id, entries[0])
        if len(entries) > 1:
            raise NotReady(
                f"node {inputs.node_id} is in the record of {cluster_id} {len(entries)} times: "
                "remove those that are not this stack's",
                last=seen,
            )
        return seen

    def read(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> Seen | None:
        """Return the entry; None when the record has no such entry, or there is no record.

        An entry that differs from what the state knows is confirmed: a GET may be older.
        """
        cluster_id, _, node_id = object_id.partition("/")

        def look() -> Seen | None:
            record = find(self._client, cluster_id)
            if record is not None and record.entry(node_id) is None:
                record = find_alone(self._client, cluster_id)
            if record and known_inputs and _is_changed(record, node_id, known_inputs):
                record = confirm(call, self._client, record)
            call.deleted_with_id = "" if record else cluster_id
            entry = require_nodes(record).entry(node_id) if record else None
            if record is None or entry is None or is_another(call, entry.object_id):
                return None
            # What kept it from being ready may have been the sums: `wait_until_ready` has to go on.
            is_due = (
                call.stored_properties.get("ready") is False
                and build_sums_request(record) is not None
            )
            return _observed(cluster_id, entry, "the sums are without it" if is_due else None)

        return look_past_lag(call, self._client, look)

    def update(
        self,
        call: ProviderContext,
        object_id: str,
        inputs: GpuNodeInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """The changed paths of the entry, and what that changes of the sums."""
        names = {"id", *(change.path.partition(".")[0] for change in changes)}
        node = {name: value for name, value in _entry(inputs).items() if name in names}

        def plan(record: wire.Cluster) -> UpdateRequest | None:
            entry = record.entry(inputs.node_id)
            if entry is None or is_another(call, entry.object_id):
                raise gone(f"node {object_id}")
            return build_node_change(record, node)

        with unfinished():
            change(call, self._client, inputs.cluster_id, plan)

    def predict_removed_nodes(
        self,
        call: ProviderContext,  # noqa: ARG002 - the shape of ResourceOperations
        object_id: str,  # noqa: ARG002 - the shape of ResourceOperations
        inputs: GpuNodeInputs,  # noqa: ARG002 - the shape of ResourceOperations
    ) -> RemovedNodes | None:
        """None: a change takes no node."""
        return None

    def predict_nodes_removed_with_object(
        self,
        call: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any],
        because: str,  # noqa: ARG002 - the shape of NodeRemovalOperations
    ) -> RemovedNodes | None:
        """The node."""
        return _taking(call, object_id, known_inputs).leaving([object_id.partition("/")[2]])

    def uncordon_leftover_nodes(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Uncordons the node whose entry is gone."""
        _taking(call, object_id, known_inputs).release()

    def delete(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Removes the entry when no job runs on the node; one that is not there is no error."""
        cluster_id, _, node_id = object_id.partition("/")
        entry_object_id = wire.parse_object_id(call.stored_properties.get("object_id"))
        removed: list[UpdateRequest] = []

        def plan(record: wire.Cluster) -> UpdateRequest | None:
            entry = record.entry(node_id)
            is_ours = entry is not None and not is_another(call, entry.object_id)
            if is_ours or not removed:  # a GET may be older than the entry
                removed.append(build_node_removal(record, node_id, entry_object_id))
                return removed[-1]
            return build_sums_request(record)

        try:
            with _taking(call, object_id, known_inputs).taken([node_id]):
                change(call, self._client, cluster_id, plan)
        except NotFound as error:
            require_gone(call, self._client, cluster_id, error)


class GpuNodeLifecycle(Lifecycle[GpuNodeInputs, GpuNodeOutputs]):
    """An entry of a record of the AIOS registry."""

    platform = "aios"
    kind = "GpuNode"
    inputs = GpuNodeInputs
    outputs = GpuNodeOutputs
    timeouts = Timeouts(create=600, update=600, delete=600)
    operations = GpuNodeActions
    id_example = "west-vision-001/node-1"
    deletion_note = HARDWARE_STAYS


def _taking(call: ProviderContext, id_: str, declared: Mapping[str, Any]) -> EntryTaking:
    return EntryTaking(call, id_, f"node {id_}", declared)


def _is_changed(record: wire.Cluster, node_id: str, known: Mapping[str, Any]) -> bool:
    """Return whether the entry of a record differs from the inputs that the state knows."""
    declared = {k: v for k, v in known.items() if k not in _NOT_OF_ENTRY}
    request = build_node_change(record, {"id": node_id, **declared})
    return request is not None and bool(request.placed)


def _observed(cluster_id: str, entry: wire.Node, reason: str | None = None) -> Seen:
    """Return the entry as outputs; `reason` says why it is not ready."""
    inputs = entry_to_declared(entry)
    inputs["node_id"] = inputs.pop("id")
    outputs = GpuNodeOutputs(
        ready=reason is None,
        not_ready_reason=reason,
        object_id=wire.parse_object_id(entry.object_id),
    )
    return Observed({"cluster_id": cluster_id, **inputs}, outputs)


def _entry(want: GpuNodeInputs) -> dict[str, Any]:
    """The declaration as a node of a cluster."""
    declared = want.dump_declared()
    return {
        "id": declared.pop("node_id"),
        **{k: v for k, v in declared.items() if k not in _NOT_OF_ENTRY},
    }

"""Implement the lifecycle of one node in a cluster's record: an entry of `nodes.nodeData`.

`lifecycle` calls `GpuNodeOperations`. Mongo applies one update to one record at once, so the entry
and the sums change together. The sums are computed from the entries that the record has, and
corrected until they agree with the registry's answer, whoever adds nodes at the same time.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpuform.providers.aios.client import DuplicateId, get_client
from gpuform.providers.aios.record_changes import (
    EntryRemoval,
    change_record,
    confirm_record,
    translate_to_unfinished,
)
from gpuform.providers.aios.records import (
    HARDWARE_STAYS,
    SENT_EVIDENCE,
    build_recreated_error,
    compare_properties,
    fetch_record,
    find_before_create,
    find_record,
    is_own_object_present,
    require_nodes,
    verify_deleted,
    wait_past_lag,
    warn_of_skipped_sums,
    was_recreated,
)
from gpuform.providers.context import ProviderContext
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.errors import GpuformError, NotFound, NotReady, ServerError
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.records import Target
from gpuform.schemas.aios import wire
from gpuform.schemas.aios.inputs import GpuNodeInputs, GpuNodeOutputs
from gpuform.schemas.aios.updates import (
    UpdateRequest,
    build_last_entry_removal,
    build_node_addition,
    build_node_change,
    build_node_removal,
    build_sums_request,
)
from gpuform.schemas.aios.wire import entry_to_declared
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.policies.drain import RemovedNodes

ObservedNode = Observed[GpuNodeOutputs]

_INPUTS_OUTSIDE_ENTRY: Final = frozenset({"cluster_id", "node_id", "drain"})
"""Inputs that an entry of a record does not have, or has under another name."""


class GpuNodeOperations:
    """The operations of an entry."""

    def __init__(self, settings: Settings) -> None:
        self._client = get_client(settings)

    def create(self, context: ProviderContext, inputs: GpuNodeInputs) -> str:
        """Add the entry and its share of the sums exactly once; return the id `CLUSTER/NODE`.

        Raises:
            GpuformError: the cluster has no record; else the errors of `create_once`.
        """
        cluster_id, node_id = inputs.cluster_id, inputs.node_id
        object_id = f"{cluster_id}/{node_id}"
        last_reads: list[tuple[wire.Cluster, wire.Cluster | None]] = []

        def find_candidates() -> list[Candidate]:
            last_answer = self._client.get_last_answer(cluster_id)
            record = find_before_create(
                context, self._client, cluster_id, lambda cluster: not cluster.find_entry(node_id)
            )
            if record is None:
                context.refuse_creation()
                raise GpuformError(
                    f"cluster_id: cluster {cluster_id} not found in the registry",
                    hint="declare it as an aios.Cluster, and use its cluster_id",
                )
            # The sums are computed from this record, unless this process has written since.
            last_reads[:] = [(require_nodes(record), last_answer)]
            entries = [node for node in record.nodes.node_data if node.id == node_id]
            return [
                Candidate(
                    object_id,
                    wire.parse_object_id_time(node.object_id),
                    reported_properties=compare_properties(
                        entry_to_declared(node), _to_entry(inputs)
                    ),
                )
                for node in entries
            ]

        def send_create() -> str:
            self._add_entry(*last_reads[0], _to_entry(inputs))
            return object_id

        target = Target("aios", "GpuNode", node_id, region=cluster_id)
        creation = Creation(
            target,
            find_candidates,
            exists=lambda _id: is_own_object_present(context, target, find_candidates()),
            attempts=[Attempt(send_create, cluster_id, sent=SENT_EVIDENCE)],
            has_chosen_ids=True,
            clock_ahead=lambda: self._client.clock_ahead,
        )
        return create_once(context, creation)

    def _add_entry(
        self,
        read_record: wire.Cluster,
        answer_before_read: wire.Cluster | None,
        entry: Mapping[str, Any],
    ) -> None:
        """Add an entry by one request; remove a duplicate of somebody else's entry again.

        Args:
            read_record: the record as a GET has shown it.
            answer_before_read: the answer of the last write of this process before that GET, if
                any.
            entry: the entry to add.

        Raises:
            DuplicateId: the record has an entry of this id. The new one was removed.
            ServerError: the answer does not show the entry.
        """
        cluster_id = read_record.id
        with self._client.lock_record(cluster_id):
            # Other threads may have added nodes since the look. What neither shows of the sums,
            # `wait_until_ready` corrects.
            last_answer = self._client.get_last_answer(cluster_id)
            base = (
                read_record
                if last_answer is None or last_answer is answer_before_read
                else last_answer
            )
            record = require_nodes(
                self._client.update_cluster(cluster_id, build_node_addition(base, entry))
            )
            entry_count = sum(node.id == entry["id"] for node in record.nodes.node_data)
            # Somebody has added this id since the read: the last entry of the record is ours.
            if entry_count > 1:
                self._client.update_cluster(cluster_id, build_last_entry_removal(record, entry))
        if entry_count != 1:
            error_type = DuplicateId if entry_count else ServerError
            problem = (
                "already had a node of that id" if entry_count else "does not show it in its answer"
            )
            raise error_type(
                f"aios: node {entry['id']} was sent to cluster {cluster_id}, which {problem}",
                method="PUT",
                path=f"/clusters/{cluster_id}",
                status=200,
            )

    def wait_until_ready(
        self,
        context: ProviderContext,
        object_id: str,  # noqa: ARG002 - the shape of ResourceOperations
        inputs: GpuNodeInputs,
    ) -> ObservedNode:
        """Change the record until the entry is as declared, and the sums are those over all nodes.

        Nothing is sent if the answer to this run's create shows both already. Sums that a node
        without numbers or another writer prevents are left as they are, with a warning.

        Raises:
            NotReady: the record has no such entry, or several, the registry does not answer in
                time, or others go on changing the record.
            NotFound: there is no record.
            EntryOverwritten: a write hit another node's entry.
        """
        entry, cluster_id = _to_entry(inputs), inputs.cluster_id

        def plan_change(record: wire.Cluster) -> UpdateRequest | None:
            return build_node_change(record, entry)

        # A GET may be older than the last change, and show an earlier entry of the same id.
        record = self._client.get_last_answer(cluster_id) if context.progress.just_created else None
        if record is None or record.find_entry(inputs.node_id) is None or plan_change(record):
            record = change_record(context, self._client, cluster_id, plan_change)
        warn_of_skipped_sums(context, record)
        entries = [node for node in record.nodes.node_data if node.id == inputs.node_id]
        if not entries:
            raise NotReady(f"node {inputs.node_id} is not in the record of {cluster_id}")
        observed = _to_observed_node(cluster_id, entries[0])
        if len(entries) > 1:
            raise NotReady(
                f"node {inputs.node_id} is in the record of {cluster_id} {len(entries)} "
                "times: remove the entries that do not belong to this stack",
                last=observed,
            )
        return observed

    def read(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> ObservedNode | None:
        """Return the entry, or None if record or entry are missing or created again by others.

        An entry that differs from the state is confirmed by a PUT: a GET may be older. A missing
        entry is looked for until the propagation time is over. `deleted_with_id` of the call's
        progress gets the cluster's id if the record itself is missing, else "". An entry that was
        not ready stays so while the record's totals lack it.

        Raises:
            ServerError: the record exists, and its answer lists no nodes.
        """
        cluster_id, _, node_id = object_id.partition("/")

        def find_entry() -> ObservedNode | None:
            record = find_record(self._client, cluster_id)
            # The shared answer may be older than the entry: ask for this record alone.
            if record is not None and record.find_entry(node_id) is None:
                record = fetch_record(self._client, cluster_id)
            if record and known_inputs and _entry_differs_from_state(record, node_id, known_inputs):
                record = confirm_record(context, self._client, record)
            # An entry without its record was deleted together with the record.
            context.progress.deleted_with_id = "" if record else cluster_id
            entry = require_nodes(record).find_entry(node_id) if record else None
            if record is None or entry is None or was_recreated(context, entry.object_id):
                return None
            # What kept it from being ready may have been the sums: `wait_until_ready` has to go on.
            is_due = (
                context.stored_properties.get("ready") is False
                and build_sums_request(record) is not None
            )
            return _to_observed_node(
                cluster_id,
                entry,
                ("the sums of the record do not include the node") if is_due else None,
            )

        return wait_past_lag(context, self._client, find_entry)

    def update(
        self,
        context: ProviderContext,
        object_id: str,
        inputs: GpuNodeInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """Send the changed paths of the entry, and the sums over the record's nodes that change.

        Raises:
            Unfinished: nobody knows whether the change is done.
            NotFound: there is no record.
            GpuformError: the entry is gone, or somebody has created another one under its id.
        """
        names = {"id", *(field_change.path.partition(".")[0] for field_change in changes)}
        node = {name: value for name, value in _to_entry(inputs).items() if name in names}

        def plan_change(record: wire.Cluster) -> UpdateRequest | None:
            entry = record.find_entry(inputs.node_id)
            if entry is None or was_recreated(context, entry.object_id):
                raise build_recreated_error(f"node {object_id}")
            return build_node_change(record, node)

        with translate_to_unfinished():
            change_record(context, self._client, inputs.cluster_id, plan_change)

    def predict_removed_nodes(
        self,
        context: ProviderContext,  # noqa: ARG002 - the shape of ResourceOperations
        object_id: str,  # noqa: ARG002 - the shape of ResourceOperations
        inputs: GpuNodeInputs,  # noqa: ARG002 - the shape of ResourceOperations
    ) -> RemovedNodes | None:
        """Return None: no change of an entry removes its node."""
        return None

    def predict_nodes_removed_with_object(
        self,
        context: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any],
        because: str,  # noqa: ARG002 - the shape of NodeRemovalOperations
    ) -> RemovedNodes | None:
        """Return the entry's node, with the jobs on the node.

        The jobs are unknown if no scheduler is declared, or if the scheduler does not answer.
        """
        return _create_entry_removal(context, object_id, known_inputs).predict_removed_nodes(
            [object_id.partition("/")[2]]
        )

    def uncordon_leftover_nodes(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Uncordon the node if an earlier removal of its entry has left it cordoned.

        Raises:
            GpuformError: the node may stay cordoned.
        """
        _create_entry_removal(context, object_id, known_inputs).uncordon_leftover_nodes()

    def delete(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Drain the node and remove the entry; a missing entry or record is no error.

        The node is drained only if a scheduler is declared, and uncordoned afterwards. If the state
        has Mongo's id of the entry, another entry under the same id stays.

        Raises:
            GpuformError: the node must not be removed, or may stay cordoned.
            NotReady: the registry does not answer in time.
            Contradicted: the registry answered 404, and still shows the record.
        """
        cluster_id, _, node_id = object_id.partition("/")
        entry_object_id = wire.parse_object_id(context.stored_properties.get("object_id"))
        removals: list[UpdateRequest] = []

        def plan_change(record: wire.Cluster) -> UpdateRequest | None:
            entry = record.find_entry(node_id)
            is_ours = entry is not None and not was_recreated(context, entry.object_id)
            if is_ours or not removals:  # a GET may be older than the entry
                removals.append(build_node_removal(record, node_id, entry_object_id))
                return removals[-1]
            return build_sums_request(record)

        try:
            with _create_entry_removal(context, object_id, known_inputs).drain_during([node_id]):
                change_record(context, self._client, cluster_id, plan_change)
        except NotFound as error:
            # Without its record the entry is gone, too; but the 404 may be a proxy's.
            verify_deleted(context, self._client, cluster_id, error)


class GpuNodeLifecycle(Lifecycle[GpuNodeInputs, GpuNodeOutputs]):
    """An entry of a record of the AIOS registry."""

    platform = "aios"
    kind = "GpuNode"
    inputs = GpuNodeInputs
    outputs = GpuNodeOutputs
    timeouts = Timeouts(create=600, update=600, delete=600)
    operations = GpuNodeOperations
    id_example = "west-vision-001/node-1"
    deletion_note = HARDWARE_STAYS


def _create_entry_removal(
    context: ProviderContext, object_id: str, declared: Mapping[str, Any]
) -> EntryRemoval:
    """Return the removal of this entry, with the scheduler in `declared`."""
    return EntryRemoval(context, object_id, f"node {object_id}", declared)


def _entry_differs_from_state(
    record: wire.Cluster, node_id: str, known_inputs: Mapping[str, Any]
) -> bool:
    """Return True if the node's entry in the record differs from the inputs in the state."""
    declared = {
        name: value for name, value in known_inputs.items() if name not in _INPUTS_OUTSIDE_ENTRY
    }
    request = build_node_change(record, {"id": node_id, **declared})
    # Without changes of the entry itself, only the sums of the record differ.
    return request is not None and bool(request.entry_changes)


def _to_observed_node(cluster_id: str, entry: wire.Node, reason: str | None = None) -> ObservedNode:
    """Return the entry as outputs; `reason` explains why the entry is not ready."""
    inputs = entry_to_declared(entry)
    inputs["node_id"] = inputs.pop("id")
    outputs = GpuNodeOutputs(
        ready=reason is None,
        not_ready_reason=reason,
        object_id=wire.parse_object_id(entry.object_id),
    )
    return Observed({"cluster_id": cluster_id, **inputs}, outputs)


def _to_entry(inputs: GpuNodeInputs) -> dict[str, Any]:
    """Return the inputs as a node of a cluster's record."""
    declared = inputs.dump_declared()
    return {
        "id": declared.pop("node_id"),
        **{name: value for name, value in declared.items() if name not in _INPUTS_OUTSIDE_ENTRY},
    }

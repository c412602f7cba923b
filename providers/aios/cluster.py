"""Implement the lifecycle of a cluster's record in the AIOS registry.

`lifecycle` calls `ClusterOperations`. The registry creates no hardware, and deleting a record
deletes none. Creating, changing and deleting are done when they are answered (AIOS registry
reference); a record is ready when its status is live, or the declared one.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from gpuform.providers.aios.client import get_client
from gpuform.providers.aios.cluster_facts import (
    build_network_notices,
    compute_totals,
    find_planned_changes,
    get_access,
    get_owner_name,
    get_totals,
    replace_totals,
)
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
    find_before_create,
    find_foreign_nodes,
    find_record,
    is_own_object_present,
    list_foreign_nodes,
    require_nodes,
    verify_deleted,
    wait_past_lag,
    warn_of_skipped_sums,
    was_recreated,
)
from gpuform.providers.context import PollResult, ProviderContext, wait_until_done, wait_until_gone
from gpuform.providers.creating import PROPAGATION_TIME_S, Attempt, Candidate, Creation, create_once
from gpuform.providers.errors import NotFound
from gpuform.providers.lifecycle import KindHooks, Lifecycle
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Target
from gpuform.schemas.aios import wire
from gpuform.schemas.aios.inputs import (
    LIVE_STATUS,
    ClusterInputs,
    ClusterOutputs,
    UrlMapOutputs,
)
from gpuform.schemas.aios.parts import get_value, set_value
from gpuform.schemas.aios.updates import (
    UpdateRequest,
    build_entries_request,
    build_field_changes,
    build_sums_request,
    changes_sums,
    remove_sums,
)
from gpuform.schemas.aios.wire import build_cluster_document, cluster_to_declared
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.values import is_equal

POLL_INTERVAL_S = 30.0
"""Seconds between two reads of a record whose status is waited for."""
IDENTIFYING_FIELDS = ("region_id", "tags", "cluster_metadata")
"""Fields that only people write, which distinguish records of one id."""

ObservedCluster = Observed[ClusterOutputs]


class ClusterOperations:
    """The operations of a record."""

    def __init__(self, settings: Settings) -> None:
        self._client = get_client(settings)

    def find_planning_problems(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """Report a skipped check if a new record needs the Parser and AIOS_PARSER_URL is missing.

        Yields no problems.
        """
        if (
            not context.stored_properties
            and values.get("create_mode") != "direct"
            and not self._client.has_parser
        ):
            context.on_skipped_check(
                f"cluster {values.get('cluster_id')} is created by the Parser of AIOS, whose "
                "address is missing: set AIOS_PARSER_URL, or declare create_mode: direct"
            )
        return iter(())

    def create(self, context: ProviderContext, inputs: ClusterInputs) -> str:
        """Create the record exactly once, by the Parser unless `create_mode` is direct.

        Returns the record's id. The Parser does not get a declared status: `wait_until_ready` sets
        the status.

        Raises:
            GpuformError: the errors of `create_once`.
        """
        is_direct = inputs.create_mode == "direct"
        # The Parser drops a declared status: `wait_until_ready` sets it afterwards.
        document = build_cluster_document(inputs.dump_declared(), with_status=is_direct)
        declared = {
            name: inputs.dump_declared()[name]
            for name in IDENTIFYING_FIELDS
            if name in inputs.dump_declared()
        }

        def find_candidates() -> list[Candidate]:
            record = find_before_create(context, self._client, inputs.cluster_id)
            if record is None:
                return []
            evidence = compare_properties(cluster_to_declared(record), declared)
            return [
                Candidate(
                    record.id,
                    wire.parse_object_id_time(record.object_id),
                    reported_properties=evidence,
                )
            ]

        def send_create() -> str:
            client = self._client
            create = client.create_directly if is_direct else client.create_by_parser
            return create(document).id

        target = Target("aios", "Cluster", inputs.cluster_id, region="")
        creation = Creation(
            target,
            find_candidates,
            exists=lambda _id: is_own_object_present(context, target, find_candidates()),
            attempts=[Attempt(send_create, sent=SENT_EVIDENCE)],
            has_chosen_ids=True,
            clock_ahead=lambda: self._client.clock_ahead,
        )
        return create_once(context, creation)

    def wait_until_ready(
        self, context: ProviderContext, object_id: str, inputs: ClusterInputs
    ) -> ObservedCluster:
        """Wait until the record is live or has the declared status, which is set once.

        If the last change ended not ready, missing entries of declared nodes are added first.

        Raises:
            NotReady: the record does not get the status in time, or is still missing after the
                propagation time.
            NotFound: the record disappeared while entries were added or the status was set.
        """
        remaining_requests = (
            [] if inputs.status is None else [UpdateRequest({"$set": {"status": inputs.status}})]
        )
        started_at = context.clock.now()
        created = self._client.get_last_answer(object_id) if context.progress.just_created else None

        def poll_record() -> PollResult[Any]:
            record = find_record(self._client, object_id)
            if record and created and record.object_id != created.object_id:
                record = None  # an earlier record of the same id, which is gone
            if record is None:  # a GET may be older than the record
                is_late = context.clock.now() - started_at >= PROPAGATION_TIME_S
                failure = f"cluster {object_id} not found in the registry" if is_late else None
                return PollResult(None, "not shown yet", failure=failure)
            # Sent once: two writers of the status must not overwrite each other for ever.
            if remaining_requests and record.status not in (None, inputs.status):
                record = self._client.update_cluster(object_id, remaining_requests[0])
                remaining_requests.clear()
            return build_poll_result(record, inputs.status)

        nodes = get_value(inputs.dump_declared(), "nodes.node_data")
        if context.stored_properties.get("ready") is False and nodes is not None:
            # An earlier change may be done in part, whatever was declared then.
            change_record(
                context,
                self._client,
                object_id,
                lambda record: build_entries_request(record, [], nodes),
            )
        observed: ObservedCluster = wait_until_done(
            context, poll_record, label=f"cluster {object_id}", interval=POLL_INTERVAL_S
        )
        return observed

    def read(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> ObservedCluster | None:
        """Return the record; None if the record is gone, or created again by somebody else.

        `known_inputs` are the inputs in the state, empty for an import. A missing record is looked
        for until the registry had time to show one. A record that differs from the state is
        confirmed by a PUT, because a GET may be older. The observed inputs have the state's totals
        (for an import, the sums over the nodes), and only entries of nodes that the state declares:
        others belong to somebody else, and give a warning if the state declares nodes. A record
        that was ready with a status counts as ready only with that status.

        Raises:
            ServerError: the state declares nodes, and the answer lists none.
        """
        record = self._find_own_record(context, object_id, known_inputs)
        if record is None:
            return None
        if get_value(known_inputs, "nodes.node_data") is not None:
            require_nodes(record)
        expected_status = (
            context.stored_properties.get("status")
            if context.stored_properties.get("ready")
            else None
        )
        observed = build_poll_result(record, expected_status).value
        if not known_inputs:
            # Declared totals have to be the sums, but other writers leave wrong totals behind.
            return replace(observed, inputs=compute_totals(observed.inputs))
        declared_nodes = _list_declared_nodes(known_inputs)
        if get_value(known_inputs, "nodes.node_data") is not None:
            _warn_of_foreign_nodes(context, record, declared_nodes)
        return replace(
            observed,
            inputs=_select_declared_nodes(
                replace_totals(observed.inputs, known_inputs), declared_nodes
            ),
        )

    def _find_own_record(
        self,
        context: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any] = MappingProxyType({}),
    ) -> wire.Cluster | None:
        """Return the state's record, or None if it is gone after the propagation time or replaced.

        With `known_inputs`, a record that differs from them is confirmed by a PUT.
        """

        def find_own() -> wire.Cluster | None:
            record = find_record(self._client, object_id)
            if record is not None and known_inputs and _differs_from_state(record, known_inputs):
                record = confirm_record(context, self._client, record)
            return None if record is None or was_recreated(context, record.object_id) else record

        return wait_past_lag(context, self._client, find_own)

    def update(
        self,
        context: ProviderContext,
        object_id: str,
        inputs: ClusterInputs,
        changes: Sequence[FieldChange],  # noqa: ARG002 - paths of free maps are ambiguous
    ) -> None:
        """Send the changed paths alone; entries of nodes are added and removed one by one.

        The changes are found by comparing the stored properties with `inputs`. Nodes of removed
        entries are drained first if a scheduler is declared, and uncordoned afterwards. Entries
        change only if the declared nodes, or totals, do; all stay if nodes are no longer declared.

        Raises:
            Unfinished: nobody knows whether the change is done.
            NotFound: there is no record.
            GpuformError: the nodes must not be removed, or somebody has created the record again.
        """
        before, after = dict(context.stored_properties), inputs.dump_declared()
        fields = build_field_changes(get_field_rules(ClusterInputs), before, after)
        old_nodes, new_nodes = (get_value(values, "nodes.node_data") for values in (before, after))
        entries = (old_nodes or [], new_nodes or []) if new_nodes is not None else ([], [])
        has_entries = new_nodes is not None and (not is_equal(*entries) or changes_sums(fields))
        if has_entries:  # the sums are those of all entries, not of the declared ones alone
            fields = remove_sums(fields)

        def plan_change(record: wire.Cluster) -> UpdateRequest | None:
            if was_recreated(context, record.object_id):
                raise build_recreated_error(f"cluster {object_id}")
            return build_entries_request(record, *entries) if has_entries else None

        with (
            _create_entry_removal(context, object_id, after).drain_during(
                _list_removed_nodes(*entries)
            ),
            translate_to_unfinished(),
        ):
            record = change_record(context, self._client, object_id, plan_change, fields)
            if has_entries:
                warn_of_skipped_sums(context, record)

    def predict_removed_nodes(
        self, context: ProviderContext, object_id: str, inputs: ClusterInputs
    ) -> RemovedNodes | None:
        """Return the nodes whose entries the new inputs no longer declare, with the nodes' jobs.

        The jobs are unknown if no scheduler is declared, or if the scheduler does not answer. There
        are no such nodes if the new inputs declare no list of nodes: all entries stay then.
        """
        after = inputs.dump_declared()
        old_nodes, new_nodes = (
            get_value(values, "nodes.node_data") for values in (context.stored_properties, after)
        )
        removed_names = (
            _list_removed_nodes(old_nodes or [], new_nodes) if new_nodes is not None else []
        )
        return _create_entry_removal(context, object_id, after).predict_removed_nodes(removed_names)

    def predict_nodes_removed_with_object(
        self,
        context: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any],
        because: str,  # noqa: ARG002 - the shape of NodeRemovalOperations
    ) -> RemovedNodes | None:
        """Return the nodes declared in the record's own inputs, with the nodes' jobs, for a plan.

        The jobs are unknown if no scheduler is declared, or if the scheduler does not answer.
        """
        return _create_entry_removal(context, object_id, known_inputs).predict_removed_nodes(
            _list_declared_nodes(known_inputs)
        )

    def uncordon_leftover_nodes(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Uncordon nodes that an earlier removal of the record or of entries has left cordoned.

        Does nothing without such a removal.

        Raises:
            GpuformError: nodes may stay cordoned.
        """
        _create_entry_removal(context, object_id, known_inputs).uncordon_leftover_nodes()

    def find_foreign_objects(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> Sequence[str]:
        """Return the ids of the record's nodes which no resource of the stack declares.

        Empty without a record.

        Raises:
            NotEnoughEvidence: the registry does not list the nodes.
        """
        return find_foreign_nodes(
            context, self._client, object_id, _list_declared_nodes(known_inputs)
        )

    def delete(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Drain the record's declared nodes, then delete the record and verify the deletion.

        Nodes are drained only if a scheduler is declared, and are uncordoned afterwards. A 404 is
        believed when the registry shows no record either. Nothing happens if the record is gone, or
        if somebody has created it again under this id.

        Raises:
            GpuformError: the nodes must not be removed, or the record is still there at the
                deadline.
        """

        def is_ours(record: wire.Cluster) -> bool:
            return not was_recreated(context, record.object_id)

        def poll_deletion() -> PollResult[object] | None:
            current_record = find_record(self._client, object_id)
            exists = current_record is not None and is_ours(current_record)
            return (
                PollResult(None, current_record.status or "still exists")
                if current_record and exists
                else None
            )

        # A record that was created again under this id belongs to somebody else, and stays.
        if self._find_own_record(context, object_id) is None:
            return
        # Drained first: the network gives jobs to nodes as long as the record exists.
        with _create_entry_removal(context, object_id, known_inputs).drain_during(
            _list_declared_nodes(known_inputs)
        ):
            try:
                self._client.delete_cluster(object_id)
            except NotFound as error:
                verify_deleted(context, self._client, object_id, error, is_ours)
            # The registry may lag: it shows a deleted record for a while.
            wait_until_gone(
                context, poll_deletion, label=f"cluster {object_id}", interval=POLL_INTERVAL_S
            )


class ClusterLifecycle(Lifecycle[ClusterInputs, ClusterOutputs]):
    """A record of the AIOS registry."""

    platform = "aios"
    kind = "Cluster"
    inputs = ClusterInputs
    outputs = ClusterOutputs
    timeouts = Timeouts(create=1800, update=1800, delete=600)
    operations = ClusterOperations
    id_example = "west-vision-001"
    planned_fields = frozenset({"status"})
    volatile_outputs = frozenset({"network_reputation", "totals"})
    deletion_note = HARDWARE_STAYS
    relevant_permissions = (Permission.DESTROY_OTHERS,)
    hooks = KindHooks(
        get_access=get_access,
        get_owner_name=get_owner_name,
        find_observed_news=build_network_notices,
        find_planned_changes=find_planned_changes,
    )


def _warn_of_foreign_nodes(
    context: ProviderContext, record: wire.Cluster, declared_ids: Collection[str]
) -> None:
    """Warn if a record has nodes in neither `declared_ids` nor the stack's other resources."""
    foreign_nodes = list_foreign_nodes(context, record, declared_ids)
    if foreign_nodes:
        context.on_warning(
            f"cluster {record.id} has nodes that gpuform did not add and does not remove: "
            f"{', '.join(foreign_nodes)}"
        )


def _select_declared_nodes(
    inputs: Mapping[str, Any], declared_ids: Collection[str]
) -> Mapping[str, Any]:
    """Return observed inputs with the entries of the nodes in `declared_ids` alone."""
    entries = get_value(inputs, "nodes.node_data")
    if entries is None:
        return inputs
    declared_entries = [entry for entry in entries if entry.get("id") in declared_ids]
    return set_value(inputs, "nodes.node_data", declared_entries)


def _differs_from_state(record: wire.Cluster, known_inputs: Mapping[str, Any]) -> bool:
    """Return True if a field or a declared entry of the record differs from the state's inputs.

    Fields that are totals over nodes do not count, nor do entries that the inputs do not declare.
    """
    if remove_sums(
        build_field_changes(
            get_field_rules(ClusterInputs), cluster_to_declared(record), known_inputs
        )
    ):
        return True
    nodes = get_value(known_inputs, "nodes.node_data")
    request = None if nodes is None else build_entries_request(record, [], nodes)
    # A request for the sums alone changes no entry.
    return request is not None and request != build_sums_request(record)


def _create_entry_removal(
    context: ProviderContext, object_id: str, declared: Mapping[str, Any]
) -> EntryRemoval:
    """Return the removal of entries of this record, with the scheduler in `declared`."""
    return EntryRemoval(context, object_id, f"cluster {object_id}", declared)


def _list_declared_nodes(values: Mapping[str, Any]) -> list[str]:
    """Return the ids of the nodes in inputs; none if the inputs list no nodes."""
    return [str(node["id"]) for node in get_value(values, "nodes.node_data") or ()]


def _list_removed_nodes(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return the ids of the nodes which `old` declares and `new` does not."""
    remaining_ids = {node["id"] for node in new}
    return [str(node["id"]) for node in old if node["id"] not in remaining_ids]


def build_poll_result(
    record: wire.Cluster, expected_status: str | None
) -> PollResult[ObservedCluster]:
    """Return a record as observed, and whether it has `expected_status`, or is live for None.

    A record without a status counts as ready.
    """
    status = record.status
    # Some registries keep no status: their records count as ready.
    is_ready = status in (None, expected_status or LIVE_STATUS)
    urls = record.config.url_map if record.config else None
    totals, totals_agree = get_totals(record)
    outputs = ClusterOutputs(
        object_id=wire.parse_object_id(record.object_id),
        ready=is_ready,
        not_ready_reason=None if is_ready else f"its status is {status}",
        status=status,
        url_map=None if urls is None else UrlMapOutputs(**urls.model_dump()),
        network_reputation=record.reputation,
        totals=totals,
        totals_agree=totals_agree,
    )
    return PollResult(
        Observed(cluster_to_declared(record), outputs), status or "no status", is_done=is_ready
    )

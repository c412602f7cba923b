"""Read records of a registry that lags, and judge what their answers prove.

`cluster`, `gpu_node` and `record_changes` call it. A GET and a query may be older than the last
change; the answer of a PUT is the record right after it (the registry's code: `findOneAndUpdate`
with `new`). So an object missing from a GET is gone only after the registry had time to show it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from gpuform.providers.aios.client import AiosClient
from gpuform.providers.context import TRANSIENT_ERRORS, ProviderContext
from gpuform.providers.creating import PROPAGATION_TIME_S, Candidate, has_other_creation_time
from gpuform.providers.errors import GpuformError, NotFound, ServerError
from gpuform.providers.evidence import (
    FORGET_ENTRY,
    REMOVE_RECORD,
    WRITE_SUMS,
    Observation,
    find_gaps,
    require_evidence,
)
from gpuform.providers.http import build_contradiction_error
from gpuform.providers.records import Target
from gpuform.schemas.aios import wire
from gpuform.schemas.aios.parts import SUM_PATHS, sum_reported_nodes
from gpuform.schemas.aios.updates import EMPTY_UPDATE
from gpuform.schemas.aios.wire import entry_to_declared
from gpuform.schemas.values import is_equal

POLL_INTERVAL_S: Final = 5.0
"""Seconds between two reads of a record during a change."""

SENT_EVIDENCE: Final = {"properties": "those declared"}
"""Evidence of an object that has everything that a create has sent."""

HARDWARE_STAYS = (
    "deleting it deletes only the record in the registry: the hardware remains, and "
    "continues to cost money"
)

T = TypeVar("T")


def find_record(client: AiosClient, cluster_id: str) -> wire.Cluster | None:
    """Return the record from a query shared with other readers, or None if it shows none.

    The record may be older than the last change. A query may leave out nodes or their details: such
    a record is fetched alone.
    """
    return client.get_shared_listing().find_one(cluster_id, _is_detailed)


def fetch_record(client: AiosClient, cluster_id: str) -> wire.Cluster | None:
    """Return the record by a GET for this record alone, or None if there is none.

    The record may be older than the last change.
    """
    try:
        return client.get_shared_listing().read_alone(cluster_id)
    except NotFound:
        return None


def find_before_create(
    context: ProviderContext,
    client: AiosClient,
    cluster_id: str,
    may_create: Callable[[wire.Cluster], bool] | None = None,
) -> wire.Cluster | None:
    """Return the record which decides about a create, or None if there is none.

    Without `may_create`, any record prevents the create. With `may_create`, a missing record
    prevents the create, and so does one for which it returns False. A GET may be older than the
    last change, so a PUT confirms whatever prevents the create, or follows a GET that fails. A
    context that only searches sends no PUT, and raises the GET's error.
    """
    try:
        record = find_record(client, cluster_id)
    except TRANSIENT_ERRORS:
        # A search sends no PUT, not even an empty one.
        if context.progress.is_search_only:
            raise
        return _confirm_or_none(client, cluster_id)
    can_create = record is None if may_create is None else bool(record and may_create(record))
    return (
        record
        if can_create or context.progress.is_search_only
        else _confirm_or_none(client, cluster_id)
    )


def require_nodes(record: wire.Cluster) -> wire.Cluster:
    """Return the record if the answer lists nodes.

    Without the list, the answer proves nothing of any node.

    Raises:
        ServerError: the answer leaves the list out.
    """
    if not record.has_node_list:
        raise ServerError(
            f"aios: the answer about cluster {record.id} has no nodes",
            method="GET",
            path=f"/clusters/{record.id}",
            status=200,
        )
    return record


def wait_past_lag(
    context: ProviderContext, client: AiosClient, find_object: Callable[[], T | None]
) -> T | None:
    """Call `find_object` until it returns an object, and return the object.

    Returns None once the registry has had the propagation time to show an object of the state, or
    at once if the state is empty.
    """
    # The registry's time, for it is compared with the creation time in an object id.
    started_at, _ = context.get_platform_time(client.clock_ahead)
    while (found_object := find_object()) is None:
        now, _ = context.get_platform_time(client.clock_ahead)
        observation = Observation("the registry", _explain_possible_lag(context, started_at, now))
        if not find_gaps(FORGET_ENTRY, observation):
            return None
        context.on_progress("not shown by the registry, which may lag behind: looking again")
        context.sleep(POLL_INTERVAL_S)
    return found_object


def compare_properties(
    document: Mapping[str, Any], declared: Mapping[str, Any]
) -> Mapping[str, str]:
    """Return SENT_EVIDENCE if a document has all declared values, else evidence of others.

    The registry shows documents complete: a missing value was not sent. The evidence quotes nothing
    of the document, because people write its texts and no record of gpuform may have them.
    """
    return SENT_EVIDENCE if _contains(document, declared) else {"properties": "others"}


def _contains(document: Any, declared: Any) -> bool:
    """Return True if a document has every declared value; further values are allowed."""
    if isinstance(declared, Mapping) and (document is None or isinstance(document, Mapping)):
        nested = document or {}
        return all(_contains(nested.get(name), value) for name, value in declared.items())
    return declared is None or is_equal(document, declared, unordered=True)


def is_own_object_present(
    context: ProviderContext, target: Target, candidates: Sequence[Candidate]
) -> bool:
    """Return True if one of `candidates` may come from the create recorded for this resource.

    A candidate's id alone proves nothing: people choose ids, and somebody may have created another
    object since. So a candidate with another creation time does not count, and without a recorded
    create the answer is False.
    """
    intent = context.intents.find(context.urn, target)
    return any(
        intent is not None and not has_other_creation_time(candidate, intent)
        for candidate in candidates
    )


def was_recreated(context: ProviderContext, object_id: object) -> bool:
    """Return True if `object_id`, as observed now, is another Mongo object id than the state's.

    Somebody has then created the record or entry again. False if either id is unknown.
    """
    known_id, current_id = (
        context.stored_properties.get("object_id"),
        wire.parse_object_id(object_id),
    )
    return known_id is not None and current_id is not None and known_id != current_id


def build_recreated_error(label: str) -> GpuformError:
    """Return the error for a change of an object which somebody else has created again."""
    return GpuformError(
        f"{label} was removed from the registry, and another one was created under its id",
        hint="run `gpuform refresh`, which removes it from the state",
    )


def verify_deleted(
    context: ProviderContext,
    client: AiosClient,
    cluster_id: str,
    error: NotFound,
    is_same_record: Callable[[wire.Cluster], bool] = lambda _record: True,
) -> None:
    """Wait until the registry shows no record of this id for which `is_same_record` holds.

    Called after the registry has answered a request with 404, which is `error`.

    Raises:
        Contradicted: the record is still shown at the end of the propagation time or of the
            deadline.
        GpuformError: the registry has not answered until then.
    """
    started_at = context.clock.now()
    while True:
        try:
            record = fetch_record(client, cluster_id)
            if record is None or not is_same_record(record):
                return
            last_error: GpuformError = build_contradiction_error(error, "it still exists")
        except TRANSIENT_ERRORS as failure:
            last_error = failure
        # The registry may lag behind its own 404: it gets the propagation time to agree.
        if (
            context.clock.now() - started_at >= PROPAGATION_TIME_S
            or context.compute_remaining_seconds() == 0
        ):
            raise last_error
        context.sleep(POLL_INTERVAL_S)


def find_foreign_nodes(
    context: ProviderContext, client: AiosClient, cluster_id: str, declared_ids: Sequence[str]
) -> list[str]:
    """Return the ids of nodes which somebody else has added to a record; none without a record.

    A node is foreign if neither `declared_ids`, from the record's own inputs, nor another resource
    of the stack has it. The record is read by a PUT without a change; a run that may only read
    sends a GET.

    Raises:
        NotEnoughEvidence: the registry does not list the nodes.
    """
    # Only a PUT's answer is certain; a run that may only read has to take the GET's.
    record = (
        fetch_record(client, cluster_id)
        if context.is_read_only
        else _confirm_or_none(client, cluster_id)
    )
    if record is None:
        return []
    missing = () if record.has_node_list else ("the answer lists no nodes of the record",)
    require_evidence(REMOVE_RECORD, f"cluster {cluster_id}", Observation("the registry", missing))
    return list_foreign_nodes(context, record, declared_ids)


def list_foreign_nodes(
    context: ProviderContext, record: wire.Cluster, declared_ids: Collection[str]
) -> list[str]:
    """Return the ids of the record's nodes in neither `declared_ids` nor the stack.

    The stack's other resources may declare nodes of the record, each one entry: a second entry with
    the same id is somebody else's.
    """
    ids = [node.id or "one without an id" for node in record.nodes.node_data]
    return [
        id_
        for position, id_ in enumerate(ids)
        if id_ not in declared_ids
        and (id_ in ids[:position] or not context.belongs_to_stack(f"{record.id}/{id_}"))
    ]


def warn_of_skipped_sums(context: ProviderContext, record: wire.Cluster) -> None:
    """Warn if sums over a record's nodes stay unchanged because a node does not report a number."""
    gaps = [f"{node} has no {path}" for node, path in _find_missing_numbers(record)]
    if find_gaps(WRITE_SUMS, Observation(f"cluster {record.id}", gaps)):
        paths = sorted(set(SUM_PATHS) - set(sum_reported_nodes(_to_declared_nodes(record))))
        context.on_warning(
            f"cluster {record.id}: {gaps[0]}; the sums of {', '.join(paths)} stay as they are"
        )


def _confirm_or_none(client: AiosClient, cluster_id: str) -> wire.Cluster | None:
    """Send a PUT which changes nothing, and return the record of the answer; None without a record.

    Only the answer of a PUT is certain: a GET may be older.
    """
    try:
        return client.update_cluster(cluster_id, EMPTY_UPDATE)
    except NotFound:
        return None


def _explain_possible_lag(context: ProviderContext, started_at: float, now: float) -> list[str]:
    """Return why an object of the state may exist unseen; empty once it must have been shown.

    Empty, too, if the state is.
    """
    if not context.stored_properties:
        return []
    # Mongo's object ids contain the time of their creation.
    created_at = wire.parse_object_id_time(context.stored_properties.get("object_id"))
    lag_start = min(started_at, created_at) if created_at is not None else started_at
    if now - lag_start >= PROPAGATION_TIME_S:
        return []
    return [f"the object was created less than {PROPAGATION_TIME_S:.0f} s ago"]


def _to_declared_nodes(record: wire.Cluster) -> list[dict[str, Any]]:
    """Return the entries of a record in the form of declared nodes."""
    return [entry_to_declared(node) for node in record.nodes.node_data]


def _find_missing_numbers(record: wire.Cluster) -> list[tuple[str, str]]:
    """Return the id of each node that lacks a number for the sums, with the number's path."""
    return [
        (node.get("id") or "a node without an id", path)
        for node in _to_declared_nodes(record)
        for path in SUM_PATHS
        if path not in sum_reported_nodes([node])
    ]


def _is_detailed(record: wire.Cluster) -> bool:
    """Return True if an answer lists the nodes, each with all numbers that are summed."""
    return record.has_node_list and not _find_missing_numbers(record)

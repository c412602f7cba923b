"""Read and change records of a registry that lags, loses answers, and has other writers.

`cluster` and `gpu_node` call it; `schemas.aios.updates` builds the request bodies. A GET and a
query may be older than the last change; the answer of a PUT is the record right after it (the
registry's code: `findOneAndUpdate` with `new`). So a change is done when a PUT's answer needs no
other one, and an object missing from a GET is gone only after the registry had time to show it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from gpuform.providers.aios.client import AiosClient
from gpuform.providers.context import TRANSIENT_ERRORS, PollResult, ProviderContext, wait_until_done
from gpuform.providers.creating import PROPAGATION_TIME_S, Candidate, has_other_creation_time
from gpuform.providers.errors import (
    Cancelled,
    GpuformError,
    NotFound,
    NotReady,
    ServerError,
    Unfinished,
)
from gpuform.providers.evidence import (
    CHANGE_AGAIN,
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
from gpuform.schemas.aios.documents import entry_to_declared
from gpuform.schemas.aios.parts import SUM_PATHS, sum_reported_nodes
from gpuform.schemas.aios.updates import (
    EMPTY_UPDATE,
    Body,
    UpdateRequest,
    build_restoring_request,
    build_stray_removals,
    build_sums_request,
)
from gpuform.schemas.values import is_equal

POLL_INTERVAL_S: Final = 5.0
"""Seconds between two reads of a record during a change."""

CHANGE_TIMEOUT_S: Final = 180.0
"""Seconds in which a change has to be answered.

That is the propagation time, and as long again for a repetition and its answer.
"""

MAX_UPDATES: Final = 40
"""Updates of one change, each of which another writer may overtake."""

MAX_SUM_UPDATES: Final = 8
"""Updates of the sums alone; after as many, another writer evidently sets other sums."""

SENT_EVIDENCE: Final = {"properties": "those declared"}
"""Evidence of an object that has everything that a create has sent."""

HARDWARE_STAYS = (
    "deleting it deletes only the record in the registry: the hardware remains, and "
    "continues to cost money"
)

T = TypeVar("T")


class EntryOverwritten(GpuformError):
    """A change by position overwrote the entry of another node instead of its own."""


ChangePlanner = Callable[[wire.Cluster], UpdateRequest | None]
"""Returns the next request for a record as it is now, or None if the change is done.

Raises GpuformError if the change must not be made.
"""


def find_record(client: AiosClient, cluster_id: str) -> wire.Cluster | None:
    """Return the record from a query shared with other readers, or None if it shows none.

    The record may be older than the last change. A query may leave out nodes or their details: such
    a record is fetched alone.
    """
    try:
        record = client.get_shared_listing().read_one(cluster_id)
        return (
            record if _is_detailed(record) else client.get_shared_listing().read_alone(cluster_id)
        )
    except NotFound:
        return None


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


def confirm_record(
    context: ProviderContext, client: AiosClient, record: wire.Cluster
) -> wire.Cluster | None:
    """Return a record as of now, by a PUT without a change; None if the record is gone.

    Lost answers are repeated for a while. A preview sends no PUT and returns `record`, which must
    not reach the state.

    Raises:
        NotReady: the registry does not answer in time.
    """
    if context.preview:
        return record
    try:
        return _RecordChange(context, client, record.id).confirm()
    except NotFound:
        return None


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

    The stack's other resources may declare nodes of the record.
    """
    ids = [node.id or "one without an id" for node in record.nodes.node_data]
    return [
        id_
        for id_ in ids
        if id_ not in declared_ids and not context.belongs_to_stack(f"{record.id}/{id_}")
    ]


def warn_of_skipped_sums(context: ProviderContext, record: wire.Cluster) -> None:
    """Warn if sums over a record's nodes stay unchanged because a node does not report a number."""
    gaps = [f"{node} has no {path}" for node, path in _find_missing_numbers(record)]
    if find_gaps(WRITE_SUMS, Observation(f"cluster {record.id}", gaps)):
        paths = sorted(set(SUM_PATHS) - set(sum_reported_nodes(_to_declared_nodes(record))))
        context.on_warning(
            f"cluster {record.id}: {gaps[0]}; the sums of {', '.join(paths)} stay as they are"
        )


@contextmanager
def translate_to_unfinished() -> Iterator[None]:
    """Raise Unfinished for errors after which nobody knows whether a change is done.

    These are transient errors (lost answers, outages, rate limits), NotReady and EntryOverwritten.
    An interruption stays as it is.
    """
    try:
        yield
    except Cancelled:
        raise
    except (*TRANSIENT_ERRORS, NotReady, EntryOverwritten) as error:
        raise Unfinished(error.message, hint=error.hint) from None


def change_record(
    context: ProviderContext,
    client: AiosClient,
    cluster_id: str,
    plan_request: ChangePlanner,
    fields: Body | None = None,
) -> wire.Cluster:
    """Send `fields`, then the requests of `plan_request`, until a PUT's answer needs no more.

    `fields` is the body of an update that is sent first, if any. Other threads of this process wait
    with their changes of the record.

    Returns:
        The record in the last PUT's answer.

    Raises:
        NotFound: there is no record.
        NotReady: the registry does not answer for 180 seconds, or others go on changing the record.
        EntryOverwritten: an entry of somebody else was overwritten; the message names values that
            could not be restored.
        GpuformError: `plan_request` refuses the record in a PUT's answer.
    """
    with client.lock_record(cluster_id):
        return _RecordChange(context, client, cluster_id).apply(plan_request, fields)


@dataclass(slots=True)
class _RecordChange:
    """One change of a record, which may take several updates."""

    context: ProviderContext
    client: AiosClient
    cluster_id: str
    sum_rounds: int = 0
    failing_since: float | None = None

    def apply(self, plan_request: ChangePlanner, fields: Body | None = None) -> wire.Cluster:
        """Do what `change_record` documents; the caller has locked the record."""
        record, is_confirmed = self._read_record(), False
        for _ in range(MAX_UPDATES):
            self.context.raise_if_cancelled()
            try:
                request = plan_request(record)
            except GpuformError:
                # Only the answer of a PUT is certain: the plan may refuse a record that is no
                # longer so.
                if is_confirmed:
                    raise
                # A GET may show a record that the plan refuses, and that is no longer so: a PUT
                # decides.
                request = None
            else:
                request = (
                    UpdateRequest(fields) if fields else self._drop_contested_sums(request, record)
                )
            if is_confirmed and request is None:
                return record
            # A change by position needs the order of this moment, which the answer to an empty PUT
            # shows.
            if request is None or (request.entry_changes and not is_confirmed):
                request = EMPTY_UPDATE
            answer = self._send_request(request, record)
            if answer is not None and fields and request.body == fields:
                fields = None
            record, is_confirmed = answer or self._read_record(), answer is not None
        raise NotReady(
            f"cluster {self.cluster_id} was not changed: other programs change the cluster at "
            "the same time"
        )

    def _drop_contested_sums(
        self, request: UpdateRequest | None, record: wire.Cluster
    ) -> UpdateRequest | None:
        """Return the request; None, with a warning, if others go on changing the sums it would set.

        Only a request that sets nothing but the sums over the nodes is ever dropped.
        """
        if request is None or request != build_sums_request(record):
            return request
        # Two writers with different sums would overwrite each other for ever.
        self.sum_rounds += 1
        if self.sum_rounds <= MAX_SUM_UPDATES:
            return request
        self.context.on_warning(
            f"cluster {self.cluster_id}: another program keeps changing the sums of the "
            "record, which differ from the totals of its nodes"
        )
        return None

    def _read_record(self) -> wire.Cluster:
        """Return the record by a GET, which may be old, or by a PUT if GET shows none.

        Raises:
            NotFound: a PUT finds no record either.
            NotReady: the registry does not answer in time.
        """
        try:
            return self._fetch_with_retries(
                lambda: self.client.get_shared_listing().read_alone(self.cluster_id)
            )
        except NotFound:
            return self.confirm()

    def confirm(self) -> wire.Cluster:
        """Return the record as of now, by a PUT which changes nothing; repeat lost answers.

        Raises:
            NotFound: there is no record.
            NotReady: the registry does not answer in time.
        """
        return self._fetch_with_retries(
            lambda: self.client.update_cluster(self.cluster_id, EMPTY_UPDATE)
        )

    def _fetch_with_retries(self, fetch: Callable[[], wire.Cluster]) -> wire.Cluster:
        """Return the record of `fetch`, repeated while the registry fails, for 180 seconds.

        Raises:
            NotReady: the registry has not answered in time.
        """

        def poll_record() -> PollResult[wire.Cluster]:
            return PollResult(require_nodes(fetch()), "read", is_done=True)

        label = f"change of cluster {self.cluster_id}"
        return wait_until_done(
            self.context, poll_record, label=label, interval=POLL_INTERVAL_S, limit=CHANGE_TIMEOUT_S
        )

    def _send_request(self, request: UpdateRequest, before: wire.Cluster) -> wire.Cluster | None:
        """Send an update, and return the record in its answer.

        None if the answer is lost or does not show the update. Before that, an update that must not
        be repeated gets the propagation time to show its effect.

        Raises:
            NotReady: the registry has failed for 180 seconds.
            EntryOverwritten: the update has overwritten entries of other nodes.
        """
        sent_at = self.context.clock.now()
        try:
            answer = require_nodes(self.client.update_cluster(self.cluster_id, request))
        except TRANSIENT_ERRORS as error:
            self._give_up_or_wait(error.message)
        else:
            if request.is_applied_to(answer):
                self.failing_since = None
                return answer
            self._reject_stray_writes(request, before, answer, is_certain=True)
        # Sent again, the request could change the record twice.
        if not request.is_repeatable:
            self._wait_for_effect(request, before, sent_at)
        return None

    def _wait_for_effect(
        self, request: UpdateRequest, before: wire.Cluster, sent_at: float
    ) -> None:
        """Wait until the record shows the request's effect, or the propagation time is over.

        The propagation time begins at `sent_at`.

        Raises:
            NotReady: the registry has failed for 180 seconds.
            EntryOverwritten: the request has overwritten entries of other nodes.
        """
        while True:
            record = self._read_record()
            if request.is_applied_to(record):
                self.failing_since = None
                return
            is_certain = request.has_same_sums(record)
            self._reject_stray_writes(request, before, record, is_certain=is_certain)
            age = self.context.clock.now() - sent_at
            missing = (
                ()
                if age >= PROPAGATION_TIME_S
                else (f"only {age:.0f} s have passed since the request",)
            )
            if not find_gaps(CHANGE_AGAIN, Observation("the registry", missing)):
                self._give_up_or_wait("the record does not show it")
                return
            self.context.on_progress("looking for the effect of a change whose answer was lost")
            self.context.sleep(POLL_INTERVAL_S)

    def _give_up_or_wait(self, reason: str) -> None:
        """Sleep before the next attempt.

        Raises NotReady, with `reason`, after 180 seconds of failures or at the deadline.
        """
        now = self.context.clock.now()
        if self.failing_since is None:
            self.failing_since = now
        if (
            now - self.failing_since >= CHANGE_TIMEOUT_S
            or self.context.compute_remaining_seconds() == 0
        ):
            raise NotReady(f"cluster {self.cluster_id} was not changed: {reason}")
        self.context.sleep(POLL_INTERVAL_S)

    def _send_or_confirm(self, request: UpdateRequest) -> wire.Cluster:
        """Send a request and return the record; after a lost answer send an empty PUT instead.

        So the request may not have had its effect.
        """
        try:
            return require_nodes(self.client.update_cluster(self.cluster_id, request))
        except TRANSIENT_ERRORS:
            # The answer was lost: the record itself shows whether the request had its effect.
            return self.confirm()

    def _reject_stray_writes(
        self,
        request: UpdateRequest,
        before: wire.Cluster,
        record: wire.Cluster,
        *,
        is_certain: bool,
    ) -> None:
        """Restore entries which a request by position has wrongly overwritten, and raise.

        Does nothing without such entries. They stay as they are if `is_certain` is False: the
        request may have had no effect, and somebody else may have set these values.

        Raises:
            EntryOverwritten: the request has overwritten entries of other nodes.
        """
        stray_writes = request.find_stray_entries(before, record)
        if not stray_writes:
            return
        own_nodes = ", ".join(sorted({change.node_id for _, change in stray_writes}))
        other_nodes = ", ".join(sorted({entry.id or "no node" for entry, _ in stray_writes}))
        unrestored = self._restore_values(request, before, record) if is_certain else [other_nodes]
        outcome, advice = "gpuform restored the values", ""
        if unrestored:
            outcome = f"gpuform could not restore the values of {', '.join(unrestored)}"
            advice = "; correct the values of the other nodes in the registry"
        raise EntryOverwritten(
            f"node {own_nodes} of cluster {self.cluster_id} was not changed: another node was "
            f"removed at the same moment, and the values of {other_nodes} were overwritten; "
            f"{outcome}",
            hint=f"run the command again, which looks up the position of the node again{advice}",
        )

    def _restore_values(
        self, request: UpdateRequest, before: wire.Cluster, record: wire.Cluster
    ) -> Sequence[str]:
        """Restore other entries' former values and the sums; return the ids of unrestored entries.

        A restoration by position may hit yet another entry, which is restored next.
        """
        restorations = _list_restorations(request, before, record)
        # An entry that was not there before the request has no former values.
        unrestored = [id_ for id_, former, _ in restorations if id_ and former is None]
        for _ in range(MAX_UPDATES):
            if not restorations:
                break
            node_id, former, fields = restorations.pop(0)
            if not node_id:
                for removal in build_stray_removals(fields):
                    record = self._send_or_confirm(removal)
            elif restore := build_restoring_request(record, node_id, former, fields):
                answered = self._send_or_confirm(restore)
                restorations += _list_restorations(restore, record, answered)
                # The restoration hit yet another entry: this one is still to be restored.
                if answered.find_entry(node_id) and not restore.is_applied_to(answered):
                    restorations.append((node_id, former, fields))
                record = answered
        for _ in range(MAX_SUM_UPDATES):
            # Restored entries change what the nodes add up to.
            if sums := build_sums_request(record):
                record = self._send_or_confirm(sums)
        return [*unrestored, *(id_ for id_, _, _ in restorations)]


_Restoration = tuple[str, wire.Node | None, Mapping[str, Any]]
"""An entry's id, its state before a request hit it, and the values that the request set."""


def _list_restorations(
    request: UpdateRequest, before: wire.Cluster, record: wire.Cluster
) -> list[_Restoration]:
    """Return the entries which a request has wrongly hit, each with its former state and values."""
    strays = request.find_stray_entries(before, record)
    return [(entry.id, before.find_entry(entry.id), change.fields) for entry, change in strays]


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

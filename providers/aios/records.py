"""Read and change records of a registry that lags, loses answers, and has other writers.

A GET and a query may be older than the last change; what a PUT answers is the record right after it
(the registry's code: `findOneAndUpdate` with `new`). So a change is over when a PUT's answer needs
no other one, and what is missing from a GET is gone when the registry had time to show it.
The verbs of `cluster` and `gpu_node` use this; `schemas.aios.updates` makes the bodies.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from gpuform.providers.aios.client import AiosClient
from gpuform.providers.context import TRANSIENT_ERRORS, PollResult, ProviderContext, wait_until_done
from gpuform.providers.creating import SETTLE, Candidate, is_of_another_time
from gpuform.providers.errors import (
    Cancelled,
    GpuformError,
    NotFound,
    NotReady,
    ServerError,
    Unfinished,
)
from gpuform.providers.evidence import Observation, find_gaps, require_evidence
from gpuform.providers.evidence.decisions import (
    CHANGE_AGAIN,
    FORGET_ENTRY,
    REMOVE_RECORD,
    WRITE_SUMS,
)
from gpuform.providers.http import contradicted
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

INTERVAL: Final = 5.0
"""Seconds between looks at what became of a change."""

PATIENCE: Final = 180.0
"""Seconds in which a change has to be answered: the settle time, and as long again for a repetition
and its answer."""

ROUNDS: Final = 40
"""Updates of one change, of which each may be overtaken by another writer's."""

SUM_ROUNDS: Final = 8
"""Updates of the sums alone, after which somebody else is known to write them otherwise."""

SENT: Final = {"properties": "those declared"}
"""What a create has sent, as evidence."""

HARDWARE_STAYS = (
    "deleting it deletes the registry's record alone: the hardware goes on existing, and costing"
)

T = TypeVar("T")


class EntryOverwritten(GpuformError):
    """A change by place hit the entry of another node, and did not change its own."""


Plan = Callable[[wire.Cluster], UpdateRequest | None]
"""Returns what is left to do in a record as it is now. Raises GpuformError if nothing may be."""


def find(client: AiosClient, cluster_id: str) -> wire.Cluster | None:
    """Return the record, or None when there is none.

    A query may leave nodes or their details out: such a record is asked for alone.
    """
    try:
        found = client.shared_clusters().one(cluster_id)
        return found if _is_detailed(found) else client.shared_clusters().alone(cluster_id)
    except NotFound:
        return None


def find_alone(client: AiosClient, cluster_id: str) -> wire.Cluster | None:
    """Return the record by a request of its own, or None when there is none."""
    try:
        return client.shared_clusters().alone(cluster_id)
    except NotFound:
        return None


def find_present(
    call: ProviderContext,
    client: AiosClient,
    cluster_id: str,
    may_create: Callable[[wire.Cluster], bool] | None = None,
) -> wire.Cluster | None:
    """Return the record before something is created, or None when there is none.

    A GET may be older than the last change: a record that is in the way of a create, or that
    `may_create` does not hold for, is confirmed by a PUT.
    """
    try:
        record = find(client, cluster_id)
    except TRANSIENT_ERRORS:
        if call.is_search_only:
            raise
        return _confirmed_or_none(client, cluster_id)
    can_create = record is None if may_create is None else bool(record and may_create(record))
    return record if can_create or call.is_search_only else _confirmed_or_none(client, cluster_id)


def confirm(call: ProviderContext, client: AiosClient, record: wire.Cluster) -> wire.Cluster | None:
    """Return a record as it is now, by a PUT that changes nothing; None when it is gone.

    A preview sends no PUT and returns `record`, which the state is not to keep.
    """
    if call.preview:
        return record
    try:
        return _Edit(call, client, record.id).confirm()
    except NotFound:
        return None


def require_nodes(record: wire.Cluster) -> wire.Cluster:
    """Return the record if it has a list of nodes. Raises ServerError if the answer leaves it out.

    An answer without the list says nothing of any node.
    """
    if not record.has_node_list:
        raise ServerError(
            f"aios: the answer about cluster {record.id} tells no nodes",
            method="GET",
            path=f"/clusters/{record.id}",
            status=200,
        )
    return record


def look_past_lag(
    call: ProviderContext, client: AiosClient, look: Callable[[], T | None]
) -> T | None:
    """Return what `look` finds, or None when the registry had time to show it and does not.

    Nothing is waited for where the state knows of no object.
    """
    began, _ = call.get_platform_time(client.clock_ahead)
    while (found := look()) is None:
        now, _ = call.get_platform_time(client.clock_ahead)
        seen = Observation("the registry", _too_young(call, began, now))
        if not find_gaps(FORGET_ENTRY, seen):
            return None
        call.on_progress("not shown by the registry, which may lag behind: looking again")
        call.sleep(INTERVAL)
    return found


def compared(found: Mapping[str, Any], declared: Mapping[str, Any]) -> Mapping[str, str]:
    """Return whether a document has all that is declared, as evidence.

    The registry shows a document whole: what it lacks was not sent. The document's texts are
    people's, and no record may have them.
    """
    return SENT if _contains(found, declared) else {"properties": "others"}


def _contains(found: Any, declared: Any) -> bool:
    """Return whether a document has every declared value; it may have more."""
    if isinstance(declared, Mapping) and (found is None or isinstance(found, Mapping)):
        inner = found or {}
        return all(_contains(inner.get(name), value) for name, value in declared.items())
    return declared is None or is_equal(found, declared, unordered=True)


def is_still_there(call: ProviderContext, target: Target, present: Sequence[Candidate]) -> bool:
    """Whether what an earlier attempt made is there: its id alone is no proof, for people choose
    it, and somebody may have made another one since."""
    intent = call.intents.find(call.urn, target)
    return any(intent is not None and not is_of_another_time(each, intent) for each in present)


def is_another(call: ProviderContext, object_id: object) -> bool:
    """Whether somebody has made a record or an entry anew since the state was written."""
    known, now = call.stored_properties.get("object_id"), wire.parse_object_id(object_id)
    return known is not None and now is not None and known != now


def gone(what: str) -> GpuformError:
    """The error of a change to what somebody else has made in its place."""
    return GpuformError(
        f"{what} is gone from the registry: somebody has made another one under its id",
        hint="refresh (`gpuform refresh`): the state then lets go of it",
    )


def require_gone(
    call: ProviderContext,
    client: AiosClient,
    cluster_id: str,
    error: NotFound,
    is_there: Callable[[wire.Cluster], bool] = lambda _record: True,
) -> None:
    """Return when the registry shows no record any more, of those for which `is_there` holds.

    Raises Contradicted, with the 404 that said so, when it goes on to show it.
    """
    began = call.clock.now()
    while True:
        try:
            record = find_alone(client, cluster_id)
            if record is None or not is_there(record):
                return
            doubt: GpuformError = contradicted(error, "it is still there")
        except TRANSIENT_ERRORS as failure:
            doubt = failure
        if call.clock.now() - began >= SETTLE or call.compute_remaining_seconds() == 0:
            raise doubt
        call.sleep(INTERVAL)


def find_others(
    call: ProviderContext, client: AiosClient, id_: str, declared: Sequence[str]
) -> list[str]:
    """Return the nodes of a record that are in it by somebody else, none if there is no record.

    Those are not the stack's that the record does not declare, and no other resource of the stack.
    Raises NotEnoughEvidence when the registry does not list the nodes.
    """
    found = find_alone(client, id_) if call.is_read_only else _confirmed_or_none(client, id_)
    if found is None:
        return []
    missing = () if found.has_node_list else ("it lists no nodes of the record",)
    require_evidence(REMOVE_RECORD, f"cluster {id_}", Observation("the registry", missing))
    return others_in(call, found, declared)


def others_in(call: ProviderContext, record: wire.Cluster, declared: Collection[str]) -> list[str]:
    """Return the nodes of `record` that it does not declare, and no other resource of the stack."""
    ids = [node.id or "one without an id" for node in record.nodes.node_data]
    return [
        id_
        for id_ in ids
        if id_ not in declared and not call.belongs_to_stack(f"{record.id}/{id_}")
    ]


def warn_of_gaps(call: ProviderContext, record: wire.Cluster) -> None:
    """Warn of the sums that are left alone because a node does not tell its part of them."""
    gaps = [f"{node} tells no {path}" for node, path in _untold(record)]
    if find_gaps(WRITE_SUMS, Observation(f"cluster {record.id}", gaps)):
        paths = sorted(set(SUM_PATHS) - set(sum_reported_nodes(_entries(record))))
        call.on_warning(
            f"cluster {record.id}: {gaps[0]}; the sums are left as they are of {', '.join(paths)}"
        )


@contextmanager
def unfinished() -> Iterator[None]:
    """Raise Unfinished for errors after which nobody knows whether a change is done."""
    try:
        yield
    except Cancelled:
        raise
    except (*TRANSIENT_ERRORS, NotReady, EntryOverwritten) as error:
        raise Unfinished(error.message, hint=error.hint) from None


def change(
    call: ProviderContext,
    client: AiosClient,
    cluster_id: str,
    plan: Plan,
    fields: Body | None = None,
) -> wire.Cluster:
    """Send `fields`, then what `plan` leaves to do, until the answer of a PUT needs no more.

    Returns that answer. Raises NotFound when there is no record, NotReady when the registry does
    not answer for a while or others go on overtaking, and GpuformError when an entry of somebody
    else was hit, after its values were put back.
    """
    with client.editing(cluster_id):
        return _Edit(call, client, cluster_id).run(plan, fields)


@dataclass(slots=True)
class _Edit:
    """One change of a record, which may take several updates."""

    call: ProviderContext
    client: AiosClient
    cluster_id: str
    sum_rounds: int = 0
    failing_since: float | None = None

    def run(self, plan: Plan, fields: Body | None = None) -> wire.Cluster:
        record, is_confirmed = self._look(), False
        for _ in range(ROUNDS):
            self.call.raise_if_cancelled()
            try:
                request = plan(record)
            except GpuformError:
                if is_confirmed:
                    raise
                request = None
            else:
                request = (
                    UpdateRequest(fields) if fields else self._without_endless_sums(request, record)
                )
            if is_confirmed and request is None:
                return record
            if request is None or (request.placed and not is_confirmed):
                request = EMPTY_UPDATE
            answered = self._send(request, record)
            if answered is not None and fields and request.body == fields:
                fields = None
            record, is_confirmed = answered or self._look(), answered is not None
        raise NotReady(f"change of cluster {self.cluster_id}: others change it at the same time")

    def _without_endless_sums(
        self, request: UpdateRequest | None, record: wire.Cluster
    ) -> UpdateRequest | None:
        """Return the request, or None when it sets sums that somebody else goes on setting."""
        if request is None or request != build_sums_request(record):
            return request
        self.sum_rounds += 1
        if self.sum_rounds <= SUM_ROUNDS:
            return request
        self.call.on_warning(
            f"the sums of cluster {self.cluster_id} do not stay as its nodes add up: "
            "something else writes them"
        )
        return None

    def _look(self) -> wire.Cluster:
        """Return the record by a GET, which may be old, or by a PUT where GET has none."""
        try:
            return self._ask(lambda: self.client.shared_clusters().alone(self.cluster_id))
        except NotFound:
            return self.confirm()

    def confirm(self) -> wire.Cluster:
        """Return the record as it is now. Raises NotFound if there is none."""
        return self._ask(lambda: self.client.update(self.cluster_id, EMPTY_UPDATE))

    def _ask(self, fetch: Callable[[], wire.Cluster]) -> wire.Cluster:
        def probe() -> PollResult[wire.Cluster]:
            return PollResult(require_nodes(fetch()), "read", is_done=True)

        what = f"change of cluster {self.cluster_id}"
        return wait_until_done(self.call, probe, label=what, interval=INTERVAL, limit=PATIENCE)

    def _send(self, request: UpdateRequest, before: wire.Cluster) -> wire.Cluster | None:
        """Return the record after the request; None if its answer was lost.

        A request that may not be repeated has then had its effect, or the time to have it. The next
        look shows what is left to do.
        """
        sent_at = self.call.clock.now()
        try:
            answered = require_nodes(self.client.update(self.cluster_id, request))
        except TRANSIENT_ERRORS as error:
            self._give_up_or_wait(error.message)
        else:
            if request.is_applied_to(answered):
                self.failing_since = None
                return answered
            self._refuse_strays(request, before, answered, is_certain=True)
        if not request.is_repeatable:
            self._find_effect(request, before, sent_at)
        return None

    def _find_effect(self, request: UpdateRequest, before: wire.Cluster, sent_at: float) -> None:
        """Wait until the record shows the request, or had the time to show it."""
        while True:
            record = self._look()
            if request.is_applied_to(record):
                self.failing_since = None
                return
            is_certain = request.has_same_sums(record)
            self._refuse_strays(request, before, record, is_certain=is_certain)
            age = self.call.clock.now() - sent_at
            missing = () if age >= SETTLE else (f"only {age:.0f} s have passed since the request",)
            if not find_gaps(CHANGE_AGAIN, Observation("the registry", missing)):
                self._give_up_or_wait("the record does not show it")
                return
            self.call.on_progress("looking for what a change has done whose answer was lost")
            self.call.sleep(INTERVAL)

    def _give_up_or_wait(self, reason: str) -> None:
        now = self.call.clock.now()
        if self.failing_since is None:
            self.failing_since = now
        if now - self.failing_since >= PATIENCE or self.call.compute_remaining_seconds() == 0:
            raise NotReady(f"change of cluster {self.cluster_id}: not done: {reason}")
        self.call.sleep(INTERVAL)

    def _answered_or_confirmed(self, request: UpdateRequest) -> wire.Cluster:
        try:
            return require_nodes(self.client.update(self.cluster_id, request))
        except TRANSIENT_ERRORS:
            return self.confirm()

    def _refuse_strays(
        self,
        request: UpdateRequest,
        before: wire.Cluster,
        record: wire.Cluster,
        *,
        is_certain: bool,
    ) -> None:
        """Put back what a request by place did to entries of others, and raise EntryOverwritten.

        Somebody who removes an entry at the same moment moves those behind it. Where it is not
        certain that the request had its effect, somebody else may have set these values: they stay.
        """
        strays = request.find_stray_entries(before, record)
        if not strays:
            return
        mine = ", ".join(sorted({placed.node_id for _, placed in strays}))
        theirs = ", ".join(sorted({entry.id or "no node" for entry, _ in strays}))
        lost = self._put_back(request, before, record) if is_certain else [theirs]
        outcome, advice = "they were put back", ""
        if lost:
            outcome = f"those of {', '.join(lost)} could not be put back"
            advice = "; correct the values of the others in the registry"
        raise EntryOverwritten(
            f"node {mine} of cluster {self.cluster_id} is not changed: somebody removed another "
            f"node at the same moment, and the values of {theirs} were overwritten; {outcome}",
            hint=f"run it again: it finds the place of the node anew{advice}",
        )

    def _put_back(
        self, request: UpdateRequest, before: wire.Cluster, record: wire.Cluster
    ) -> Sequence[str]:
        """Give entries of others their former values back, and return the ids of the others.

        What is put back by place may hit yet another entry, which is owed its values then.
        """
        owed = _owed(request, before, record)
        lost = [id_ for id_, former, _ in owed if id_ and former is None]
        for _ in range(ROUNDS):
            if not owed:
                break
            node_id, former, fields = owed.pop(0)
            if not node_id:
                for removal in build_stray_removals(fields):
                    record = self._answered_or_confirmed(removal)
            elif restore := build_restoring_request(record, node_id, former, fields):
                answered = self._answered_or_confirmed(restore)
                owed += _owed(restore, record, answered)
                if answered.entry(node_id) and not restore.is_applied_to(answered):
                    owed.append((node_id, former, fields))
                record = answered
        for _ in range(SUM_ROUNDS):
            if sums := build_sums_request(record):
                record = self._answered_or_confirmed(sums)
        return [*lost, *(id_ for id_, _, _ in owed)]


_Owed = tuple[str, wire.Node | None, Mapping[str, Any]]
"""An entry's id, what it was before a request hit it, and the values that the request set."""


def _owed(request: UpdateRequest, before: wire.Cluster, record: wire.Cluster) -> list[_Owed]:
    strays = request.find_stray_entries(before, record)
    return [(entry.id, before.entry(entry.id), placed.fields) for entry, placed in strays]


def _confirmed_or_none(client: AiosClient, cluster_id: str) -> wire.Cluster | None:
    try:
        return client.update(cluster_id, EMPTY_UPDATE)
    except NotFound:
        return None


def _too_young(call: ProviderContext, began: float, now: float) -> list[str]:
    """Return why an object that the state knows may be there though no answer shows it."""
    if not call.stored_properties:
        return []
    made_at = wire.parse_object_id_time(call.stored_properties.get("object_id"))
    since = min(began, made_at) if made_at is not None else began
    if now - since >= SETTLE:
        return []
    return [f"it was made less than {SETTLE:.0f} s ago"]


def _entries(record: wire.Cluster) -> list[dict[str, Any]]:
    return [entry_to_declared(each) for each in record.nodes.node_data]


def _untold(record: wire.Cluster) -> list[tuple[str, str]]:
    """Return the nodes of a record and the paths of the numbers that they do not tell."""
    return [
        (each.get("id") or "a node without an id", path)
        for each in _entries(record)
        for path in SUM_PATHS
        if path not in sum_reported_nodes([each])
    ]


def _is_detailed(record: wire.Cluster) -> bool:
    """Whether an answer lists the nodes, each with all of its numbers."""
    return record.has_node_list and not _untold(record)

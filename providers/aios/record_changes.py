"""Change records of a registry that lags, loses answers, and has other writers; drain nodes before.

`cluster` and `gpu_node` call `change_record` and `confirm_record`, and drain the nodes of entries
that leave a record (`EntryRemoval`) with the scheduler that their inputs declare. The registry
knows no scheduler, and the hardware stays: only the network's work for the nodes ends, so that a
node takes jobs again as soon as its entry is gone; `schemas.aios.updates` builds the request
bodies. The answer of a PUT is the record right after it: a change is done when a PUT's answer needs
no other one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from gpuform.providers.aios.client import AiosClient
from gpuform.providers.aios.records import POLL_INTERVAL_S, require_nodes
from gpuform.providers.context import TRANSIENT_ERRORS, PollResult, ProviderContext, wait_until_done
from gpuform.providers.creating import PROPAGATION_TIME_S
from gpuform.providers.draining import (
    DrainOperation,
    DrainTarget,
    NodeEviction,
    Scheduler,
    Worker,
    undo_drain_or_fail,
)
from gpuform.providers.errors import Cancelled, GpuformError, NotFound, NotReady, Unfinished
from gpuform.providers.evidence import CHANGE_AGAIN, Observation, find_gaps
from gpuform.providers.records import Drains
from gpuform.providers.slurm.scheduler import create_declared_scheduler
from gpuform.schemas.aios import wire
from gpuform.schemas.aios.updates import (
    EMPTY_UPDATE,
    Body,
    UpdateRequest,
    build_restoring_request,
    build_stray_removals,
    build_sums_request,
)
from gpuform.schemas.policies.drain import RemovedNodes, ScheduledDrainInputs
from gpuform.schemas.values import RemovalCount

CHANGE_TIMEOUT_S: Final = 180.0
"""Seconds in which a change has to be answered.

That is the propagation time, and as long again for a repetition and its answer.
"""

MAX_UPDATES: Final = 40
"""Updates of one change, each of which another writer may overtake."""

MAX_SUM_UPDATES: Final = 8
"""Updates of the sums alone; after as many, another writer evidently sets other sums."""


class EntryOverwritten(GpuformError):
    """A change by position overwrote the entry of another node instead of its own."""


ChangePlanner = Callable[[wire.Cluster], UpdateRequest | None]
"""Returns the next request for a record as it is now, or None if the change is done.

Raises GpuformError if the change must not be made.
"""


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


@dataclass(slots=True)
class _RecordChange:
    """One change of a record, which may take several updates."""

    context: ProviderContext
    client: AiosClient
    cluster_id: str
    sum_rounds: int = 0
    failing_since: float | None = None

    def apply(self, plan_request: ChangePlanner, fields: Body | None = None) -> wire.Cluster:
        """Change the record until `plan_request` finds nothing to do; the caller holds the lock."""
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
        """Return the request; None, with a warning, if others keep changing the sums to be set.

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
            f"removed or moved at the same moment, and the values of {other_nodes} were "
            f"overwritten; {outcome}",
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
    """Return the entries overwritten by mistake, each with the former entry and the fields."""
    strays = request.find_stray_entries(before, record)
    return [(entry.id, before.find_entry(entry.id), change.fields) for entry, change in strays]


class EntryRemoval:
    """Removes node entries of one resource, whose canonical inputs are `declared`.

    `label` names the resource in messages, as `cluster west`.
    """

    def __init__(
        self, context: ProviderContext, object_id: str, label: str, declared: Mapping[str, Any]
    ) -> None:
        self._context = context
        self._object_id = object_id
        self._label = label
        self._inputs = ScheduledDrainInputs.model_validate(declared.get("drain") or {})

    @contextmanager
    def drain_during(self, node_names: Sequence[str]) -> Iterator[None]:
        """Drain the nodes, run the block, which removes the entries, then uncordon the nodes.

        Without nodes or a declared scheduler nothing is drained. If the scheduler does not answer,
        a run with `--allow evict-jobs` gets a warning, and the block runs without a drain. Nodes
        that an earlier removal has left cordoned are uncordoned, too. After an error of the block
        nothing is uncordoned, except if the error proves that nothing was removed.

        Raises:
            UnplannedRemoval: before the block, if the plan of the run removes fewer nodes.
            GpuformError: before the block, if the nodes must not be removed; after it, if nodes may
                stay cordoned.
        """
        self._context.require_planned_removal(self._label, RemovalCount(len(node_names), 0))
        if node_names and self._inputs.has_scheduler:
            with self._create_drainer(node_names).drain_during(
                NodeEviction(dict.fromkeys(node_names, "deleted"))
            ):
                yield
        else:
            yield
        # The hardware stays: its next owner may give the nodes jobs.
        self.uncordon_leftover_nodes()

    def predict_removed_nodes(self, node_names: Sequence[str]) -> RemovedNodes:
        """Return the nodes whose entries an update would remove, with their jobs, for a plan.

        The jobs are unknown if no scheduler is declared, which needs no warning: the entries of the
        registry are only records. They are unknown, too, if the scheduler does not answer:
        `context.on_skipped_check` gets the reason.
        """
        eviction = NodeEviction(dict.fromkeys(node_names, "deleted"))
        if not node_names or not self._inputs.has_scheduler:
            return self._build_target(node_names).predict_without_scheduler(eviction)
        return self._create_drainer(node_names).predict_removed_nodes(eviction)

    def uncordon_leftover_nodes(self) -> None:
        """Uncordon the nodes of an earlier removal, and delete the record of its drain.

        Does nothing without such a record.

        Raises:
            GpuformError: nodes may stay cordoned.
        """
        drain = Drains.from_intents(self._context.intents).find(self._object_id)
        if drain is not None:
            undo_drain_or_fail(self._context, drain, self._create_scheduler)

    def _create_drainer(self, node_names: Sequence[str]) -> DrainOperation:
        """Return the drain of these nodes by the declared scheduler; sends nothing."""
        return DrainOperation(
            self._context, self._build_target(node_names), self._create_scheduler, self._inputs
        )

    def _build_target(self, node_names: Sequence[str]) -> DrainTarget:
        """Return the target of the drain of these nodes. An entry is a record, and has no GPUs."""
        workers = [Worker(node_name, gpus=0) for node_name in node_names]
        return DrainTarget(self._object_id, self._label, workers)

    def _create_scheduler(self) -> Scheduler:
        """Return the declared scheduler. Raises GpuformError if none is declared or usable."""
        return create_declared_scheduler(self._inputs, self._label)

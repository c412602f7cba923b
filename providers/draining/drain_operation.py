"""Drain nodes: choose, cordon, wait until idle, let the platform remove them, verify.

Lifecycles use `DrainOperation` whenever they take GPUs away: they shrink, replace, stop, move or
delete nodes, alone or with their cluster. The steps:

1. List the nodes and jobs of the scheduler, and choose the nodes to remove. If the scheduler cannot
   be asked, no node is removed.
2. Store a durable record, then cordon. The next run finishes or undoes the drain by the record.
3. Poll until no job runs on the nodes, right before the platform is asked. After a timeout or an
   interruption the nodes are uncordoned: nothing has changed.
4. Write into the record that the platform is asked, then ask: the answer may be lost.
5. When the platform is done, uncordon the chosen nodes that still exist. If the platform removed
   other nodes instead, raise an error that names them.

A run with `--allow evict-jobs` evicts jobs whatever the policy is, and removes nodes even if their
scheduler cannot be asked.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from gpuform.providers.context import (
    PollResult,
    PollSchedule,
    ProviderContext,
    format_duration,
    wait_until_done,
)
from gpuform.providers.draining.choosing import (
    MAX_SHOWN,
    UNKNOWN_NODE_HINT,
    DrainTarget,
    InvalidNodeNames,
    NodeChooser,
    NodeEviction,
    NodeRemoval,
    Worker,
)
from gpuform.providers.draining.schedulers import UNDO_GRACE_S, Scheduler, call_interruptibly
from gpuform.providers.errors import (
    ApiError,
    Cancelled,
    GpuformError,
    MissingCredentials,
    NotReady,
    UnplannedRemoval,
    Unreachable,
)
from gpuform.providers.evidence import (
    REMOVE_NODE,
    NotEnoughEvidence,
    find_gaps,
    require_evidence,
)
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Drain, Drains
from gpuform.schemas.policies.drain import (
    DEFAULT_WAIT_MINUTES,
    DrainInputs,
    OnBusy,
    RemovedNodes,
)

SHORTEST_POLL_INTERVAL_S: Final = 15.0
LONGEST_POLL_INTERVAL_S: Final = 60.0
"""Seconds between two polls of the jobs on nodes. The interval grows with the time waited, as each
poll lists all nodes and jobs of the scheduler."""

CORDON_SETTLE_S: Final = 5.0
"""Seconds after a cordon in which a scheduler may still start jobs that it placed before."""

_ERRORS_BEFORE_SENDING: Final = (MissingCredentials, Unreachable, Cancelled, UnplannedRemoval)


class DrainOperation:
    """The drain of nodes of one object, in one call of its lifecycle.

    `find_scheduler` returns the scheduler of the nodes, or raises GpuformError.
    """

    def __init__(
        self,
        context: ProviderContext,
        target: DrainTarget,
        find_scheduler: Callable[[], Scheduler],
        policy: DrainInputs,
    ) -> None:
        self._context = context
        self._target = target
        self._find_scheduler = find_scheduler
        self._inputs = policy
        self._drains = Drains.from_intents(context.intents)
        self._may_end_jobs = Permission.EVICT_JOBS in context.run.permissions
        self._chooser = NodeChooser(
            context, target, find_scheduler, may_end_jobs=self._may_end_jobs
        )

    def predict_removed_nodes(self, eviction: NodeEviction) -> RemovedNodes:
        """Return the nodes which a removal would take now, with the nodes' jobs, for a plan.

        Nothing is cordoned. The jobs are unknown if the scheduler fails, or does not report the
        jobs of every chosen node in a run that may not end jobs: the reason goes to
        `context.on_skipped_check`, as does a warning of nodes that somebody else has cordoned.

        Raises:
            InvalidNodeNames: declared names do not fit the nodes of the object.
        """
        try:
            workers = self._chooser.list_workers()
            removals = self._chooser.choose_nodes(workers, eviction)
            self._chooser.require_known_jobs(workers, removals)
        except InvalidNodeNames:
            raise
        except GpuformError as error:
            self._context.on_skipped_check(
                f"the nodes to remove from {self._target.label}, and their jobs: "
                f"{_to_one_line(error)}. gpuform removes no node while its jobs are unknown"
            )
            return self._target.predict_without_scheduler(eviction)
        self._chooser.warn_of_other_cordoned(workers, removals, self._context.on_skipped_check)
        wait_minutes = (
            0 if self._policy == "fail" else self._inputs.wait_minutes or DEFAULT_WAIT_MINUTES
        )
        return RemovedNodes(
            scheduler=self._chooser.scheduler.name,
            on_busy=self._policy,
            wait_minutes=wait_minutes,
            nodes=tuple(removal.to_removed_node() for removal in removals),
        )

    @contextmanager
    def drain_during(self, eviction: NodeEviction) -> Iterator[None]:
        """Drain the nodes, then run the block, which asks the platform to remove the nodes.

        If the scheduler cannot be asked, a run with `--allow evict-jobs` gets a warning, and the
        block runs without a drain and without a record. Every error of the block passes. An error
        which proves that the platform does nothing (a refusal, an unsent request or an
        interruption) first undoes the drain. After a lost answer, also of an earlier attempt, and
        after a success, the record stays: `finish_drain` or the next run ends the removal.

        Raises:
            GpuformError: before the block, as `drain_nodes`, if the nodes must not be removed.
            Cancelled: before the block, the run was interrupted.
        """
        drain = self.drain_for_request(eviction)
        try:
            yield
        except GpuformError as error:
            # After any other error the platform may be removing the nodes: the record has to stay.
            is_refused = isinstance(error, ApiError) and error.is_definite
            is_unsent = (
                isinstance(error, _ERRORS_BEFORE_SENDING) and not error.has_unanswered_attempt
            )
            if drain is not None and (is_refused or is_unsent):
                undo_drain(self._context, drain, self._find_scheduler)
            raise

    def drain_for_request(self, eviction: NodeEviction) -> Drain | None:
        """Drain the nodes as `drain_nodes`, and record the coming request to the platform.

        Raises:
            GpuformError: as `drain_nodes`.
            Cancelled: the run was interrupted. The cordon is undone, or a warning names nodes that
                stay cordoned.
        """
        drain = self.drain_nodes(eviction)
        if drain is None:
            return None
        try:
            return self.record_request(drain)
        except Cancelled:
            undo_drain(self._context, drain, self._find_scheduler)
            raise

    def drain_nodes(self, eviction: NodeEviction) -> Drain | None:
        """Choose and cordon the nodes to remove, and wait until no job runs on them.

        Policy `evict` ends the jobs meanwhile, policy `fail` raises an error as soon as a job runs.
        A run with `--allow evict-jobs` uses `evict` whatever is declared, and removes nodes with
        unknown jobs, with a warning. Nodes that only an earlier attempt has cordoned are
        uncordoned.

        Returns:
            The durable record. None, with a warning and nothing cordoned, if the scheduler could
            not be asked and the run may end jobs.

        Raises:
            GpuformError: a job still runs, the scheduler refuses, or it cannot be asked and the run
                may not end jobs. The cordon is undone, or a warning names nodes that stay cordoned;
                after an earlier request to the platform it stays.
            Cancelled: the run was interrupted; as above.
        """
        drain: Drain | None = None
        try:
            workers = self.observe_workers()
            if workers is None:
                return None
            removals = self._chooser.choose_nodes(workers, eviction)
            self._chooser.require_known_jobs(workers, removals)
            self._chooser.warn_of_other_cordoned(workers, removals, self._context.on_warning)
            if self._policy == "fail":
                self._reject_busy_workers([removal.worker for removal in removals])
            # Durable before the first cordon: after a kill, the next run knows which nodes to
            # uncordon.
            drain = self._record_drain([removal.worker for removal in removals])
            drain = self._uncordon_unchosen(drain, removals)
            self._cordon(drain)
            with self._context.extend_deadline(self._inputs.job_wait_s):
                drain = self._wait_until_idle(drain)
        except GpuformError as error:
            # An earlier attempt may have cordoned nodes before this one failed.
            drain = drain or self._drains.find(self._target.id)
            # Once the platform was asked, an uncordoned node could get jobs and then disappear.
            if drain is not None and not drain.asked:
                undo_drain(self._context, drain, self._find_scheduler)
            raise self._build_not_removed_error(error) from None
        return drain

    def observe_workers(self) -> Sequence[Worker] | None:
        """Return the workers with the jobs on each, as the scheduler lists them now.

        If the scheduler cannot be asked and the run may end jobs, warns and returns None.

        Raises:
            GpuformError: the scheduler cannot be asked, and the run may not end jobs.
            Cancelled: the run was interrupted.
        """
        try:
            return self._chooser.list_workers()
        except Cancelled:
            raise
        except GpuformError as error:
            if not self._may_end_jobs:
                raise
            warning = f"{self._target.label}: its jobs are unknown: {_to_one_line(error)}"
            self._context.on_warning(warning)
            return None

    def record_request(self, drain: Drain) -> Drain:
        """Store the coming request to the platform in the drain record, and return the record.

        Raises:
            Cancelled: the run was interrupted; nothing is stored.
        """
        self._context.raise_if_cancelled()
        # Durable before the request: if its answer is lost, the next run knows that nodes may be
        # gone.
        return self._store(replace(drain, asked=True))

    def _store(self, drain: Drain) -> Drain:
        """Store a record durably, in place of the object's earlier one, and return it."""
        self._drains.record(drain)
        return drain

    @property
    def _policy(self) -> OnBusy:
        """Return the declared policy for busy nodes, or `evict` in a run which may end jobs."""
        return "evict" if self._may_end_jobs else self._inputs.policy

    def _record_drain(self, workers: Sequence[Worker]) -> Drain:
        """Store and return the drain record, with the nodes of an earlier attempt's cordon."""
        earlier = self._drains.find(self._target.id)
        names = [worker.scheduled_node.name for worker in workers if worker.scheduled_node]
        # A platform that chooses among cordoned nodes could remove others than the chosen ones.
        candidates = self._target.workers if self._target.removes_cordoned else ()
        return self._store(
            Drain(
                id=self._target.id,
                mark=self._target.owner_label,
                chosen=tuple(worker.name for worker in workers),
                cordoned=tuple(dict.fromkeys([*names, *(earlier.cordoned if earlier else ())])),
                present=tuple(worker.name for worker in candidates),
            )
        )

    def _uncordon_unchosen(self, drain: Drain, removals: Sequence[NodeRemoval]) -> Drain:
        """Uncordon nodes which only an earlier attempt chose; store and return the new record.

        Without such nodes returns `drain` itself.
        """
        names = [
            removal.worker.scheduled_node.name
            for removal in removals
            if removal.worker.scheduled_node
        ]
        unchosen = [name for name in drain.cordoned if name not in names]
        if not unchosen:
            return drain
        scheduler = self._chooser.scheduler
        call_interruptibly(self._context, lambda: scheduler.uncordon(unchosen, drain.mark))
        return self._store(replace(drain, cordoned=tuple(names)))

    def _cordon(self, drain: Drain) -> None:
        """Report progress, and cordon all nodes of the record under the record's label.

        Nodes that are cordoned already stay as they are.
        """
        self._context.on_progress(f"cordoning {', '.join(drain.chosen)}")
        call_interruptibly(
            self._context, lambda: self._chooser.scheduler.cordon(drain.cordoned, drain.mark)
        )

    def _wait_until_idle(self, drain: Drain) -> Drain:
        """Wait until no job runs on the chosen nodes, and return the record as of then.

        Meanwhile cordons nodes again that somebody has uncordoned; policy `evict` ends the jobs.
        Jobs on other cordoned nodes count, too, if the platform may remove those nodes. Unknown
        jobs do not count in a run that may end jobs.

        Raises:
            GpuformError: jobs still run, or are unknown, after the declared time, or run at all
                under policy `fail`.
            Cancelled: the run was interrupted.
        """
        busy_workers: list[Worker] = []

        def poll_nodes() -> PollResult[None]:
            nonlocal drain
            drain, busy_workers[:], result = self._poll_chosen_nodes(drain)
            if result.is_done:
                # One answer proves nothing: the scheduler may show what was some seconds ago.
                self._context.sleep(CORDON_SETTLE_S)
                drain, busy_workers[:], result = self._poll_chosen_nodes(drain)
            return result

        self._context.sleep(CORDON_SETTLE_S)
        timeout_s = self._inputs.job_wait_s
        try:
            wait_until_done(
                self._context,
                poll_nodes,
                label=f"waiting for jobs on {', '.join(drain.chosen)}",
                interval=PollSchedule(LONGEST_POLL_INTERVAL_S, SHORTEST_POLL_INTERVAL_S),
                limit=timeout_s,
            )
        except Cancelled:
            raise
        except NotReady as error:
            message = (
                f"after {format_duration(timeout_s)} jobs still run on {format_jobs(busy_workers)}"
            )
            raise GpuformError(
                message if busy_workers else error.reason,
                hint="run the command again when the jobs have ended, declare a longer "
                f"drain.wait_minutes, or end the jobs with --allow {Permission.EVICT_JOBS}",
            ) from None
        return drain

    def _poll_chosen_nodes(self, drain: Drain) -> tuple[Drain, Sequence[Worker], PollResult[None]]:
        """Poll the scheduler once: return the record, the busy workers and the result.

        Cordons chosen nodes again that are not cordoned, which may extend the record, and evicts
        the jobs under policy `evict`. Unknown jobs are pending; in a run that may end jobs, unknown
        jobs do not count.

        Raises:
            GpuformError: under policy `fail`, if a job runs or the jobs are unknown.
        """
        workers = self._chooser.list_workers()
        observation = self._chooser.observe_jobs(workers, drain.chosen)
        if observation.missing and not self._may_end_jobs:
            if self._policy == "fail":
                require_evidence(
                    REMOVE_NODE, self._target.label, observation, hint=UNKNOWN_NODE_HINT
                )
            phase = f"{observation.source}: {'; '.join(observation.missing)}"
            return drain, (), PollResult(None, phase)
        busy_workers = self._find_busy_workers(workers, drain)
        chosen_workers = [worker for worker in workers if worker.name in drain.chosen]
        if any(worker.scheduled_node and not worker.is_cordoned for worker in chosen_workers):
            # Somebody has uncordoned it meanwhile, or it was not known when it was chosen.
            drain = self._record_joined_nodes(drain, chosen_workers)
            self._cordon(drain)
            return drain, busy_workers, PollResult(None, "cordoned again")
        if not busy_workers:
            # Jobs may have started since: an answer older than two minutes proves nothing.
            is_proven = self._may_end_jobs or not find_gaps(REMOVE_NODE, observation)
            return drain, (), PollResult(None, "no job runs on them", is_done=is_proven)
        if self._policy == "fail":
            self._reject_busy_workers(busy_workers)
        # At each poll again: a disruption budget may allow only a few evictions at a time.
        if self._policy == "evict":
            call_interruptibly(self._context, lambda: self._chooser.scheduler.evict(drain.cordoned))
        return drain, busy_workers, PollResult(None, f"waiting for {format_jobs(busy_workers)}")

    def _record_joined_nodes(self, drain: Drain, chosen_workers: Sequence[Worker]) -> Drain:
        """Add the scheduler's names of chosen nodes to the record, and store and return it.

        For nodes that have joined the scheduler since they were chosen. Without a new name nothing
        is stored.
        """
        names = [worker.scheduled_node.name for worker in chosen_workers if worker.scheduled_node]
        extended_drain = replace(drain, cordoned=tuple(dict.fromkeys([*drain.cordoned, *names])))
        if extended_drain == drain:
            return drain
        return self._store(extended_drain)

    def _find_busy_workers(self, workers: Sequence[Worker], drain: Drain) -> list[Worker]:
        """Return the workers with jobs among all nodes which the platform may remove now.

        A failed node does not report that its jobs have ended: with policy `evict` they no longer
        count.
        """
        evicts = self._policy == "evict"

        def may_be_removed(worker: Worker) -> bool:
            if worker.name in drain.chosen:
                # A node that is down cannot report that its jobs have ended.
                is_dead = worker.scheduled_node is not None and worker.scheduled_node.is_failed
                return not (is_dead and evicts)
            return self._target.removes_cordoned and worker.is_cordoned

        return [worker for worker in workers if worker.jobs and may_be_removed(worker)]

    def _reject_busy_workers(self, workers: Sequence[Worker]) -> None:
        """Raise GpuformError with the jobs if one of the workers has a job, as it was last read."""
        busy = [worker for worker in workers if worker.jobs]
        if busy:
            raise GpuformError(
                f"jobs run on {format_jobs(busy)}",
                hint="run the command again when the jobs have ended, declare drain.on_busy: "
                f"wait, or end the jobs with --allow {Permission.EVICT_JOBS}",
            )

    def _build_not_removed_error(self, error: GpuformError) -> GpuformError:
        """Return the error which says: nothing was removed, because of `error`.

        A Cancelled and a NotEnoughEvidence keep their type. Except for Cancelled, the hint names
        the permission to remove the nodes all the same.
        """
        message = f"{self._target.label}: no node was removed: {error.message}"
        if isinstance(error, Cancelled):
            return Cancelled(message)
        hints = [error.hint] if error.hint else []
        if Permission.EVICT_JOBS not in (error.hint or ""):
            hints.append(f"--allow {Permission.EVICT_JOBS} removes the nodes anyway")
        error_type = NotEnoughEvidence if isinstance(error, NotEnoughEvidence) else GpuformError
        return error_type(message, hint="; ".join(hints))


def undo_drain(
    context: ProviderContext, drain: Drain, find_scheduler: Callable[[], Scheduler]
) -> bool:
    """Uncordon the nodes with the record's label, and delete the record.

    Returns:
        False if the scheduler did not answer, or did not uncordon: the record stays, and the
        user gets a warning.
    """
    try:
        call_interruptibly(
            context,
            lambda: find_scheduler().uncordon(drain.cordoned, drain.mark),
            grace_s=UNDO_GRACE_S,
        )
    except GpuformError as error:
        context.on_warning(
            f"{', '.join(drain.cordoned)} may still be cordoned: the scheduler did not uncordon "
            f"({_to_one_line(error)}); the next `up` or `refresh` uncordons"
        )
        return False
    Drains.from_intents(context.intents).forget(drain.id)
    return True


def finish_drain(
    context: ProviderContext,
    drain: Drain,
    find_scheduler: Callable[[], Scheduler],
    present_names: Sequence[str],
) -> None:
    """Uncordon chosen nodes which the platform has kept, and delete the record of the drain.

    Also uncordons nodes that an earlier attempt has cordoned. If no node has to be uncordoned, only
    the record is deleted. If the scheduler cannot be asked, the record stays, and the user gets a
    warning before the error.

    Args:
        context: has the records and the warnings.
        drain: the record.
        find_scheduler: returns the scheduler of the nodes.
        present_names: names of the nodes that the platform has now.

    Raises:
        GpuformError: the platform was asked and removed other nodes than the chosen ones, or nodes
            may stay cordoned.
    """
    kept_names = [name for name in drain.chosen if name in present_names]
    # A cordoned node that was removed needs no uncordon; more cordoned than chosen ones are left
    # from an earlier attempt.
    if not kept_names and len(drain.cordoned) <= len(drain.chosen):
        Drains.from_intents(context.intents).forget(drain.id)
        return
    is_uncordoned = undo_drain(context, drain, find_scheduler)
    other_names = [name for name in drain.present if name not in (*present_names, *drain.chosen)]
    # A platform that picks nodes itself may have picked others than the cordoned ones.
    if drain.asked and kept_names and other_names:
        raise GpuformError(
            f"the platform removed {', '.join(other_names)} instead of {', '.join(kept_names)}, "
            f"which {'takes jobs again' if is_uncordoned else 'may still be cordoned'}: look for "
            f"jobs that ran on {', '.join(other_names)}"
        )
    if not is_uncordoned:
        raise _build_still_cordoned_error(drain)


def undo_drain_or_fail(
    context: ProviderContext, drain: Drain, find_scheduler: Callable[[], Scheduler]
) -> None:
    """Undo a drain as `undo_drain`. Raises GpuformError if nodes may still be cordoned."""
    if not undo_drain(context, drain, find_scheduler):
        raise _build_still_cordoned_error(drain)


def _build_still_cordoned_error(drain: Drain) -> GpuformError:
    return GpuformError(
        f"{', '.join(drain.cordoned)} may still be cordoned",
        hint="run the command again to uncordon",
    )


def format_jobs(workers: Sequence[Worker]) -> str:
    """Return the jobs of each worker as `train-worker-1: ml/train-0 (ada), ml/eval-3`."""
    return "; ".join(f"{worker.name}: {_format_worker_jobs(worker)}" for worker in workers)


def _format_worker_jobs(worker: Worker) -> str:
    """Return the jobs of a worker in one line; after ten jobs only the number of the others."""
    shown_jobs = [str(job) for job in worker.jobs[:MAX_SHOWN]]
    hidden_count = len(worker.jobs) - len(shown_jobs)
    return ", ".join([*shown_jobs, *([f"and {hidden_count} more"] if hidden_count > 0 else [])])


def _to_one_line(error: GpuformError) -> str:
    """Return the error's text on one line, with each run of whitespace as one space."""
    return " ".join(str(error).split())

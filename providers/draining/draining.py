"""Takes nodes away from under no job: choose, cordon, wait until idle, let the platform, verify.

Whatever takes the GPUs of nodes goes this way: fewer nodes, their replacement, their stop, their
move, their end with all that they belong to.

1. Look at the scheduler; choose the nodes that go. When it cannot be asked, nothing is taken.
2. Make a record durable, then cordon: from here on, whoever comes next goes on or undoes it.
3. Look until no job runs on them, right before the platform is asked. When that takes too long,
   or the run is interrupted, they are uncordoned: all is as it was.
4. The platform is asked; the record says so first, for its answer may be lost.
5. When the platform is done, what is left of the chosen nodes is uncordoned. If others went in
   their place, that is an error which names them.

One run may be allowed to end jobs (`--allow evict-jobs`): then they are evicted whatever is
declared, and a scheduler that cannot be asked keeps nothing.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from gpuform.providers import permissions
from gpuform.providers.context import PollResult, ProviderContext, format_duration, wait_until_done
from gpuform.providers.draining.answering import LAST_WORD, answered
from gpuform.providers.draining.matching import match_nodes
from gpuform.providers.draining.schedulers import ScheduledNode, Scheduler
from gpuform.providers.draining.victims import Victim, Worker, choose, problems
from gpuform.providers.errors import (
    ApiError,
    Cancelled,
    GpuformError,
    MissingCredentials,
    NotReady,
    Unreachable,
)
from gpuform.providers.evidence import (
    NotEnoughEvidence,
    Observation,
    find_gaps,
    require_evidence,
)
from gpuform.providers.evidence.decisions import REMOVE_NODE
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Drain, Drains, digest
from gpuform.schemas.policies.drain import (
    DEFAULT_WAIT_MINUTES,
    DrainInputs,
    OnBusy,
    RemovedNode,
    RemovedNodes,
)

INTERVAL: Final = 15.0
"""Seconds from one look at the jobs to the next."""

SETTLING: Final = 5.0
"""Seconds after which a scheduler no longer starts what it decided before it knew of the cordon."""

_SHOWN: Final = 10

_UNSENT: Final = (MissingCredentials, Unreachable, Cancelled)


_UNKNOWN_HINT: Final = (
    "declare the scheduler that gives these nodes their jobs, by a kubeconfig that may list all "
    f"nodes and pods; if nobody does, --allow {Permission.EVICT_JOBS} takes them as they are"
)


class NamesRefused(GpuformError):
    """Declared names of nodes that cannot be meant."""


@dataclass(frozen=True)
class NodeEviction:
    """What is taken: `these` nodes, by the platform's names, each with what is done to it; and
    `count` others: those that are `named`, else those that are missed least."""

    these: Mapping[str, str] = field(default_factory=dict)
    count: int = 0
    named: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.these) or self.count > 0


@dataclass(frozen=True)
class DrainedObject:
    """What the nodes belong to; `what` is for people, as `cluster train`.

    `takes_cordoned`: the platform itself picks the nodes, from those that are cordoned.
    """

    id: str
    what: str
    workers: Sequence[Worker]
    takes_cordoned: bool = False

    @property
    def mark(self) -> str:
        """What is written on its nodes; the same for each attempt."""
        return f"gpuform-scale-down-{digest(self.id)[:12]}"

    def seen(self, nodes: Iterable[ScheduledNode]) -> list[Worker]:
        """Its workers with what their scheduler says of them."""
        return match_nodes(self.workers, [*nodes])


class Draining:
    """The taking of nodes in one call. `ask` finds their scheduler, or raises GpuformError."""

    def __init__(
        self,
        call: ProviderContext,
        subject: DrainedObject,
        ask: Callable[[], Scheduler],
        wanted: DrainInputs,
    ) -> None:
        self._call = call
        self._subject = subject
        self._ask = ask
        self._wanted = wanted
        self._drains = Drains.beside(call.intents)
        self._may_end_jobs = Permission.EVICT_JOBS in permissions.given()
        self._looked_at = 0.0
        self._joined: set[str] = set()

    def leaving(self, taking: NodeEviction) -> RemovedNodes | None:
        """The nodes that would go now, for a plan; None when the scheduler cannot be asked.

        Raises GpuformError for names that cannot be meant.
        """
        try:
            seen = self._look()
            victims = self._chosen(seen, taking)
            self._require_known(seen, victims)
        except NamesRefused:
            raise
        except GpuformError as error:
            _not_told(self._call, self._subject.what, error)
            return None
        self._tell_others(seen, victims, self._call.on_skipped_check)
        waits = 0 if self._policy == "fail" else self._wanted.wait_minutes or DEFAULT_WAIT_MINUTES
        return RemovedNodes(
            scheduler=self._scheduler.name,
            on_busy=self._policy,
            wait_minutes=waits,
            nodes=tuple(map(_leaving, victims)),
        )

    @contextmanager
    def taken(self, taking: NodeEviction) -> Iterator[None]:
        """A block that asks the platform for the nodes, on which no job runs any more.

        Raises GpuformError before it when they must not go. After an error of the block that says
        that the platform does nothing, all is as it was; after a lost answer the record stays.
        """
        drain = self.clear(taking)
        try:
            if drain is not None:
                drain = self.asking(drain)
            yield
        except GpuformError as error:
            is_refused = isinstance(error, ApiError) and error.is_definite
            if drain is not None and (is_refused or isinstance(error, _UNSENT)):
                undo(self._call, drain, self._ask)
            raise

    def clear(self, taking: NodeEviction) -> Drain | None:
        """Chooses nodes and waits until no job runs on them: the platform may be asked.

        None where nobody could be asked, and the run may end jobs. Raises GpuformError, or
        Cancelled; then nothing is cordoned any more.
        """
        drain: Drain | None = None
        try:
            seen = self.seen()
            if seen is None:
                return None
            victims = self._chosen(seen, taking)
            self._require_known(seen, victims)
            self._tell_others(seen, victims, self._call.on_warning)
            if self._policy == "fail":
                self._refuse_busy([victim.worker for victim in victims])
            drain = self._recorded([victim.worker for victim in victims])
            drain = self._spare(drain, victims)
            self._cordon(drain)
            with self._call.extend_deadline(self._wanted.job_wait_s):
                drain = self._wait(drain)
        except GpuformError as error:
            drain = drain or self._drains.find(self._subject.id)
            if drain is not None and not drain.asked:
                undo(self._call, drain, self._ask)
            raise self._nothing_taken(error) from None
        return drain

    def seen(self) -> Sequence[Worker] | None:
        """The workers as their scheduler sees them; None where nobody tells, and jobs may end.

        Raises GpuformError when it cannot be asked.
        """
        try:
            return self._look()
        except Cancelled:
            raise
        except GpuformError as error:
            if not self._may_end_jobs:
                raise
            told = f"{self._subject.what}: nobody tells its jobs: {_line(error)}"
            self._call.on_warning(told)
            return None

    def asking(self, drain: Drain) -> Drain:
        """The platform is about to be asked."""
        self._call.raise_if_cancelled()
        asked = replace(drain, asked=True)
        self._drains.record(asked)
        return asked

    @property
    def _policy(self) -> OnBusy:
        return "evict" if self._may_end_jobs else self._wanted.policy

    @cached_property
    def _scheduler(self) -> Scheduler:
        return self._ask()

    def _chosen(self, seen: Sequence[Worker], taking: NodeEviction) -> list[Victim]:
        these = [
            Victim(each, taking.these[each.name]) for each in seen if each.name in taking.these
        ]
        if not taking.count:
            return these
        others = [each for each in seen if each.name not in taking.these]
        return [*self._missed_least(others, taking.count, taking.named), *these]

    def _require_known(self, seen: Sequence[Worker], victims: Sequence[Victim]) -> None:
        """Return if the scheduler knows each victim; raise NotEnoughEvidence otherwise.

        A run that may end jobs removes them as they are, with a warning.
        """
        looked = self._observed(seen, [victim.worker.name for victim in victims])
        if not looked.missing:
            return
        if self._may_end_jobs:
            self._call.on_warning(
                f"{self._subject.what}: {'; '.join(looked.missing)}: removed as it is, for "
                f"--allow {Permission.EVICT_JOBS}"
            )
            return
        require_evidence(REMOVE_NODE, self._subject.what, looked, hint=_UNKNOWN_HINT)

    def _observed(self, seen: Sequence[Worker], names: Collection[str]) -> Observation:
        """Return what the scheduler lacks to tell whether jobs run on the nodes of these names.

        A node that the platform itself calls failed may have never joined. That is believed where
        the scheduler shows every other node of the object, and has not shown this one either.
        """
        others = [worker for worker in seen if not worker.is_failed]
        is_complete = bool(others) and all(worker.scheduled for worker in others)
        gaps = [
            _gap(worker)
            for worker in seen
            if worker.name in names
            if worker.scheduled is not None
            or worker.doubt
            or worker.name in self._joined
            or not (worker.is_failed and is_complete)
        ]
        unknown = [gap for gap in gaps if gap]
        more = [f"and {len(unknown) - _SHOWN} more"] if len(unknown) > _SHOWN else []
        age = time.monotonic() - self._looked_at
        return Observation(self._scheduler.name, (*unknown[:_SHOWN], *more), age)

    def _missed_least(
        self, seen: Sequence[Worker], count: int, named: Sequence[str]
    ) -> list[Victim]:
        # What cannot be cordoned cannot be told to a platform that picks by itself.
        able = [each for each in seen if each.scheduled] if self._subject.takes_cordoned else seen
        found = [str(each) for each in problems(able, count, named)]
        if found:
            raise NamesRefused(f"{self._subject.what}: {'; '.join(found)}")
        if len(able) < count:
            missing = ", ".join(each.name for each in seen if not each.scheduled)
            raise GpuformError(
                f"{count} nodes are to go, and {self._scheduler.name} knows {len(able)} of them: "
                f"it does not know {missing}",
                hint="wait until they have joined, or remove them on the platform's own pages",
            )
        # A node of which nobody tells the jobs is not an idle one.
        told = [each for each in able if not _gap(each) or (each.is_failed and not each.doubt)]
        return choose(told if len(told) >= count and not named else able, count, named)

    def _tell_others(
        self, seen: Sequence[Worker], victims: Sequence[Victim], tell: Callable[[str], None]
    ) -> None:
        """What the platform may take in place of the victims, for somebody has cordoned it."""
        going = {victim.worker.name for victim in victims}
        others = [
            each.name
            for each in seen
            if each.is_cordoned
            and each.name not in going
            and each.scheduled is not None
            and each.scheduled.mark != self._subject.mark
        ]
        if others and self._subject.takes_cordoned:
            tell(
                f"{', '.join(others)} of {self._subject.what} is cordoned too: the platform could "
                f"take it in place of {', '.join(sorted(going))}; uncordon it to be sure"
            )

    def _recorded(self, chosen: Sequence[Worker]) -> Drain:
        """The durable record, which also has what an earlier attempt cordoned."""
        earlier = self._drains.find(self._subject.id)
        names = [each.scheduled.name for each in chosen if each.scheduled]
        drain = Drain(
            id=self._subject.id,
            mark=self._subject.mark,
            chosen=tuple(each.name for each in chosen),
            cordoned=tuple(dict.fromkeys([*names, *(earlier.cordoned if earlier else ())])),
            present=self._present,
        )
        self._drains.record(drain)
        return drain

    @property
    def _present(self) -> tuple[str, ...]:
        """What to compare with later, where the platform could take others than the chosen."""
        return tuple(w.name for w in self._subject.workers) if self._subject.takes_cordoned else ()

    def _spare(self, drain: Drain, victims: Sequence[Victim]) -> Drain:
        """Uncordons what an earlier attempt chose and this one does not."""
        names = [v.worker.scheduled.name for v in victims if v.worker.scheduled]
        spared = [name for name in drain.cordoned if name not in names]
        if not spared:
            return drain
        answered(self._call, lambda: self._scheduler.uncordon(spared, drain.mark))
        left = replace(drain, cordoned=tuple(names))
        self._drains.record(left)
        return left

    def _cordon(self, drain: Drain) -> None:
        self._call.on_progress(f"cordoning {', '.join(drain.chosen)}")
        answered(self._call, lambda: self._scheduler.cordon(drain.cordoned, drain.mark))

    def _wait(self, drain: Drain) -> Drain:
        """The record when no job runs on the chosen nodes any more."""
        last: list[Worker] = []

        def probe() -> PollResult[None]:
            nonlocal drain
            drain, last[:], found = self._look_at_chosen(drain)
            if found.is_done:
                # One answer proves nothing: the scheduler may show what was some seconds ago.
                self._call.sleep(SETTLING)
                drain, last[:], found = self._look_at_chosen(drain)
            return found

        self._call.sleep(SETTLING)
        what, limit = f"waiting for jobs on {', '.join(drain.chosen)}", self._wanted.job_wait_s
        try:
            wait_until_done(self._call, probe, label=what, interval=INTERVAL, limit=limit)
        except Cancelled:
            raise
        except NotReady as error:
            jobs = f"after {format_duration(limit)} jobs still run on {jobs_text(last)}"
            raise GpuformError(
                jobs if last else error.reason,
                hint="run it again when they have ended; drain.wait_minutes waits longer, "
                f"and --allow {Permission.EVICT_JOBS} ends them",
            ) from None
        return drain

    def _look_at_chosen(self, drain: Drain) -> tuple[Drain, Sequence[Worker], PollResult[None]]:
        """Look once; return the record, the nodes with jobs, and whether all chosen are idle."""
        seen = self._look()
        looked, may_guess = self._observed(seen, drain.chosen), self._may_end_jobs
        if looked.missing and not may_guess:
            if self._policy == "fail":
                require_evidence(REMOVE_NODE, self._subject.what, looked, hint=_UNKNOWN_HINT)
            return drain, (), PollResult(None, f"{looked.source}: {'; '.join(looked.missing)}")
        busy = self._busy(seen, drain)
        if any(each.name in drain.chosen and _is_open(each) for each in seen):
            # Somebody has uncordoned it meanwhile, or it was not known when it was chosen.
            drain = self._with_all(drain, seen)
            self._cordon(drain)
            return drain, busy, PollResult(None, "cordoned again")
        if not busy:
            is_proven = may_guess or not find_gaps(REMOVE_NODE, looked)
            return drain, (), PollResult(None, "no job runs on them", is_done=is_proven)
        if self._policy == "fail":
            self._refuse_busy(busy)
        if self._policy == "evict":
            answered(self._call, lambda: self._scheduler.evict(drain.cordoned))
        return drain, busy, PollResult(None, f"waiting for {jobs_text(busy)}")

    def _with_all(self, drain: Drain, seen: Sequence[Worker]) -> Drain:
        """The record with what its scheduler calls each chosen node that it knows now."""
        names = [w.scheduled.name for w in seen if w.name in drain.chosen and w.scheduled]
        whole = replace(drain, cordoned=tuple(dict.fromkeys([*drain.cordoned, *names])))
        if whole != drain:
            self._drains.record(whole)
        return whole

    def _busy(self, seen: Sequence[Worker], drain: Drain) -> list[Worker]:
        """Those with jobs among all that the platform may take now.

        A failed node does not tell that its jobs have ended: once they are to be evicted, they
        count no longer.
        """
        evicts = self._policy == "evict"

        def may_go(worker: Worker) -> bool:
            if worker.name in drain.chosen:
                is_dead = worker.scheduled is not None and worker.scheduled.is_failed
                return not (is_dead and evicts)
            return self._subject.takes_cordoned and worker.is_cordoned

        return [worker for worker in seen if worker.jobs and may_go(worker)]

    def _refuse_busy(self, workers: Sequence[Worker]) -> None:
        busy = [worker for worker in workers if worker.jobs]
        if busy:
            raise GpuformError(
                f"jobs run on {jobs_text(busy)}",
                hint="run it again when they have ended; drain.on_busy wait waits for them, "
                f"and --allow {Permission.EVICT_JOBS} ends them",
            )

    def _look(self) -> list[Worker]:
        self._looked_at = time.monotonic()
        seen = self._subject.seen(answered(self._call, self._scheduler.nodes))
        self._joined |= {worker.name for worker in seen if worker.scheduled}
        return seen

    def _nothing_taken(self, error: GpuformError) -> GpuformError:
        text = f"nothing was taken from {self._subject.what}: {error.message}"
        if isinstance(error, Cancelled):
            return Cancelled(text)
        hints = [error.hint] if error.hint else []
        if Permission.EVICT_JOBS not in (error.hint or ""):
            hints.append(f"--allow {Permission.EVICT_JOBS} takes them as they are")
        kind = NotEnoughEvidence if isinstance(error, NotEnoughEvidence) else GpuformError
        return kind(text, hint="; ".join(hints))


def undo(call: ProviderContext, drain: Drain, ask: Callable[[], Scheduler]) -> bool:
    """Uncordons what bears the mark and forgets the record; whether that could be done.

    Otherwise the record stays, and somebody is told.
    """
    try:
        answered(call, lambda: ask().uncordon(drain.cordoned, drain.mark), patience=LAST_WORD)
    except GpuformError as error:
        call.on_warning(
            f"{', '.join(drain.cordoned)}: may still be cordoned, for their scheduler could not "
            f"be asked to uncordon ({_line(error)}); the next `up` or `refresh` does it"
        )
        return False
    Drains.beside(call.intents).forget(drain.id)
    return True


def conclude(
    call: ProviderContext, drain: Drain, ask: Callable[[], Scheduler], present: Sequence[str]
) -> None:
    """Ends a removal that the platform is done with; `present` are the nodes that it has now.

    Raises GpuformError when others went in place of the chosen ones, or nodes stay cordoned.
    """
    stayed = [name for name in drain.chosen if name in present]
    if not stayed and len(drain.cordoned) <= len(drain.chosen):
        Drains.beside(call.intents).forget(drain.id)
        return
    is_free = undo(call, drain, ask)
    others = [name for name in drain.present if name not in (*present, *drain.chosen)]
    if drain.asked and stayed and others:
        raise GpuformError(
            f"the platform removed {', '.join(others)} in place of {', '.join(stayed)}, which "
            f"{'takes jobs again' if is_free else 'may still be cordoned'}: look for jobs that ran "
            f"on {', '.join(others)}"
        )
    if not is_free:
        raise GpuformError(
            f"{', '.join(drain.cordoned)} may still be cordoned", hint="run it again to uncordon"
        )


def _not_told(call: ProviderContext, what: str, error: GpuformError) -> None:
    """Says in a plan why it does not show which nodes go."""
    call.on_skipped_check(
        f"which nodes of {what} go, and which jobs run on them: {_line(error)}. Nothing is removed "
        "before that can be told"
    )


def jobs_text(workers: Sequence[Worker]) -> str:
    """`train-worker-1: ml/train-0 (ada), ml/eval-3`."""
    return "; ".join(f"{each.name}: {_jobs(each)}" for each in workers)


def _jobs(worker: Worker) -> str:
    told = [str(job) for job in worker.jobs[:_SHOWN]]
    more = len(worker.jobs) - len(told)
    return ", ".join([*told, *([f"and {more} more"] if more > 0 else [])])


def _gap(worker: Worker) -> str:
    """Return what is missing to tell the jobs on a node; empty where its scheduler tells all."""
    if worker.scheduled is not None:
        doubt = worker.scheduled.doubt
        return f"the jobs on {worker.name} cannot be told: {doubt}" if doubt else ""
    if worker.doubt:
        return f"nobody can tell which node is {worker.name}: {worker.doubt}"
    return f"it knows no node with the name, an id or an address of {worker.name}"


def _is_open(worker: Worker) -> bool:
    return worker.scheduled is not None and not worker.is_cordoned


def _leaving(victim: Victim) -> RemovedNode:
    worker = victim.worker
    return RemovedNode(name=worker.name, because=victim.because, jobs=worker.jobs)


def _line(error: GpuformError) -> str:
    return " ".join(str(error).split())

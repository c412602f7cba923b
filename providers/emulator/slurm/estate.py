"""The Slurm of a cluster at a time: its nodes are the workers of the platform, its jobs are here.

Nothing runs in the background: each request first plays what has happened since the last one, in
its order.
"""

from collections.abc import Iterable, Mapping

from pydantic import BaseModel

from gpuform.providers.emulator.slurm.jobs import Job, JobRequest, Measure, State
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.clusters import Cluster
from gpuform.providers.emulator.together.nodes import GPUS_PER_WORKER, Node

_KIND = "slurm"


class Reason(BaseModel, frozen=True):
    text: str
    at: float


class _Kept(BaseModel):
    """What is remembered of one Slurm."""

    at: float
    last_number: int = 0
    jobs: list[Job] = []
    drained: dict[str, bool] = {}
    down: dict[str, bool] = {}
    reasons: dict[str, Reason] = {}
    is_answering: bool = True
    measures: dict[str, Measure] = {}
    """What scripts find on a node; under "" what they find on the others."""


class Slurm:
    """One Slurm, brought to `now`; `keep` remembers what was done to it."""

    def __init__(self, store: Store, cluster: Cluster, now: float) -> None:
        self._store = store
        self.cluster = cluster
        self.now = now
        kept = store.get(_KIND, cluster.cluster_id)
        self._kept = _Kept.model_validate_json(kept) if kept else _Kept(at=now)
        self._all = {node.slurm_name: node for node in (*cluster.workers, *cluster.preemptible)}
        self._play()

    def keep(self) -> None:
        cluster = self.cluster
        self._store.put(
            _KIND, cluster.cluster_id, self._kept.model_dump_json(), gone_at=cluster.gone_at
        )

    # Nodes.

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Those that have joined and not left, by name."""
        return {name: node for name, node in self._all.items() if node.is_running(self.now)}

    def state(self, name: str) -> list[str]:
        """The base state of a node, then its flags as `scontrol` orders them."""
        gpus = sum(job.wanted.gpus for job in self.jobs_on(name))
        base = "IDLE" if not gpus else "ALLOCATED" if gpus >= GPUS_PER_WORKER else "MIXED"
        completes = any(job.state == "COMPLETING" for job in self.jobs_on(name))
        flags = {"COMPLETING": completes, "DRAIN": name in self._kept.drained}
        is_down = name in self._kept.down or self._all[name].is_down(self.now)
        base = "DOWN" if is_down else base
        return [base, *(flag for flag, is_set in flags.items() if is_set)]

    def reason(self, name: str) -> Reason | None:
        return self._kept.reasons.get(name)

    def jobs_on(self, name: str) -> list[Job]:
        return [job for job in self._kept.jobs if job.holds_nodes and name in job.nodes]

    def explain(self, name: str, reason: str) -> None:
        self._kept.reasons[name] = Reason(text=reason, at=self.now)

    def drain(self, name: str) -> None:
        self._kept.drained[name] = True

    def resume(self, name: str, *, also_down: bool) -> None:
        """Ends its drain, and with `also_down` says that it is up again."""
        self._kept.drained.pop(name, None)
        if also_down:
            self._kept.down.pop(name, None)
        if name not in self._kept.down:
            self._kept.reasons.pop(name, None)
        self._schedule(self.now)

    def take_down(self, name: str) -> None:
        """The jobs on it are lost."""
        self._kept.down[name] = True
        self._kept.jobs = [
            job.lost(self.now) if job.holds_nodes and name in job.nodes else job
            for job in self._kept.jobs
        ]

    # Jobs.

    @property
    def jobs(self) -> list[Job]:
        return self._kept.jobs

    def submit(self, wanted: JobRequest, tasks: Iterable[int] | None = None) -> list[Job]:
        """A job, or one for each task of an array."""
        first = self._kept.last_number + 1
        labels = [f"{first}_{task}" for task in tasks] if tasks is not None else [str(first)]
        eligible_at = float("inf") if wanted.is_held else self.now
        made = [
            Job(number=first + at, label=label, wanted=wanted, eligible_at=eligible_at)
            for at, label in enumerate(labels)
        ]
        self._kept.last_number += len(made)
        self._kept.jobs += made
        self._schedule(self.now)
        return [job for job in self._kept.jobs if job.number >= first]

    def named(self, label: str) -> list[Job]:
        """The job of a label, or all the tasks of an array by the number of its first."""
        return [job for job in self._kept.jobs if label in (job.label, job.label.split("_")[0])]

    def end(self, jobs: Iterable[Job], how: str, then: State) -> None:
        """Ends runs; a job that waits for its start becomes `then` at once."""
        chosen = {job.number for job in jobs}
        self._kept.jobs = [
            self._ended(job, how, then) if job.number in chosen else job for job in self._kept.jobs
        ]

    def _ended(self, job: Job, how: str, then: State) -> Job:
        if job.state == "RUNNING":
            return job.ending(how, then, self.now)
        if job.state == "COMPLETING":
            return job.model_copy(update={"then": then})
        ended_at = None if then == "PENDING" else self.now
        update = {"state": then, "ended": [*job.ended, how], "ended_at": ended_at}
        return job.model_copy(update=update)

    def reason_to_wait(self, job: Job) -> str:
        """Why a job does not run: Slurm's words; `None` when it does, or could."""
        if job.state != "PENDING":
            return "NonZeroExitCode" if job.state == "FAILED" else "None"
        if job.wanted.is_held:
            return "JobHeldUser"
        if job.eligible_at > self.now:
            return "BeginTime"
        closed = [name for name in job.wanted.nodes if not self._is_open(name, self.now)]
        if closed:
            return f"ReqNodeNotAvail, UnavailableNodes:{','.join(closed)}"
        return "Resources"

    # What scripts find and print.

    def set_measure(self, name: str, measure: Measure) -> None:
        """Of a node, or of all that have none of their own; jobs that run keep what they found."""
        self._kept.measures[name] = measure

    def file(self, path: str) -> str | None:
        """What the newest job that has begun this file has printed; None when none has."""
        files = (job.file() for job in reversed(self._kept.jobs) if job.wanted.output == path)
        return next((text for text in files if text is not None), None)

    def _measure(self, name: str) -> Measure:
        measures = self._kept.measures
        return measures.get(name) or measures.get("") or Measure()

    # The controller.

    @property
    def is_answering(self) -> bool:
        return self._kept.is_answering

    def set_answering(self, *, is_answering: bool) -> None:
        self._kept.is_answering = is_answering

    # Time.

    def _play(self) -> None:
        at = self._kept.at
        while (moment := self._next(at)) <= self.now:
            at = moment
            self._kept.jobs = [self._at(job, at) for job in self._kept.jobs]
            for name, node in self._all.items():
                if node.revived_at == at:  # what was wrong has ended with it
                    self._kept.down.pop(name, None)
            self._schedule(at)
        self._kept.at = max(at, self.now)
        for told in (self._kept.drained, self._kept.down, self._kept.reasons):
            for name in set(told) - set(self.nodes):
                del told[name]

    def _next(self, at: float) -> float:
        """When something happens after `at`."""
        moments = [job.changes_at for job in self._kept.jobs if job.changes_at is not None]
        later = [job.eligible_at for job in self._kept.jobs if job.state == "PENDING"]
        for node in self._all.values():
            later += [each for each in (node.running_at, node.removed_at) if each is not None]
            later += [moment for span in node.down for moment in span]
        return min([*moments, *(each for each in later if each > at)], default=float("inf"))

    def _at(self, job: Job, at: float) -> Job:
        if job.holds_nodes and any(self._has_left(name, at) for name in job.nodes):
            return job.lost(at)
        if job.changes_at is not None and job.changes_at <= at:
            return job.changed(job.changes_at)
        return job

    def _has_left(self, name: str, at: float) -> bool:
        node = self._all.get(name)
        return node is None or node.has_left(at) or node.is_down(at)

    def _schedule(self, at: float) -> None:
        """First come, first served, on the nodes that take jobs."""
        for index, job in enumerate(self._kept.jobs):
            if job.state != "PENDING" or job.eligible_at > at:
                continue
            nodes = [name for name in self._all if self._takes(name, job.wanted, at)]
            chosen = job.wanted.nodes or nodes[: job.wanted.count]
            if len(chosen) >= job.wanted.count and set(chosen) <= set(nodes):
                started = job.started(chosen, at)
                if job.wanted.is_measuring:
                    started = started.measured([self._measure(name) for name in chosen], at)
                self._kept.jobs[index] = started

    def _takes(self, name: str, wanted: JobRequest, at: float) -> bool:
        if not self._is_open(name, at):
            return False
        used = sum(job.wanted.gpus for job in self.jobs_on(name))
        return used + wanted.gpus <= GPUS_PER_WORKER

    def _is_open(self, name: str, at: float) -> bool:
        """Whether the node takes jobs at all."""
        node = self._all.get(name)
        is_up = node is not None and node.is_running(at) and not node.is_down(at)
        return is_up and name not in self._kept.drained and name not in self._kept.down

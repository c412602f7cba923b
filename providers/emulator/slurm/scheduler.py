"""Keep the Slurm of a cluster: nodes are the workers of the platform, jobs are scheduled here.

`commands` uses `SlurmCluster`. Nothing runs in the background: each request first plays what has
happened since the last one, in its order.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Self

from pydantic import BaseModel, Field

from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.clusters import Cluster
from gpuform.providers.emulator.together.nodes import Node


class CommandRefused(Exception):
    """Raised by a command: the message goes to stderr as it is, or to stdout, with exit code 1."""

    def __init__(self, message: str, *, on_stdout: bool = False) -> None:
        super().__init__(message)
        self.on_stdout = on_stdout


State = Literal["PENDING", "RUNNING", "COMPLETING", "COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL"]
CODES = {
    "PENDING": "PD",
    "RUNNING": "R",
    "COMPLETING": "CG",
    "COMPLETED": "CD",
    "FAILED": "F",
    "CANCELLED": "CA",
    "NODE_FAIL": "NF",
}
ACTIVE = ("PENDING", "RUNNING", "COMPLETING")

EPILOG_SECONDS = 5.0
"""How long a job that ends holds its nodes: COMPLETING; ours."""
REQUEUE_SECONDS = 120.0
"""How long a requeued job waits before it may start again; ours."""


REMEMBERED_SECONDS = 300.0
"""How long Slurm knows a job that has ended: the default of MinJobAge."""


class Measurement(BaseModel, extra="forbid", frozen=True):
    """What a measuring script finds on a node, as a test sets it."""

    figure: float = 487.87
    runs_for: float = Field(default=60.0, ge=0)
    """Seconds of the clock."""
    exit_code: int = Field(default=0, ge=0, le=255)
    text: str = "# Avg bus bandwidth    : {figure}"
    """The output of the script; `{figure}` stands for the figure."""


class JobRequest(BaseModel, extra="forbid", frozen=True):
    """A job as it is submitted."""

    name: str = "wrap"
    user: str = "root"
    count: int = Field(default=1, ge=1)
    """The number of nodes."""
    nodes: list[str] = []
    """The names of the nodes that the job needs, all of them."""
    gpus: int = Field(default=8, ge=0, le=8)
    """GPUs of each node."""
    runs_for: float | None = Field(default=None, ge=0)
    """Seconds of the clock; None: until the job is cancelled."""
    is_batch: bool = True
    can_requeue: bool = True
    is_held: bool = False
    is_measuring: bool = False
    """Whether the job is a script that measures its nodes, and runs for as long as they say."""
    output: str = ""
    """The file that the job prints into; none when empty."""
    last_words: str = ""
    """What the job prints at its end, with `$code` and `$SLURM_JOB_NODELIST`."""


class Job(BaseModel, frozen=True):
    """A job as it is stored."""

    number: int
    label: str
    """The job's number as squeue shows it: 12, or 12_3 for a task of an array."""
    wanted: JobRequest
    state: State = "PENDING"
    nodes: list[str] = []
    eligible_at: float = 0.0
    started_at: float | None = None
    changes_at: float | None = None
    """When the job ends, or stops to hold its nodes, if that is known."""
    then: State = "COMPLETED"
    """The state that a COMPLETING job enters."""
    ended_at: float | None = None
    exit_code: int = 0
    printed: str = ""
    """The output before the job's last words."""
    ended: list[str] = []
    """How the runs of the job ended: completed, cancelled, requeued or killed with a node."""

    @property
    def holds_nodes(self) -> bool:
        """Return whether other jobs have to wait for the job's nodes."""
        return self.state in ("RUNNING", "COMPLETING")

    def start(self, nodes: list[str], now: float) -> Self:
        """Return the job RUNNING on `nodes`, and ending in time if the length is known."""
        runs_for = self.wanted.runs_for
        ends_at = None if runs_for is None else now + runs_for
        changes = {"state": "RUNNING", "nodes": nodes, "started_at": now, "changes_at": ends_at}
        return self.model_copy(update=changes)

    def apply_measurements(self, measurements: Sequence[Measurement], now: float) -> Self:
        """Return the started job with the measurements of its nodes.

        The job ends with the slowest node, prints the lowest figure, and has the first exit code
        that is not 0.
        """
        lowest = min(measurements, key=lambda measurement: measurement.figure)
        code = next(
            (measurement.exit_code for measurement in measurements if measurement.exit_code), 0
        )
        output = lowest.text.replace("{figure}", f"{lowest.figure:g}")
        ends_at = now + max(measurement.runs_for for measurement in measurements)
        update = {"changes_at": ends_at, "exit_code": code, "printed": f"{output}\n"}
        return self.model_copy(update=update)

    def read_output(self) -> str | None:
        """Return what the job has printed: None before its start, "" unless its last run completed.

        A run that failed has completed; one that was cancelled, requeued or killed has not.
        """
        if self.started_at is None:
            return None
        # Only a completed run has printed anything; one that was cut off leaves an empty file.
        if self.ended[-1:] != ["completed"]:
            return ""
        words = self.wanted.last_words.replace("$code", str(self.exit_code))
        return self.printed + words.replace("$SLURM_JOB_NODELIST", ",".join(self.nodes))

    def begin_epilog(self, end: str, next_state: State, now: float) -> Self:
        """Return the job COMPLETING, on its nodes for EPILOG_SECONDS, to enter `next_state` then.

        `end` says how the run ended, and is added to `ended`.
        """
        update = {
            "state": "COMPLETING",
            "then": next_state,
            "changes_at": now + EPILOG_SECONDS,
            # Only a requeued job reads it.
            "eligible_at": now + REQUEUE_SECONDS,
            "ended": [*self.ended, end],
        }
        return self.model_copy(update=update)

    def lose_node(self, now: float) -> Self:
        """Return the job after the loss of a node: killed at once, without an epilog.

        A batch job that may be requeued is PENDING, another one NODE_FAIL. A job in its epilog
        enters the state planned before.
        """
        # Interactive jobs cannot be started again without their user.
        next_state: State = (
            "PENDING" if self.wanted.is_batch and self.wanted.can_requeue else "NODE_FAIL"
        )
        ending_job = (
            self if self.state == "COMPLETING" else self.begin_epilog("killed", next_state, now)
        )
        return ending_job.release_nodes()

    def apply_due_change(self, now: float) -> Self:
        """Return the job after its due change: a run enters the epilog, an epilog ends.

        The caller has checked that `changes_at` has come.
        """
        if self.state == "RUNNING":
            return self.begin_epilog("completed", "FAILED" if self.exit_code else "COMPLETED", now)
        return self.release_nodes()

    def release_nodes(self) -> Self:
        """Return the job in the state `then`, after its epilog; its nodes are free for other jobs.

        A job that is PENDING again has no nodes and no end.
        """
        is_again = self.then == "PENDING"
        update = {
            "state": self.then,
            "nodes": [] if is_again else self.nodes,
            "changes_at": None,
            "ended_at": None if is_again else self.changes_at,
        }
        return self.model_copy(update=update)

    def is_remembered(self, now: float) -> bool:
        """Return whether Slurm still lists the job: active, or ended within REMEMBERED_SECONDS."""
        return self.ended_at is None or now < self.ended_at + REMEMBERED_SECONDS


_KIND = "slurm"


class Reason(BaseModel, frozen=True):
    """Why a node is drained or down, and since when."""

    text: str
    at: float


class _StoredState(BaseModel):
    """The stored part of one Slurm."""

    at: float
    last_number: int = 0
    jobs: list[Job] = []
    drained: dict[str, bool] = {}
    down: dict[str, bool] = {}
    reasons: dict[str, Reason] = {}
    is_answering: bool = True
    measures: dict[str, Measurement] = {}
    """Measures that scripts find by node; under "" the measure of all other nodes."""


class SlurmCluster:
    """The Slurm of one cluster, brought to `now` when created; only `save` stores changes."""

    def __init__(self, store: Store, cluster: Cluster, now: float) -> None:
        self._store = store
        self.cluster = cluster
        self.now = now
        stored_state = store.get(_KIND, cluster.cluster_id)
        self._state = (
            _StoredState.model_validate_json(stored_state) if stored_state else _StoredState(at=now)
        )
        self._all_nodes = {
            node.slurm_name: node for node in (*cluster.workers, *cluster.preemptible)
        }
        self._play_events()

    def save(self) -> None:
        """Store the state; nothing is kept without a call of this method."""
        cluster = self.cluster
        self._store.put(
            _KIND, cluster.cluster_id, self._state.model_dump_json(), gone_at=cluster.gone_at
        )

    # Nodes.

    @property
    def gpus_per_node(self) -> int:
        """Return how many GPUs each node has."""
        return self.cluster.settings.machine.num_gpus

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Return the nodes that have joined the cluster and not left, by Slurm's node name."""
        return {name: node for name, node in self._all_nodes.items() if node.is_running(self.now)}

    def list_states(self, name: str) -> list[str]:
        """Return a node's base state, then its flags: `["ALLOCATED", "COMPLETING", "DRAIN"]`."""
        gpus = sum(job.wanted.gpus for job in self.list_jobs_on(name))
        base = "IDLE" if not gpus else "ALLOCATED" if gpus >= self.gpus_per_node else "MIXED"
        completes = any(job.state == "COMPLETING" for job in self.list_jobs_on(name))
        flags = {"COMPLETING": completes, "DRAIN": name in self._state.drained}
        # By an operator or by a restart of the machine.
        is_down = name in self._state.down or self._all_nodes[name].is_down(self.now)
        base = "DOWN" if is_down else base
        return [base, *(flag for flag, is_set in flags.items() if is_set)]

    def get_reason(self, name: str) -> Reason | None:
        """Return why a node is drained or down, or None."""
        return self._state.reasons.get(name)

    def list_jobs_on(self, name: str) -> list[Job]:
        """Return the running and completing jobs of a node."""
        return [job for job in self._state.jobs if job.holds_nodes and name in job.nodes]

    def set_reason(self, name: str, reason: str) -> None:
        """Store the reason for a node's state, with the present time of the clock."""
        self._state.reasons[name] = Reason(text=reason, at=self.now)

    def drain(self, name: str) -> None:
        """Drain a node: running jobs go on, new ones do not start there until `resume`."""
        self._state.drained[name] = True

    def resume(self, name: str, *, also_down: bool) -> None:
        """End the drain of a node, with `also_down` also a take-down, and start waiting jobs.

        The reason is removed unless the node stays down.
        """
        self._state.drained.pop(name, None)
        if also_down:
            self._state.down.pop(name, None)
        # A node that stays down keeps its reason.
        if name not in self._state.down:
            self._state.reasons.pop(name, None)
        self._schedule_jobs(self.now)

    def take_down(self, name: str) -> None:
        """Take a node down until `resume` or a repair; kill or requeue the jobs on the node."""
        self._state.down[name] = True
        # slurmctld kills or requeues the jobs of a node that goes down.
        self._state.jobs = [
            job.lose_node(self.now) if job.holds_nodes and name in job.nodes else job
            for job in self._state.jobs
        ]

    # Jobs.

    @property
    def jobs(self) -> list[Job]:
        """Return all jobs ever submitted, ended ones too, in the order of submission."""
        return self._state.jobs

    def submit(self, job_request: JobRequest, tasks: Iterable[int] | None = None) -> list[Job]:
        """Add a job, or one for each task of an array, and return the new jobs.

        Jobs start at once where nodes are free, unless they are held.
        """
        first_number = self._state.last_number + 1
        labels = (
            [f"{first_number}_{task}" for task in tasks]
            if tasks is not None
            else [str(first_number)]
        )
        # A held job is never eligible by itself.
        eligible_at = float("inf") if job_request.is_held else self.now
        jobs = [
            Job(
                number=first_number + offset,
                label=label,
                wanted=job_request,
                eligible_at=eligible_at,
            )
            for offset, label in enumerate(labels)
        ]
        self._state.last_number += len(jobs)
        self._state.jobs += jobs
        self._schedule_jobs(self.now)
        return [job for job in self._state.jobs if job.number >= first_number]

    def find_jobs(self, label: str) -> list[Job]:
        """Return the job of a label, or all tasks of an array by its number; [] if unknown."""
        return [job for job in self._state.jobs if label in (job.label, job.label.split("_")[0])]

    def end_jobs(self, jobs: Iterable[Job], end: str, next_state: State) -> None:
        """End `jobs`: running ones go through the epilog, any others enter `next_state` at once.

        `end` says how, such as "cancelled". A job that is COMPLETING already only changes its next
        state.
        """
        numbers = {job.number for job in jobs}
        self._state.jobs = [
            self._end_job(job, end, next_state) if job.number in numbers else job
            for job in self._state.jobs
        ]

    def _end_job(self, job: Job, end: str, next_state: State) -> Job:
        """Return the job after its end as `end` says: COMPLETING after a run, else in `next_state`.

        A job in its epilog stays there, with `next_state` as the state to enter.
        """
        if job.state == "RUNNING":
            return job.begin_epilog(end, next_state, self.now)
        if job.state == "COMPLETING":
            return job.model_copy(update={"then": next_state})
        ended_at = None if next_state == "PENDING" else self.now
        update = {"state": next_state, "ended": [*job.ended, end], "ended_at": ended_at}
        return job.model_copy(update=update)

    def get_wait_reason(self, job: Job) -> str:
        """Return squeue's reason why a job waits or that the job failed; "None" for other jobs."""
        if job.state != "PENDING":
            return "NonZeroExitCode" if job.state == "FAILED" else "None"
        if job.wanted.is_held:
            return "JobHeldUser"
        if job.eligible_at > self.now:
            return "BeginTime"
        closed = [name for name in job.wanted.nodes if not self._is_available(name, self.now)]
        if closed:
            return f"ReqNodeNotAvail, UnavailableNodes:{','.join(closed)}"
        return "Resources"

    # What scripts find and print.

    def set_measurement(self, name: str, measurement: Measurement) -> None:
        """Set what scripts measure on a node; "" is all nodes without a measurement of their own.

        Running jobs are not changed.
        """
        self._state.measures[name] = measurement

    def read_file(self, path: str) -> str | None:
        """Return the output of the newest started job with this output file, or None."""
        files = (
            job.read_output() for job in reversed(self._state.jobs) if job.wanted.output == path
        )
        return next((content for content in files if content is not None), None)

    def _get_measurement(self, name: str) -> Measurement:
        """Return what scripts measure on the node `name`.

        It is the measurement set for this node, else the one set for all nodes, else the default.
        """
        measures = self._state.measures
        return measures.get(name) or measures.get("") or Measurement()

    # The controller.

    @property
    def is_answering(self) -> bool:
        """Return whether slurmctld answers commands."""
        return self._state.is_answering

    def set_answering(self, *, is_answering: bool) -> None:
        """Set whether slurmctld answers commands; jobs continue without the controller."""
        self._state.is_answering = is_answering

    # Time.

    def _play_events(self) -> None:
        """Bring jobs and nodes to `now`, by all events since the last request in time order.

        What is stored of nodes that have left is removed.
        """
        at = self._state.at
        while (moment := self._find_next_event(at)) <= self.now:
            at = moment
            self._state.jobs = [self._advance_job(job, at) for job in self._state.jobs]
            for name, node in self._all_nodes.items():
                if node.revived_at == at:  # the restart ended what was wrong
                    self._state.down.pop(name, None)
            self._schedule_jobs(at)
        self._state.at = max(at, self.now)
        for remembered in (self._state.drained, self._state.down, self._state.reasons):
            # A node that has left takes its drain and its reason along.
            for name in set(remembered) - set(self.nodes):
                del remembered[name]

    def _find_next_event(self, at: float) -> float:
        """Return the time of the next change of a job or node; infinity without one.

        Times are unix seconds. A job's due change may lie at `at` itself or before; all others are
        later.
        """
        # A change that is due may lie at `at` itself: it was planned by what happened there.
        moments = [job.changes_at for job in self._state.jobs if job.changes_at is not None]
        later_moments = [job.eligible_at for job in self._state.jobs if job.state == "PENDING"]
        for node in self._all_nodes.values():
            later_moments += [
                node_moment
                for node_moment in (node.running_at, node.removed_at)
                if node_moment is not None
            ]
            later_moments += [moment for span in node.down for moment in span]
        return min(
            [*moments, *(later_moment for later_moment in later_moments if later_moment > at)],
            default=float("inf"),
        )

    def _advance_job(self, job: Job, at: float) -> Job:
        """Return the job after its change due at `at`, or after the loss of one of its nodes."""
        if job.holds_nodes and any(self._is_lost(name, at) for name in job.nodes):
            return job.lose_node(at)
        if job.changes_at is not None and job.changes_at <= at:
            return job.apply_due_change(job.changes_at)
        return job

    def _is_lost(self, name: str, at: float) -> bool:
        """Return whether a node is missing, has left or is down at `at` (unix seconds)."""
        node = self._all_nodes.get(name)
        return node is None or node.has_left(at) or node.is_down(at)

    def _schedule_jobs(self, at: float) -> None:
        """Start waiting jobs that are eligible at `at` and find enough nodes, the oldest first.

        A job that names its nodes waits for all of them. A job that does not fit holds nobody up.
        """
        for index, job in enumerate(self._state.jobs):
            if job.state != "PENDING" or job.eligible_at > at:
                continue
            free_nodes = [name for name in self._all_nodes if self._can_take(name, job.wanted, at)]
            # A job that names its nodes waits for all of them; any other takes the first free ones.
            chosen_nodes = job.wanted.nodes or free_nodes[: job.wanted.count]
            if len(chosen_nodes) >= job.wanted.count and set(chosen_nodes) <= set(free_nodes):
                started = job.start(chosen_nodes, at)
                if job.wanted.is_measuring:
                    started = started.apply_measurements(
                        [self._get_measurement(name) for name in chosen_nodes], at
                    )
                self._state.jobs[index] = started

    def _can_take(self, name: str, job_request: JobRequest, at: float) -> bool:
        """Return whether the node accepts jobs at `at` and has enough free GPUs for the request."""
        if not self._is_available(name, at):
            return False
        # GPUs alone are counted, for they are what jobs wait for.
        used = sum(job.wanted.gpus for job in self.list_jobs_on(name))
        return used + job_request.gpus <= self.gpus_per_node

    def _is_available(self, name: str, at: float) -> bool:
        """Return whether the node runs at `at` (unix seconds) and is neither drained nor down."""
        node = self._all_nodes.get(name)
        is_up = node is not None and node.is_running(at) and not node.is_down(at)
        return is_up and name not in self._state.drained and name not in self._state.down

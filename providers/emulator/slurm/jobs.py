"""Model a job of Slurm, and what becomes of it in time. `scheduler` calls this module."""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import BaseModel, Field


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

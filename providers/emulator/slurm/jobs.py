"""A job, and what becomes of it in time."""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field


class Refused(Exception):
    """Goes to stderr as it is, or to stdout, with exit code 1."""

    def __init__(self, told: str, *, on_stdout: bool = False) -> None:
        super().__init__(told)
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
"""How long a job that ends holds its nodes: COMPLETING. Ours, as the next."""
REQUEUE_SECONDS = 120.0
"""How long a requeued job waits before it may start again."""


REMEMBERED_SECONDS = 300.0
"""How long Slurm knows a job that has ended: the default of MinJobAge."""


class Measure(BaseModel):
    """What a script finds on a node."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    figure: float = 487.87
    runs_for: float = Field(default=60.0, ge=0)
    """Seconds of the clock."""
    exit_code: int = Field(default=0, ge=0, le=255)
    text: str = "# Avg bus bandwidth    : {figure}"
    """What is printed of it: `{figure}` stands for the figure."""


class JobRequest(BaseModel):
    """A job as it is asked for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = "wrap"
    user: str = "root"
    count: int = Field(default=1, ge=1)
    """On how many nodes."""
    nodes: list[str] = []
    """On these, all of them."""
    gpus: int = Field(default=8, ge=0, le=8)
    """Of each node."""
    runs_for: float | None = Field(default=None, ge=0)
    """Seconds of the clock; None: until it is cancelled."""
    is_batch: bool = True
    can_requeue: bool = True
    is_held: bool = False
    is_measuring: bool = False
    """A script: it finds what its nodes have, and runs for as long as that says."""
    output: str = ""
    """The file of what it prints; none when empty."""
    last_words: str = ""
    """What it prints at its end, with `$code` and `$SLURM_JOB_NODELIST`."""


class Job(BaseModel, frozen=True):
    number: int
    label: str
    """As squeue shows it: 12, or 12_3 for a task of an array."""
    wanted: JobRequest
    state: State = "PENDING"
    nodes: list[str] = []
    eligible_at: float = 0.0
    started_at: float | None = None
    changes_at: float | None = None
    """When it ends, or stops to hold its nodes, if that is known."""
    then: State = "COMPLETED"
    """What a COMPLETING job becomes."""
    ended_at: float | None = None
    exit_code: int = 0
    printed: str = ""
    """What it prints before its last words."""
    ended: list[str] = []
    """How its runs ended: completed, cancelled, requeued or killed by the loss of a node."""

    @property
    def holds_nodes(self) -> bool:
        return self.state in ("RUNNING", "COMPLETING")

    def started(self, nodes: list[str], now: float) -> Self:
        runs_for = self.wanted.runs_for
        ends_at = None if runs_for is None else now + runs_for
        changes = {"state": "RUNNING", "nodes": nodes, "started_at": now, "changes_at": ends_at}
        return self.model_copy(update=changes)

    def measured(self, measures: Sequence[Measure], now: float) -> Self:
        """It has started, and finds this: the lowest figure counts, and any failure."""
        lowest = min(measures, key=lambda measure: measure.figure)
        code = next((each.exit_code for each in measures if each.exit_code), 0)
        text = lowest.text.replace("{figure}", f"{lowest.figure:g}")
        ends_at = now + max(each.runs_for for each in measures)
        update = {"changes_at": ends_at, "exit_code": code, "printed": f"{text}\n"}
        return self.model_copy(update=update)

    def file(self) -> str | None:
        """What its output holds by now; None when there is no such file yet."""
        if self.started_at is None:
            return None
        if self.ended[-1:] != ["completed"]:
            return ""
        words = self.wanted.last_words.replace("$code", str(self.exit_code))
        return self.printed + words.replace("$SLURM_JOB_NODELIST", ",".join(self.nodes))

    def ending(self, how: str, then: State, now: float) -> Self:
        """It holds its nodes for a while yet."""
        update = {
            "state": "COMPLETING",
            "then": then,
            "changes_at": now + EPILOG_SECONDS,
            "eligible_at": now + REQUEUE_SECONDS,
            "ended": [*self.ended, how],
        }
        return self.model_copy(update=update)

    def lost(self, now: float) -> Self:
        """A node of it is gone: killed at once, and back into the queue where that is allowed."""
        then: State = "PENDING" if self.wanted.is_batch and self.wanted.can_requeue else "NODE_FAIL"
        told = self if self.state == "COMPLETING" else self.ending("killed", then, now)
        return told.settled()

    def changed(self, now: float) -> Self:
        """What its own moment brings."""
        if self.state == "RUNNING":
            return self.ending("completed", "FAILED" if self.exit_code else "COMPLETED", now)
        return self.settled()

    def settled(self) -> Self:
        """It no longer holds its nodes."""
        is_again = self.then == "PENDING"
        update = {
            "state": self.then,
            "nodes": [] if is_again else self.nodes,
            "changes_at": None,
            "ended_at": None if is_again else self.changes_at,
        }
        return self.model_copy(update=update)

    def is_remembered(self, now: float) -> bool:
        """Whether Slurm still tells it."""
        return self.ended_at is None or now < self.ended_at + REMEMBERED_SECONDS

"""A job, and what becomes of it in time."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field


class Refused(Exception):
    """Goes to stderr as it is, or to stdout, with exit code 1."""

    def __init__(self, told: str, *, on_stdout: bool = False) -> None:
        super().__init__(told)
        self.on_stdout = on_stdout


State = Literal["PENDING", "RUNNING", "COMPLETING", "COMPLETED", "CANCELLED", "NODE_FAIL"]
CODES = {
    "PENDING": "PD",
    "RUNNING": "R",
    "COMPLETING": "CG",
    "COMPLETED": "CD",
    "CANCELLED": "CA",
    "NODE_FAIL": "NF",
}
ACTIVE = ("PENDING", "RUNNING", "COMPLETING")

EPILOG_SECONDS = 5.0
"""How long a job that ends holds its nodes: COMPLETING. Ours, as the next."""
REQUEUE_SECONDS = 120.0
"""How long a requeued job waits before it may start again."""


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
            return self.ending("completed", "COMPLETED", now)
        return self.settled()

    def settled(self) -> Self:
        """It no longer holds its nodes."""
        kept = [] if self.then == "PENDING" else self.nodes
        return self.model_copy(update={"state": self.then, "nodes": kept, "changes_at": None})

"""How a cluster or a pool gets smaller without hurting the jobs on its nodes."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpuform.schemas.models import InputModel, Problem
from gpuform.schemas.values import UNKNOWN

OnBusy = Literal["wait", "fail", "evict"]

WAIT_MINUTES: Final = 60
"""How long running jobs are waited for when nothing is declared."""


class ScaleDownInputs(InputModel):
    """Which nodes go when there are to be fewer, and what is done about jobs on them."""

    nodes: list[str] | None = Field(
        default=None,
        description="Names of the nodes to take, all of them; otherwise failed ones, then cordoned "
        "or drained ones, then idle ones, then the newest go.",
        examples=[["train-worker-3"]],
    )
    on_busy: OnBusy | None = Field(
        default=None,
        description="While jobs run on them: wait until they have ended (when not declared), fail "
        "at once, or evict them.",
        examples=["fail"],
    )
    wait_minutes: int | None = Field(
        default=None,
        ge=1,
        description=f"How long to wait for jobs, in minutes; {WAIT_MINUTES} when not declared. "
        "Then nothing is removed.",
        examples=[240],
    )

    @property
    def policy(self) -> OnBusy:
        """What is done about running jobs."""
        return self.on_busy or "wait"

    @property
    def patience(self) -> float:
        """How long running jobs are waited for, in seconds."""
        return 60.0 * (self.wait_minutes or WAIT_MINUTES)

    @classmethod
    def problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        if values.get("on_busy") == "fail" and values.get("wait_minutes") is not None:
            yield Problem("wait_minutes", "does not go with on_busy fail, which waits for nothing")
        names = values.get("nodes")
        if isinstance(names, list):
            for at, name in enumerate(names):
                if name is not UNKNOWN and name in names[:at]:
                    yield Problem(f"nodes[{at}]", f"{name} is there twice: name each node once")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class RunningJob(_Part):
    """Work that ends when its node is taken away."""

    id: str = Field(description="The scheduler's id: namespace/pod, or the job's number.")
    name: str = Field(description="Its name.")
    user: str = Field(default="", description="Whose it is; empty where nobody tells.")

    def __str__(self) -> str:
        """`7 evaluate (ada)`, or `ml/train-0` where the id has the name in it."""
        name = f" {self.name}" if self.name not in self.id else ""
        return f"{self.id}{name}{f' ({self.user})' if self.user else ''}"


class LeavingNode(_Part):
    """A node that goes."""

    name: str = Field(description="Its name on the platform.")
    because: str = Field(description="Why this one: named, failed, cordoned, idle or newest.")
    jobs: tuple[RunningJob, ...] = Field(default=(), description="What runs on it now.")


class Leaving(_Part):
    """The nodes that go, as they were when the plan was made: they are chosen anew to be removed.

    They are removed when no job runs on them.
    """

    scheduler: str = Field(description="Who was asked for the jobs, such as Kubernetes.")
    on_busy: str = Field(description="What is done about running jobs: wait, fail or evict.")
    wait_minutes: int = Field(default=0, description="How long they are waited for.")
    nodes: tuple[LeavingNode, ...] = Field(description="The nodes.")

    @property
    def busy(self) -> tuple[LeavingNode, ...]:
        """Those on which jobs run."""
        return tuple(node for node in self.nodes if node.jobs)

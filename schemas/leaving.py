"""The nodes that an update takes away, as a plan shows them."""

from pydantic import BaseModel, ConfigDict, Field


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

"""How a cluster or a pool gets smaller without hurting the jobs on its nodes."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from pydantic import Field

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

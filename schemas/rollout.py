"""How the nodes of a pool are replaced: some at a time, each step when the last one is well."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpuform.schemas.lifetime import seconds_of
from gpuform.schemas.models import InputModel
from gpuform.schemas.node_numbers import NodeNumber, number_of


def _checked_pause(value: str) -> str:
    try:
        seconds_of(value)
    except ValueError:
        raise ValueError(f"{value} is no time: write hours and minutes, such as 5m or 1h") from None
    return value


class RolloutInputs(InputModel):
    """How nodes are replaced when their image or type changes, or when they have failed."""

    max_unavailable: NodeNumber = Field(
        default=None,
        description="How many nodes may be away at a time: a number, or a share such as 25%, "
        "rounded down to 1 at the least. 1 when not declared. Failed nodes count.",
        examples=[1, "25%"],
    )
    pause: Annotated[str, AfterValidator(_checked_pause)] | None = Field(
        default=None,
        description="How long to wait after each step, such as 5m; nothing when not declared.",
        examples=["5m"],
    )
    on_failure: Literal["stop", "continue"] | None = Field(
        default=None,
        description="When a new node fails: stop before the next step (when not declared), or "
        "continue while fewer than max_unavailable are away.",
        examples=["stop"],
    )

    def room(self, nodes: int) -> int:
        """How many of so many nodes may be away at a time."""
        return number_of(self.max_unavailable or 1, nodes)

    @property
    def seconds(self) -> float:
        """The pause after each step, in seconds."""
        return seconds_of(self.pause) if self.pause else 0.0

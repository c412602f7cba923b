"""List the decisions that cannot be taken back, with the evidence that each one needs.

`observations` checks against this list; the page "What counts as evidence" is generated from it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Effect(StrEnum):
    """What a decision does when its evidence is complete."""

    CREATE = "create"
    DELETE = "delete"
    STOP = "stop"
    FORGET = "forget"
    ADOPT = "adopt"
    CHANGE = "change"
    APPROVE = "let pass"


@dataclass(frozen=True)
class Decision:
    """A decision that cannot be taken back.

    Args:
        name: what is decided, as an error names it ("forget an interrupted create").
        effect: what happens when the evidence is complete.
        needs: the observations that are needed, and from whom.
        without: what happens while an observation is missing, partial or too old.
        max_age_s: how old an observation may be, in seconds; None if only its completeness counts.
    """

    name: str
    effect: Effect
    needs: str
    without: str
    max_age_s: float | None = None


DECISIONS: Final[list[Decision]] = []
"""Every decision, in the order of the documentation page."""


def _declare(
    name: str, effect: Effect, *, needs: str, without: str, max_age_s: float | None = None
) -> Decision:
    decision = Decision(name, effect, needs, without, max_age_s)
    DECISIONS.append(decision)
    return decision


FORGET_CREATE: Final = _declare(
    "forget an interrupted create",
    Effect.FORGET,
    needs="after the settle time: the platform's complete list, and a lookup of each id that the "
    "create returned, show neither the names nor the ids that were asked for",
    without="the intent is kept, nothing is created, and the run reports the names",
)

TRUST_WORKLOADS: Final = _declare(
    "take Lens's list of workloads as complete",
    Effect.APPROVE,
    needs="answers of Lens that agree on `total` and show as many different workloads as it says; "
    "where that takes several pages, two readings in a row that show the same workloads; of an "
    "empty list, an overview that has nodes",
    without="the list is read again, up to four times; then the gate `not_busy` stops the plan, "
    "nothing is stopped as idle, and a lookup fails",
)

STOP_IDLE_NODES: Final = _declare(
    "stop nodes as idle",
    Effect.STOP,
    needs="at each look of the declared time: the scheduler knows every node and no job on it; "
    "Lens names every GPU of every node, shows or ranks each below the bound, and its overview and "
    "its workloads do not contradict",
    without="nothing is stopped, and the declared time begins again",
)

OPEN_HEALTH_GATE: Final = _declare(
    "open a health gate",
    Effect.APPROVE,
    needs="answers of Lens whose figures are possible, do not contradict each other, and are "
    "within every bound of the condition",
    without="the gate stays closed, and says which field of which answer is missing or contradicts",
)

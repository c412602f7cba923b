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

FORGET_NODE: Final = _declare(
    "forget a node of a pool",
    Effect.FORGET,
    needs="neither the platform's list nor a lookup of the node's id shows it, in looks over the "
    "settle time; or its deletion was seen or asked for",
    without="the id is kept, and nothing is created in the node's place",
)

ADOPT_CREATED: Final = _declare(
    "adopt what an interrupted create made",
    Effect.ADOPT,
    needs="the object has the name that was asked for and an id that the create returned; or it "
    "was not there right before the request, appeared within a minute of it, has the properties "
    "that were sent, is the only such object, and belongs to no other stack",
    without="the run stops, names the candidates, and asks (`--adopt ID`, `--create-anew`)",
)

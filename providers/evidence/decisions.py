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
    """Create a decision, add the decision to `DECISIONS`, and return it."""
    decision = Decision(name, effect, needs, without, max_age_s)
    DECISIONS.append(decision)
    return decision


FORGET_CREATE: Final = _declare(
    "forget an interrupted create",
    Effect.FORGET,
    needs="after the settle time, in looks over another one by a later run: the platform's "
    "complete list, and a lookup of each id that the create returned, show neither the names nor "
    "the ids that were asked for",
    without="the intent is kept, nothing is created, and the run reports the names",
)

REMOVE_NODE: Final = _declare(
    "remove a node",
    Effect.DELETE,
    needs="two complete answers of its scheduler after the node was cordoned, the later one right "
    "before the platform is asked: each shows exactly one node with its name, an id or an address, "
    "and no job on it",
    without="the node is not removed and takes jobs again",
    max_age_s=120.0,
)

PASS_NODE: Final = _declare(
    "let a node pass a certification",
    Effect.APPROVE,
    needs="a test that has passed by the tester's own word and whose results name the node. Of a "
    "Slurm job: its state COMPLETED, its exit code 0, the last line of its output, and the nodes "
    "that Slurm says it ran on. Of the Cluster Readiness Engine: the list of nodes that succeeded",
    without="the node counts as not tested, and is tested again by the next run",
)

REPAIR_NODE: Final = _declare(
    "repair a node that is not ready",
    Effect.DELETE,
    needs="its scheduler shows the node as unusable, since a time that lies after the machine was "
    "made and not in the future; otherwise since the first run that saw it",
    without="the node is left as it is, and the time counts from the first run that saw it",
)

FORGET_OBJECT: Final = _declare(
    "forget an object",
    Effect.FORGET,
    needs="the platform's own error document about the object; and a list of the platform that was "
    "found, is complete and does not show it, and whose first other object the platform finds. Of "
    "clusters, volumes and nodes: in looks over the settle time, or after their deletion was "
    "accepted",
    without="the state keeps the object and the run fails; a list that fails or that answers 404 "
    "itself is an error",
)


DESTROY_EXPIRED: Final = _declare(
    "destroy what has expired",
    Effect.DELETE,
    needs="an end that is over by this machine's clock and by the platform's (the Date of an "
    "answer of this run, at most 5 minutes apart); a ttl counts from the later one of the moment "
    "that the platform calls the creation and the moment that the state recorded; and where the "
    "platform measures the GPUs, a measurement of now that shows no use",
    without="it stays as it is, the run says why and fails; --allow evict-jobs does without the "
    "measurement; where nobody measures, the plan says so",
)
STOP_BY_SCHEDULE: Final = _declare(
    "stop by a schedule",
    Effect.STOP,
    needs="running hours that are over by this machine's clock and by the platform's, as far as "
    "its answers have a Date (at most 5 minutes apart); and where the platform measures the GPUs, "
    "a measurement of now that shows no use",
    without="it goes on running, the run says why and fails; --allow evict-jobs does without the "
    "measurement; where nobody measures, the plan says so",
)
START_BY_SCHEDULE: Final = _declare(
    "start by a schedule",
    Effect.CHANGE,
    needs="running hours that have begun by this machine's clock and by the platform's, as far as "
    "its answers have a Date (at most 5 minutes apart)",
    without="it stays stopped, the run says why and fails",
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
    "that were sent, is the only such object, and belongs to no other stack. It appeared when the "
    "platform says; where that time is none or impossible, when gpuform saw it",
    without="the run stops, names the candidates, and asks (`--adopt ID`, `--create-anew`)",
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

FORGET_ENTRY: Final = _declare(
    "forget a record or an entry of the AIOS registry",
    Effect.FORGET,
    needs="the registry's own 404, which its query does not contradict, or a list of the record's "
    "nodes without the entry; the object was made, or first missed, before the settle time",
    without="the registry is asked again; the state keeps the object",
)

CHANGE_AGAIN: Final = _declare(
    "send a change of an AIOS record again",
    Effect.CHANGE,
    needs="after the settle time: the record itself, without the entry that was to be added, and "
    "without the values that were to be set by place",
    without="nothing is sent; the record is read again",
)

WRITE_SUMS: Final = _declare(
    "set a sum of an AIOS record",
    Effect.CHANGE,
    needs="the record as a PUT answers it, in which every node tells its own number",
    without="the sum is left as it is, and a warning names the node",
)

REMOVE_RECORD: Final = _declare(
    "delete an AIOS record",
    Effect.DELETE,
    needs="the record itself, with the list of its nodes: each is declared by the record or by "
    "another resource of the stack, or the run has `--allow destroy-others`",
    without="nothing is deleted; the error names the nodes of others",
)

"""Decide whether observations prove enough for a decision that cannot be taken back.

Everything that deletes, stops, forgets, adopts or lets pass states its observations here first.
`DECISIONS` lists the decisions with the evidence that each one needs; the page "What counts as
evidence" is generated from this list.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gpuform.providers.errors import GpuformError


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
    """Create a decision, add it to `DECISIONS`, and return it."""
    decision = Decision(name, effect, needs, without, max_age_s)
    DECISIONS.append(decision)
    return decision


FORGET_CREATE: Final = _declare(
    "forget an interrupted create",
    Effect.FORGET,
    needs="in lookups of a later run, repeated over a second propagation time: the platform's "
    "complete list, and a lookup of each id that the create returned, show neither the "
    "requested names nor the requested ids. For a create that was refused by 403 or 429: one "
    "complete list after the propagation time does not show the name",
    without="the intent stays, nothing is created, and the run reports the names",
)

REMOVE_NODE: Final = _declare(
    "remove a node",
    Effect.DELETE,
    needs="two complete answers of its scheduler after the node was cordoned, the later one "
    "right before the request to the platform: each shows exactly one node with its name, an "
    "id or an address, and no job on it",
    without="the node is not removed and takes jobs again",
    max_age_s=120.0,
)

PASS_NODE: Final = _declare(
    "let a node pass a certification",
    Effect.APPROVE,
    needs="a test that the tester reports as passed and whose results name the node. For a Slurm "
    "job: its state COMPLETED, its exit code 0, the last line of its output, and the nodes "
    "that it ran on by Slurm's report. For the Cluster Readiness Engine: the list of nodes "
    "that succeeded",
    without="the node counts as not tested, and the next run tests it again",
)

REPAIR_NODE: Final = _declare(
    "repair a node that is not ready",
    Effect.DELETE,
    needs="its scheduler reports the node as unusable, since a time after the creation of the "
    "machine and not in the future; without such a time, since the first run that saw the "
    "fault",
    without="the node stays as it is, and the time counts from the first run that saw the fault",
)

FORGET_OBJECT: Final = _declare(
    "forget an object",
    Effect.FORGET,
    needs="the platform's own error document about the object; and a complete list of the "
    "platform that does not show the object, while the platform finds another object of the "
    "list. For clusters, volumes and nodes: in repeated lookups over the propagation time, "
    "or after the platform accepted their deletion",
    without="the state keeps the object and the run fails; a list that fails or that answers 404 "
    "itself is an error",
)


DESTROY_EXPIRED: Final = _declare(
    "destroy what has expired",
    Effect.DELETE,
    needs="an end that has passed by this machine's clock and by the platform's (the Date of an "
    "answer of this run, at most 5 minutes apart); a ttl counts from the later of the "
    "platform's creation time and the time that the state recorded; and where the platform "
    "measures the GPUs, a current measurement that shows no use",
    without="the resource stays as it is, and the run reports why and fails; --allow evict-jobs "
    "skips the measurement; without a measurement, the plan reports this",
)
STOP_BY_SCHEDULE: Final = _declare(
    "stop by a schedule",
    Effect.STOP,
    needs="running hours that have ended by this machine's clock and by the platform's, as far as "
    "its answers have a Date (at most 5 minutes apart); and where the platform measures the "
    "GPUs, a current measurement that shows no use",
    without="the resource keeps running, and the run reports why and fails; --allow evict-jobs "
    "skips the measurement; without a measurement, the plan reports this",
)
START_BY_SCHEDULE: Final = _declare(
    "start by a schedule",
    Effect.CHANGE,
    needs="running hours that have begun by this machine's clock and by the platform's, if its "
    "answers have a Date (at most 5 minutes apart)",
    without="the resource stays stopped, and the run reports why and fails",
)

FORGET_NODE: Final = _declare(
    "forget a node of a pool",
    Effect.FORGET,
    needs="neither the platform's list nor a lookup of the node's id shows the node, in repeated "
    "lookups over the propagation time; or gpuform saw or requested its deletion",
    without="the id stays, and nothing is created in the node's place",
)

ADOPT_CREATED: Final = _declare(
    "adopt the object of an interrupted create",
    Effect.ADOPT,
    needs="the object has the requested name and an id that the create returned; or the "
    "object did not exist right before the request, appeared within a minute of it, has the "
    "properties that were sent, is the only such object, and belongs to no other stack. The "
    "time of its appearance is the platform's; where the platform reports none or an "
    "impossible one, the time when gpuform saw the object",
    without="the run stops, names the candidates, and asks for a choice (`--adopt ID`, "
    "`--create-anew`)",
)

TRUST_WORKLOADS: Final = _declare(
    "take Lens's list of workloads as complete",
    Effect.APPROVE,
    needs="answers of Lens that agree on `total` and show as many different workloads; for "
    "several pages, two consecutive readings that show the same workloads; for an empty "
    "list, an overview with nodes",
    without="gpuform reads the list again, up to four times; then the gate `not_busy` stops "
    "the plan, nothing is stopped as idle, and a lookup fails",
)

STOP_IDLE_NODES: Final = _declare(
    "stop nodes as idle",
    Effect.STOP,
    needs="at each check during the declared time: the scheduler knows every node and no job on "
    "it; Lens names every GPU of every node, shows or ranks each GPU below the bound, and "
    "its overview and its workloads agree with that",
    without="nothing is stopped, and the declared time starts again",
)

OPEN_HEALTH_GATE: Final = _declare(
    "open a health gate",
    Effect.APPROVE,
    needs="answers of Lens whose numbers are possible, agree with each other, and are within "
    "every bound of the condition",
    without="the gate stays closed, and reports which field of which answer is missing or "
    "contradicts another",
)

FORGET_ENTRY: Final = _declare(
    "forget a record or an entry of the AIOS registry",
    Effect.FORGET,
    needs="the registry's own 404 while a query does not show the record either, or a list of "
    "the record's nodes without the entry; the object was created, or first missed, before the "
    "propagation time",
    without="gpuform asks the registry again; the state keeps the object",
)

CHANGE_AGAIN: Final = _declare(
    "send a change of an AIOS record again",
    Effect.CHANGE,
    needs="after the propagation time: the record itself, without the added entry, and without "
    "the values that the request sets by position",
    without="nothing is sent; gpuform reads the record again",
)

WRITE_SUMS: Final = _declare(
    "set a sum of an AIOS record",
    Effect.CHANGE,
    needs="the record in the answer to a PUT, in which every node reports its own number",
    without="the sum stays as it is, and a warning names the node",
)

REMOVE_RECORD: Final = _declare(
    "delete an AIOS record",
    Effect.DELETE,
    needs="the record itself, with the list of its nodes: each is declared by the record or by "
    "another resource of the stack, or the run has `--allow destroy-others`",
    without="nothing is deleted; the error names the nodes of others",
)


class NotEnoughEvidence(GpuformError):
    """What was observed does not prove enough for a decision; nothing was changed."""

    help_page = "reference/evidence"


@dataclass(frozen=True)
class Observation:
    """What one party reported about one subject.

    Args:
        source: who reported it ("the Kubernetes API at https://...").
        missing: what it should have shown and did not, one text each; empty if it is complete.
        age_s: seconds since the party measured it.
    """

    source: str
    missing: Sequence[str] = ()
    age_s: float = 0.0


def find_gaps(decision: Decision, *observations: Observation) -> list[str]:
    """Return a text for each missing or stale observation needed for `decision`; empty if none.

    No observation at all is a gap: silence never means "empty", "zero" or "idle".
    """
    if not observations:
        return ["no observation exists"]
    gaps = [
        f"{observation.source}: {gap}"
        for observation in observations
        for gap in observation.missing
    ]
    limit = decision.max_age_s
    # Something may have changed since an old answer: it proves nothing about now.
    if limit is not None:
        gaps += [
            f"{observation.source}: the answer is {observation.age_s:.0f} s old, more than "
            f"{limit:.0f} s"
            for observation in observations
            if observation.age_s > limit
        ]
    return gaps


def require_evidence(
    decision: Decision, subject: str, *observations: Observation, hint: str | None = None
) -> None:
    """Raise NotEnoughEvidence unless the observations of `subject` suffice for `decision`.

    Raises:
        NotEnoughEvidence: the message names each gap. `hint`, or else the decision's own hint, says
            what to do.
    """
    gaps = find_gaps(decision, *observations)
    if gaps:
        raise NotEnoughEvidence(
            f"{subject}: cannot {decision.name}: {'; '.join(gaps)}",
            hint=hint or decision.without,
        )

"""Repairs as changes of a plan, and what is not repaired as something to know."""

from collections.abc import Iterator

from gpuform.providers.repairing.deciding import Decision
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.notices import Notice, NoticeKind
from gpuform.schemas.repair import Cause, NodeRepair

BROKEN = "broken"
"""What a node is before its repair, in a plan."""


def changes_of(decision: Decision, *, replaces: bool = False) -> Iterator[FieldChange]:
    """A change for each node that is repaired, in their order; `replaces`: the object goes."""
    most = f"{decision.parallel} at a time"
    for each in decision.due:
        before = "in use" if each.cause == Cause.ASKED else BROKEN
        because = f"{each.evidence}; {most}" if len(decision.due) > 1 else each.evidence
        if each.proposed and each.proposed != each.mode:
            because += f"; {each.proposed} was proposed"
        path = f'repair["{each.node}"]'
        yield FieldChange(
            path, Action.UPDATE, before, each.mode, replaces, because=because, repair=each
        )


def repair_text(repair: NodeRepair) -> str:
    """A repair in words, where no plan tells it."""
    return f"repairs node {repair.node} by {repair.mode}: {repair.evidence}"


def due_notices(decision: Decision) -> Iterator[Notice]:
    """Yield a notice for each broken node that the next `up` or `repair` repairs.

    A repair that a person has asked for by name is none: the node need not be broken.
    """
    for each in decision.due:
        if each.cause == Cause.ASKED:
            continue
        text = f"node {each.node} is broken: {each.evidence}. `gpuform repair` does {each.mode}"
        yield Notice(kind=NoticeKind.REPAIR, text=text, at=each.since)


def notices_of(decision: Decision) -> Iterator[Notice]:
    """What is broken and not repaired, and why not."""
    for held in decision.held:
        fault = held.fault
        wish = f"; {fault.mode} is proposed" if fault.mode else ""
        since = f", since {fault.since}" if fault.since else ""
        text = (
            f"node {fault.node} is broken: {fault.because}{since}{wish}. Not repaired: {held.why}"
        )
        yield Notice(kind=NoticeKind.REPAIR, text=text, at=fault.since)

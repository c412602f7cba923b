"""Which nodes the evidence covers now, and what a plan says of those that it does not. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpuform.providers.records import digest
from gpuform.schemas.certification import CategoryInputs, Gap, NodeEvidence, NodeFailure
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.notices import Notice, NoticeKind

NEW: Final = "new"
ANOTHER: Final = "another machine"
OTHER_TESTS: Final = "other tests"
FAILED: Final = "failed"
_PATH: Final = "evidence"
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Machine:
    """A node that there is now. What nobody tells is empty.

    `machine` is another one when the hardware is; a restart keeps it.
    """

    node: str
    machine: str = ""
    driver: str = ""
    image: str = ""


def gaps_in(
    machines: Iterable[Machine],
    evidence: Iterable[NodeEvidence],
    categories: Sequence[CategoryInputs],
    failures: Iterable[NodeFailure] = (),
) -> list[Gap]:
    """The nodes that the evidence does not cover, in their order, each with the first reason.

    What nobody tells now, or nobody told then, is no difference.
    """
    failed = {(each.node, each.machine) for each in failures}
    proven, declared = {each.node: each for each in evidence}, digest_of(categories)
    found = []
    for machine in machines:
        because = _why_not(machine, proven.get(machine.node), declared)
        if because == NEW and (machine.node, machine.machine) in failed:
            because = FAILED
        if because:
            found.append(Gap(node=machine.node, because=because))
    return found


def covered(
    evidence: Iterable[NodeEvidence], machines: Iterable[Machine], without: Iterable[str] = ()
) -> list[NodeEvidence]:
    """The evidence of nodes that are there, but for those `without`."""
    present = {each.node for each in machines} - {*without}
    return [each for each in evidence if each.node in present]


def digest_of(categories: Sequence[CategoryInputs]) -> str:
    """The same for the same tests alone."""
    return digest(json.dumps([each.declared() for each in categories], sort_keys=True))


def _why_not(machine: Machine, proof: NodeEvidence | None, declared: str) -> str:
    if proof is None:
        return NEW
    if _differ(proof.machine, machine.machine):
        return ANOTHER
    if _differ(proof.driver, machine.driver):
        return f"driver {proof.driver} -> {machine.driver}"
    if _differ(proof.image, machine.image):
        return f"image {proof.image} -> {machine.image}"
    return OTHER_TESTS if proof.declared != declared else ""


def _differ(before: str, now: str) -> bool:
    return bool(before and now and before != now)


def told_gaps(gaps: Sequence[Gap]) -> str:
    """`1 new node (train-worker-3), 2 nodes with driver 560 -> 570 (a, b)`."""
    by_reason: dict[str, list[str]] = {}
    for gap in gaps:
        by_reason.setdefault(gap.because, []).append(gap.node)
    return ", ".join(_told(because, nodes) for because, nodes in by_reason.items())


def _told(because: str, nodes: Sequence[str]) -> str:
    many = "nodes" if len(nodes) > 1 else "node"
    names = ", ".join(nodes[:_SHOWN])
    if len(nodes) > _SHOWN:
        names += f" and {len(nodes) - _SHOWN} more"
    if because == NEW:
        return f"{len(nodes)} new {many} ({names})"
    if because == FAILED:
        return f"{len(nodes)} {many} that {'have' if len(nodes) > 1 else 'has'} failed ({names})"
    if because == ANOTHER:
        whose = "are other machines" if len(nodes) > 1 else "is another machine"
        return f"{len(nodes)} {many} that {whose} by now ({names})"
    return f"{len(nodes)} {many} with {because} ({names})"


def due_notices(old: Mapping[str, Any]) -> Iterator[Notice]:
    """What the next `up` tests, for who looks at a state and plans nothing."""
    change = change_of(old)
    if change is not None:
        yield Notice(kind=NoticeKind.CHANGED, text=f"the next `up` will {change.because}")


def change_of(old: Mapping[str, Any], coming: int = 0) -> FieldChange | None:
    """The change `certify again` of these outputs; None while all is proven.

    `coming` nodes are not there yet: the same plan adds them.
    """
    told = old.get("gaps")
    gaps = [Gap.model_validate(each) for each in told] if isinstance(told, list) else []
    new = Counter(gap.because for gap in gaps)[NEW]
    parts = [told_gaps(gaps)] if gaps else []
    if coming > new:
        more = coming - new
        parts.insert(0, f"{more} new node{'s' * (more > 1)}")
    if not parts:
        return None
    because = f"certify again: {', '.join(parts)}"
    proof = old.get("evidence")
    number = len(proof) if isinstance(proof, list) else 0
    before = f"{number} node{'s' * (number != 1)} proven"
    return FieldChange(_PATH, Action.UPDATE, before, "all nodes proven", because=because)

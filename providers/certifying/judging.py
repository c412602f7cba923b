"""Judge by measurements alone which nodes have passed a certification, and which nodes the evidence
still covers.

Nothing that is not shown counts as passed: a job without a figure where there is a floor, a node
that no job ran on, a figure that is no number.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpuform.providers.errors import GpuformError
from gpuform.providers.records import digest
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.policies.certification import (
    CategoryInputs,
    CategoryResult,
    Gap,
    NodeEvidence,
    NodeFailure,
)
from gpuform.schemas.resource_facts import Notice, NoticeKind

NEW: Final = "new"
ANOTHER: Final = "another machine"
OTHER_TESTS: Final = "other tests"
FAILED: Final = "failed"
_PATH: Final = "evidence"
_NAMES_LISTED: Final = 3


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
    return digest(json.dumps([each.dump_declared() for each in categories], sort_keys=True))


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
    names = ", ".join(nodes[:_NAMES_LISTED])
    if len(nodes) > _NAMES_LISTED:
        names += f" and {len(nodes) - _NAMES_LISTED} more"
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


_SHOWN = 4


class Unreadable(GpuformError):
    """What a test has left cannot be understood; reading it again would not help."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node that the test itself names as failed, with its reason in the test's words.

    `is_alone` says that the node is the cause, not the group that it was tested in.
    """

    node: str
    because: str
    is_alone: bool


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a category: the nodes that it ran on, and what came of it.

    `passed` is the test's own word. `measured` is None where it tells no figure; it `needs_figure`
    unless it has judged the floor by itself. `failed` are the nodes that it names. `is_telling`:
    where it has failed on one node alone, that node is at fault.
    """

    category: CategoryInputs
    nodes: Sequence[str]
    passed: bool
    measured: float | None = None
    because: str = ""
    failed: Sequence[Refusal] = ()
    needs_figure: bool = True
    at: str = ""
    is_telling: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """`evidence` of the nodes that have passed all, `failures` of those that have not.

    `untested` are nodes that no job of some category ran on, with the category.
    """

    results: Sequence[CategoryResult]
    evidence: Sequence[NodeEvidence]
    failures: Sequence[NodeFailure]
    untested: Mapping[str, str]

    @property
    def problem(self) -> str:
        """What is wrong, in words, with nodes and figures; empty when all have passed."""
        by_reason: dict[tuple[str, str], list[str]] = {}
        for each in self.failures:
            by_reason.setdefault((each.category, each.because), []).append(each.node)
        told = [
            f"{_names(nodes)}: {category}: {because}"
            for (category, because), nodes in by_reason.items()
        ]
        if self.untested:
            categories = ", ".join(sorted({*self.untested.values()}))
            told.append(f"{_names(list(self.untested))}: not tested by {categories}")
        return "; ".join(told)


def judge(
    categories: Sequence[CategoryInputs], jobs: Sequence[Job], machines: Sequence[Machine], at: str
) -> Verdict:
    """What the jobs prove of these machines. `at` is when they ended, where they do not tell."""
    by_node = {each.node: each for each in machines}
    failures: dict[tuple[str, str], NodeFailure] = {}
    passed: dict[str, set[str]] = {name: set() for name in by_node}
    results = []
    for job in jobs:
        refused = {each.node: each for each in _refusals(job)}
        if not by_node.keys().isdisjoint((*job.nodes, *refused)):
            results.append(_result(job, not refused))
        for node in dict.fromkeys((*job.nodes, *refused)):
            machine = by_node.get(node)
            if machine is None:
                continue
            refusal = refused.get(node)
            if refusal is None and job.passed:
                passed[node].add(job.category.name)
            elif refusal is not None:
                failures.setdefault(
                    (node, job.category.name),
                    NodeFailure(
                        node=node,
                        machine=machine.machine,
                        category=job.category.name,
                        because=refusal.because,
                        is_alone=refusal.is_alone,
                        at=job.at or at,
                    ),
                )
    wanted = list(dict.fromkeys(each.name for each in categories))
    bad = {node for node, _ in failures}
    untested = {
        node: next(name for name in wanted if name not in passed[node])
        for node in by_node
        if node not in bad and not passed[node].issuperset(wanted)
    }
    declared = digest_of(categories)
    evidence = [
        NodeEvidence(
            node=each.node,
            machine=each.machine,
            driver=each.driver,
            image=each.image,
            categories=wanted,
            declared=declared,
            at=at,
        )
        for each in machines
        if each.node not in bad and each.node not in untested
    ]
    return Verdict(results, evidence, list(failures.values()), untested)


def _refusals(job: Job) -> Iterator[Refusal]:
    """The nodes of a job that have not passed; beside those that the test names the rest of a
    failed group is not tested."""
    is_single, short = len(job.nodes) == 1, _shortfall(job)
    alone = is_single and (_is_measured(job) if short else job.is_telling)
    if short and not is_single:
        short += f" (measured over {len(job.nodes)} nodes together)"
    for each in job.failed:
        told = short if short and not each.is_alone else each.because
        yield Refusal(each.node, told, each.is_alone or alone)
    reason = short
    if not reason and not job.passed and not job.failed:
        reason = job.because or "it has failed, and says no reason"
    named = {each.node for each in job.failed}
    yield from (Refusal(node, reason, alone) for node in job.nodes if reason and node not in named)


def _shortfall(job: Job) -> str:
    """Why the figure does not pass; empty where it does, or none is wanted."""
    required, floor, unit = job.category.required, job.category.floor, job.category.unit
    if required is None or floor is None:
        return ""
    unit = f" {unit}" if unit else ""
    figure = job.measured
    if figure is None or not _is_measured(job):
        return "nothing was measured" if job.needs_figure and job.passed else ""
    if figure >= required:
        return ""
    tolerance = job.category.tolerance
    less = f" less {tolerance}" if tolerance and required != floor else ""
    return f"{figure:g}{unit}, and the floor is {floor:g}{unit}{less}"


def _is_measured(job: Job) -> bool:
    return job.measured is not None and math.isfinite(job.measured)


def _result(job: Job, passed: bool) -> CategoryResult:
    return CategoryResult(
        category=job.category.name,
        nodes=list(job.nodes),
        measured=job.measured if _is_measured(job) else None,
        unit=job.category.unit,
        required=job.category.required,
        passed=passed,
        at=job.at,
    )


def _names(nodes: Iterable[str]) -> str:
    names = list(nodes)
    shown = ", ".join(names[:_SHOWN])
    if len(names) > _SHOWN:
        shown += f" and {len(names) - _SHOWN} more"
    return f"node{'s' * (len(names) > 1)} {shown}"

"""Whether nodes have passed, by what was measured. Pure.

Nothing that is not shown counts as passed: a job without a figure where there is a floor, a node
that no job ran on, a figure that is no number.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuform.providers.certifying.covering import Machine, digest_of
from gpuform.providers.errors import GpuformError
from gpuform.schemas.certification import (
    CategoryInputs,
    CategoryResult,
    NodeEvidence,
    NodeFailure,
)

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

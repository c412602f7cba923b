"""Judge by measurements which nodes have passed a certification, and which nodes evidence covers.

`runs` calls it with the results of a tester. Only what is shown counts as passed: not a job without
the figure that a floor needs, nor a node without a job, nor a figure that is not a number. Pure.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from gpuform.providers.errors import GpuformError
from gpuform.providers.records import compute_digest
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.policies.certification import (
    CategoryInputs,
    CategoryResult,
    CertificationOutputs,
    Gap,
    NodeEvidence,
    NodeFailure,
)
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.schemas.resource_facts import Notice, NoticeKind

NEW_NODE: Final = "new"
OTHER_MACHINE: Final = "another machine"
OTHER_TESTS: Final = "other tests"
REPAIRED: Final = "repaired"
FAILED: Final = "failed"
_CHANGE_PATH: Final = "evidence"
_MAX_NAMES_LISTED: Final = 3

_Part = TypeVar("_Part", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class CertifiableNode:
    """A node that exists now; facts that nobody reports are empty.

    `machine` identifies the hardware: a restart keeps it, an exchange changes it.
    """

    node: str
    machine: str = ""
    driver: str = ""
    image: str = ""


def find_evidence_gaps(
    machines: Iterable[CertifiableNode],
    evidence: Iterable[NodeEvidence],
    categories: Sequence[CategoryInputs],
    failures: Iterable[NodeFailure] = (),
) -> list[Gap]:
    """Return the nodes without valid evidence, each with the first reason.

    A fact that is unknown now, or was unknown at the test, is no difference. A node without
    evidence whose present machine is in `failures` gets the reason `failed` instead of `new`.
    """
    failed_machines = {(failure.node, failure.machine) for failure in failures}
    evidence_by_node, categories_digest = (
        {node_evidence.node: node_evidence for node_evidence in evidence},
        compute_categories_digest(categories),
    )
    gaps = []
    for machine in machines:
        reason = _find_gap_reason(machine, evidence_by_node.get(machine.node), categories_digest)
        # A failed node has no evidence either, but is not new.
        if reason == NEW_NODE and (machine.node, machine.machine) in failed_machines:
            reason = FAILED
        if reason:
            gaps.append(Gap(node=machine.node, because=reason))
    return gaps


def select_current_evidence(
    evidence: Iterable[NodeEvidence],
    machines: Iterable[CertifiableNode],
    excluded_nodes: Iterable[str] = (),
) -> list[NodeEvidence]:
    """Return the evidence of existing nodes, except for `excluded_nodes`."""
    present = {machine.node for machine in machines} - {*excluded_nodes}
    return [node_evidence for node_evidence in evidence if node_evidence.node in present]


def compute_categories_digest(categories: Sequence[CategoryInputs]) -> str:
    """Return a digest which changes with any category or option."""
    return compute_digest(
        json.dumps([category.dump_declared() for category in categories], sort_keys=True)
    )


def _find_gap_reason(
    machine: CertifiableNode, node_evidence: NodeEvidence | None, categories_digest: str
) -> str:
    """Return the first reason why the evidence does not cover a machine, or "" if covered.

    In this order: no evidence, another machine, another driver or image, other tests.
    """
    if node_evidence is None:
        return NEW_NODE
    if _has_changed(node_evidence.machine, machine.machine):
        return OTHER_MACHINE
    if _has_changed(node_evidence.driver, machine.driver):
        return f"driver {node_evidence.driver} -> {machine.driver}"
    if _has_changed(node_evidence.image, machine.image):
        return f"image {node_evidence.image} -> {machine.image}"
    return OTHER_TESTS if node_evidence.declared != categories_digest else ""


def _has_changed(before: str, now: str) -> bool:
    """Return True if both values are known and differ."""
    # An empty fact is unknown, not changed.
    return bool(before and now and before != now)


def format_gaps(gaps: Sequence[Gap]) -> str:
    """Return gaps as `1 new node (train-worker-3), 2 nodes with driver 560 -> 570 (a, b)`."""
    by_reason: dict[str, list[str]] = {}
    for gap in gaps:
        by_reason.setdefault(gap.because, []).append(gap.node)
    return ", ".join(_format_gap_group(because, nodes) for because, nodes in by_reason.items())


def _format_gap_group(reason: str, nodes: Sequence[str]) -> str:
    """Return the nodes with one reason as text, such as `2 nodes with driver 560 -> 570 (a, b)`."""
    noun = "nodes" if len(nodes) > 1 else "node"
    names = ", ".join(nodes[:_MAX_NAMES_LISTED])
    if len(nodes) > _MAX_NAMES_LISTED:
        names += f" and {len(nodes) - _MAX_NAMES_LISTED} more"
    if reason == NEW_NODE:
        return f"{len(nodes)} new {noun} ({names})"
    if reason == REPAIRED:
        return f"{len(nodes)} repaired {noun} ({names})"
    if reason == FAILED:
        return f"{len(nodes)} {noun} that failed ({names})"
    if reason == OTHER_MACHINE:
        predicate = "are other machines" if len(nodes) > 1 else "is another machine"
        return f"{len(nodes)} {noun} that now {predicate} ({names})"
    return f"{len(nodes)} {noun} with {reason} ({names})"


def build_due_certification_notices(outputs: Mapping[str, Any]) -> Iterator[Notice]:
    """Yield a notice of the tests which the next `up` runs, for commands without a plan.

    Yields nothing if the outputs have no gaps.
    """
    change = build_certify_again_change(outputs)
    if change is not None:
        yield Notice(kind=NoticeKind.CHANGED, text=f"the next `up` will {change.because}")


def find_repaired_nodes(
    evidence: Iterable[NodeEvidence], repairs: Iterable[NodeRepair]
) -> list[str]:
    """Return the nodes whose evidence is older than a repair of their machine, in order."""
    return [
        node_evidence.node
        for node_evidence in evidence
        if any(
            repair.node == node_evidence.node
            and not _has_changed(node_evidence.machine, repair.instance)
            for repair in repairs
        )
    ]


def drop_evidence_of_repaired(
    outputs: CertificationOutputs, repairs: Sequence[NodeRepair]
) -> CertificationOutputs:
    """Return the outputs without the evidence made void by repairs."""
    # A restarted node is the same machine: only its repair shows that the evidence is void.
    repaired = {*find_repaired_nodes(outputs.evidence, repairs)}
    evidence = [proof for proof in outputs.evidence if proof.node not in repaired]
    return outputs.model_copy(update={"evidence": evidence}) if repaired else outputs


def tests_repaired_nodes(outputs: Mapping[str, Any], repairs: Sequence[NodeRepair]) -> bool:
    """Return True if a node of the outputs' evidence or failures is among the repairs."""
    machines = [*_parse_list(outputs, "evidence", NodeEvidence)]
    machines += [
        NodeEvidence(node=failure.node, machine=failure.machine, categories=[])
        for failure in _parse_list(outputs, "failures", NodeFailure)
    ]
    return bool(find_repaired_nodes(machines, repairs))


def _parse_list(outputs: Mapping[str, Any], name: str, model: type[_Part]) -> list[_Part]:
    """Return the parts in a list of a certification's outputs; none if missing or damaged."""
    parts = outputs.get(name)
    try:
        return [model.model_validate(part) for part in parts] if isinstance(parts, list) else []
    except ValidationError:
        return []


def build_certify_again_change(
    outputs: Mapping[str, Any],
    added_count: int = 0,
    repairs: Sequence[NodeRepair] = (),
    *,
    has_unknown_nodes: bool = False,
) -> FieldChange | None:
    """Return the change of a plan that tests nodes again, or None if no node has to be tested.

    To be tested are the nodes in the `gaps` of the certification's outputs. `added_count` is how
    many nodes the same plan adds: as far as these are more than the new nodes among the gaps, they
    are named as new nodes, too. `repairs` are those that the same plan makes: their nodes are named
    after the gaps. With `has_unknown_nodes` the plan changes the nodes in a way that is known only
    after its update.
    """
    gaps = _parse_list(outputs, "gaps", Gap)
    evidence = _parse_list(outputs, "evidence", NodeEvidence)
    gaps += [
        Gap(node=node, because=REPAIRED)
        for node in find_repaired_nodes(evidence, repairs)
        if node not in {gap.node for gap in gaps}
    ]
    new_count = Counter(gap.because for gap in gaps)[NEW_NODE]
    parts = [format_gaps(gaps)] if gaps else []
    # The nodes that the same plan adds are not in the outputs yet.
    if added_count > new_count:
        extra_count = added_count - new_count
        parts.insert(0, f"{extra_count} new node{'s' * (extra_count > 1)}")
    # A saved plan allows only what it shows, and nobody knows yet which nodes are new.
    if has_unknown_nodes:
        parts.append("any new nodes (known after the update)")
    if not parts:
        return None
    reason = f"certify again: {', '.join(parts)}"
    node_count = len(evidence)
    before = f"{node_count} node{'s' * (node_count != 1)} proven"
    return FieldChange(_CHANGE_PATH, Action.UPDATE, before, "all nodes proven", because=reason)


_MAX_NODES_SHOWN = 4


class UnreadableResult(GpuformError):
    """The results of a test cannot be understood, and reading them again would not help."""


@dataclass(frozen=True, slots=True)
class ReportedFailure:
    """A node that the test itself reports as failed, with the test's reason.

    `is_alone` is True if the node is the cause, and not the group that it was tested in.
    """

    node: str
    reason: str
    is_alone: bool


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of one job of a category, and the nodes that the job ran on.

    `has_passed` is the test's own report. `measured_value` is None without a figure; the job passes
    without one only if `needs_figure` is False, because the test has checked the floor itself.
    `reported_failures` are nodes that the test names. With `blames_single_node` a failed job on one
    node proves that the node is at fault.
    """

    category: CategoryInputs
    nodes: Sequence[str]
    has_passed: bool
    measured_value: float | None = None
    reason: str = ""
    reported_failures: Sequence[ReportedFailure] = ()
    needs_figure: bool = True
    ended_at: str = ""
    blames_single_node: bool = True


@dataclass(frozen=True, slots=True)
class CertificationVerdict:
    """Which nodes have passed and failed.

    `evidence` is for nodes that have passed all categories. `untested` are nodes without a job of
    some category, with the name of the category.
    """

    results: Sequence[CategoryResult]
    evidence: Sequence[NodeEvidence]
    failures: Sequence[NodeFailure]
    untested: Mapping[str, str]

    @property
    def problem(self) -> str:
        """Return all failures and untested nodes as one message; empty if all nodes have passed.

        The message has figures, and names at most four nodes for each reason.
        """
        by_reason: dict[tuple[str, str], list[str]] = {}
        for failure in self.failures:
            by_reason.setdefault((failure.category, failure.because), []).append(failure.node)
        sentences = [
            f"{_format_nodes(nodes)}: {category}: {because}"
            for (category, because), nodes in by_reason.items()
        ]
        if self.untested:
            categories = ", ".join(sorted({*self.untested.values()}))
            sentences.append(f"{_format_nodes(list(self.untested))}: not tested by {categories}")
        return "; ".join(sentences)


def judge_nodes(
    categories: Sequence[CategoryInputs],
    jobs: Sequence[JobResult],
    machines: Sequence[CertifiableNode],
    ended_at: str,
) -> CertificationVerdict:
    """Return which of `machines` have passed, failed or were not tested, by the job results.

    A node passes if a passed job of each category ran on the node, and no job reports the node as
    failed. `ended_at` (ISO 8601) is the time of all evidence, and of failures in jobs that report
    no time themselves.
    """
    by_node = {machine.node: machine for machine in machines}
    failures: dict[tuple[str, str], NodeFailure] = {}
    passed_categories: dict[str, set[str]] = {name: set() for name in by_node}
    results = []
    for job in jobs:
        failure_by_node = {node_failure.node: node_failure for node_failure in _find_failures(job)}
        if not by_node.keys().isdisjoint((*job.nodes, *failure_by_node)):
            results.append(_to_category_result(job, not failure_by_node))
        for node in dict.fromkeys((*job.nodes, *failure_by_node)):
            machine = by_node.get(node)
            # The node has left, or was exchanged, since the run began.
            if machine is None:
                continue
            node_failure = failure_by_node.get(node)
            # A node of a failed job whose test blames others alone counts as untested.
            if node_failure is None and job.has_passed:
                passed_categories[node].add(job.category.name)
            elif node_failure is not None:
                # The first failure of a node in a category is the one that people see.
                failures.setdefault(
                    (node, job.category.name),
                    NodeFailure(
                        node=node,
                        machine=machine.machine,
                        category=job.category.name,
                        because=node_failure.reason,
                        is_alone=node_failure.is_alone,
                        at=job.ended_at or ended_at,
                    ),
                )
    category_names = list(dict.fromkeys(category.name for category in categories))
    failed_nodes = {node for node, _ in failures}
    untested = {
        node: next(name for name in category_names if name not in passed_categories[node])
        for node in by_node
        if node not in failed_nodes and not passed_categories[node].issuperset(category_names)
    }
    categories_digest = compute_categories_digest(categories)
    evidence = [
        NodeEvidence(
            node=machine.node,
            machine=machine.machine,
            driver=machine.driver,
            image=machine.image,
            categories=category_names,
            declared=categories_digest,
            at=ended_at,
        )
        for machine in machines
        if machine.node not in failed_nodes and machine.node not in untested
    ]
    return CertificationVerdict(results, evidence, list(failures.values()), untested)


def _find_failures(job: JobResult) -> Iterator[ReportedFailure]:
    """Yield the nodes of a job which have not passed, with reasons.

    A figure below the floor fails all nodes of the job. If the test names failed nodes of a group
    and gives no other reason, the others are not failed.
    """
    is_single, shortfall = len(job.nodes) == 1, _explain_shortfall(job)
    is_at_fault = is_single and (_has_finite_value(job) if shortfall else job.blames_single_node)
    if shortfall and not is_single:
        # A group's figure does not show which of its nodes is slow.
        shortfall += f" (measured over {len(job.nodes)} nodes together)"
    for failure in job.reported_failures:
        reason_of_node = shortfall if shortfall and not failure.is_alone else failure.reason
        yield ReportedFailure(failure.node, reason_of_node, failure.is_alone or is_at_fault)
    reason = shortfall
    if not reason and not job.has_passed and not job.reported_failures:
        reason = job.reason or "the test failed without a reason"
    reported_nodes = {failure.node for failure in job.reported_failures}
    yield from (
        ReportedFailure(node, reason, is_at_fault)
        for node in job.nodes
        if reason and node not in reported_nodes
    )


def _explain_shortfall(job: JobResult) -> str:
    """Return why the job's figure is below the floor or missing; "" if not, or without a floor.

    A missing figure counts only for a passed job that needs one.
    """
    required, floor, unit = job.category.required, job.category.floor, job.category.unit
    if required is None or floor is None:
        return ""
    unit = f" {unit}" if unit else ""
    measured_value = job.measured_value
    if measured_value is None or not _has_finite_value(job):
        # Without its figure a passed job does not prove the floor; a failed job has its own reason.
        return "the test measured nothing" if job.needs_figure and job.has_passed else ""
    if measured_value >= required:
        return ""
    tolerance = job.category.tolerance
    tolerance_text = f" less {tolerance}" if tolerance and required != floor else ""
    return f"{measured_value:g}{unit} is below the floor of {floor:g}{unit}{tolerance_text}"


def _has_finite_value(job: JobResult) -> bool:
    """Return True if the job has measured a number, other than infinity and NaN."""
    return job.measured_value is not None and math.isfinite(job.measured_value)


def _to_category_result(job: JobResult, has_passed: bool) -> CategoryResult:
    """Return a job's result for the outputs; the measured value is None unless finite."""
    return CategoryResult(
        category=job.category.name,
        nodes=list(job.nodes),
        measured=job.measured_value if _has_finite_value(job) else None,
        unit=job.category.unit,
        required=job.category.required,
        passed=has_passed,
        at=job.ended_at,
    )


def _format_nodes(nodes: Iterable[str]) -> str:
    """Return `node a` or `nodes a, b`; after four names only the number of the others."""
    names = list(nodes)
    listed = ", ".join(names[:_MAX_NODES_SHOWN])
    if len(names) > _MAX_NODES_SHOWN:
        listed += f" and {len(names) - _MAX_NODES_SHOWN} more"
    return f"node{'s' * (len(names) > 1)} {listed}"

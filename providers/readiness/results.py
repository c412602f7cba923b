"""Read what a certification of the Cluster Readiness Engine says of its nodes, and run one as a
tester.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from gpuform.providers.certifying import Job, Refusal, Run, Unreadable
from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence import Observation, find_gaps
from gpuform.providers.evidence.decisions import PASS_NODE
from gpuform.providers.readiness.engine import OWNER, Place, ReadinessEngine, manifest
from gpuform.schemas.policies.certification import CategoryInputs
from gpuform.schemas.readiness_wire import (
    CategoryStatus,
    Certification,
    Condition,
    FailedNode,
    Measurement,
    Reference,
    Search,
    Workflow,
    find_true_condition,
    parse_failed_nodes,
    parse_group_nodes,
    parse_succeeded_nodes,
)
from gpuform.schemas.safe_text import truncate

T = TypeVar("T")

_OF_THE_NODE: Final = frozenset({"HardwareFailureDetected"})
"""Reasons that name the node itself (`NodeFailureReason`). Any other one every node of a group
gets, whichever of them it was (design record 071)."""

_LONGEST: Final = 200


def jobs_of(
    engine: ReadinessEngine, certification: Certification, categories: Sequence[CategoryInputs]
) -> list[Job]:
    """The jobs of every category, in the order of the declaration.

    Raises Unreadable when something that the certification refers to cannot be read: a list that
    is missing is not a list without failures.
    """
    namespace, began = certification.metadata.namespace, certification.metadata.created_at
    measured: dict[str, list[Measurement]] = {}
    for each in engine.measurements(namespace):
        if each.metadata.created_at >= began:  # of an earlier run, jobs have the same names
            measured.setdefault(each.spec.job.name, []).append(each)
    told = {(each.domain, each.variant): each for each in certification.status.categories}
    found: list[Job] = []
    for category in categories:
        status = told.get((category.domain, category.variant))
        if status is not None:
            source = _Source(engine, namespace, status, measured)
            found += _consistent(source, list(_jobs(source, category)))
    return found


def _consistent(source: "_Source", jobs: list[Job]) -> list[Job]:
    """The jobs; none has passed where their category has not, and no job tells why."""
    if source.has_passed or not all(each.passed and not each.failed for each in jobs):
        return jobs
    because = _why(source) or f"its category is {source.status.status or 'without a status'}"
    return [replace(each, passed=False, because=because, is_telling=False) for each in jobs]


class _Source:
    """One category's part of what the engine keeps."""

    def __init__(
        self,
        engine: ReadinessEngine,
        namespace: str,
        status: CategoryStatus,
        measured: Mapping[str, Sequence[Measurement]],
    ) -> None:
        self._engine = engine
        self.status = status
        self._namespace = namespace
        self._measured = measured
        self.workflow = self._workflow()

    @property
    def has_passed(self) -> bool:
        """Whether the engine says of the category, and of what runs it, that all have passed."""
        if self.status.status != "Succeeded":
            return False
        told = self.workflow.status.conditions if self.workflow is not None else ()
        return not any(find_true_condition(told, kind) for kind in ("Failed", "ValidationFailed"))

    def figure(self, job: str, metric: str) -> float | None:
        """What was measured of a job; the least, where several measurements tell one."""
        told = (each.get_value(metric) for each in self._measured.get(job, ()))
        return min((value for value in told if value is not None), default=None)

    def nodes_by_group(self) -> dict[str, list[str]]:
        """As their list tells it, else as the groups do."""
        workflow = self.workflow
        if workflow is None:
            return {}
        inline = {each.name: [*each.nodes] for each in workflow.status.orchestration.groups}
        return self._listed(workflow.status.group_nodes, parse_group_nodes) or inline

    def failed(self) -> list[FailedNode]:
        reference = self.status.failed_nodes or (
            self.workflow.status.failed_nodes if self.workflow is not None else None
        )
        return self._listed(reference, parse_failed_nodes) or []

    def succeeded(self) -> list[str] | None:
        reference = self.status.succeeded_nodes or (
            self.workflow.status.succeeded_nodes if self.workflow is not None else None
        )
        return self._listed(reference, parse_succeeded_nodes)

    def _workflow(self) -> Workflow | None:
        reference = self.status.workflow
        if reference is None or not reference.name:
            return None
        namespace = reference.namespace or self._namespace
        return self._engine.workflow(namespace, reference.name)

    def _listed(
        self, reference: Reference | None, read: Callable[[Mapping[str, Any]], T]
    ) -> T | None:
        if reference is None or not reference.name:
            return None
        found = self._engine.config_map(self._namespace, reference.name)
        what = f"the list of nodes {self._namespace}/{reference.name}"
        if found is None:
            raise Unreadable(f"{what} is gone: what it said cannot be told")
        try:
            return read(found)
        except (ValueError, ValidationError) as error:
            told = (
                "its nodes have an unexpected form"
                if isinstance(error, ValidationError)
                else str(error)
            )
            raise Unreadable(f"{what} cannot be read: {told}") from None


def _jobs(source: _Source, category: CategoryInputs) -> Iterator[Job]:
    """One job for each group; after a search for faults one for each node, which it names."""
    workflow, failed = source.workflow, source.failed()
    if workflow is None or not workflow.status.orchestration.groups:
        yield from _nodes_told(source, category, failed)
        return
    orchestration = workflow.status.orchestration
    if orchestration.search is not None:
        yield from _nodes_found(source, category, failed, orchestration.search)
        return
    because, by_group, succeeded = _why(source), source.nodes_by_group(), source.succeeded()
    seen: set[str] = set()
    for group in orchestration.groups:
        told = by_group.get(group.name, [])
        nodes = [name for name in told if name not in orchestration.excluded_nodes]
        seen.update(nodes)
        if group.phase == "Succeeded" and succeeded is not None:
            named = {*succeeded, *(each.name for each in failed)}
            yield from _unproven(category, [name for name in nodes if name not in named])
            nodes = [name for name in nodes if name in named]
        mine = [each for each in failed if each.name in nodes]
        figure = source.figure(group.job.name, category.measured_metric) if group.job else None
        yield Job(
            category=category,
            nodes=nodes,
            passed=group.phase == "Succeeded",
            measured=figure,
            because=because if group.phase != "Succeeded" else "",
            failed=_refused(mine),
            at=group.ended_at,
            is_telling=group.phase == "Failed" and not _is_unmeasured(mine, figure),
        )
    others = [each for each in failed if each.name not in seen]
    yield from _named(category, others)


def _unproven(category: CategoryInputs, nodes: Sequence[str]) -> Iterator[Job]:
    """Yield a job for each node of a group that has passed, and whose node no result names."""
    for name in nodes:
        missing = [f"its list of nodes that succeeded does not name {name}"]
        gaps = find_gaps(PASS_NODE, Observation("the Cluster Readiness Engine", missing))
        yield Job(category, [name], passed=False, because="; ".join(gaps), is_telling=False)


def _nodes_told(
    source: _Source, category: CategoryInputs, failed: Sequence[FailedNode]
) -> Iterator[Job]:
    """The nodes of a category of which nobody tells groups, and so no figures."""
    yield from _named(category, failed)
    named = {each.name for each in failed}
    passed = [name for name in source.succeeded() or () if name not in named]
    for name in passed:
        yield Job(category, [name], passed=True, is_telling=False)
    if source.status.status != "Succeeded" and not failed:
        nodes = [name for each in source.nodes_by_group().values() for name in each]
        others = list(dict.fromkeys(name for name in nodes if name not in passed))
        if others:
            yield Job(category, others, passed=False, because=_why(source), is_telling=False)


def _nodes_found(
    source: _Source, category: CategoryInputs, failed: Sequence[FailedNode], search: Search
) -> Iterator[Job]:
    """The nodes as a search has found them: it has judged the floor of each group by itself.

    The list of failures has every node of each group that failed on the way; the search clears
    some of them (design record 055).
    """
    cleared = {*(source.succeeded() or ())} - {*search.suspects}
    left = [each for each in failed if each.name not in cleared or each.reason in _OF_THE_NODE]
    yield from _named(category, left, search.suspects)
    named = {each.name for each in left}
    for name in sorted(cleared - named):
        yield Job(category, [name], passed=True, needs_figure=False)
    for name in search.suspects:
        if name not in named:
            yield Job(category, [name], passed=False, because=_why(source))


def _named(
    category: CategoryInputs, failed: Sequence[FailedNode], at_fault: Collection[str] = ()
) -> Iterator[Job]:
    for each in failed:
        told, telling = _refused([each]), each.name in at_fault
        yield Job(category, [each.name], passed=False, failed=told, is_telling=telling)


def _is_unmeasured(failed: Sequence[FailedNode], figure: float | None) -> bool:
    """Whether a floor is missed for want of a figure, and not by one."""
    return figure is None and any(each.reason == "ThresholdViolation" for each in failed)


def _refused(failed: Sequence[FailedNode]) -> list[Refusal]:
    return [
        Refusal(each.name, _told(each.reason, each.message), each.reason in _OF_THE_NODE)
        for each in failed
    ]


def _why(source: _Source) -> str:
    """The words of the category's own failure, if there are any."""
    if source.workflow is None:
        return f"its category is {source.status.status or 'without a status'}"
    conditions: tuple[Condition, ...] = source.workflow.status.conditions
    for kind in ("Failed", "ValidationFailed"):
        condition = find_true_condition(conditions, kind)
        if condition is not None:
            return _told(condition.reason, condition.message)
    return ""


def _told(reason: str, message: str) -> str:
    text = " ".join(message.split())
    return truncate(f"{text} ({reason})" if text and reason else text or reason, _LONGEST)


PURPOSE: Final = "gpuform.dev/purpose"
"""The annotation that says which nodes and tests a certification is for."""


@dataclass(frozen=True)
class EngineTester:
    """A `gpuform.providers.certifying.Tester`.

    `owner` is the URN of the resource, which may have had another one when `last` was begun.
    """

    engine: ReadinessEngine
    place: Place
    categories: Sequence[CategoryInputs]
    owner: str
    last: str = ""

    @property
    def by(self) -> str:
        """The engine, with the API that it has."""
        return self.engine.api

    def find(self) -> Run | None:
        """The certification of that name. Raises GpuformError for one that somebody else made."""
        found = self.engine.find(self.place)
        if found is None:
            return None
        annotations = found.metadata.annotations
        if annotations.get(OWNER) != self.owner and found.metadata.uid != self.last:
            raise GpuformError(
                f"there is a certification {self.place} already, which this resource did not make",
                hint="declare another name; gpuform takes and removes none that others have made",
            )
        purpose = annotations.get(PURPOSE, "")
        return _run(found, purpose)

    def begin(self, nodes: Sequence[str], purpose: str) -> None:
        """Makes the certification of these nodes."""
        body = manifest(self.engine.api, self.place, self.categories, nodes, self.owner)
        body["metadata"]["annotations"][PURPOSE] = purpose
        self.engine.create(body)

    def resume(self, run: Run) -> None:
        """Nothing: a certification is made by one request."""

    def jobs(self, run: Run) -> Sequence[Job]:
        """What its workflows say of their groups."""
        found = self.engine.find(self.place)
        if found is None or found.metadata.uid != run.id:
            raise GpuformError(f"certification {self.place} was removed before it was read")
        return jobs_of(self.engine, found, self.categories)

    def remove(self, run: Run) -> None:
        """Deletes that very certification."""
        self.engine.delete(self.place, run.id)


def _run(found: Certification, purpose: str) -> Run:
    failed = found.find_condition("Failed") or found.find_condition("ValidationFailed")
    ended = found.find_condition("Failed") or found.find_condition("Succeeded")
    leaving = found.metadata.deleted_at is not None
    problem = ""
    if failed is not None:
        told = " ".join(failed.message.split()) or failed.reason or failed.type
        problem = f"certification {found.metadata.name}: {told}"
    return Run(
        id=found.metadata.uid,
        purpose="" if leaving else purpose,
        phase="being deleted" if leaving else _phase(found),
        ended=ended is not None,
        ended_at=ended.since if ended is not None else "",
        problem=problem,
    )


def _phase(found: Certification) -> str:
    """`InProgress: communication/nccl-all-reduce`."""
    going = [each for each in found.status.categories if each.status == "InProgress"]
    done = sum(each.status in {"Succeeded", "Failed"} for each in found.status.categories)
    names = ", ".join(f"{each.domain}/{each.variant}" for each in going)
    total = len(found.status.categories)
    return f"InProgress: {names} ({done} of {total} done)" if names else "InProgress"

"""What a certification that has ended says of its nodes: jobs, figures and the nodes it names."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from gpuform.providers.certifying import Job, Refusal
from gpuform.providers.errors import GpuformError
from gpuform.providers.readiness.engine import ReadinessEngine
from gpuform.schemas.certification import CategoryInputs
from gpuform.schemas.readiness_wire import (
    CategoryStatus,
    Certification,
    Condition,
    FailedNode,
    Measurement,
    Reference,
    Workflow,
    failed_in,
    groups_in,
    holding,
    succeeded_in,
)
from gpuform.schemas.visible import shortened

T = TypeVar("T")

_OF_A_GROUP: Final = frozenset({"ThresholdViolation", "WorkloadFailure"})
"""Reasons that every node of a group gets, whichever of them it was (design record 071)."""

_LONGEST: Final = 200


def jobs_of(
    engine: ReadinessEngine, certification: Certification, categories: Sequence[CategoryInputs]
) -> list[Job]:
    """The jobs of every category, in the order of the declaration.

    Raises GpuformError when something that the certification refers to cannot be read: a list that
    is missing is not a list without failures.
    """
    namespace = certification.metadata.namespace
    measured: dict[str, list[Measurement]] = {}
    for each in engine.measurements(namespace):
        measured.setdefault(each.spec.job.name, []).append(each)
    told = {(each.domain, each.variant): each for each in certification.status.categories}
    found: list[Job] = []
    for category in categories:
        status = told.get((category.domain, category.variant))
        if status is not None:
            found += _jobs(_Source(engine, namespace, status, measured), category)
    return found


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

    def figure(self, job: str, metric: str) -> float | None:
        """What was measured of a job; the least, where several measurements tell one."""
        told = (each.figure(metric) for each in self._measured.get(job, ()))
        return min((value for value in told if value is not None), default=None)

    def nodes_by_group(self) -> dict[str, list[str]]:
        """As their list tells it, else as the groups do."""
        workflow = self.workflow
        if workflow is None:
            return {}
        inline = {each.name: [*each.nodes] for each in workflow.status.orchestration.groups}
        return self._listed(workflow.status.group_nodes, groups_in) or inline

    def failed(self) -> list[FailedNode]:
        reference = self.status.failed_nodes or (
            self.workflow.status.failed_nodes if self.workflow is not None else None
        )
        return self._listed(reference, failed_in) or []

    def succeeded(self) -> list[str] | None:
        reference = self.status.succeeded_nodes or (
            self.workflow.status.succeeded_nodes if self.workflow is not None else None
        )
        return self._listed(reference, succeeded_in)

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
            raise GpuformError(f"{what} is gone: what it said cannot be told")
        try:
            return read(found)
        except (ValueError, ValidationError) as error:
            told = (
                "its nodes have an unexpected form"
                if isinstance(error, ValidationError)
                else str(error)
            )
            raise GpuformError(f"{what} cannot be read: {told}") from None


def _jobs(source: _Source, category: CategoryInputs) -> Iterator[Job]:
    """One job for each group; after a search for faults one for each node, which it names."""
    workflow, failed = source.workflow, source.failed()
    because = _why(source)
    groups = workflow.status.orchestration.groups if workflow is not None else ()
    if not groups or (workflow and workflow.status.orchestration.is_diagnosing is not None):
        yield from _nodes_alone(source, category, failed, because)
        return
    by_group = source.nodes_by_group()
    seen: set[str] = set()
    for group in groups:
        nodes = by_group.get(group.name, [])
        seen.update(nodes)
        mine = [each for each in failed if each.name in nodes]
        yield Job(
            category=category,
            nodes=nodes,
            passed=group.phase == "Succeeded",
            measured=source.figure(group.job.name, category.measured_metric) if group.job else None,
            because=because if group.phase != "Succeeded" else "",
            failed=_refused(mine),
            at=group.ended_at,
        )
    for each in failed:
        if each.name not in seen:
            yield Job(category, [each.name], passed=False, failed=_refused([each]))


def _nodes_alone(
    source: _Source, category: CategoryInputs, failed: Sequence[FailedNode], because: str
) -> Iterator[Job]:
    """The nodes as the engine names them: it has judged the floor of each group by itself."""
    named = {each.name for each in failed}
    for each in failed:
        yield Job(category, [each.name], passed=False, failed=_refused([each]))
    passed = source.succeeded()
    for name in passed or ():
        if name not in named:
            yield Job(category, [name], passed=True, needs_figure=False)
    if source.status.status != "Succeeded" and not failed:
        nodes = [name for each in source.nodes_by_group().values() for name in each]
        others = list(dict.fromkeys(name for name in nodes if name not in (passed or ())))
        if others:
            yield Job(category, others, passed=False, because=because)


def _refused(failed: Sequence[FailedNode]) -> list[Refusal]:
    return [
        Refusal(each.name, _told(each.reason, each.message), each.reason not in _OF_A_GROUP)
        for each in failed
        if each.name
    ]


def _why(source: _Source) -> str:
    """The words of the category's own failure, if there are any."""
    if source.workflow is None:
        return f"its category is {source.status.status or 'without a status'}"
    conditions: tuple[Condition, ...] = source.workflow.status.conditions
    for kind in ("Failed", "ValidationFailed"):
        condition = holding(conditions, kind)
        if condition is not None:
            return _told(condition.reason, condition.message)
    return ""


def _told(reason: str, message: str) -> str:
    text = " ".join(message.split())
    return shortened(f"{text} ({reason})" if text and reason else text or reason, _LONGEST)

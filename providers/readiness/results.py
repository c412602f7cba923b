"""Read the results of a certification of the Cluster Readiness Engine, and run one as a tester.

`certifying` calls `EngineTester`, which sends requests by `ReadinessEngine`.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpuform.providers.certifying import (
    CertificationRun,
    JobResult,
    ReportedFailure,
)
from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence import PASS_NODE, Observation, find_gaps
from gpuform.providers.readiness.engine import (
    OWNER_ANNOTATION,
    CategoryReports,
    CertificationName,
    ReadinessEngine,
    build_certification,
)
from gpuform.schemas.policies.certification import CategoryInputs
from gpuform.schemas.readiness_wire import (
    Certification,
    Condition,
    FailedNode,
    Measurement,
    Search,
    find_true_condition,
)
from gpuform.schemas.safe_text import truncate

_NODE_FAULT_REASONS: Final = frozenset({"HardwareFailureDetected"})
"""Reasons that blame the node itself (`NodeFailureReason`).

Any other reason is written for every node of a group, whichever node caused it (design record 071).
"""

_ENDED_STATUSES: Final = frozenset({"Succeeded", "Failed"})
"""Statuses of a category whose tests have run."""

_MAX_REASON_LENGTH: Final = 200


def read_job_results(
    engine: ReadinessEngine, certification: Certification, categories: Sequence[CategoryInputs]
) -> list[JobResult]:
    """Return the job results of every category, in the declared order.

    A category that has not run has no result.

    Raises:
        UnreadableResult: an object that the certification refers to cannot be read. A missing list
            is no list without failures.
    """
    namespace, created_at = certification.metadata.namespace, certification.metadata.created_at
    measurements_by_job: dict[str, list[Measurement]] = {}
    for measurement in engine.list_measurements(namespace):
        if (
            measurement.metadata.created_at >= created_at
        ):  # of an earlier run, jobs have the same names
            measurements_by_job.setdefault(measurement.spec.job.name, []).append(measurement)
    status_by_category = {
        (category_status.domain, category_status.variant): category_status
        for category_status in certification.status.categories
    }
    results: list[JobResult] = []
    for category in categories:
        status = status_by_category.get((category.domain, category.variant))
        # A category without a status has not run: `judge_nodes` counts its nodes as untested.
        if status is not None:
            reports = CategoryReports(engine, namespace, status, measurements_by_job)
            results += _fail_results_of_failed_category(
                reports, list(_build_results(reports, category))
            )
    return results


def _fail_results_of_failed_category(
    reports: CategoryReports, results: list[JobResult]
) -> list[JobResult]:
    """Return all results as failed if the category has failed without any failed result.

    A result with reported failures counts as failed, too. The new failures have the category's
    reason and blame no single node. Otherwise the results are returned unchanged.
    """
    if reports.has_passed or not all(
        result.has_passed and not result.reported_failures for result in results
    ):
        return results
    reason = (
        _explain_failure(reports)
        or f"the status of its category is {reports.status.status or 'not reported'}"
    )
    return [
        replace(result, has_passed=False, reason=reason, blames_single_node=False)
        for result in results
    ]


def _build_results(reports: CategoryReports, category: CategoryInputs) -> Iterator[JobResult]:
    """Yield one result for each group, or for each node in the result of a fault search.

    Without groups, one for each failed and each passed node. A node of a passed group that the
    engine lists neither as passed nor as failed, and a failed node that no group lists, get a
    failed result of their own.

    Raises:
        UnreadableResult: a list of nodes that an object names is gone or has another form.
    """
    workflow, failed = reports.workflow, reports.read_failed_nodes()
    if workflow is None or not workflow.status.orchestration.groups:
        yield from _build_ungrouped_results(reports, category, failed)
        return
    orchestration = workflow.status.orchestration
    if orchestration.search is not None:
        yield from _build_search_results(reports, category, failed, orchestration.search)
        return
    reason, by_group, succeeded = (
        _explain_failure(reports),
        reports.read_nodes_by_group(),
        reports.read_succeeded_nodes(),
    )
    grouped_nodes: set[str] = set()
    for group in orchestration.groups:
        group_nodes = by_group.get(group.name, [])
        nodes = [name for name in group_nodes if name not in orchestration.excluded_nodes]
        grouped_nodes.update(nodes)
        # A group can pass without a result for one of its nodes: only named nodes have passed.
        if group.phase == "Succeeded" and succeeded is not None:
            reported_nodes = {*succeeded, *(node.name for node in failed)}
            yield from _build_unproven_results(
                category, [name for name in nodes if name not in reported_nodes]
            )
            nodes = [name for name in nodes if name in reported_nodes]
        group_failures = [node for node in failed if node.name in nodes]
        measured_value = (
            reports.find_measured_value(group.job.name, category.measured_metric)
            if group.job
            else None
        )
        yield JobResult(
            category=category,
            nodes=nodes,
            has_passed=group.phase == "Succeeded",
            measured_value=measured_value,
            reason=reason if group.phase != "Succeeded" else "",
            reported_failures=_to_reported_failures(group_failures),
            ended_at=group.ended_at,
            blames_single_node=group.phase == "Failed"
            and not _is_unmeasured(group_failures, measured_value),
        )
    # Failures of nodes that no group lists must not be lost.
    other_failures = [node for node in failed if node.name not in grouped_nodes]
    yield from _build_failure_results(category, other_failures)


def _build_unproven_results(category: CategoryInputs, nodes: Sequence[str]) -> Iterator[JobResult]:
    """Yield a failed result for each of `nodes`, as not listed by the engine as passed.

    The caller selects nodes of passed groups that the engine lists neither as passed nor as failed.
    """
    for node in nodes:
        missing = [f"its list of nodes that succeeded does not name {node}"]
        gaps = find_gaps(PASS_NODE, Observation("the Cluster Readiness Engine", missing))
        yield JobResult(
            category, [node], has_passed=False, reason="; ".join(gaps), blames_single_node=False
        )


def _build_ungrouped_results(
    reports: CategoryReports, category: CategoryInputs, failed: Sequence[FailedNode]
) -> Iterator[JobResult]:
    """Yield the results of a category whose workflow reports no groups, and so no figures.

    One for each failed and each passed node. If the category has failed without failed nodes, a
    failed one for all nodes that are not listed as passed.
    """
    yield from _build_failure_results(category, failed)
    failed_names = {node.name for node in failed}
    passed = [name for name in reports.read_succeeded_nodes() or () if name not in failed_names]
    for name in passed:
        yield JobResult(category, [name], has_passed=True, blames_single_node=False)
    # A failed category without failed nodes: every node not named as passed has failed.
    if reports.status.status != "Succeeded" and not failed:
        nodes = [
            name for group_nodes in reports.read_nodes_by_group().values() for name in group_nodes
        ]
        others = list(dict.fromkeys(name for name in nodes if name not in passed))
        if others:
            yield JobResult(
                category,
                others,
                has_passed=False,
                reason=_explain_failure(reports),
                blames_single_node=False,
            )


def _build_search_results(
    reports: CategoryReports,
    category: CategoryInputs,
    failed: Sequence[FailedNode],
    search: Search,
) -> Iterator[JobResult]:
    """Yield one result for each node in the result of a search for faults.

    Nodes that the search cleared have passed, its suspects have failed. The search checks the floor
    of each group itself. The list of failures has every node of each group that failed on the way;
    the search clears some of them (design record 055).
    """
    cleared = {*(reports.read_succeeded_nodes() or ())} - {*search.suspects}
    uncleared_failures = [
        node for node in failed if node.name not in cleared or node.reason in _NODE_FAULT_REASONS
    ]
    yield from _build_failure_results(category, uncleared_failures, search.suspects)
    failed_names = {node.name for node in uncleared_failures}
    for name in sorted(cleared - failed_names):
        # The search has compared the groups' figures with the floor: no node has its own.
        yield JobResult(category, [name], has_passed=True, needs_figure=False)
    # A suspect may be missing from the list of failures, and has failed all the same.
    for name in search.suspects:
        if name not in failed_names:
            yield JobResult(category, [name], has_passed=False, reason=_explain_failure(reports))


def _build_failure_results(
    category: CategoryInputs, failed: Sequence[FailedNode], at_fault: Collection[str] = ()
) -> Iterator[JobResult]:
    """Yield a failed result for each failed node, which blames the node only if in `at_fault`."""
    for node in failed:
        failures, is_at_fault = _to_reported_failures([node]), node.name in at_fault
        yield JobResult(
            category,
            [node.name],
            has_passed=False,
            reported_failures=failures,
            blames_single_node=is_at_fault,
        )


def _is_unmeasured(failed: Sequence[FailedNode], measured_value: float | None) -> bool:
    """Return True if nodes miss a floor because there is no figure, not because of one."""
    return measured_value is None and any(node.reason == "ThresholdViolation" for node in failed)


def _to_reported_failures(failed: Sequence[FailedNode]) -> list[ReportedFailure]:
    """Return failed nodes with reasons; `is_alone` where the reason blames the node itself."""
    return [
        ReportedFailure(
            node.name, _format_reason(node.reason, node.message), node.reason in _NODE_FAULT_REASONS
        )
        for node in failed
    ]


def _explain_failure(reports: CategoryReports) -> str:
    """Return the reason of the category's own failure, or "".

    Without a workflow, the status of the category.
    """
    if reports.workflow is None:
        return f"the status of its category is {reports.status.status or 'not reported'}"
    conditions: tuple[Condition, ...] = reports.workflow.status.conditions
    for kind in ("Failed", "ValidationFailed"):
        condition = find_true_condition(conditions, kind)
        if condition is not None:
            return _format_reason(condition.reason, condition.message)
    return ""


def _format_reason(reason: str, message: str) -> str:
    """Return the engine's message and reason in one line of at most 200 characters."""
    one_line = " ".join(message.split())
    return truncate(
        f"{one_line} ({reason})" if one_line and reason else one_line or reason, _MAX_REASON_LENGTH
    )


PURPOSE_ANNOTATION: Final = "gpuform.dev/purpose"
"""The annotation with the digest of the nodes and tests that a certification is for."""


@dataclass(frozen=True)
class EngineTester:
    """A `gpuform.providers.certifying.NodeTester`.

    `owner` is the URN of the resource; when the run `last_run_id` was begun, the URN may have been
    another one.
    """

    engine: ReadinessEngine
    name: CertificationName
    categories: Sequence[CategoryInputs]
    owner: str
    last_run_id: str = ""

    @property
    def name_of_tester(self) -> str:
        """Group and version of the readiness engine's API, for messages."""
        return self.engine.api_version

    def find_run(self) -> CertificationRun | None:
        """Return the run of the own certification, or None if no certification of the name exists.

        Raises:
            GpuformError: the certification of this name belongs to somebody else.
        """
        certification = self.engine.find_certification(self.name)
        if certification is None:
            return None
        annotations = certification.metadata.annotations
        if (
            annotations.get(OWNER_ANNOTATION) != self.owner
            # The state knows this uid: the certification was created under an earlier URN.
            and certification.metadata.uid != self.last_run_id
        ):
            raise GpuformError(
                f"certification {self.name} exists already, and this resource did not create it",
                hint="declare another name; gpuform neither adopts nor removes a certification of "
                "somebody else",
            )
        purpose = annotations.get(PURPOSE_ANNOTATION, "")
        return _to_run(certification, purpose)

    def begin_run(self, nodes: Sequence[str], purpose: str) -> None:
        """Create the certification of `nodes`, annotated with owner and purpose, by one request.

        Raises:
            UnknownOutcome: the answer was lost.
            GpuformError: the cluster's Kubernetes refuses, or was not asked; nothing was created.
        """
        body = build_certification(
            self.engine.api_version, self.name, self.categories, nodes, self.owner
        )
        body["metadata"]["annotations"][PURPOSE_ANNOTATION] = purpose
        self.engine.create_certification(body)

    def resume_run(self, run: CertificationRun) -> None:
        """Do nothing: one request creates a certification completely."""

    def read_results(self, run: CertificationRun) -> Sequence[JobResult]:
        """Return the results of the run's certification, read from the workflows.

        Raises:
            UnreadableResult: an object with results is gone or has another form.
            GpuformError: the certification was removed, or is another one by now.
        """
        certification = self.engine.find_certification(self.name)
        # Somebody may have created another certification of this name, with results of other nodes.
        if certification is None or certification.metadata.uid != run.id:
            raise GpuformError(f"certification {self.name} was removed before gpuform read it")
        return read_job_results(self.engine, certification, self.categories)

    def remove_run(self, run: CertificationRun) -> None:
        """Begin to delete the certification of a run.

        A missing certification, and another one of the same name, are left alone.
        """
        self.engine.delete_certification(self.name, run.id)


def _to_run(certification: Certification, purpose: str) -> CertificationRun:
    """Return a certification as a run; one which is being deleted gets an empty purpose."""
    failed = certification.find_condition("Failed") or certification.find_condition(
        "ValidationFailed"
    )
    ended = certification.find_condition("Failed") or certification.find_condition("Succeeded")
    is_being_deleted = certification.metadata.deleted_at is not None
    problem = ""
    if failed is not None:
        message = " ".join(failed.message.split()) or failed.reason or failed.type
        problem = f"certification {certification.metadata.name}: {message}"
    return CertificationRun(
        id=certification.metadata.uid,
        # Nobody may wait for a run that is being deleted.
        purpose="" if is_being_deleted else purpose,
        progress="being deleted" if is_being_deleted else _format_progress(certification),
        has_ended=ended is not None,
        ended_at=ended.since if ended is not None else "",
        problem=problem,
        early_end_reason=_explain_early_end(certification),
    )


def _explain_early_end(certification: Certification) -> str:
    """Return why a failed certification ended before all its categories had run, or "".

    The engine fails a certification if it cannot create the workflow of a category, and runs no
    further category. Since version 0.10 it also does so if it finds no RDMA network for the pods,
    or several that differ (release notes of 0.10, "OCI RDMA networks are detected").
    """
    failed = certification.find_condition("Failed")
    categories = certification.status.categories
    # The engine lists the categories once it has created the first workflow.
    if failed is None or (
        categories and all(category.status in _ENDED_STATUSES for category in categories)
    ):
        return ""
    reason = _format_reason(failed.reason, failed.message) or "it reports no reason"
    return f"certification {certification.metadata.name} ended before all tests had run: {reason}"


def _format_progress(certification: Certification) -> str:
    """Return progress like `InProgress: communication/nccl-all-reduce (1 of 3 done)`."""
    running = [
        category for category in certification.status.categories if category.status == "InProgress"
    ]
    ended_count = sum(
        category.status in _ENDED_STATUSES for category in certification.status.categories
    )
    names = ", ".join(f"{category.domain}/{category.variant}" for category in running)
    total = len(certification.status.categories)
    return f"InProgress: {names} ({ended_count} of {total} done)" if names else "InProgress"

"""Run the tests of a certification and turn their results into outputs.

`operations` calls `CertificationRunner`; `verdicts` judges the results. A run is recognized by its
purpose, a digest of machines and categories: after a kill the next run waits for the old one and
begins none beside it. No run is judged twice.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Final, Protocol

from pydantic import ValidationError

from gpuform.providers.certifying.verdicts import (
    CertifiableNode,
    JobResult,
    UnreadableResult,
    compute_categories_digest,
    drop_evidence_of_repaired,
    find_evidence_gaps,
    format_gaps,
    judge_nodes,
    select_current_evidence,
)
from gpuform.providers.context import PollResult, ProviderContext, wait_until_done, wait_until_gone
from gpuform.providers.errors import NotReady
from gpuform.providers.lifetime import format_moment
from gpuform.providers.records import compute_digest
from gpuform.schemas.policies.certification import (
    CategoryInputs,
    CertificationOutputs,
    Gap,
    NodeEvidence,
)

POLL_INTERVAL_S: Final = 20.0
"""Seconds between two polls of a run."""


@dataclass(frozen=True, slots=True)
class CertificationRun:
    """A run of the tests as the tester reports it now.

    `id` differs for each run. `purpose` is the digest that the run was begun with, empty for a run
    that is being removed. `progress` is for people. `problem` is a failure of the run as a whole.
    `early_end_reason` says why the run ended before all its tests had run, and is empty otherwise.
    """

    id: str
    purpose: str
    progress: str
    has_ended: bool = False
    ended_at: str = ""
    problem: str = ""
    early_end_reason: str = ""


class NodeTester(Protocol):
    """The system that tests nodes: the Cluster Readiness Engine, or Slurm.

    Methods raise only GpuformErrors.
    """

    @property
    def name_of_tester(self) -> str:
        """Return the tester's name for messages and outputs."""

    def find_run(self) -> CertificationRun | None:
        """Return the certification's own run, or None.

        Raises:
            GpuformError: somebody else has made a run of this name.
        """

    def begin_run(self, nodes: Sequence[str], purpose: str) -> None:
        """Begin a run of the tests on `nodes`, which later reads report with this `purpose`.

        Raises:
            GpuformError: the run cannot be begun. A part of it may have begun: `find_run` shows
                whether, and `resume_run` begins the rest.
        """

    def resume_run(self, run: CertificationRun) -> None:
        """Begin the missing part of a run whose begin was interrupted."""

    def read_results(self, run: CertificationRun) -> Sequence[JobResult]:
        """Return the job results of an ended run.

        Raises:
            UnreadableResult: the results are missing or have an unexpected form.
        """

    def remove_run(self, run: CertificationRun) -> None:
        """End a run and begin to remove the run's objects."""


@dataclass(frozen=True, kw_only=True)
class CertificationRequest:
    """What to certify. With `tests_all_nodes` one node without evidence has all nodes tested again.

    `declared_count` is how many nodes are declared; `label` names the certification in messages.
    """

    label: str
    categories: Sequence[CategoryInputs]
    tests_all_nodes: bool
    timeout_s: float
    declared_count: int


@dataclass(frozen=True)
class CertificationRunner:
    """Tests the nodes of one certification; `get_time` returns the platform's unix time."""

    context: ProviderContext
    tester: NodeTester
    request: CertificationRequest
    list_machines: Callable[[], Sequence[CertifiableNode]]
    get_time: Callable[[], float]

    def certify(self) -> CertificationOutputs:
        """Test the nodes without evidence, wait for the result, and return the outputs.

        `context.stored_properties` has the evidence of the state. If no node lacks evidence,
        nothing is tested. The outputs are not ready if nodes have failed, were not tested, or are
        fewer than declared.

        Raises:
            NotReady: the run takes too long; `last` has the evidence so far.
            Cancelled: the run of gpuform was interrupted.
        """
        known_outputs = parse_valid_outputs(self.context)
        machines = self.list_machines()
        gaps = find_evidence_gaps(
            machines, known_outputs.evidence, self.request.categories, known_outputs.failures
        )
        try:
            if gaps:
                return self._test_nodes(known_outputs, machines, {gap.node for gap in gaps})
        except NotReady as error:
            last_outputs = _build_unready_outputs(known_outputs, machines, gaps, error.reason)
            raise type(error)(error.reason, last=last_outputs) from None
        evidence = select_current_evidence(known_outputs.evidence, machines)
        evidence_outputs = {
            "evidence": evidence,
            "gaps": [],
            "failures": [],
            "status": _format_status(evidence, []),
        }
        missing_nodes = self._explain_missing_nodes(machines)
        return known_outputs.model_copy(
            update={**_build_readiness(missing_nodes), **evidence_outputs}
        )

    def _test_nodes(
        self,
        known_outputs: CertificationOutputs,
        machines: Sequence[CertifiableNode],
        uncertified: Collection[str],
    ) -> CertificationOutputs:
        """Test nodes, wait for the results, and return the outputs with the new evidence.

        Tests the nodes in `uncertified`, or all nodes if so declared, and a second node where a
        test needs two. The evidence of untested nodes stays. A node whose machine was exchanged
        during the test gets no evidence. Unreadable results leave the known outputs, not ready,
        with the run's id.

        Raises:
            NotReady: the run takes too long, or somebody has removed it.
            Cancelled: the run of gpuform was interrupted.
        """
        request = self.request
        chosen = _choose_machines(machines, uncertified, request)
        run = self._wait_until_run_ended(chosen, known_outputs.run)
        try:
            jobs = self.tester.read_results(run)
        except UnreadableResult as error:  # the next run tests again
            gaps = find_evidence_gaps(
                machines, known_outputs.evidence, request.categories, known_outputs.failures
            )
            unready = _build_unready_outputs(known_outputs, machines, gaps, error.message)
            return unready.model_copy(update={"run": run.id})
        return self._judge_run(known_outputs, chosen, uncertified, run, jobs)

    def _judge_run(
        self,
        known_outputs: CertificationOutputs,
        chosen: Sequence[CertifiableNode],
        uncertified: Collection[str],
        run: CertificationRun,
        jobs: Sequence[JobResult],
    ) -> CertificationOutputs:
        """Return the certification's outputs with the new evidence of a run over `chosen` nodes."""
        request, machines_now = self.request, self.list_machines()
        ended_at = run.ended_at or format_moment(self.get_time())
        # A machine that was exchanged meanwhile is not the one that was tested.
        unchanged = {(machine.node, machine.machine) for machine in machines_now}
        tested = [machine for machine in chosen if (machine.node, machine.machine) in unchanged]
        if len(chosen) > 1:
            jobs = [_reject_single_node_result(job) for job in jobs]
        verdict = judge_nodes(request.categories, jobs, tested, ended_at)
        # Who was tested beside others, and was left out, is as proven as before.
        retested = {machine.node for machine in chosen} - (verdict.untested.keys() - uncertified)
        earlier = select_current_evidence(known_outputs.evidence, machines_now, retested)
        # A failure of all nodes together, which names none, counts for each.
        verdict_of_all = (
            verdict
            if len(tested) == len(chosen)
            else judge_nodes(request.categories, jobs, chosen, ended_at)
        )
        is_unexplained = bool(run.problem and not verdict_of_all.problem)
        new_evidence = [] if is_unexplained else verdict.evidence
        evidence = sorted([*earlier, *new_evidence], key=lambda node_evidence: node_evidence.node)
        gaps = find_evidence_gaps(machines_now, evidence, request.categories, verdict.failures)
        # Without this reason, people only learn that the nodes were not tested, and not why.
        problem = "; ".join(filter(None, (verdict.problem, run.early_end_reason)))
        reason = problem or run.problem or self._explain_missing_nodes(machines_now)
        if not reason and gaps:
            reason = f"not proven: {format_gaps(gaps)}"
        return CertificationOutputs(
            **_build_readiness(reason),
            status=_format_status(evidence, gaps),
            evidence=evidence,
            results=list(verdict.results),
            failures=list(verdict.failures),
            gaps=gaps,
            certified_at=ended_at,
            run=run.id,
            by=self.tester.name_of_tester,
        )

    def _explain_missing_nodes(self, machines: Sequence[CertifiableNode]) -> str:
        """Return why not all declared nodes can be tested, or "" if all exist."""
        declared_count = self.request.declared_count
        if len(machines) >= declared_count:
            return ""
        return (
            f"{len(machines)} of {declared_count} declared nodes exist: gpuform cannot test the "
            "others"
        )

    def _wait_until_run_ended(
        self, chosen: Sequence[CertifiableNode], judged_run_id: str | None
    ) -> CertificationRun:
        """Begin a run of the `chosen` machines, or resume an earlier one, and return the ended run.

        An existing run of other machines or tests, and the run `judged_run_id`, whose results the
        state has already, are removed first.

        Raises:
            NotReady: the run takes too long, or somebody has removed it.
            Cancelled: the run of gpuform was interrupted.
            GpuformError: somebody else has a run of this name, or the tester cannot be asked.
        """
        context, tester, label = self.context, self.tester, self.request.label
        purpose = _compute_purpose(chosen, self.request.categories)
        existing_run = tester.find_run()
        if existing_run is not None and (
            # A run of other machines or tests proves nothing here, a judged one nothing new.
            existing_run.purpose != purpose or existing_run.id == judged_run_id
        ):
            remove_run(context, tester, label, existing_run)
            existing_run = None
        if existing_run is not None:
            # A kill between two requests leaves a run that has begun in part.
            tester.resume_run(existing_run)
        else:
            node_names = [machine.node for machine in chosen]
            context.on_progress(
                f"testing {len(node_names)} node{'s' * (len(node_names) > 1)} with "
                f"{tester.name_of_tester}"
            )
            tester.begin_run(node_names, purpose)

        def poll_run() -> PollResult[CertificationRun]:
            run = tester.find_run()
            # A removed run never ends: waiting for the whole timeout would be in vain.
            if run is None or run.purpose != purpose:
                raise NotReady(f"{label}: its run was removed before it ended")
            return PollResult(run, run.progress, is_done=run.has_ended)

        return wait_until_done(
            context, poll_run, label=label, interval=POLL_INTERVAL_S, limit=self.request.timeout_s
        )


def parse_known_outputs(stored: Mapping[str, Any]) -> CertificationOutputs:
    """Return the outputs in a state; not ready and without evidence if the state is damaged."""
    # The state has the inputs, too, which the model of the outputs refuses.
    names = CertificationOutputs.model_fields
    try:
        fields = {name: value for name, value in stored.items() if name in names}
        return CertificationOutputs.model_validate({"ready": False, **fields})
    except ValidationError:
        return CertificationOutputs(ready=False)


def parse_valid_outputs(context: ProviderContext) -> CertificationOutputs:
    """Return the outputs in the state without the evidence of nodes that the run has repaired."""
    known_outputs = parse_known_outputs(context.stored_properties)
    return drop_evidence_of_repaired(known_outputs, context.planned_repairs)


def get_last_run_id(context: ProviderContext) -> str:
    """Return the id of the last run in the state, or ""."""
    return parse_known_outputs(context.stored_properties).run or ""


def _format_status(evidence: Sequence[NodeEvidence], gaps: Sequence[Gap]) -> str:
    """Return a status like `3 of 4 nodes proven`."""
    uncovered = {gap.node for gap in gaps}
    covered_count = sum(node_evidence.node not in uncovered for node_evidence in evidence)
    total = covered_count + len(gaps)
    return f"{covered_count} of {total} node{'s' * (total != 1)} proven"


def _build_readiness(reason: str = "") -> dict[str, Any]:
    """Return the outputs `ready` and `not_ready_reason`; ready if `reason` is empty."""
    return {"ready": not reason, "not_ready_reason": reason or None}


def _build_unready_outputs(
    known_outputs: CertificationOutputs,
    machines: Sequence[CertifiableNode],
    gaps: list[Gap],
    reason: str,
) -> CertificationOutputs:
    """Return the known outputs with the gaps, and not ready for the reason."""
    status = _format_status(select_current_evidence(known_outputs.evidence, machines), gaps)
    return known_outputs.model_copy(
        update={**_build_readiness(reason), "gaps": gaps, "status": status}
    )


def _choose_machines(
    machines: Sequence[CertifiableNode], uncertified: Collection[str], request: CertificationRequest
) -> tuple[CertifiableNode, ...]:
    """Return the machines to test: the uncertified ones, or all if the request says so.

    If that is one machine and a test measures between nodes, a certified machine is added.
    """
    if request.tests_all_nodes or len(uncertified) == len(machines):
        return tuple(machines)
    chosen = [machine for machine in machines if machine.node in uncertified]
    others = [machine for machine in machines if machine.node not in uncertified]
    # One node alone has no network to measure.
    if len(chosen) == 1 and any(map(_needs_several_nodes, request.categories)):
        chosen.append(others[0])
    return tuple(chosen)


def _needs_several_nodes(category: CategoryInputs) -> bool:
    """Return True if the category measures something between nodes."""
    if category.job is not None:
        return category.job.nodes == "all"
    is_intra_node = (category.options or {}).get("testScale") == "intra-node"
    return category.domain == "communication" and not is_intra_node


def _reject_single_node_result(job: JobResult) -> JobResult:
    """Return a passed job as failed if only one node ran a test of the connection between nodes.

    Unchanged are all other jobs, among them failed ones, and those whose test has checked the floor
    itself (`needs_figure` is False).
    """
    if len(job.nodes) > 1 or not (
        job.has_passed and job.needs_figure and _needs_several_nodes(job.category)
    ):
        return job
    reason = "the test ran on a single node, and measured nothing between nodes"
    return replace(job, has_passed=False, reason=reason, blames_single_node=False)


def _compute_purpose(
    machines: Sequence[CertifiableNode], categories: Sequence[CategoryInputs]
) -> str:
    """Return the digest of machines and categories, by which a later run recognizes this one."""
    machine_lines = sorted("\n".join(astuple(machine)) for machine in machines)
    return compute_digest("\n".join((compute_categories_digest(categories), *machine_lines)))


def remove_run(
    context: ProviderContext, tester: NodeTester, label: str, run: CertificationRun
) -> None:
    """Remove a run, and wait until the tester no longer shows the run.

    Raises:
        GpuformError: the run is still there at the deadline of `context`.
    """
    tester.remove_run(run)

    def poll_removal() -> PollResult[object] | None:
        remaining_run = tester.find_run()
        return (
            PollResult(None, "being removed")
            # Another id is another run, which somebody has begun under the same name since.
            if remaining_run is not None and remaining_run.id == run.id
            else None
        )

    wait_until_gone(
        context, poll_removal, label=f"earlier run of {label}", interval=POLL_INTERVAL_S
    )


def update_gaps(
    outputs: CertificationOutputs,
    machines: Sequence[CertifiableNode],
    categories: Sequence[CategoryInputs],
) -> CertificationOutputs:
    """Return the outputs with the nodes which the evidence does not cover now."""
    gaps = find_evidence_gaps(machines, outputs.evidence, categories, outputs.failures)
    status = _format_status(select_current_evidence(outputs.evidence, machines), gaps)
    return outputs.model_copy(update={"gaps": gaps, "status": status})

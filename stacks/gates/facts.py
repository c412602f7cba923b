"""Find the facts that gates judge: certified nodes, GPUs in use, and platforms that answer.

Called while planning: without these requests, a missing key shows only when the first change is
sent.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.context import create_thread_pool
from gpuform.providers.errors import GpuformError
from gpuform.providers.http import Retry, probe_platform
from gpuform.providers.lens.client import LensClient, get_client, is_configured
from gpuform.providers.operations import Settings
from gpuform.schemas.lens.wire import Consumer
from gpuform.schemas.plan import Plan, PlanAction, ResourceChange
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.schemas.resource_facts import (
    Billing,
    CertificationCheck,
    Notice,
    NoticeKind,
    ResourceUsage,
)
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.gates.rules import has_match
from gpuform.stacks.pricing import to_plain_properties
from gpuform.stacks.resource_rules import find_kind, find_lifecycle

_CERTIFICATION = "Certification"
_NODE_FIELDS = ("cluster_id", "node_ids")
"""Inputs of a certification that name the tested nodes."""


def check_certifications(steps: Iterable[Step]) -> tuple[CertificationCheck, ...]:
    """Check the certifications of each resource with GPUs after the run.

    The `problem` of a check is empty if the resource is certified, or will be in this run, or if
    the platform's own tests prove a resource without a certification.
    """
    remaining_resources: list[tuple[ResourceState, bool]] = []
    problems: dict[str, list[str]] = {}
    tested: dict[str, list[object]] = {}
    for step in steps:
        new = step.new
        lifecycle = find_lifecycle(new.type) if new is not None else None
        if new is None or lifecycle is None or not new.custom or new.external or new.delete:
            continue
        if lifecycle.kind == _CERTIFICATION:
            problem = _find_certification_problem(step)
            for urn in _list_tested_urns(new):
                problems.setdefault(urn, []).append(problem)
                tested.setdefault(urn, []).append(to_plain_properties(new.inputs).get("node_ids"))
        # An unknown number of GPUs (None) counts as some.
        elif not step.skipped and lifecycle.hooks.count_gpus(to_plain_properties(new.inputs)) != 0:
            # A new object has no observed values yet.
            is_new = step.old is None or step.op in (Op.REPLACE, Op.CREATE_REPLACEMENT)
            observed = {} if is_new or step.old is None else to_plain_properties(step.old.outputs)
            remaining_resources.append(
                (new, lifecycle.hooks.is_accepted(to_plain_properties(new.inputs), observed))
            )
    return tuple(
        CertificationCheck(
            urn=entry.urn,
            name=name_of(entry.urn),
            problem=_select_problem(problems.get(entry.urn), is_accepted=is_accepted)
            or _find_untested_nodes(
                to_plain_properties(entry.outputs).get("node_ids"), tested.get(entry.urn, ())
            ),
        )
        for entry, is_accepted in remaining_resources
    )


def find_uncertified(
    proofs: Sequence[CertificationCheck] | None, patterns: Sequence[str]
) -> Iterator[str]:
    """Yield a finding for each resource with uncertified nodes.

    `patterns` select resources by name or URN; empty selects all. None as `proofs` means that the
    certifications were not checked, as in any plan but that of a preview: then this is the only
    finding.
    """
    if proofs is None:
        yield "certifications are checked only in a plan of `gpuform preview`"
    for check in proofs or ():
        if check.problem and (not patterns or has_match((check.name, check.urn), patterns)):
            yield f"{check.name}: {check.problem}"


def _list_tested_urns(certification: ResourceState) -> set[str]:
    """Return the URNs of the resources whose nodes the certification tests."""
    dependencies = certification.property_dependencies
    return {urn for field in _NODE_FIELDS for urn in dependencies.get(field, ())}


def _find_certification_problem(step: Step) -> str:
    """Return the reason why a certification proves nothing, or "".

    Empty also for a certification that runs in this plan.
    """
    if step.op is not Op.SAME or step.new is None:
        return ""
    name, outputs = name_of(step.new.urn), to_plain_properties(step.new.outputs)
    if step.skipped or outputs.get("ready") is not True:
        return f"certification {name} has not passed, and this plan does not test its nodes"
    lifecycle = find_lifecycle(step.new.type)
    if lifecycle is not None and [
        *lifecycle.hooks.find_due_notices(outputs, to_plain_properties(step.new.inputs))
    ]:
        return f"certification {name} is stale, and this plan does not test its nodes"
    return ""


def _find_untested_nodes(nodes: object, tested: Sequence[object]) -> str:
    """Return a sentence about nodes without a certification, or "".

    Empty also if the nodes, or the tested nodes, are unknown.
    """
    if not isinstance(nodes, list) or not tested:
        return ""
    # A list of nodes that is unknown may have any node.
    lists = [node_list for node_list in tested if isinstance(node_list, list)]
    listed = {node for node_list in lists for node in node_list if isinstance(node, str)}
    if len(lists) < len(tested) or not all(
        isinstance(n, str) for node_list in lists for n in node_list
    ):
        return ""
    missing = sum(isinstance(node, str) and node not in listed for node in nodes)
    return f"no certification covers {missing} of its {len(nodes)} nodes" if missing else ""


def _select_problem(problems: Sequence[str] | None, *, is_accepted: bool) -> str:
    """Return the first problem of a resource's certifications, or "".

    None means no certification: then the resource must be accepted by its platform package.
    """
    if problems is None:
        return "" if is_accepted else "it has GPUs, but no certification"
    return next((problem for problem in problems if problem), "")


def add_unreachable_platforms(plan: Plan, steps: Iterable[Step], settings: Settings) -> Plan:
    """Return the plan with a note for each unreachable platform with planned changes.

    Each platform is probed once; a refresh is returned unchanged. Resources of explicit providers
    are skipped: their settings differ. A failure that a check has noted already is not repeated.
    """
    # A refresh asks the platforms itself.
    if plan.operation == "refresh":
        return plan
    regions = _list_changed_platforms(plan, steps)
    if not regions:
        return plan
    with create_thread_pool(len(regions), "reaching") as pool:
        failures = list(
            pool.map(lambda name: _find_probe_failure(name, regions[name], settings), regions)
        )
    # A check that has met the same failure has reported it.
    reported = "\n".join(plan.unchecked)
    unreached = [message for message, reason in filter(None, failures) if reason not in reported]
    return plan.model_copy(update={"unchecked": (*plan.unchecked, *unreached)})


def _list_changed_platforms(plan: Plan, steps: Iterable[Step]) -> Mapping[str, str]:
    """Return the platforms with planned changes, each with the region of one change."""
    changed = {
        plan_change.urn: plan_change for plan_change in plan.changes if plan_change.action.is_change
    }
    regions: dict[str, str] = {}
    for step in steps:
        change, kind = changed.get(step.urn), find_kind(step.state.type)
        if change is None or kind is None or not _has_own_settings(step):
            continue
        known_regions = [
            usage.region for usage in (change.after, change.before) if usage and usage.region
        ]
        regions[kind[0]] = regions.get(kind[0]) or next(iter(known_regions), "")
    return regions


def _has_own_settings(step: Step) -> bool:
    """Return True if the resource uses the stack's settings, not an explicit provider's."""
    urn = step.state.provider.rpartition("::")[0]
    return not urn or name_of(urn).startswith("default")


def _find_probe_failure(platform: str, region: str, settings: Settings) -> tuple[str, str] | None:
    """Return a note and the reason if the platform does not answer a probe, or None."""
    try:
        probe_platform(platform, replace(settings, region=region or settings.region))
    except GpuformError as error:
        reason = " ".join(error.message.split())
        return (
            f"{platform} cannot be reached, so the planned changes there may fail: {reason}",
            reason,
        )
    return None


DEFAULT_USAGE_LIMIT: Final = 0.05
"""GPU usage (0 to 1) up to which a workload counts as idle, unless the gate has a limit."""

_MAX_NAMES_LISTED: Final = 10
_MAX_CONCURRENT_REQUESTS: Final = 16


@dataclass(frozen=True, slots=True)
class Usage:
    """Hold what is in use of the capacity that a plan removes.

    `own` has the platforms' measurements by URN; `shared` are workloads that may run on any other
    resource; `unknown` says what could not be measured, and why.
    """

    own: Mapping[str, str]
    shared: Sequence[str]
    unknown: Sequence[str]


@dataclass
class UsageMonitor:
    """Ask platforms and Lens about usage, each of them once.

    `ids` are the platform ids of the stack's objects, by URN.
    """

    settings: Settings
    ids: Mapping[str, str]
    _platform_answers: dict[str, float | str | None] = field(default_factory=dict)
    _consumers: Sequence[Consumer] | str | None = None

    def find_usage(
        self, changes: Sequence[ResourceChange], value: Mapping[str, Any]
    ) -> Iterator[str]:
        """Yield a finding for each use of removed capacity, and for each unknown use.

        Jobs that a scheduler has reported are findings whatever the limit.

        Args:
            changes: the changes that the gate is about.
            value: the gate's value; `above` is the usage limit, 0 to 1.
        """
        above = value.get("above")
        for change in changes:
            if is_capacity_removed(change) and change.leaving is not None:
                yield from _describe_jobs(change.name, change.leaving)
        limit = DEFAULT_USAGE_LIMIT if above is None else above
        usage = self.measure_usage(changes, limit, retry=Retry.SAFE)
        names = {change.urn: change.name for change in changes}
        yield from (
            f"{names[urn]} is in use: {usage_text}" for urn, usage_text in usage.own.items()
        )
        yield from (*usage.shared, *usage.unknown)
        unmeasured = self._list_unmeasured_names(changes)
        if unmeasured and not is_configured(self.settings):
            reason = "is unknown: Lens is not configured (LENS_URL)"
            yield f"whether {_join_names(unmeasured)} is in use {reason}"

    def measure_usage(
        self,
        changes: Sequence[ResourceChange],
        limit: float = DEFAULT_USAGE_LIMIT,
        *,
        retry: Retry = Retry.NEVER,
    ) -> Usage:
        """Measure the usage of removed capacity on the platforms, and in Lens if configured.

        Changes whose jobs a scheduler has reported (`leaving`) are not measured. The result has
        usage above `limit` (0 to 1) alone: by URN where the platform measures, else as lines of
        Lens about all other resources, and the reasons for unknown usage.
        """
        self._ask_platforms([change for change in changes if _needs_measurement(change)])
        usage_by_urn, unknown = {}, []
        for change in filter(_needs_measurement, changes):
            used = self._platform_answers[change.urn]
            if isinstance(used, str):
                unknown.append(f"whether {change.name} is in use is unknown: {used}")
            elif used is not None and used > limit:
                usage_by_urn[change.urn] = f"{used:.0%} of its GPUs"
        unmeasured = self._list_unmeasured_names(changes)
        if not unmeasured or not is_configured(self.settings):
            return Usage(usage_by_urn, (), unknown)
        consumers = self._get_consumers(retry)
        if isinstance(consumers, str):
            lens_problem = f"whether {_join_names(unmeasured)} is in use is unknown: {consumers}"
            return Usage(usage_by_urn, (), [*unknown, lens_problem])
        return Usage(
            usage_by_urn, list(_describe_users(_join_names(unmeasured), consumers, limit)), unknown
        )

    def _list_unmeasured_names(self, changes: Sequence[ResourceChange]) -> list[str]:
        """List the names of resources whose platform measures no usage."""
        measurable = filter(_needs_measurement, changes)
        return [
            change.name for change in measurable if self._platform_answers.get(change.urn) is None
        ]

    def _ask_platforms(self, changes: Sequence[ResourceChange]) -> None:
        """Ask the platforms for the use of objects not asked for before; keep the answers."""
        unasked = [change for change in changes if change.urn not in self._platform_answers]
        with create_thread_pool(_MAX_CONCURRENT_REQUESTS, "in-use") as pool:
            answers = list(pool.map(self._measure_on_platform, unasked))
        self._platform_answers |= {
            change.urn: answer for change, answer in zip(unasked, answers, strict=True)
        }

    def _measure_on_platform(self, change: ResourceChange) -> float | str | None:
        """Return the measured GPU usage (0 to 1), an error text, or None if nothing is measured."""
        kind, id_ = find_kind(change.type), self.ids.get(change.urn)
        if kind is None or not id_:
            return None
        try:
            return load_lifecycle_class(*kind).hooks.measure_gpu_usage(self.settings, id_)
        except GpuformError as error:
            return _format_error(error)

    def _get_consumers(self, retry: Retry) -> Sequence[Consumer] | str:
        """Return the consumers in Lens, or the error's text; Lens is asked once."""
        # Lens is asked once: its list has the workloads of all clusters.
        if self._consumers is None:
            try:
                self._consumers = _ask_consumers(get_client(self.settings), retry)
            except GpuformError as error:
                self._consumers = _format_error(error)
        return self._consumers


def _ask_consumers(client: LensClient, retry: Retry) -> Sequence[Consumer] | str:
    """Return the workloads in Lens, or the reason why an empty list proves nothing.

    A Lens that has just started, or that watches nothing, has no workloads either.
    """
    consumers = client.list_consumers(retry=retry)
    if not consumers and not (client.get_overview(retry=retry).total_nodes or 0) > 0:
        return "Lens shows no workloads, and no GPU nodes that they could run on"
    return consumers


def add_usage(plan: Plan, monitoring: UsageMonitor) -> Plan:
    """Return the plan with the known usage of removed capacity; a refresh removes none.

    Usage in Lens becomes notices, and unknown usage becomes unchecked items.
    """
    if plan.operation == "refresh" or not any(map(_needs_measurement, plan.changes)):
        return plan
    usage = monitoring.measure_usage(plan.changes)
    changes = [
        change.model_copy(update={"in_use": f"in use: {usage.own[change.urn]}"})
        if change.urn in usage.own
        else change
        for change in plan.changes
    ]
    # Lens does not say where a workload runs, so its use belongs to no single change.
    notices = (Notice(kind=NoticeKind.USE, text=user) for user in usage.shared)
    return plan.model_copy(
        update={
            "changes": tuple(changes),
            "notices": (*plan.notices, *notices),
            "unchecked": (*plan.unchecked, *usage.unknown),
        }
    )


def _describe_users(names: str, consumers: Sequence[Consumer], limit: float) -> Iterator[str]:
    """Yield a line for each workload above the usage limit, the largest first.

    Unknown usage is above the limit. After `_MAX_NAMES_LISTED` lines, one line has the number of
    the others.
    """
    using = [consumer for consumer in consumers if _is_using(consumer, limit)]
    # Most GPUs first, since the list is cut.
    using.sort(
        key=lambda consumer: (-(consumer.stat.gpu_request or 0), consumer.namespace, consumer.name)
    )
    for consumer in using[:_MAX_NAMES_LISTED]:
        workload = f"{consumer.namespace}/{consumer.name} ({consumer.kind}, {consumer.use})"
        yield f"{names} may be in use by {workload}"
    if len(using) > _MAX_NAMES_LISTED:
        yield f"{names} may also be in use by {len(using) - _MAX_NAMES_LISTED} more workloads"


def _needs_measurement(change: ResourceChange) -> bool:
    """Return True if the usage must be measured: the change removes capacity with unknown jobs."""
    has_known_jobs = change.leaving is not None and change.leaving.has_known_jobs
    return not has_known_jobs and is_capacity_removed(change)


def _join_names(names: Sequence[str]) -> str:
    """Join the first ten names by commas, with the number of further ones: `a, b and 3 more`."""
    more = len(names) - _MAX_NAMES_LISTED
    return ", ".join(names[:_MAX_NAMES_LISTED]) + (f" and {more} more" if more > 0 else "")


def _describe_jobs(name: str, removed_nodes: RemovedNodes) -> Iterator[str]:
    """Yield a line for each removed node with jobs."""
    for node in removed_nodes.busy:
        jobs = ", ".join(job.id for job in node.jobs[:_MAX_NAMES_LISTED])
        more = len(node.jobs) - _MAX_NAMES_LISTED
        jobs += f" and {more} more" if more > 0 else ""
        yield f"{name}: {jobs} on {node.name}, which the plan drains"


def is_capacity_removed(change: ResourceChange) -> bool:
    """Return True if the change removes or stops GPUs, permanently or for a repair."""
    # An unknown number of GPUs (None) counts as removed.
    if change.action in (PlanAction.REPLACE, PlanAction.DELETE):
        return change.gpus_removed != 0
    if change.action is not PlanAction.UPDATE:
        return False
    has_repairs = any(not repair.is_withdrawal for repair in change.repairs)
    stops_gpus = _count_stopped(change.after) > _count_stopped(change.before)
    return change.gpus_removed != 0 or has_repairs or stops_gpus


def _count_stopped(usage: ResourceUsage | None) -> float:
    """Sum the stopped amounts; an unknown one counts as 1."""
    expenses = usage.expenses if usage else ()
    stopped = [expense for expense in expenses if expense.billing is Billing.STOPPED]
    return sum(1 if expense.amount is None else expense.amount for expense in stopped)


def _is_using(consumer: Consumer, limit: float) -> bool:
    """Return True if the workload uses GPUs. Unknown usage counts as use."""
    use = consumer.stat.gpu_utilization
    return use is None or use < 0 or use > limit


def _format_error(error: GpuformError) -> str:
    """Return an error as one line, for a gate's finding."""
    return " ".join(str(error).split())

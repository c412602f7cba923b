"""Find out whether capacity that a plan removes is in use, from schedulers, platforms and Lens.

Lens reports the workloads of all clusters it watches, but not on which resource each runs: any of
the resources may run them. A source that cannot be asked makes the gate block. Called by
`evaluating` and by the planning operations.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.context import create_thread_pool
from gpuform.providers.errors import GpuformError
from gpuform.providers.http import Retry
from gpuform.providers.lens.client import LensClient, get_client, is_configured
from gpuform.providers.operations import Settings
from gpuform.schemas.lens.wire import Consumer
from gpuform.schemas.plan import Plan, PlanAction, ResourceChange
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.schemas.resource_facts import Billing, Notice, NoticeKind, ResourceUsage
from gpuform.stacks.resource_rules import find_kind

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
        self._ask_platforms([change for change in changes if _is_measurable(change)])
        usage_by_urn, unknown = {}, []
        for change in filter(_is_measurable, changes):
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
        measurable = filter(_is_measurable, changes)
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
    if plan.operation == "refresh" or not any(map(_is_measurable, plan.changes)):
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
        yield f"{names} may be in use by {_format_workload(consumer)}"
    if len(using) > _MAX_NAMES_LISTED:
        yield f"{names} may also be in use by {len(using) - _MAX_NAMES_LISTED} more workloads"


def _is_measurable(change: ResourceChange) -> bool:
    """Return True if the change removes capacity and no scheduler has reported its jobs."""
    return change.leaving is None and is_capacity_removed(change)


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
    return change.gpus_removed != 0 or _has_repairs(change) or _has_stopping_gpus(change)


def _has_repairs(change: ResourceChange) -> bool:
    """Return True if the change repairs a node; rejected and cancelled repairs do not count."""
    return any(not repair.is_withdrawal for repair in change.repairs)


def _has_stopping_gpus(change: ResourceChange) -> bool:
    """Return True if the change stops running GPUs."""
    return _count_stopped(change.after) > _count_stopped(change.before)


def _count_stopped(usage: ResourceUsage | None) -> float:
    """Sum the stopped amounts; an unknown one counts as 1."""
    expenses = usage.expenses if usage else ()
    stopped = [expense for expense in expenses if expense.billing is Billing.STOPPED]
    return sum(1 if expense.amount is None else expense.amount for expense in stopped)


def _is_using(consumer: Consumer, limit: float) -> bool:
    """Return True if the workload uses GPUs. Unknown usage counts as use."""
    use = consumer.stat.gpu_utilization
    return use is None or use < 0 or use > limit


def _format_workload(consumer: Consumer) -> str:
    """Format a workload as `<namespace>/<name> (<kind>, <use>)`."""
    return f"{consumer.namespace}/{consumer.name} ({consumer.kind}, {consumer.use})"


def _format_error(error: GpuformError) -> str:
    """Return the text of an error in one line."""
    return " ".join(str(error).split())

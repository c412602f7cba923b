"""Whether capacity that would go is in use, by the word of its scheduler, its platform or Lens.

Lens tells the workloads of all it watches, not on which resource each runs: what it names may be
on any of them. Who cannot be asked makes the gate refuse.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.errors import GpuformError
from gpuform.providers.http import Retry
from gpuform.providers.lens.client import LensClient, client_for, is_configured
from gpuform.providers.operations import Settings
from gpuform.schemas.lens.wire import Consumer
from gpuform.schemas.plan import Plan, PlanAction, ResourceChange
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.schemas.resource_facts import Billing, Notice, NoticeKind, ResourceUsage
from gpuform.stacks.resource_rules import kind_of

IN_USE: Final = 0.05
"""What is used less than that is idle, unless the gate says otherwise."""

_NAMED: Final = 10
_ASKED_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Usage:
    """What is in use of capacity that would go.

    `own` is what platforms say of their own objects, by URN; `shared` is what may be on any of the
    others; `untold` says what cannot be told, and why.
    """

    own: Mapping[str, str]
    shared: Sequence[str]
    untold: Sequence[str]


@dataclass
class Monitoring:
    """Who can be asked, each once. `ids` are those of the stack's objects, by URN."""

    settings: Settings
    ids: Mapping[str, str]
    _words: dict[str, float | str | None] = field(default_factory=dict)
    _consumers: Sequence[Consumer] | str | None = None

    def findings(
        self, changes: Sequence[ResourceChange], value: Mapping[str, Any]
    ) -> Iterator[str]:
        """What is in use of all that would go, and what cannot be told."""
        above = value.get("above")
        for change in changes:
            if takes_capacity(change) and change.leaving is not None:
                yield from _jobs_of(change.name, change.leaving)
        limit = IN_USE if above is None else above
        usage = self.usage(changes, limit, retry=Retry.SAFE)
        names = {change.urn: change.name for change in changes}
        yield from (f"{names[urn]} is in use: {text}" for urn, text in usage.own.items())
        yield from (*usage.shared, *usage.untold)
        unclear = self._unclear(changes)
        if unclear and not is_configured(self.settings):
            told = "cannot be told: Lens is not configured (LENS_URL)"
            yield f"whether {_listed(unclear)} is in use {told}"

    def usage(
        self,
        changes: Sequence[ResourceChange],
        limit: float = IN_USE,
        *,
        retry: Retry = Retry.NEVER,
    ) -> Usage:
        """Asked are the platforms of what would go, and Lens, where it is configured."""
        self._ask([each for each in changes if _is_asked_about(each)])
        own, untold = {}, []
        for change in filter(_is_asked_about, changes):
            used = self._words[change.urn]
            if isinstance(used, str):
                untold.append(f"whether {change.name} is in use cannot be told: {used}")
            elif used is not None and used > limit:
                own[change.urn] = f"{used:.0%} of its GPUs"
        unclear = self._unclear(changes)
        if not unclear or not is_configured(self.settings):
            return Usage(own, (), untold)
        consumers = self._all_consumers(retry)
        if isinstance(consumers, str):
            said = f"whether {_listed(unclear)} is in use cannot be told: {consumers}"
            return Usage(own, (), [*untold, said])
        return Usage(own, list(_users(_listed(unclear), consumers, limit)), untold)

    def _unclear(self, changes: Sequence[ResourceChange]) -> list[str]:
        """The names of what its own platform tells no use of."""
        asked = filter(_is_asked_about, changes)
        return [each.name for each in asked if self._words.get(each.urn) is None]

    def _ask(self, changes: Sequence[ResourceChange]) -> None:
        left = [each for each in changes if each.urn not in self._words]
        with ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="in-use") as pool:
            words = list(pool.map(self._own_word, left))
        self._words |= {each.urn: word for each, word in zip(left, words, strict=True)}

    def _own_word(self, change: ResourceChange) -> float | str | None:
        """How much is used by its platform's word, or why that cannot be told."""
        kind, id_ = kind_of(change.type), self.ids.get(change.urn)
        if kind is None or not id_:
            return None
        try:
            return load_lifecycle_class(*kind).measure_gpu_usage(self.settings, id_)
        except GpuformError as error:
            return _line(error)

    def _all_consumers(self, retry: Retry) -> Sequence[Consumer] | str:
        if self._consumers is None:
            try:
                self._consumers = _ask_consumers(client_for(self.settings), retry)
            except GpuformError as error:
                self._consumers = _line(error)
        return self._consumers


def _ask_consumers(client: LensClient, retry: Retry) -> Sequence[Consumer] | str:
    """Return the workloads that Lens shows, or why its empty list proves nothing.

    A Lens that has just started, or that watches nothing, has no workloads either.
    """
    consumers = client.list_consumers(retry=retry)
    if not consumers and not (client.get_overview(retry=retry).total_nodes or 0) > 0:
        return "Lens shows no workloads, and no GPU nodes that they could run on"
    return consumers


def with_usage(plan: Plan, monitoring: Monitoring) -> Plan:
    """The plan with what is known to be in use of what would go; a refresh takes nothing away."""
    if plan.operation == "refresh" or not any(map(_is_asked_about, plan.changes)):
        return plan
    usage = monitoring.usage(plan.changes)
    changes = [
        change.model_copy(update={"in_use": f"in use: {usage.own[change.urn]}"})
        if change.urn in usage.own
        else change
        for change in plan.changes
    ]
    told = (Notice(kind=NoticeKind.USE, text=text) for text in usage.shared)
    return plan.model_copy(
        update={
            "changes": tuple(changes),
            "notices": (*plan.notices, *told),
            "unchecked": (*plan.unchecked, *usage.untold),
        }
    )


def _users(names: str, consumers: Sequence[Consumer], limit: float) -> Iterator[str]:
    using = [each for each in consumers if _is_using(each, limit)]
    using.sort(key=lambda each: (-(each.stat.gpu_request or 0), each.namespace, each.name))
    for each in using[:_NAMED]:
        yield f"{names} may be in use by {_workload(each)}"
    if len(using) > _NAMED:
        yield f"{names} may be in use by {len(using) - _NAMED} more workloads"


def _is_asked_about(change: ResourceChange) -> bool:
    """What its scheduler has told of goes before what anybody else would say."""
    return change.leaving is None and takes_capacity(change)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _jobs_of(name: str, leaving: RemovedNodes) -> Iterator[str]:
    """What runs on the very nodes that go, by the word of their scheduler."""
    for node in leaving.busy:
        jobs = ", ".join(job.id for job in node.jobs[:_NAMED])
        more = len(node.jobs) - _NAMED
        jobs += f" and {more} more" if more > 0 else ""
        yield f"{name}: {jobs} on {node.name}, which goes"


def takes_capacity(change: ResourceChange) -> bool:
    """Whether GPUs go, or stop, for good or for a repair."""
    if change.action in (PlanAction.REPLACE, PlanAction.DELETE):
        return change.gpus_removed != 0
    if change.action is not PlanAction.UPDATE:
        return False
    return change.gpus_removed != 0 or bool(change.repairs) or _stops(change)


def _stops(change: ResourceChange) -> bool:
    """Whether some of it will be stopped that is not stopped now."""
    return _stopped(change.after) > _stopped(change.before)


def _stopped(footprint: ResourceUsage | None) -> float:
    expenses = footprint.expenses if footprint else ()
    stopped = [each for each in expenses if each.billing is Billing.STOPPED]
    return sum(1 if each.amount is None else each.amount for each in stopped)


def _is_using(consumer: Consumer, limit: float) -> bool:
    """A workload whose use is not told counts as one that uses its GPUs."""
    use = consumer.stat.gpu_utilization
    return use is None or use < 0 or use > limit


def _workload(each: Consumer) -> str:
    return f"{each.namespace}/{each.name} ({each.kind}, {each.use})"


def _line(error: GpuformError) -> str:
    return " ".join(str(error).split())

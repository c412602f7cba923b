"""Whether capacity that would go is in use, by the word of its scheduler, its platform or Lens.

Lens tells the workloads of all it watches, not on which resource each runs: what it names may be
on any of them. Who cannot be asked makes the gate refuse.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from gpuform.providers.actions import Settings
from gpuform.providers.catalog import lifecycle_class
from gpuform.providers.errors import GpuformError
from gpuform.providers.lens.client import client_for, is_configured
from gpuform.schemas.footprint import Billing, Footprint
from gpuform.schemas.leaving import Leaving
from gpuform.schemas.lens.wire import Consumer
from gpuform.schemas.plan import PlanAction, ResourceChange
from gpuform.stacks.lifecycles import kind_of
from gpuform.stacks.review.names import counted

IN_USE: Final = 0.05
"""What is used less than that is idle, unless the gate says otherwise."""

_NAMED: Final = 10


@dataclass
class Monitoring:
    """Who can be asked. `ids` are those of the stack's objects, by URN."""

    settings: Settings
    ids: Mapping[str, str]

    def findings(
        self, changes: Sequence[ResourceChange], value: Mapping[str, Any]
    ) -> Iterator[str]:
        """What is in use of all that would go, and what cannot be told."""
        above = value.get("above")
        limit = IN_USE if above is None else above
        unclear = []
        for change in filter(takes_capacity, changes):
            if change.leaving is not None:
                yield from _jobs_of(change.name, change.leaving)
                continue
            used = self._own_word(change)
            if isinstance(used, str):
                yield used
            elif used is None:
                unclear.append(change.name)
            elif used > limit:
                yield f"{change.name} is in use: {used:.0%} of its GPUs"
        if unclear:
            yield from self._lens_word(", ".join(unclear), limit)

    def _own_word(self, change: ResourceChange) -> float | str | None:
        """How much is used by its platform's word, or why that cannot be told."""
        kind, id_ = kind_of(change.type), self.ids.get(change.urn)
        if kind is None or not id_:
            return None
        try:
            return lifecycle_class(*kind).in_use(self.settings, id_)
        except GpuformError as error:
            return f"whether {change.name} is in use cannot be told: {_line(error)}"

    def _lens_word(self, names: str, limit: float) -> Iterator[str]:
        if not is_configured(self.settings):
            yield f"whether {names} is in use cannot be told: Lens is not configured (LENS_URL)"
            return
        try:
            using = [each for each in self._consumers if _is_using(each, limit)]
        except GpuformError as error:
            yield f"whether {names} is in use cannot be told: {_line(error)}"
            return
        using.sort(key=lambda each: (-each.stat.gpu_request, each.namespace, each.name))
        for each in using[:_NAMED]:
            yield f"{names} may be in use by {_workload(each)}"
        if len(using) > _NAMED:
            yield f"{names} may be in use by {len(using) - _NAMED} more workloads"

    @cached_property
    def _consumers(self) -> Sequence[Consumer]:
        return client_for(self.settings).consumers()


def _jobs_of(name: str, leaving: Leaving) -> Iterator[str]:
    """What runs on the very nodes that go, by the word of their scheduler."""
    for node in leaving.busy:
        jobs = ", ".join(job.id for job in node.jobs[:_NAMED])
        more = len(node.jobs) - _NAMED
        jobs += f" and {more} more" if more > 0 else ""
        yield f"{name}: {jobs} on {node.name}, which goes"


def takes_capacity(change: ResourceChange) -> bool:
    """Whether GPUs go, or stop."""
    if change.action in (PlanAction.REPLACE, PlanAction.DELETE):
        return change.gpus_removed != 0
    if change.action is not PlanAction.UPDATE:
        return False
    return change.gpus_removed != 0 or _stops(change)


def _stops(change: ResourceChange) -> bool:
    """Whether some of it will be stopped that is not stopped now."""
    return _stopped(change.after) > _stopped(change.before)


def _stopped(footprint: Footprint | None) -> float:
    expenses = footprint.expenses if footprint else ()
    stopped = [each for each in expenses if each.billing is Billing.STOPPED]
    return sum(1 if each.amount is None else each.amount for each in stopped)


def _is_using(consumer: Consumer, limit: float) -> bool:
    """A workload whose use is not told counts as one that uses its GPUs."""
    stat = consumer.stat
    is_told = "gpu_utilization" in stat.model_fields_set
    return stat.gpu_utilization > limit if is_told else True


def _workload(each: Consumer) -> str:
    gpus = counted(each.stat.gpu_request, "GPU")
    told = f"{each.stat.gpu_utilization:.0%} used" if each.stat.model_fields_set else "use not told"
    return f"{each.namespace}/{each.name} ({each.kind}, {gpus}, {told})"


def _line(error: GpuformError) -> str:
    return " ".join(str(error).split())

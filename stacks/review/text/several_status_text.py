"""Several stacks at a glance: each as `status_text` has it, and what all of them come to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuform.schemas.plan import Amount, StackCost
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.summary_text import cost_text
from gpuform.stacks.review.text.status_text import (
    Monitoring,
    ResourceStatus,
    Status,
    status_document,
    status_lines,
)
from gpuform.stacks.review.value_text import counted


@dataclass(frozen=True, slots=True)
class StackStatus:
    """One of several stacks, by its name. Without a `status`, `problem` says why.

    It does not exist where nobody has made it in its backend yet.
    """

    name: str
    status: Status | None
    problem: str = ""
    exists: bool = True

    @property
    def is_unread(self) -> bool:
        """Whether it may be there, and could not be read."""
        return self.status is None and self.exists


@dataclass(frozen=True, slots=True)
class Totals:
    """What several stacks come to. `cost` is None where nobody tells any.

    `unread` are the names of stacks that are in none of the sums, `absent` of those that do not
    exist yet, and `emulated` of those of which nothing is real.
    """

    stacks: int
    resources: int
    gpus: int
    not_ready: int
    cost: StackCost | None
    unread: Sequence[str] = ()
    absent: Sequence[str] = ()
    emulated: Sequence[str] = ()

    @classmethod
    def of(cls, found: Sequence[StackStatus]) -> "Totals":
        """The sums over all stacks that could be read."""
        read = {each.name: each.status for each in found if each.status is not None}
        resources = [each for status in read.values() for each in status.resources]
        costs = {name: s.cost for name, s in read.items() if s.cost is not None}
        return cls(
            stacks=len(found),
            resources=len(resources),
            gpus=sum(each.summary.gpus for each in resources),
            not_ready=sum(map(_is_waiting, resources)),
            cost=_sum(costs) if costs else None,
            unread=[each.name for each in found if each.is_unread],
            absent=[each.name for each in found if not each.exists],
            emulated=[name for name, status in read.items() if status.emulated],
        )


def stack_lines(
    found: StackStatus, shown: Sequence[Monitoring] = (), *, paint: Paint = PLAIN
) -> Iterator[str]:
    """The stack's name, and its status below; of Lens nothing that was `shown` already."""
    yield paint("bold", f"{escape_invisible(found.name)}:")
    status = found.status
    if status is None:
        lead = "It could not be read: " if found.exists else ""
        for line in f"{lead}{found.problem}".split("\n"):
            yield paint("warning" if found.exists else "", escape_invisible(line))
        return
    if status.monitoring in shown:
        status = replace(status, monitoring=None)
    yield from status_lines(status, paint=paint)


def totals_line(totals: Totals) -> str:
    """`All 3 stacks: 5 resources, 16 GPUs, 47.84 USD/h (34,923.20 USD/month), 1 not ready`."""
    parts = [counted(totals.resources, "resource")]
    parts += [counted(totals.gpus, "GPU")] if totals.gpus else []
    parts += [escape_invisible(cost_text(totals.cost))] if totals.cost else []
    parts += [f"{totals.not_ready} not ready"] if totals.not_ready else []
    told = {
        "not read": totals.unread,
        "not made yet": totals.absent,
        "not real but emulated": totals.emulated,
    }
    more = "".join(
        f"; {what}: {escape_invisible(', '.join(of))}" for what, of in told.items() if of
    )
    return f"All {counted(totals.stacks, 'stack')}: {', '.join(parts)}{more}"


def several_document(found: Sequence[StackStatus]) -> dict[str, Any]:
    """The same as JSON: `stacks` by name, and `totals`."""
    totals = Totals.of(found)
    return {
        "stacks": {each.name: _document(each) for each in found},
        "totals": {
            "stacks": totals.stacks,
            "resources": totals.resources,
            "gpus": totals.gpus,
            "not_ready": totals.not_ready,
            "cost": None if totals.cost is None else totals.cost.model_dump(mode="json"),
            "unread": list(totals.unread),
            "absent": list(totals.absent),
            "emulated": list(totals.emulated),
        },
    }


def _document(found: StackStatus) -> dict[str, Any]:
    """That of the stack alone, with `exists` and `problem`; just these where it was not read."""
    own = {} if found.status is None else status_document(found.status)
    return {"exists": found.exists, "problem": found.problem, **own}


def _is_waiting(resource: ResourceStatus) -> bool:
    return resource.summary.ready is False


def _sum(costs: Mapping[str, StackCost]) -> StackCost:
    """The costs by way of paying and currency; what is unknown, with the name of its stack."""
    sums: dict[tuple[Any, str], float] = {}
    for cost in costs.values():
        for each in cost.amounts:
            key = each.billing, each.currency
            sums[key] = round(sums.get(key, 0.0) + each.hourly, 6)
    return StackCost(
        amounts=tuple(
            Amount(billing=billing, currency=currency, hourly=hourly)
            for (billing, currency), hourly in sorted(sums.items())
        ),
        unknown=tuple(f"{name}: {text}" for name, cost in costs.items() for text in cost.unknown),
    )

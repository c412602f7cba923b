"""Render the status of several stacks, each as `status_text` does, and their totals.

Called by `gpuform status --all`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuform.schemas.plan import Amount, StackCost
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.status_text import (
    LensStatus,
    StatusReport,
    build_status_document,
    render_status,
)
from gpuform.stacks.review.summary_text import format_stack_cost
from gpuform.stacks.review.value_text import counted


@dataclass(frozen=True, slots=True)
class StackStatus:
    """Hold the status of one of several stacks; without a `status`, `problem` says why.

    `exists` is False for a stack that nobody has created in its backend yet.
    """

    name: str
    status: StatusReport | None
    problem: str = ""
    exists: bool = True

    @property
    def is_unread(self) -> bool:
        """Return True if the stack may exist but could not be read."""
        return self.status is None and self.exists


@dataclass(frozen=True, slots=True)
class Totals:
    """Sum the status of several stacks. `cost` is None if no cost is known.

    `unread` names the stacks missing in the sums, `absent` those that do not exist yet, and
    `emulated` those on the emulator.
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
    def from_statuses(cls, statuses: Sequence[StackStatus]) -> "Totals":
        """Sum the status of all readable stacks; `stacks` counts the other ones, too."""
        read = {
            stack_status.name: stack_status.status
            for stack_status in statuses
            if stack_status.status is not None
        }
        resources = [resource for status in read.values() for resource in status.resources]
        costs = {name: s.cost for name, s in read.items() if s.cost is not None}
        return cls(
            stacks=len(statuses),
            resources=len(resources),
            gpus=sum(resource.summary.gpus for resource in resources),
            not_ready=sum(resource.summary.ready is False for resource in resources),
            cost=_sum_costs(costs) if costs else None,
            unread=[stack_status.name for stack_status in statuses if stack_status.is_unread],
            absent=[stack_status.name for stack_status in statuses if not stack_status.exists],
            emulated=[name for name, status in read.items() if status.emulated],
        )


def render_stack_status(
    stack_status: StackStatus, shown_lens: Sequence[LensStatus] = (), *, paint: Paint = PLAIN
) -> Iterator[str]:
    """Yield the stack's name and status; a Lens block in `shown_lens` is left out.

    Without a status only the problem follows the name.
    """
    yield paint("bold", f"{escape_invisible(stack_status.name)}:")
    status = stack_status.status
    if status is None:
        lead = "It could not be read: " if stack_status.exists else ""
        for line in f"{lead}{stack_status.problem}".split("\n"):
            yield paint("warning" if stack_status.exists else "", escape_invisible(line))
        return
    # Stacks often share one Lens, whose figures are the same for all.
    if status.monitoring in shown_lens:
        status = replace(status, monitoring=None)
    yield from render_status(status, paint=paint)


def format_totals(totals: Totals) -> str:
    """Format the totals: `All 3 stacks: 5 resources, 16 GPUs, 47.84 USD/h, 1 not ready`."""
    parts = [counted(totals.resources, "resource")]
    parts += [counted(totals.gpus, "GPU")] if totals.gpus else []
    parts += [escape_invisible(format_stack_cost(totals.cost))] if totals.cost else []
    parts += [f"{totals.not_ready} not ready"] if totals.not_ready else []
    names_by_note = {
        "not read": totals.unread,
        "not created yet": totals.absent,
        "on the emulator": totals.emulated,
    }
    more = "".join(
        f"; {note}: {escape_invisible(', '.join(names))}"
        for note, names in names_by_note.items()
        if names
    )
    return f"All {counted(totals.stacks, 'stack')}: {', '.join(parts)}{more}"


def build_multi_stack_document(statuses: Sequence[StackStatus]) -> dict[str, Any]:
    """Build the JSON document with `stacks` by name, and `totals`."""
    totals = Totals.from_statuses(statuses)
    return {
        "stacks": {stack_status.name: _stack_to_json(stack_status) for stack_status in statuses},
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


def _stack_to_json(stack_status: StackStatus) -> dict[str, Any]:
    """Convert the status of one stack, if known, with `exists` and `problem`."""
    status_fields = (
        {} if stack_status.status is None else build_status_document(stack_status.status)
    )
    return {"exists": stack_status.exists, "problem": stack_status.problem, **status_fields}


def _sum_costs(costs: Mapping[str, StackCost]) -> StackCost:
    """Sum the costs of all stacks by billing and currency; unknown costs get the stack's name."""
    sums: dict[tuple[Any, str], float] = {}
    for cost in costs.values():
        for amount in cost.amounts:
            key = amount.billing, amount.currency
            # Sums of floats leave a remainder.
            sums[key] = round(sums.get(key, 0.0) + amount.hourly, 6)
    return StackCost(
        amounts=tuple(
            Amount(billing=billing, currency=currency, hourly=hourly)
            for (billing, currency), hourly in sorted(sums.items())
        ),
        unknown=tuple(
            f"{name}: {unknown_cost}"
            for name, cost in costs.items()
            for unknown_cost in cost.unknown
        ),
    )

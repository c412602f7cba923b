"""Format the lines that every view prints: counts, costs, gates, notices, removed nodes and
repairs.

What is unknown is written, never summed.

Removed nodes have a line each; those without jobs share one where the same is done to all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from gpuform.providers.context import format_duration
from gpuform.schemas.plan import (
    GateLevel,
    GateResult,
    Plan,
    PlanAction,
    PlanCost,
    ResourceChange,
    StackCost,
)
from gpuform.schemas.policies.drain import RemovedNode, RemovedNodes
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.schemas.prices import HOURS_PER_MONTH
from gpuform.schemas.resource_facts import Billing, Notice, ResourceUsage
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.value_text import STYLES, counted

# Operation -> symbol, what is to be done, what was done; in the order of Pulumi's display.
_COUNTED = {
    "create": ("+", "create", "created"),
    "import": ("=", "import", "imported"),
    "update": ("~", "update", "updated"),
    "replace": ("+-", "replace", "replaced"),
    "delete": ("-", "delete", "deleted"),
    "read": (">", "read", "read"),
    "discard": ("<", "forget", "forgotten"),
}


def resources_lines(
    counts: Mapping[str, int], *, preview: bool, errored: int = 0, paint: Paint = PLAIN
) -> Iterator[str]:
    """Pulumi's summary: `Resources:`, a line for each operation, the unchanged ones.

    `counts` has Pulumi's names of the operations; `errored` is the number of resources that failed.
    """
    found = {op: counts[op] for op in _COUNTED if counts.get(op)}
    unchanged = counts.get("same", 0)
    yield paint("bold", "Resources:")
    for op, count in found.items():
        symbol, to_do, done = _COUNTED[op]
        verb = f"to {to_do}" if preview else done
        yield paint(STYLES[symbol], f"    {symbol:<2}{count} {verb}")
    if len(found) > 1:
        rest = f". {unchanged} unchanged" if unchanged else ""
        yield f"    {counted(sum(found.values()), 'change')}{rest}"
    elif unchanged or not (found or errored):
        yield f"    {unchanged} unchanged" if unchanged else "    nothing to do"
    if errored:
        yield paint("error", f"    {errored} errored")


def counts_text(counts: Mapping[PlanAction, int]) -> str:
    """What would be done, in one line: `2 to create, 1 to replace, 3 unchanged`."""
    by_name = {str(action): count for action, count in counts.items()}
    found = [f"{by_name[op]:,} to {v}" for op, (_, v, _) in _COUNTED.items() if op in by_name]
    if unchanged := counts.get(PlanAction.SAME):
        found.append(f"{unchanged:,} unchanged")
    return ", ".join(found) or "nothing to do"


def done_text(counts: Mapping[PlanAction, int]) -> str:
    """What was done, in one line: `2 created, 1 replaced, 3 unchanged`."""
    by_name = {str(action): count for action, count in counts.items()}
    found = [f"{by_name[op]:,} {done}" for op, (_, _, done) in _COUNTED.items() if op in by_name]
    if unchanged := counts.get(PlanAction.SAME):
        found.append(f"{unchanged:,} unchanged")
    return ", ".join(found) or "nothing to do"


def unchecked_line(count: int, paint: Paint = PLAIN) -> str:
    """What a plan begins with when checks could not be made; empty when all were."""
    if not count:
        return ""
    text = f"Not all was checked: {counted(count, 'check')} could not be made (see Not checked)."
    return paint("warning", text)


def gpus_line(plan: Plan, paint: Paint = PLAIN) -> str:
    """How many GPUs come and go, or nothing when none does."""
    added = _total("+", (change.gpus_added for change in plan.changes))
    removed = _total("-", (change.gpus_removed for change in plan.changes))
    parts = [paint("add", f"{added} to add")] if added else []
    parts += [paint("remove", f"{removed} to remove")] if removed else []
    return f"GPUs: {', '.join(parts)}" if parts else ""


def _total(sign: str, found: Iterable[int | None]) -> str:
    numbers = list(found)
    known = sum(number or 0 for number in numbers)
    if None not in numbers:
        return f"{sign}{known}" if known else ""
    return f"{sign}{known} or more" if known else "an unknown number"


def format_elapsed(seconds: float) -> str:
    """Whole seconds, at least one: 45s, 3m20s, 1h05m10s."""
    whole = max(1, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m{rest:02d}s"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


UNKNOWN = "unknown"


def cost_text(cost: StackCost) -> str:
    """`95.84 USD/h (69,963.20 USD/month) and what is unknown`."""
    texts = [
        f"{money(hourly, currency)}/h ({money(hourly * HOURS_PER_MONTH, currency)}/month)"
        for currency, hourly in cost.sum_hourly_costs().items()
    ]
    if not texts:
        return UNKNOWN if cost.unknown else "nothing"
    return " and ".join([*texts, *(["what is unknown"] if cost.unknown else [])])


def plan_cost_text(cost: PlanCost) -> str:
    """Before and after in one line."""
    before, after = cost_text(cost.before), cost_text(cost.after)
    return before if before == after else f"{before} => {after}"


def cost_facts(cost: PlanCost) -> Iterator[str]:
    """The ways of paying where there are several, and everything that is unknown."""
    before, after = _by_billing(cost.before), _by_billing(cost.after)
    keys = [*dict.fromkeys([*before, *after])]
    if len(keys) > 1 or any(billing is not Billing.ON_DEMAND for billing, _ in keys):
        for billing, currency in sorted(keys, key=lambda key: ([*Billing].index(key[0]), key[1])):
            old, new = before.get((billing, currency), 0.0), after.get((billing, currency), 0.0)
            change = "" if old == new else f" => {money(new, currency)}/h"
            yield f"{billing}: {money(old, currency)}/h{change}"
    for text in dict.fromkeys([*cost.before.unknown, *cost.after.unknown]):
        when = "" if text in cost.after.unknown else "now, "
        yield f"unknown: {when}{text}"


def plan_cost_lines(plan: Plan, paint: Paint = PLAIN) -> Iterator[str]:
    """`Cost:` and what there is to say of it; nothing where nobody reckoned it."""
    if plan.cost is not None:
        yield paint("bold", "Cost: ") + escape_invisible(plan_cost_text(plan.cost))
        for text in cost_facts(plan.cost):
            style = "warning" if text.startswith("unknown") else ""
            yield paint(style, f"    {escape_invisible(text)}")


def change_cost_text(change: ResourceChange) -> str:
    """`+47.84 USD/h`: what a change does to the cost, where that is known."""
    before, after = _known(change.before), _known(change.after)
    if before is None or after is None:
        return ""
    parts = []
    for currency in sorted({*before, *after}):
        more = round(after.get(currency, 0.0) - before.get(currency, 0.0), 6)
        if more:
            parts.append(f"{'+' if more > 0 else '-'}{money(abs(more), currency)}/h")
    return ", ".join(parts)


def _known(footprint: ResourceUsage | None) -> Mapping[str, float] | None:
    """The whole cost by currency; None when a part of it is not known."""
    sums: dict[str, float] = {}
    for each in footprint.expenses if footprint else ():
        if each.hourly is None:
            return None
        sums[each.currency] = sums.get(each.currency, 0.0) + each.hourly
    return sums


def _by_billing(cost: StackCost) -> dict[tuple[Billing, str], float]:
    return {(each.billing, each.currency): each.hourly for each in cost.amounts}


def money(amount: float, currency: str) -> str:
    """Cents, and more places where cents would be nothing."""
    places = 2 if amount == 0 or abs(amount) >= 0.01 else 4
    return f"{amount:,.{places}f} {currency}".rstrip()


def gate_word(gate: GateResult) -> str:
    """`passed`, `stops the plan`, `allowed for this run` or `advice`."""
    if not gate.findings:
        return "passed"
    if gate.level is GateLevel.ADVISORY:
        return "advice"
    return "allowed for this run" if gate.allowed else "stops the plan"


def gate_text(gate: GateResult) -> str:
    """One gate in one line: its name, what it says and what lifts it."""
    told = "; ".join(gate.findings)
    text = f"{gate.name}: {gate_word(gate)}" + (f": {told}" if told else "")
    if gate.findings and gate.reason:
        text += f" ({gate.reason})"
    return f"{text} [--allow {gate.permission}]" if gate.is_blocking else text


def gates_lines(plan: Plan, paint: Paint = PLAIN) -> Iterator[str]:
    """`Gates:` with everything that is against the plan, and how many it passes."""
    if plan.gates is not None:
        yield from lines_of_gates(plan.gates, paint, "Gates:", tells_none=True)


def lines_of_gates(
    gates: Sequence[GateResult], paint: Paint, title: str, *, tells_none: bool = False
) -> Iterator[str]:
    """The same of any gates; nothing where there are none, unless `tells_none`."""
    if not (gates or tells_none):
        return
    told = [gate for gate in gates if gate.findings]
    passed = len(gates) - len(told)
    yield paint("bold", title) + (f" {passed} of {len(gates)} passed")
    for gate in told:
        style = "error" if gate.is_blocking else "warning"
        yield paint(style, escape_invisible(f"    {gate.name} {gate_word(gate)}"))
        for finding in gate.findings:
            yield f"        {escape_invisible(finding)}"
        if gate.reason:
            yield f"        why: {escape_invisible(gate.reason)}"
        if gate.is_blocking:
            yield escape_invisible(f"        if it is meant: --allow {gate.permission}")


def notice_text(notice: Notice) -> str:
    """One notice in one line: of which resource, and what."""
    return f"{notice.name}: {notice.text}" if notice.name else notice.text


def notices_lines(notices: Iterable[Notice], paint: Paint = PLAIN) -> Iterator[str]:
    """`To know:` and a line for each; nothing where there are none."""
    texts = [escape_invisible(notice_text(each)) for each in notices]
    if texts:
        yield paint("warning", "To know:")
        yield from (f"    {text}" for text in texts)


_NODES_LISTED: Final = 5

_BECAUSE: Final = {
    "named": "named by drain",
    "failed": "failed",
    "cordoned": "takes no new jobs",
    "idle": "idle",
    "newest": "the newest",
    "deleted": "deleted",
    "replaced": "deleted and made anew",
    "stopped": "stopped",
    "moved": "moved to another fabric",
    "repaired": "repaired",
}

_OF_ALL: Final = ("deleted", "replaced", "stopped", "moved", "repaired")
"""The reasons that hold for many nodes at once."""


def leaving_lines(leaving: RemovedNodes | None) -> Iterator[str]:
    """`node train-worker-1 goes: idle`; nothing where no node goes."""
    if leaving is None:
        return
    idle = {
        because: [node for node in leaving.nodes if node.because == because and not node.jobs]
        for because in _OF_ALL
    }
    for node in leaving.nodes:
        if not any(node in nodes for nodes in idle.values()):
            because = _BECAUSE.get(node.because, node.because)
            yield f"node {node.name} goes: {because}{_describe_jobs(node)}"
    for because, nodes in idle.items():
        if nodes:
            yield _idle(_BECAUSE[because], nodes, leaving.scheduler)
    if leaving.busy:
        yield _what_is_done(leaving)


def _idle(because: str, nodes: Sequence[RemovedNode], scheduler: str) -> str:
    """`nodes a, b and 3 more go: stopped; no job runs there (Slurm)`."""
    names = ", ".join(node.name for node in nodes[:_NODES_LISTED])
    names += f" and {len(nodes) - _NODES_LISTED} more" if len(nodes) > _NODES_LISTED else ""
    subject = f"node {names} goes" if len(nodes) == 1 else f"nodes {names} go"
    return f"{subject}: {because}; no job runs there ({scheduler})"


def _describe_jobs(node: RemovedNode) -> str:
    told = [str(job) for job in node.jobs[:_NODES_LISTED]]
    if len(node.jobs) > _NODES_LISTED:
        told.append(f"{counted(len(node.jobs) - _NODES_LISTED, 'other job')}")
    return f"; runs {', '.join(told)}" if told else ""


def _what_is_done(leaving: RemovedNodes) -> str:
    if leaving.on_busy == "fail":
        return f"jobs run there now ({leaving.scheduler}): this fails as long as they do"
    limit = counted(leaving.wait_minutes, "minute")
    if leaving.on_busy == "evict":
        return f"jobs run there now ({leaving.scheduler}): they are evicted, within {limit}"
    return f"jobs run there now ({leaving.scheduler}): they are waited for, {limit} at most"


_SHOWN = 3


def repair_texts(plan: Plan) -> Iterator[str]:
    """One text for each node that is repaired."""
    for change in plan.changes:
        for each in change.repairs:
            told = f"{each.evidence}{_age(each, plan.made_at)}"
            yield f"{change.name}/{each.node} by {each.mode}: {told}; {_jobs(change, each)}"


def repairs_lines(plans: Iterable[Plan], paint: Paint = PLAIN) -> Iterator[str]:
    """`Repairs:` and a line for each; nothing where there are none."""
    texts = [escape_invisible(text) for plan in plans for text in repair_texts(plan)]
    if texts:
        yield paint("bold", f"Repairs: {counted(len(texts), 'node')}")
        yield from (f"    {text}" for text in texts)


def _age(repair: NodeRepair, made_at: str) -> str:
    """`, for 3h` when the plan was made; empty where that or the beginning is not told."""
    try:
        since, made = (datetime.fromisoformat(each) for each in (repair.since, made_at))
        age = (made - since).total_seconds()
    except (TypeError, ValueError):
        return ""
    return f" ({format_duration(age)} before the plan)" if age >= 1 else ""


def _jobs(change: ResourceChange, repair: NodeRepair) -> str:
    nodes = change.leaving.nodes if change.leaving is not None else ()
    node = next((each for each in nodes if each.name == repair.node), None)
    return "nobody tells its jobs" if node is None else _running(node)


def _running(node: RemovedNode) -> str:
    if not node.jobs:
        return "no job runs there"
    more = len(node.jobs) - _SHOWN
    named = [str(job) for job in node.jobs[:_SHOWN]] + ([f"{more} more"] if more > 0 else [])
    return f"runs {', '.join(named)}"

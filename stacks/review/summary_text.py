"""Format summaries that all views print: counts, costs, gates, notices, removed nodes.

Called by the plan, review and status views. Unknown amounts are named and never summed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from gpuform.providers.context import format_duration
from gpuform.schemas.gates import HOURS_PER_MONTH
from gpuform.schemas.plan import (
    GateLevel,
    GateResult,
    Plan,
    PlanAction,
    PlanCost,
    ResourceChange,
    StackCost,
    Waiver,
)
from gpuform.schemas.policies.drain import RESIZED, UNCHOSEN, RemovedNode, RemovedNodes
from gpuform.schemas.policies.repair import REJECT, NodeRepair
from gpuform.schemas.resource_facts import Billing, Notice, ResourceUsage
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.value_text import STYLES, counted

# Operation -> symbol, what is to be done, what was done; in the order of Pulumi's display.
_OPERATION_WORDS = {
    "create": ("+", "create", "created"),
    "import": ("=", "import", "imported"),
    "update": ("~", "update", "updated"),
    "replace": ("+-", "replace", "replaced"),
    "delete": ("-", "delete", "deleted"),
    "read": (">", "read", "read"),
    "discard": ("<", "forget", "forgotten"),
}


def render_resource_counts(
    counts: Mapping[str, int], *, preview: bool, errored: int = 0, paint: Paint = PLAIN
) -> Iterator[str]:
    """Yield the `Resources:` block of Pulumi's summary, with a line for each operation.

    Without operations the block says `nothing to do`, unless resources are unchanged or failed.

    Args:
        counts: number of resources by Pulumi's name of the operation.
        preview: whether the operations are only planned.
        errored: number of resources that failed.
        paint: colors the lines.
    """
    counts_by_operation = {op: counts[op] for op in _OPERATION_WORDS if counts.get(op)}
    unchanged = counts.get("same", 0)
    yield paint("bold", "Resources:")
    for op, count in counts_by_operation.items():
        symbol, to_do, done = _OPERATION_WORDS[op]
        verb = f"to {to_do}" if preview else done
        yield paint(STYLES[symbol], f"    {symbol:<2}{count} {verb}")
    if len(counts_by_operation) > 1:
        rest = f". {unchanged} unchanged" if unchanged else ""
        yield f"    {counted(sum(counts_by_operation.values()), 'change')}{rest}"
    # A failed run without operations must not say "nothing to do".
    elif unchanged or not (counts_by_operation or errored):
        yield f"    {unchanged} unchanged" if unchanged else "    nothing to do"
    if errored:
        yield paint("error", f"    {errored} errored")


def format_planned_operations(counts: Mapping[PlanAction, int]) -> str:
    """Format the planned operations: `2 to create, 3 unchanged`; `nothing to do` without any."""
    by_name = {str(action): count for action, count in counts.items()}
    parts = [
        f"{by_name[op]:,} to {v}" for op, (_, v, _) in _OPERATION_WORDS.items() if op in by_name
    ]
    if unchanged := counts.get(PlanAction.SAME):
        parts.append(f"{unchanged:,} unchanged")
    return ", ".join(parts) or "nothing to do"


def format_done_operations(counts: Mapping[PlanAction, int]) -> str:
    """Format the finished operations: `2 created, 3 unchanged`; `nothing to do` without any."""
    by_name = {str(action): count for action, count in counts.items()}
    parts = [
        f"{by_name[op]:,} {done}" for op, (_, _, done) in _OPERATION_WORDS.items() if op in by_name
    ]
    if unchanged := counts.get(PlanAction.SAME):
        parts.append(f"{unchanged:,} unchanged")
    return ", ".join(parts) or "nothing to do"


def format_unchecked_warning(count: int, paint: Paint = PLAIN) -> str:
    """Format the warning about failed checks at the beginning of a plan; empty if all ran."""
    if not count:
        return ""
    checks = counted(count, "check")
    warning = f"The plan is not fully checked: {checks} could not run (see Not checked)."
    return paint("warning", warning)


def format_gpu_totals(plan: Plan, paint: Paint = PLAIN) -> str:
    """Format the numbers of added and removed GPUs; empty for a plan without either."""
    added = _format_gpu_total("+", (change.gpus_added for change in plan.changes))
    removed = _format_gpu_total("-", (change.gpus_removed for change in plan.changes))
    if removed and any(change.may_remove_fewer_gpus for change in plan.changes):
        removed = f"up to {removed}"
    parts = [paint("add", f"{added} to add")] if added else []
    parts += [paint("remove", f"{removed} to remove")] if removed else []
    return f"GPUs: {', '.join(parts)}" if parts else ""


def _format_gpu_total(sign: str, gpu_counts: Iterable[int | None]) -> str:
    """Format the sum of GPUs with the sign, and `or more` if a count is unknown.

    Empty for no GPUs; `an unknown number` for an unknown count without known GPUs.
    """
    numbers = list(gpu_counts)
    known_gpus = sum(number or 0 for number in numbers)
    # None stands for an unknown number.
    if None not in numbers:
        return f"{sign}{known_gpus}" if known_gpus else ""
    return f"{sign}{known_gpus} or more" if known_gpus else "an unknown number"


UNKNOWN = "unknown"


def format_stack_cost(cost: StackCost) -> str:
    """Format a stack's cost: `95.84 USD/h (69,963.20 USD/month) and what is unknown`.

    Without amounts: `unknown` if a cost is unknown, else `nothing`.
    """
    amounts = [
        f"{format_money(hourly, currency)}/h "
        f"({format_money(hourly * HOURS_PER_MONTH, currency)}/month)"
        for currency, hourly in cost.sum_hourly_costs().items()
    ]
    if not amounts:
        return UNKNOWN if cost.unknown else "nothing"
    return " and ".join([*amounts, *(["what is unknown"] if cost.unknown else [])])


def format_plan_cost(cost: PlanCost) -> str:
    """Format the cost before and after a plan as `BEFORE => AFTER`; equal costs only once."""
    before, after = format_stack_cost(cost.before), format_stack_cost(cost.after)
    return before if before == after else f"{before} => {after}"


def list_cost_details(cost: PlanCost) -> Iterator[str]:
    """Yield the cost by billing, unless all is on demand in one currency, and each unknown cost."""
    before, after = _group_by_billing(cost.before), _group_by_billing(cost.after)
    keys = [*dict.fromkeys([*before, *after])]
    # One amount on demand is the total, which has a line already.
    if len(keys) > 1 or any(billing is not Billing.ON_DEMAND for billing, _ in keys):
        for billing, currency in sorted(keys, key=lambda key: ([*Billing].index(key[0]), key[1])):
            old, new = before.get((billing, currency), 0.0), after.get((billing, currency), 0.0)
            change = "" if old == new else f" => {format_money(new, currency)}/h"
            yield f"{billing}: {format_money(old, currency)}/h{change}"
    # Most unknown costs are unknown before and after the plan.
    for unknown_cost in dict.fromkeys([*cost.before.unknown, *cost.after.unknown]):
        when = "" if unknown_cost in cost.after.unknown else "now, "
        yield f"unknown: {when}{unknown_cost}"


def render_plan_cost(plan: Plan, paint: Paint = PLAIN) -> Iterator[str]:
    """Yield the `Cost:` block of a plan; nothing if the plan has no cost."""
    if plan.cost is not None:
        yield paint("bold", "Cost: ") + escape_invisible(format_plan_cost(plan.cost))
        for detail in list_cost_details(plan.cost):
            style = "warning" if detail.startswith("unknown") else ""
            yield paint(style, f"    {escape_invisible(detail)}")


def format_cost_delta(change: ResourceChange) -> str:
    """Format the difference in hourly cost (`+47.84 USD/h`); empty if unknown or zero."""
    before, after = _sum_known_costs(change.before), _sum_known_costs(change.after)
    if before is None or after is None:
        return ""
    parts = []
    for currency in sorted({*before, *after}):
        # Differences of floats leave a remainder.
        more = round(after.get(currency, 0.0) - before.get(currency, 0.0), 6)
        if more:
            parts.append(f"{'+' if more > 0 else '-'}{format_money(abs(more), currency)}/h")
    return ", ".join(parts)


def _sum_known_costs(usage: ResourceUsage | None) -> Mapping[str, float] | None:
    """Sum the hourly costs by currency; None with an unknown cost."""
    sums: dict[str, float] = {}
    for expense in usage.expenses if usage else ():
        if expense.hourly is None:
            return None
        sums[expense.currency] = sums.get(expense.currency, 0.0) + expense.hourly
    return sums


def _group_by_billing(cost: StackCost) -> dict[tuple[Billing, str], float]:
    """Return the hourly amounts of a stack's cost by billing and currency."""
    return {(amount.billing, amount.currency): amount.hourly for amount in cost.amounts}


def format_money(amount: float, currency: str) -> str:
    """Format an amount with cents, or with four decimals below one cent."""
    # Small amounts of storage cost less than a cent an hour.
    decimals = 2 if amount == 0 or abs(amount) >= 0.01 else 4
    return f"{amount:,.{decimals}f} {currency}".rstrip()


def format_gate_verdict(gate: GateResult) -> str:
    """Return a verdict: `passed`, `stops the plan`, `allowed for this run` or `advice`."""
    if not gate.findings:
        return "passed"
    if gate.level is GateLevel.ADVISORY:
        return "advice"
    if gate.is_waived and gate.waiver is not None:
        return f"waived until {gate.waiver.until}"
    return "allowed for this run" if gate.allowed else "stops the plan"


def format_gate(gate: GateResult) -> str:
    """Format a gate in one line: name, verdict, findings, and the permission for a blocked plan."""
    findings = "; ".join(gate.findings)
    details = findings or gate.note
    line = f"{gate.name}: {format_gate_verdict(gate)}" + (f": {details}" if details else "")
    if gate.findings and gate.reason:
        line += f" ({gate.reason})"
    if gate.waiver is not None:
        line += f" [{describe_waiver(gate.waiver)}]"
    return f"{line} [--allow {gate.permission}]" if gate.is_blocking else line


def describe_waiver(waiver: Waiver) -> str:
    """Return who waived a gate, until when and why, also for an ended waiver."""
    state = "the waiver ended on" if waiver.is_over else "waived until"
    return f"{state} {waiver.until}, by {waiver.by}: {waiver.reason}"


def render_plan_gates(plan: Plan, paint: Paint = PLAIN) -> Iterator[str]:
    """Yield the `Gates:` block of a plan; nothing if no gates were evaluated."""
    if plan.gates is not None:
        yield from render_gates(plan.gates, paint, "Gates:", shows_empty=True)


def render_gates(
    gates: Sequence[GateResult], paint: Paint, title: str, *, shows_empty: bool = False
) -> Iterator[str]:
    """Yield a block with every finding of `gates`; nothing without gates, unless `shows_empty`."""
    if not (gates or shows_empty):
        return
    failed_gates = [gate for gate in gates if gate.findings]
    passed = len(gates) - len(failed_gates)
    yield paint("bold", title) + (f" {passed} of {len(gates)} passed")
    # A reader of any plan sees which gates would stop none at present.
    for gate in gates:
        waiver = "" if gate.waiver is None else describe_waiver(gate.waiver)
        if (waiver or gate.note) and not gate.findings:
            details = "; ".join(filter(None, (gate.note, waiver)))
            yield escape_invisible(f"    {gate.name} passed: {details}")
    for gate in failed_gates:
        style = "error" if gate.is_blocking else "warning"
        yield paint(style, escape_invisible(f"    {gate.name} {format_gate_verdict(gate)}"))
        for finding in gate.findings:
            yield f"        {escape_invisible(finding)}"
        if gate.reason:
            yield f"        why: {escape_invisible(gate.reason)}"
        if gate.waiver is not None:
            yield escape_invisible(f"        {describe_waiver(gate.waiver)}")
        if gate.is_blocking:
            yield escape_invisible(f"        to allow it: --allow {gate.permission}")


def format_notice(notice: Notice) -> str:
    """Return `NAME: TEXT` of a notice; only the text for a notice about the complete stack."""
    return f"{notice.name}: {notice.text}" if notice.name else notice.text


def render_notices(notices: Iterable[Notice], paint: Paint = PLAIN) -> Iterator[str]:
    """Yield the `Notes:` block with a line for each notice; nothing without notices."""
    texts = [escape_invisible(format_notice(notice)) for notice in notices]
    if texts:
        yield paint("warning", "Notes:")
        yield from (f"    {line}" for line in texts)


_MAX_NODES_LISTED: Final = 5

_REMOVAL_REASONS: Final = {
    "named": "named by drain",
    "failed": "failed",
    "cordoned": "takes no new jobs",
    "idle": "idle",
    "newest": "the newest",
    "deleted": "deleted",
    "replaced": "deleted and recreated",
    "stopped": "stopped",
    "moved": "moved to another fabric",
    "repaired": "repaired",
    RESIZED: "stays with fewer GPUs",
    UNCHOSEN: "the platform chooses",
}

_SHARED_REASONS: Final = ("deleted", "replaced", "stopped", "moved", "repaired")
"""Reasons that apply to many nodes at once: their idle nodes share one line."""


def render_removed_nodes(removed_nodes: RemovedNodes | None) -> Iterator[str]:
    """Yield a line for each removed node (`removes node train-worker-1: idle`); none for None.

    Nodes without jobs, or with unknown ones, share one line for each reason in `_SHARED_REASONS`;
    nodes without a name share another one. The last line says what happens to running jobs. The
    lines are not escaped.
    """
    if removed_nodes is None:
        return
    named_nodes = [node for node in removed_nodes.nodes if node.name]
    shared_reasons = _SHARED_REASONS if removed_nodes.has_known_jobs else (*_REMOVAL_REASONS,)
    idle_by_reason = {
        reason: [node for node in named_nodes if node.because == reason and not node.jobs]
        for reason in shared_reasons
    }
    for node in named_nodes:
        if not any(node in nodes for nodes in idle_by_reason.values()):
            reason = _REMOVAL_REASONS.get(node.because, node.because)
            yield f"removes node {node.name}: {reason}{_describe_jobs(node)}"
    for reason, nodes in idle_by_reason.items():
        if nodes:
            yield _format_idle_nodes(_REMOVAL_REASONS[reason], nodes, removed_nodes.scheduler)
    unnamed_nodes = [node for node in removed_nodes.nodes if not node.name]
    if unnamed_nodes:
        reason = _REMOVAL_REASONS.get(unnamed_nodes[0].because, unnamed_nodes[0].because)
        yield f"removes {counted(len(unnamed_nodes), 'node')} without a known name: {reason}"
    if removed_nodes.busy:
        yield _describe_busy_policy(removed_nodes)


def render_removals(change: ResourceChange) -> Iterator[str]:
    """Yield the lines of `render_removed_nodes` for the nodes that a change removes.

    None for an object that is removed as a whole while the jobs on its nodes are unknown: the lines
    would say nothing new.
    """
    is_whole = change.action in (PlanAction.DELETE, PlanAction.REPLACE)
    if change.leaving is not None and (change.leaving.has_known_jobs or not is_whole):
        yield from render_removed_nodes(change.leaving)


def _format_idle_nodes(because: str, nodes: Sequence[RemovedNode], scheduler: str) -> str:
    """Format one line for idle nodes: `removes nodes a, b: stopped; no job runs there (slurm)`.

    At most `_MAX_NODES_LISTED` nodes are named; the others are counted. Without a `scheduler` the
    jobs are unknown.
    """
    names = ", ".join(node.name for node in nodes[:_MAX_NODES_LISTED])
    names += f" and {len(nodes) - _MAX_NODES_LISTED} more" if len(nodes) > _MAX_NODES_LISTED else ""
    subject = f"removes node {names}" if len(nodes) == 1 else f"removes nodes {names}"
    jobs = f"no job runs there ({scheduler})" if scheduler else "jobs there are unknown"
    return f"{subject}: {because}; {jobs}"


def _describe_jobs(node: RemovedNode) -> str:
    """List the first jobs on a removed node, and count the others; empty without jobs."""
    jobs = [str(job) for job in node.jobs[:_MAX_NODES_LISTED]]
    if len(node.jobs) > _MAX_NODES_LISTED:
        jobs.append(f"{counted(len(node.jobs) - _MAX_NODES_LISTED, 'other job')}")
    return f"; runs {', '.join(jobs)}" if jobs else ""


def _describe_busy_policy(removed_nodes: RemovedNodes) -> str:
    """Describe the effect on the jobs of removed nodes: fail, evict or wait."""
    if removed_nodes.on_busy == "fail":
        return (
            f"jobs run there now ({removed_nodes.scheduler}): the run fails unless they end first"
        )
    limit = counted(removed_nodes.wait_minutes, "minute")
    if removed_nodes.on_busy == "evict":
        return (
            f"jobs run there now ({removed_nodes.scheduler}): gpuform evicts them, within {limit}"
        )
    return (
        f"jobs run there now ({removed_nodes.scheduler}): gpuform waits for them, at most {limit}"
    )


_MAX_JOBS_LISTED = 3


def format_repairs(plan: Plan) -> Iterator[str]:
    """Yield one line for each node to be repaired, and for each repair to be ended by the plan.

    The lines are not escaped.
    """
    for change in plan.changes:
        for repair in change.repairs:
            evidence = f"{repair.evidence}{_format_evidence_age(repair, plan.made_at)}"
            if repair.is_withdrawal:
                verb = "rejects" if repair.mode == REJECT else "cancels"
                yield f"{change.name}/{repair.node}: {verb} {repair.proposed}: {evidence}"
                continue
            jobs = _describe_node_jobs(change, repair)
            yield f"{change.name}/{repair.node} by {repair.mode}: {evidence}; {jobs}"


def render_repairs(plans: Iterable[Plan], paint: Paint = PLAIN) -> Iterator[str]:
    """Yield the `Repairs:` block with a line for each node; nothing without repairs."""
    texts = [escape_invisible(line) for plan in plans for line in format_repairs(plan)]
    if texts:
        yield paint("bold", f"Repairs: {counted(len(texts), 'node')}")
        yield from (f"    {line}" for line in texts)


def _format_evidence_age(repair: NodeRepair, made_at: str) -> str:
    """Format the age of a repair's evidence at the time of the plan.

    Empty without both times, and for less than a second.
    """
    try:
        since, made = (datetime.fromisoformat(moment) for moment in (repair.since, made_at))
        age = (made - since).total_seconds()
    # A text is no time, or only one of the times has a zone.
    except (TypeError, ValueError):
        return ""
    return f" ({format_duration(age)} before the plan)" if age >= 1 else ""


def _describe_node_jobs(change: ResourceChange, repair: NodeRepair) -> str:
    """Describe the jobs on a node under repair, or say "unknown"."""
    has_known_jobs = change.leaving is not None and change.leaving.has_known_jobs
    nodes = change.leaving.nodes if change.leaving is not None and has_known_jobs else ()
    node = next((candidate for candidate in nodes if candidate.name == repair.node), None)
    return "its jobs are unknown" if node is None else _describe_running_jobs(node)


def _describe_running_jobs(node: RemovedNode) -> str:
    """Describe the jobs on a node, naming at most `_MAX_JOBS_LISTED`."""
    if not node.jobs:
        return "no job runs there"
    more = len(node.jobs) - _MAX_JOBS_LISTED
    named = [str(job) for job in node.jobs[:_MAX_JOBS_LISTED]] + (
        [f"{more} more"] if more > 0 else []
    )
    return f"runs {', '.join(named)}"

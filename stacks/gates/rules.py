"""Evaluate the rules of gates over a plan: cost, exposure, names, lifetimes.

An unknown value counts against the rule that asks for it: a gate that cannot decide blocks. Called
by `evaluating`.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from gpuform.schemas.plan import Plan, PlanAction, ResourceChange
from gpuform.schemas.rehearsal import HazardOutcome, Rehearsal
from gpuform.schemas.resource_facts import Billing, Expense, Exposure, ResourceUsage
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.review.value_text import counted

_Amounts = Mapping[tuple[str, ...], float]


def find_excess_cost(
    plan: Plan, changes: Sequence[ResourceChange], most: Mapping[str, Any]
) -> Iterator[str]:
    """Yield a finding if the plan raises the cost above `most`, or by an unknown amount.

    The complete plan counts, not only `changes`. A plan that only removes or stops capacity passes.
    A plan without costs has one finding.
    """
    del changes
    others = [change for change in plan.changes if not is_only_lowering(change)]
    # A plan that only lowers the cost passes, even above the limit.
    if len(others) < len(plan.changes) and all(map(_is_cost_unchanged, others)):
        return
    if plan.cost is None:
        yield "the plan has no cost: prices.yaml does not exist, or it is a preview's JSON"
        return
    currency, limit = most["currency"], most["amount"]
    costs_before, costs_after = (
        plan.cost.before.sum_hourly_costs(),
        plan.cost.after.sum_hourly_costs(),
    )
    for unpriced in list_unpriced_growth(plan):
        yield f"the cost is unknown: {unpriced}"
    for other in costs_after:
        if other != currency and costs_after[other] > costs_before.get(other, 0):
            yield f"{costs_after[other]:,.2f} {other}/h cannot be compared with {currency}"
    cost = costs_after.get(currency, 0)
    if cost > limit and cost > costs_before.get(currency, 0):
        yield f"the plan costs {cost:,.2f} {currency}/h: the limit is {limit:,.2f}"


def find_steep_growth(plan: Plan, changes: Sequence[ResourceChange], most: str) -> Iterator[str]:
    """Yield a finding if the plan raises the cost by more than `most`, such as `10%`.

    The complete plan counts, not only `changes`. A plan of a stack without costs before passes, and
    so does one that does not raise the cost. An unknown price of added capacity is a finding.
    """
    del changes
    if plan.cost is None:
        if not all(map(_is_cost_unchanged, plan.changes)):
            yield "the plan has no cost: prices.yaml does not exist, or it is a preview's JSON"
        return
    costs_before = plan.cost.before.sum_hourly_costs()
    costs_after = plan.cost.after.sum_hourly_costs()
    if not any(costs_before.values()) and not plan.cost.before.unknown:
        return
    for unpriced in list_unpriced_growth(plan):
        yield f"the cost is unknown: {unpriced}"
    for currency, after in costs_after.items():
        before = costs_before.get(currency, 0.0)
        limit = before * (1 + float(most.removesuffix("%")) / 100)
        if after <= before or after <= limit:
            continue
        growth = f"by {(after / before - 1) * 100:,.1f} %, " if before else ""
        yield (
            f"the plan raises the cost {growth}from {before:,.2f} to {after:,.2f} {currency}/h: "
            f"the limit is {most}"
        )


def list_unpriced_growth(plan: Plan) -> list[str]:
    """Return the expenses of unknown price that the plan may add.

    An expense that was unknown before the plan as well counts only if the known cost grows.
    """
    if plan.cost is None:
        return []
    before, after = plan.cost.before, plan.cost.after
    costs_before, costs_after = before.sum_hourly_costs(), after.sum_hourly_costs()
    is_more = any(costs_after[currency] > costs_before.get(currency, 0) for currency in costs_after)
    lowered = tuple(f"{change.name}: " for change in plan.changes if is_only_lowering(change))
    return [
        item
        for item in after.unknown
        # What was unknown before counts only if the known cost grows.
        if not item.startswith(lowered) and (is_more or item not in before.unknown)
    ]


def is_only_lowering(change: ResourceChange) -> bool:
    """Return True if the change only removes or stops paid capacity."""
    if change.action is PlanAction.DELETE:
        return True
    if not change.action.is_change or change.before is None or change.after is None:
        return False
    # Another billing may cost more per GPU.
    if _list_billings(change.after) - _list_billings(change.before):
        return False
    total = (_sum_amounts(change.before), _sum_amounts(change.after))
    running = (_sum_amounts(change.before, running=True), _sum_amounts(change.after, running=True))
    if any(_has_increase(*amounts) for amounts in (total, running)):
        return False
    return any(_has_increase(after, before) for before, after in (total, running))


def _is_cost_unchanged(change: ResourceChange) -> bool:
    """Return True for an action without cost, or equal known expenses before and after."""
    if not change.action.is_change:
        return True
    before, after = change.before, change.after
    return before is not None and after is not None and before.expenses == after.expenses


def _has_increase(before: _Amounts, after: _Amounts) -> bool:
    """Return True if any amount is larger after than before; a missing amount before is 0."""
    return any(amount > before.get(key, 0) for key, amount in after.items())


def _sum_amounts(usage: ResourceUsage, *, running: bool = False) -> _Amounts:
    """Sum the amounts by category; with `running` without stopped GPUs. Unknown is infinite.

    Amounts that autoscaling decides are unknown: they have keys of their own.
    """
    sums: dict[tuple[str, ...], float] = defaultdict(float)
    for expense in usage.expenses:
        if not (running and expense.billing is Billing.STOPPED):
            is_known = expense.amount is not None
            category = "storage" if expense.what == "storage" else "gpus"
            key = (
                category,
                expense.unit,
                expense.platform,
                expense.gpu_type,
                expense.region,
                str(is_known),
            )
            # No known amount is as large as an unknown one may be.
            sums[key] += expense.amount if expense.amount is not None else float("inf")
    return sums


def _list_billings(usage: ResourceUsage) -> set[Billing]:
    """Return the billings of all running GPUs."""
    return {expense.billing for expense in usage.expenses if _is_paid(expense)} - {Billing.STOPPED}


def _is_paid(expense: Expense) -> bool:
    """Return True for an expense for GPUs with an amount other than 0, or unknown."""
    return expense.what != "storage" and expense.amount != 0


DESTROYING: Final = (PlanAction.REPLACE, PlanAction.DELETE)
_DECLARING: Final = (PlanAction.CREATE, PlanAction.UPDATE, PlanAction.REPLACE, PlanAction.IMPORT)
_REMOVING: Final = (PlanAction.UPDATE, *DESTROYING)
_PAST_PARTICIPLES: Final = {PlanAction.REPLACE: "replaced", PlanAction.DELETE: "deleted"}

Rule = Callable[[Plan, Sequence[ResourceChange], Any], Iterator[str]]
"""A rule gets the plan, the changes that the gate is about, and the gate's value."""


def is_matching_resource(change: ResourceChange, patterns: Sequence[str]) -> bool:
    """Return True if a pattern matches the name or the URN of the resource.

    In a plan of several stacks the name includes the stack's: the bare name matches, too.
    """
    return has_match((change.name, change.urn, name_of(change.urn)), patterns)


def has_match(texts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Return True if one of the texts matches one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in texts)


def find_excess_gpu_removals(
    plan: Plan, changes: Sequence[ResourceChange], most: int
) -> Iterator[str]:
    """Yield a finding if more than `most` GPUs are removed, and one for each unknown number."""
    del plan
    losing = [
        change for change in changes if change.action in _REMOVING and change.gpus_removed != 0
    ]
    known_gpus = sum(change.gpus_removed or 0 for change in losing)
    names = ", ".join(change.name for change in losing)
    maximum = "up to " if any(change.may_remove_fewer_gpus for change in losing) else ""
    if known_gpus > most:
        total = f"{maximum}{counted(known_gpus, 'GPU')}"
        yield f"the plan removes {total} ({names}): the limit is {most}"
    for change in losing:
        if change.gpus_removed is None:
            yield f"{change.name}: the number of removed GPUs is unknown, and the limit is {most}"


def find_replacements(
    plan: Plan, changes: Sequence[ResourceChange], states: Sequence[str]
) -> Iterator[str]:
    """Yield a finding for each replacement of a resource in one of `states` (running, reserved)."""
    del plan
    for change in changes:
        before = change.before
        if change.action is PlanAction.REPLACE and before is not None:
            is_in_state = {"running": before.running, "reserved": before.reserved}
            for state in states:
                if is_in_state[state]:
                    yield f"{change.name} is {state}, and would be replaced"


def find_forbidden_regions(
    plan: Plan, changes: Sequence[ResourceChange], allowed: Sequence[str]
) -> Iterator[str]:
    """Yield a finding for each resource in an unknown region or one outside of `allowed`.

    Resources without a region pass, and so do unchanged resources.
    """
    del plan
    for name, after in _list_declared(changes):
        if "region" in after.unknown:
            yield _format_unknown(name, "region")
        elif after.region and after.region not in allowed:
            yield f"{name} would be in {after.region}: allowed are {', '.join(allowed)}"


def find_forbidden_gpu_types(
    plan: Plan, changes: Sequence[ResourceChange], allowed: Sequence[str]
) -> Iterator[str]:
    """Yield a finding for each changed resource whose GPU type is unknown or not in `allowed`."""
    del plan
    for name, after in _list_declared(changes):
        if "gpu_types" in after.unknown:
            yield _format_unknown(name, "type of GPU")
        for type_ in after.gpu_types:
            if type_ not in allowed:
                yield f"{name} would have the GPU type {type_}: allowed are {', '.join(allowed)}"


def find_missing_tags(
    plan: Plan, changes: Sequence[ResourceChange], tags: Sequence[str]
) -> Iterator[str]:
    """Yield a finding for each resource without the required tags, or with unknown tags.

    Kinds without tags on their platform pass, and so do unchanged resources.
    """
    del plan
    for name, after in _list_declared(changes):
        # None: the platform has no tags for this kind.
        if after.tags is None:
            continue
        if "tags" in after.unknown:
            yield _format_unknown(name, "tags")
            continue
        missing = [tag for tag in tags if tag not in after.tags]
        if missing:
            yield f"{name} has no tag {', '.join(missing)}"


def find_protected_deletions(
    plan: Plan, changes: Sequence[ResourceChange], patterns: Sequence[str]
) -> Iterator[str]:
    """Yield a finding for each replaced or deleted resource with a matching name or URN."""
    del plan
    for change in changes:
        if change.action in DESTROYING and is_matching_resource(change, patterns):
            yield f"{change.name} would be {_PAST_PARTICIPLES[change.action]}, and is protected"


def find_missing_expiry(
    plan: Plan, changes: Sequence[ResourceChange], _true: bool
) -> Iterator[str]:
    """Yield a finding for each resource without an end, or with an unknown end.

    Kinds that cannot end by themselves pass, and so do unchanged resources.
    """
    del plan
    for name, after in _list_declared(changes):
        if after.expires is True:
            continue
        if "expires" in after.unknown:
            yield _format_unknown(name, "end")
        elif after.expires is False:
            yield f"{name} never expires"


def find_excess_repairs(plan: Plan, changes: Sequence[ResourceChange], most: int) -> Iterator[str]:
    """Yield a finding if more than `most` nodes are repaired."""
    del plan
    names = [
        repair.node for change in changes for repair in change.repairs if not repair.is_withdrawal
    ]
    if len(names) > most:
        summary = f"{counted(len(names), 'node')} would be repaired ({', '.join(names)})"
        yield f"{summary}: the limit is {most}"


def find_rehearsed_losses(
    plan: Plan, changes: Sequence[ResourceChange], limits: Mapping[str, Any]
) -> Iterator[str]:
    """Yield a finding for each limit exceeded by a rehearsed hazard, with the worst hazard.

    Yield one if the plan was not rehearsed, the emulator plans something else, or the run fails
    without any hazard. Only plans of an update with changes count.
    """
    del changes
    if plan.operation != "update" or not plan.has_changes:
        return
    if plan.rehearsal is None:
        yield f"the plan was not rehearsed: {_describe_rehearsing(plan)}"
        return
    yield from _find_unrehearsed_changes(plan, plan.rehearsal)
    for difference in plan.rehearsal.differences:
        yield f"the rehearsal says nothing about this plan: {difference}"
    usual = plan.rehearsal.undisturbed
    if usual.has_failed:
        yield f"the rehearsed run fails even if nothing goes wrong: {'; '.join(usual.errors)}"
    share = ""
    if plan.rehearsal.played_changes is not None:
        all_changes = counted(plan.rehearsal.changes, "change")
        share = f" (played: {plan.rehearsal.played_changes} of {all_changes})"
    for name, (measure, unit) in _REHEARSAL_LIMITS.items():
        limit = limits.get(name)
        if limit is None:
            continue
        worst = max(plan.rehearsal.outcomes, key=measure)
        if measure(worst) > limit:
            loss = f"{measure(worst):,.4g} {unit}"
            yield f"{worst.hazard.description}: {loss}: the limit is {limit:g}{share}"


def _find_unrehearsed_changes(plan: Plan, rehearsal: Rehearsal) -> Iterator[str]:
    """Yield a finding if the rehearsal is one of another stack, or lacks changes of the plan.

    A run may do less than its saved plan, such as update what the plan creates.
    """
    rehearsed, planned = (f"{item.project}/{item.stack}" for item in (rehearsal, plan))
    if rehearsed != planned:
        remedy = _describe_rehearsing(plan)
        yield f"the rehearsal is one of stack {rehearsed}, not of {planned}: {remedy}"
        return
    changes = [change for change in plan.changes if change.action.is_change]
    missing = [
        change
        for change in changes
        if (action := rehearsal.actions.get(change.urn)) is None
        or (change.action in _DELETING and action not in _DELETING)
    ]
    if missing:
        names = ", ".join(f"{change.action} {change.name}" for change in missing[:_MOST_NAMES])
        more = f" and {len(missing) - _MOST_NAMES} more" if len(missing) > _MOST_NAMES else ""
        yield (
            f"the rehearsal is one of another plan, without {len(missing)} of the "
            f"{counted(len(changes), 'change')} of this plan ({names}{more}): "
            f"{_describe_rehearsing(plan)}"
        )


def _describe_rehearsing(plan: Plan) -> str:
    """Return in words how a plan is rehearsed and applied."""
    # A plan without a project is that of several stacks.
    command = "" if plan.project else " --all"
    return (
        f"save it with `gpuform preview{command} --save-plan FILE --rehearse`, and apply it with "
        f"`gpuform up{command} --plan FILE`"
    )


_DELETING: Final = (PlanAction.DELETE, PlanAction.REPLACE)
_MOST_NAMES: Final = 3


def describe_rehearsal(plan: Plan) -> str:
    """Return how much of the plan was played, under how many hazards; empty without a rehearsal."""
    if plan.rehearsal is None:
        return ""
    played = plan.rehearsal.played_changes
    all_changes = counted(plan.rehearsal.changes, "change")
    share = all_changes if played is None else f"{played} of {all_changes}"
    hazards = counted(len(plan.rehearsal.outcomes) - 1, "hazard")
    return f"{share} played under {hazards}"


_REHEARSAL_LIMITS: Final[Mapping[str, tuple[Callable[[HazardOutcome], float], str]]] = {
    "max_lost_gpus": (lambda outcome: outcome.lost_gpus, "lost GPUs"),
    "max_gpu_hours_without_work": (
        lambda outcome: outcome.gpu_hours_without_work,
        "GPU-hours without work",
    ),
    "jobs_ended": (lambda outcome: len(outcome.jobs_ended), "ended jobs"),
}
"""Measure and unit of each limit of the rule `rehearsal`."""


COST_RULES: Final = ("max_hourly_cost", "max_cost_increase")
OVER_PLANS: Final[Mapping[str, Rule]] = {
    "max_destroyed_gpus": find_excess_gpu_removals,
    "not_replaced": find_replacements,
    "allowed_regions": find_forbidden_regions,
    "allowed_gpu_types": find_forbidden_gpu_types,
    "max_hourly_cost": find_excess_cost,
    "max_cost_increase": find_steep_growth,
    "required_tags": find_missing_tags,
    "protected": find_protected_deletions,
    "expiry_required": find_missing_expiry,
    "max_repaired_nodes": find_excess_repairs,
    "rehearsal": find_rehearsed_losses,
}
"""The rules that need nothing but the plan, by their names in gates.yaml."""


def _list_declared(changes: Sequence[ResourceChange]) -> Iterator[tuple[str, ResourceUsage]]:
    """Yield the name and the planned usage of each declared resource."""
    for change in changes:
        if change.action in _DECLARING and change.after is not None:
            yield change.name, change.after


def _format_unknown(name: str, property_label: str) -> str:
    """Format the finding about the property `what` of a resource, known only after apply."""
    return f"{name}: {property_label}: known only after apply"


def find_open_ports(
    exposures: Sequence[Exposure] | None, value: Mapping[str, Any] | None, patterns: Sequence[str]
) -> Iterator[str]:
    """Yield a finding for each resource with open ports outside of `value`, or with unknown ports.

    Without `exposures`, which only planning finds, the one finding says so.
    """
    if exposures is None:
        yield "open ports are checked only in a plan of `gpuform preview`"
    allowed = {int(port) for port in (value or {}).get("allowed") or ()}
    for exposure in exposures or ():
        if patterns and not has_match((exposure.name, exposure.urn), patterns):
            continue
        ports = [port for port in exposure.ports if not _is_allowed(port, allowed)]
        if ports:
            number = counted(len(ports), "port")
            yield f"{exposure.name} has {number} open to the internet: {', '.join(ports)}"
        if exposure.unknown:
            yield f"{exposure.name}: its open ports are unknown: {exposure.unknown}"


def _is_allowed(port: str, allowed: Collection[int]) -> bool:
    """Return True if every port of a range (`22/tcp`, `8000-8010/tcp`) is allowed."""
    first, _, last = port.partition("/")[0].partition("-")
    try:
        low, high = int(first), int(last or first)
    except ValueError:
        return False
    return low <= high and set(range(low, high + 1)) <= {*allowed}

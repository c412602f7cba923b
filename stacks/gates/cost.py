"""The gate on cost, and what it never stops: a plan that only lowers what is paid for."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpuform.schemas.footprint import Billing, Expense, Footprint
from gpuform.schemas.plan import Plan, PlanAction, ResourceChange

_IDLE: Final = (PlanAction.SAME, PlanAction.READ, PlanAction.REFRESH)

_Amounts = Mapping[tuple[str, ...], float]


def max_hourly_cost(
    plan: Plan, changes: Sequence[ResourceChange], most: Mapping[str, Any]
) -> Iterator[str]:
    """What an hour costs too much. A price that is not known is only against what grows."""
    del changes
    others = [each for each in plan.changes if not only_lowers(each)]
    if len(others) < len(plan.changes) and all(map(_changes_no_cost, others)):
        return
    if plan.cost is None:
        yield "the plan does not tell the cost: there is no prices.yaml, or it is a preview's JSON"
        return
    currency, limit = most["currency"], most["amount"]
    now, then = plan.cost.before.hourly(), plan.cost.after.hourly()
    for text in unpriced_growth(plan):
        yield f"the cost is not known: {text}"
    for other in then:
        if other != currency and then[other] > now.get(other, 0):
            yield f"{then[other]:,.2f} {other}/h cannot be compared with {currency}"
    cost = then.get(currency, 0)
    if cost > limit and cost > now.get(currency, 0):
        yield f"an hour would cost {cost:,.2f} {currency}: at most {limit:,.2f} may"


def unpriced_growth(plan: Plan) -> list[str]:
    """What has no known price in a plan that makes something grow; nothing where nothing does."""
    if plan.cost is None:
        return []
    before, after = plan.cost.before, plan.cost.after
    now, then = before.hourly(), after.hourly()
    is_more = any(then[each] > now.get(each, 0) for each in then)
    lowered = tuple(f"{each.name}: " for each in plan.changes if only_lowers(each))
    return [
        text
        for text in after.unknown
        if not text.startswith(lowered) and (is_more or text not in before.unknown)
    ]


def only_lowers(change: ResourceChange) -> bool:
    """Whether a change takes away or stops what is paid for, and adds nothing to it."""
    if change.action is PlanAction.DELETE:
        return True
    if change.action in _IDLE or change.before is None or change.after is None:
        return False
    if _ways(change.after) - _ways(change.before):
        return False
    kept = (_held(change.before), _held(change.after))
    running = (_held(change.before, running=True), _held(change.after, running=True))
    if any(_rises(*each) for each in (kept, running)):
        return False
    return any(_rises(after, before) for before, after in (kept, running))


def _changes_no_cost(change: ResourceChange) -> bool:
    if change.action in _IDLE:
        return True
    before, after = change.before, change.after
    return before is not None and after is not None and before.expenses == after.expenses


def _rises(before: _Amounts, after: _Amounts) -> bool:
    return any(amount > before.get(what, 0) for what, amount in after.items())


def _held(footprint: Footprint, *, running: bool = False) -> _Amounts:
    """How much it has of what, stopped GPUs only without `running`; an unknown amount is endless.

    Of what scaling decides nobody knows the amount: that is told apart from what is declared.
    """
    sums: dict[tuple[str, ...], float] = defaultdict(float)
    for each in footprint.expenses:
        if not (running and each.billing is Billing.STOPPED):
            is_known = each.amount is not None
            what = "storage" if each.what == "storage" else "gpus"
            key = (what, each.unit, each.platform, each.gpu_type, each.region, str(is_known))
            sums[key] += each.amount if each.amount is not None else float("inf")
    return sums


def _ways(footprint: Footprint) -> set[Billing]:
    """The ways in which something is paid for that runs."""
    return {each.billing for each in footprint.expenses if _is_paid(each)} - {Billing.STOPPED}


def _is_paid(expense: Expense) -> bool:
    return expense.what != "storage" and expense.amount != 0

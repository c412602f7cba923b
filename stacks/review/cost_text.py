"""What a stack costs, in words that every view prints. What is unknown is said, never summed."""

from collections.abc import Iterator, Mapping

from gpuform.schemas.footprint import Billing, Footprint
from gpuform.schemas.plan import Plan, PlanCost, ResourceChange, StackCost
from gpuform.schemas.prices import HOURS_OF_A_MONTH
from gpuform.schemas.visible import visible
from gpuform.stacks.review.paint import PLAIN, Paint

UNKNOWN = "unknown"


def cost_text(cost: StackCost) -> str:
    """`95.84 USD/h (69,963.20 USD/month) and what is unknown`."""
    texts = [
        f"{money(hourly, currency)}/h ({money(hourly * HOURS_OF_A_MONTH, currency)}/month)"
        for currency, hourly in cost.hourly().items()
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
        yield paint("bold", "Cost: ") + visible(plan_cost_text(plan.cost))
        for text in cost_facts(plan.cost):
            style = "warning" if text.startswith("unknown") else ""
            yield paint(style, f"    {visible(text)}")


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


def _known(footprint: Footprint | None) -> Mapping[str, float] | None:
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

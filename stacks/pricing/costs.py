"""Price resource usage and sum the costs of a stack. Unknown costs are listed, never summed.

Planning, `gpuform status` and the reviews call these functions.
"""

from collections.abc import Iterable, Mapping

from gpuform.schemas.plan import Amount, StackCost
from gpuform.schemas.resource_facts import Billing, ResourceUsage
from gpuform.stacks.pricing.price_book import PriceBook


def price_usage(usage: ResourceUsage | None, book: PriceBook) -> ResourceUsage | None:
    """Return the usage with the cost of each expense, as far as prices are known."""
    if usage is None:
        return None
    expenses = tuple(book.price_expense(expense) for expense in usage.expenses)
    return usage.model_copy(update={"expenses": expenses})


def sum_costs(usages: Iterable[tuple[str, ResourceUsage | None]]) -> StackCost:
    """Sum pairs of resource name and priced usage, by billing and currency.

    A usage of None, or an expense without a cost, is in the result's `unknown`. A cost of zero is
    left out.
    """
    sums: dict[tuple[Billing, str], float] = {}
    unknown = []
    for name, usage in usages:
        if usage is None:
            unknown.append(f"{name}: its resource usage is unknown")
            continue
        for expense in usage.expenses:
            if expense.hourly is None:
                unknown.append(f"{name}: {expense}: {expense.because}")
            # A cost of zero would list its currency without need.
            elif expense.hourly:
                key = expense.billing, expense.currency
                sums[key] = round(sums.get(key, 0.0) + expense.hourly, 6)
    return StackCost(amounts=_build_amounts(sums), unknown=tuple(unknown))


def _build_amounts(sums: Mapping[tuple[Billing, str], float]) -> tuple[Amount, ...]:
    """Build the amounts from the sums, sorted by billing and currency."""
    order = [*Billing]
    keys = sorted(sums, key=lambda key: (order.index(key[0]), key[1]))
    return tuple(
        Amount(billing=billing, currency=currency, hourly=sums[billing, currency])
        for billing, currency in keys
    )

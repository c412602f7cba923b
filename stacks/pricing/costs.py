"""Footprints with their costs, and the sums of a stack. Unknown costs are never summed."""

from collections.abc import Iterable, Mapping

from gpuform.schemas.plan import Amount, StackCost
from gpuform.schemas.resource_facts import Billing, ResourceUsage
from gpuform.stacks.pricing.book import PriceBook


def priced(footprint: ResourceUsage | None, book: PriceBook) -> ResourceUsage | None:
    """The footprint with what each of its expenses costs, as far as that is known."""
    if footprint is None:
        return None
    expenses = tuple(book.priced(each) for each in footprint.expenses)
    return footprint.model_copy(update={"expenses": expenses})


def cost_of(footprints: Iterable[tuple[str, ResourceUsage | None]]) -> StackCost:
    """The sum of priced footprints by resource name; None is a resource nobody can price."""
    sums: dict[tuple[Billing, str], float] = {}
    unknown = []
    for name, footprint in footprints:
        if footprint is None:
            unknown.append(f"{name}: gpuform does not know what it takes up")
            continue
        for each in footprint.expenses:
            if each.hourly is None:
                unknown.append(f"{name}: {each}: {each.because}")
            elif each.hourly:
                key = each.billing, each.currency
                sums[key] = round(sums.get(key, 0.0) + each.hourly, 6)
    return StackCost(amounts=_amounts(sums), unknown=tuple(unknown))


def _amounts(sums: Mapping[tuple[Billing, str], float]) -> tuple[Amount, ...]:
    order = [*Billing]
    keys = sorted(sums, key=lambda key: (order.index(key[0]), key[1]))
    return tuple(
        Amount(billing=billing, currency=currency, hourly=sums[billing, currency])
        for billing, currency in keys
    )

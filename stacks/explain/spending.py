"""Estimate what objects have cost, from the copies of the state and the present prices.

A copy of the state says how much an object used from one run to the next.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from gpuform.schemas.explanation import ExplainedCost, LifeEvent
from gpuform.stacks.explain.evidence import States
from gpuform.stacks.explain.recorded_runs import ObjectKey, StoredObject
from gpuform.stacks.pricing.costs import price_usage, sum_costs
from gpuform.stacks.pricing.price_book import PriceBook
from gpuform.stacks.pricing.usage import compute_current_usage

_HOUR_S = 3600.0


def compute_costs(
    states: States,
    events: Sequence[LifeEvent],
    keys: Collection[ObjectKey],
    book: PriceBook,
    *,
    share_of: Collection[str] | None = None,
) -> tuple[list[ExplainedCost], list[str]]:
    """Return the cost of objects by currency, and why the cost of some part is unknown.

    Args:
        states: the objects at moments in Unix seconds, the oldest first; the last moment is now.
        events: all events of the stack.
        keys: the objects in question.
        book: the present prices.
        share_of: names of nodes; the cost of an object is shared equally by its nodes. None for the
            complete objects.
    """
    totals: dict[str, list[float]] = {}
    present: dict[str, float] = {}
    unknown: dict[str, None] = {}
    ends = {
        (event.urn, event.id): _to_moment(event.time)
        for event in events
        if event.action in ("deleted", "missing", "forgotten") and event.time
    }
    now = states[-1][0]
    for key in sorted(keys):
        previous_moment: float | None = None
        for index, (moment, objects) in enumerate(states):
            stored = objects.get(key)
            if stored is None or not stored.entry.custom or stored.entry.external:
                continue
            begin = moment
            if previous_moment is None:
                begin = min(moment, _to_moment(stored.entry.created) or moment)
            next_moment = states[index + 1][0] if index + 1 < len(states) else now
            if index + 1 < len(states) and key not in states[index + 1][1]:
                next_moment = ends.get(key) or next_moment
            previous_moment = moment
            hours = max(0.0, next_moment - begin) / _HOUR_S
            hourly, problems = _price_object(stored, key, book, share_of)
            unknown.update(dict.fromkeys(problems))
            for currency, amount in hourly.items():
                total = totals.setdefault(currency, [0.0, 0.0])
                total[0] += amount * hours
                total[1] += hours
                if index == len(states) - 1:
                    present[currency] = present.get(currency, 0.0) + amount
    costs = [
        ExplainedCost(
            currency=currency,
            hourly=round(present.get(currency, 0.0), 6),
            total=round(amount, 2),
            hours=round(hours, 2),
        )
        for currency, (amount, hours) in sorted(totals.items())
    ]
    return costs, list(unknown)


def _price_object(
    stored: StoredObject, key: ObjectKey, book: PriceBook, share_of: Collection[str] | None
) -> tuple[dict[str, float], list[str]]:
    """Return the cost of an hour by currency, of some nodes only if asked, and what is unknown."""
    usage = price_usage(compute_current_usage(stored.entry), book)
    if usage is None or not usage.expenses:
        return {}, []
    cost = sum_costs([(key[0].rpartition("::")[2], usage)])
    share = 1.0
    if share_of is not None:
        own_nodes = sum(node.name in share_of for node in stored.nodes)
        share = own_nodes / len(stored.nodes) if stored.nodes else 0.0
    return {currency: hourly * share for currency, hourly in cost.sum_hourly_costs().items()}, [
        f"cost unknown: {text}" for text in cost.unknown
    ]


def _to_moment(text: str) -> float | None:
    """Return a time of a state or an event in Unix seconds, or None for other text."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None

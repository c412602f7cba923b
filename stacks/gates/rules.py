"""Evaluate the rules of gates over a plan: cost, exposure, names, times.

What is not known yet is against a rule that asks for it: a gate that cannot tell does not open.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from gpuform.schemas.plan import Plan, PlanAction, ResourceChange
from gpuform.schemas.resource_facts import Billing, Expense, Exposure, ResourceUsage
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.review.value_text import counted

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
    now, then = plan.cost.before.sum_hourly_costs(), plan.cost.after.sum_hourly_costs()
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
    now, then = before.sum_hourly_costs(), after.sum_hourly_costs()
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


def _held(footprint: ResourceUsage, *, running: bool = False) -> _Amounts:
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


def _ways(footprint: ResourceUsage) -> set[Billing]:
    """The ways in which something is paid for that runs."""
    return {each.billing for each in footprint.expenses if _is_paid(each)} - {Billing.STOPPED}


def _is_paid(expense: Expense) -> bool:
    return expense.what != "storage" and expense.amount != 0


DESTROYING: Final = (PlanAction.REPLACE, PlanAction.DELETE)
_GIVING: Final = (PlanAction.CREATE, PlanAction.UPDATE, PlanAction.REPLACE, PlanAction.IMPORT)
_TAKING: Final = (PlanAction.UPDATE, *DESTROYING)
_DONE: Final = {PlanAction.REPLACE: "replaced", PlanAction.DELETE: "deleted"}

Rule = Callable[[Plan, Sequence[ResourceChange], Any], Iterator[str]]
"""Asks a plan, those of its changes that the rule is about, and the value that it was given."""


def is_named(change: ResourceChange, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns is the name or the URN of the resource.

    In a plan of several stacks the name says of which stack it is: it is meant without that, too.
    """
    return matches((change.name, change.urn, name_of(change.urn)), patterns)


def matches(texts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether one of the texts is of one of the patterns."""
    return any(fnmatchcase(text, pattern) for pattern in patterns for text in texts)


def max_destroyed_gpus(plan: Plan, changes: Sequence[ResourceChange], most: int) -> Iterator[str]:
    del plan
    losing = [each for each in changes if each.action in _TAKING and each.gpus_removed != 0]
    known = sum(each.gpus_removed or 0 for each in losing)
    names = ", ".join(each.name for each in losing)
    if known > most:
        yield f"{counted(known, 'GPU')} would go ({names}): at most {most} may"
    for each in losing:
        if each.gpus_removed is None:
            yield f"{each.name}: how many GPUs would go is not known; at most {most} may"


def not_replaced(
    plan: Plan, changes: Sequence[ResourceChange], states: Sequence[str]
) -> Iterator[str]:
    del plan
    for each in changes:
        before = each.before
        if each.action is PlanAction.REPLACE and before is not None:
            found = {"running": before.running, "reserved": before.reserved}
            for state in states:
                if found[state]:
                    yield f"{each.name} is {state}, and would be replaced"


def allowed_regions(
    plan: Plan, changes: Sequence[ResourceChange], allowed: Sequence[str]
) -> Iterator[str]:
    del plan
    for name, after in _made(changes):
        if "region" in after.unknown:
            yield _not_known(name, "region")
        elif after.region and after.region not in allowed:
            yield f"{name} would be in {after.region}: allowed are {', '.join(allowed)}"


def allowed_gpu_types(
    plan: Plan, changes: Sequence[ResourceChange], allowed: Sequence[str]
) -> Iterator[str]:
    del plan
    for name, after in _made(changes):
        if "gpu_types" in after.unknown:
            yield _not_known(name, "type of GPU")
        for type_ in after.gpu_types:
            if type_ not in allowed:
                yield f"{name} would have {type_}: allowed are {', '.join(allowed)}"


def required_tags(
    plan: Plan, changes: Sequence[ResourceChange], tags: Sequence[str]
) -> Iterator[str]:
    del plan
    for name, after in _made(changes):
        if after.tags is None:
            continue
        if "tags" in after.unknown:
            yield _not_known(name, "tags")
            continue
        missing = [tag for tag in tags if tag not in after.tags]
        if missing:
            yield f"{name} has no tag {', '.join(missing)}"


def protected(
    plan: Plan, changes: Sequence[ResourceChange], patterns: Sequence[str]
) -> Iterator[str]:
    del plan
    for each in changes:
        if each.action in DESTROYING and is_named(each, patterns):
            yield f"{each.name} would be {_DONE[each.action]}, and is protected"


def expiry_required(plan: Plan, changes: Sequence[ResourceChange], _true: bool) -> Iterator[str]:
    del plan
    for name, after in _made(changes):
        if after.expires is True:
            continue
        if "expires" in after.unknown:
            yield _not_known(name, "end")
        elif after.expires is False:
            yield f"{name} never ends by itself"


def max_repaired_nodes(plan: Plan, changes: Sequence[ResourceChange], most: int) -> Iterator[str]:
    del plan
    names = [each.node for change in changes for each in change.repairs]
    if len(names) > most:
        found = f"{counted(len(names), 'node')} would be repaired ({', '.join(names)})"
        yield f"{found}: at most {most} may"


OVER_PLANS: Final[Mapping[str, Rule]] = {
    rule.__name__: rule
    for rule in (
        *(max_destroyed_gpus, not_replaced, allowed_regions, allowed_gpu_types, max_hourly_cost),
        *(required_tags, protected, expiry_required, max_repaired_nodes),
    )
}
"""The rules that ask nothing but the plan, by their names in a file of gates."""


def _made(changes: Sequence[ResourceChange]) -> Iterator[tuple[str, ResourceUsage]]:
    """What is given values, with what it will take up."""
    for each in changes:
        if each.action in _GIVING and each.after is not None:
            yield each.name, each.after


def _not_known(name: str, what: str) -> str:
    return f"{name}: its {what} cannot be told before it is applied"


def open_ports(
    exposures: Sequence[Exposure] | None, value: Mapping[str, Any] | None, patterns: Sequence[str]
) -> Iterator[str]:
    """A text for each resource that has such ports, or of which nobody can tell."""
    if exposures is None:
        yield "open ports are looked for when the plan is made: make it with `gpuform preview`"
    allowed = {int(port) for port in (value or {}).get("allowed") or ()}
    for each in exposures or ():
        if patterns and not matches((each.name, each.urn), patterns):
            continue
        ports = [port for port in each.ports if not _is_allowed(port, allowed)]
        if ports:
            number = counted(len(ports), "port")
            yield f"{each.name} has {number} open to the whole world: {', '.join(ports)}"
        if each.unknown:
            yield f"{each.name}: its open ports cannot be told: {each.unknown}"


def _is_allowed(port: str, allowed: Collection[int]) -> bool:
    """Whether all of `22/tcp` or `8000-8010/tcp` may be open."""
    first, _, last = port.partition("/")[0].partition("-")
    try:
        low, high = int(first), int(last or first)
    except ValueError:
        return False
    return low <= high and set(range(low, high + 1)) <= {*allowed}

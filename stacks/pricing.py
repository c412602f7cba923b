"""Price the resource usage of stacks with the project's price book, and sum the costs.

The price book is `prices.yaml` beside `Pulumi.yaml`. Usage and nodes of a state entry come from its
platform's lifecycle. Unknown costs are listed, never summed. Planning, `gpuform status`, `gpuform
offers`, gates, reviews and explanations call this module.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from gpuform.providers.platform import platforms
from gpuform.providers.values import PropertyMap
from gpuform.schemas.changes import Action
from gpuform.schemas.errors import EngineError
from gpuform.schemas.gates import HOURS_PER_MONTH, PriceBookInputs, build_price_book_model
from gpuform.schemas.plan import Amount, Plan, PlanCost, ResourceChange, StackCost
from gpuform.schemas.resource_facts import Billing, Expense, NodeRecord, ResourceUsage
from gpuform.stacks.document.diagnostics import Diagnostics, format_text
from gpuform.stacks.document.nodes import find_nearest_node
from gpuform.stacks.document.reading import read_checked
from gpuform.stacks.engine.dynamic_providers import to_plain
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import BUILTIN_PACKAGE, STACK_TYPE, is_provider, name_of
from gpuform.stacks.resource_rules import find_lifecycle

FILE: Final = "prices.yaml"


def get_price_book_model() -> type[PriceBookInputs]:
    """Return the model of a price book for all priced platforms."""
    return build_price_book_model(
        tuple(name for name, platform in platforms().items() if platform.is_priced)
    )


@dataclass(frozen=True, slots=True)
class Price:
    """Hold the price of one unit for one hour.

    `region` is empty for all regions; `source` is where the price stands in the file.
    """

    hourly: float
    region: str
    source: str


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Hold prices by what they are for; empty for a project without a price book."""

    currency: str = ""
    prices: Mapping[tuple[str, ...], tuple[Price, ...]] | None = None

    @classmethod
    def read(cls, directory: Path) -> "PriceBook":
        """Read a project's price book; without the file the price book is empty.

        Raises EngineError with every problem and its position.
        """
        path = directory / FILE
        if not path.exists():
            return cls()
        problems = Diagnostics()
        root, values = read_checked(path, FILE, get_price_book_model(), problems)
        if problems:
            raise EngineError(f"the price book is invalid:\n{format_text(list(problems))}")
        prices: dict[tuple[str, ...], tuple[Price, ...]] = {}
        for section in ("gpus", "storage"):
            for index, entry in enumerate(values.get(section) or ()):
                source = str(find_nearest_node(root, (section, index)).position)
                price = Price(_get_hourly_price(entry), str(entry.get("region") or ""), source)
                prices[_get_price_key(entry)] = (*prices.get(_get_price_key(entry), ()), price)
        return cls(values["currency"], prices)

    def price_expense(self, expense: Expense) -> Expense:
        """Return the expense with an hourly cost, or with the reason for an unknown cost.

        An expense with a cost or a reason is returned unchanged.
        """
        # The platform's own figure comes before the price book's.
        if expense.hourly is not None or expense.because:
            return expense
        if expense.amount == 0:
            return expense.model_copy(update={"hourly": 0.0, "currency": self.currency})
        missing = self._find_missing_price(expense)
        if missing:
            return expense.model_copy(update={"because": missing})
        price = self._find_price(expense)
        if price is None or expense.amount is None:
            raise AssertionError("nothing is missing")
        priced_fields = {
            # Rounded, so that equal costs compare as equal.
            "hourly": round(price.hourly * expense.amount, 6),
            "currency": self.currency,
            "source": price.source,
        }
        return expense.model_copy(update=priced_fields)

    def find_gpu_prices(self, platform: str, gpu_type: str, region: str) -> Mapping[str, Price]:
        """Return the hourly prices of one GPU by billing, in `region` or else for all regions."""
        prices_by_billing: dict[str, Price] = {}
        for key, prices in (self.prices or {}).items():
            # Keys of storage have two parts.
            if key[:2] == (platform, gpu_type) and len(key) == 3:
                by_region = {price.region: price for price in prices}
                price = by_region.get(region) or by_region.get("")
                if price is not None:
                    prices_by_billing[key[2]] = price
        return prices_by_billing

    def _find_missing_price(self, expense: Expense) -> str:
        """Return why an expense cannot be priced, or an empty string."""
        kind = expense.gpu_type if expense.what == "gpus" else f"storage by the {expense.unit}"
        if expense.amount is None:
            return "the quantity is known only after apply"
        if not kind:
            return "the GPU type is known only after apply"
        if self.prices is None:
            return f"{FILE} does not exist"
        if self._find_price(expense) is not None:
            return ""
        item = f"{kind} {expense.billing}" if expense.what == "gpus" else kind
        where = f" in {expense.region}" if self._list_prices(expense) and expense.region else ""
        return f"{FILE} has no price of {expense.platform} {item}{where}"

    def _list_prices(self, expense: Expense) -> tuple[Price, ...]:
        """List the prices for an expense: by GPU type and billing, or by unit; empty for none."""
        prices = self.prices or {}
        if expense.what == "gpus":
            return prices.get((expense.platform, expense.gpu_type, expense.billing), ())
        return prices.get((expense.platform, expense.unit), ())

    def _find_price(self, expense: Expense) -> Price | None:
        """Return the price of the expense's region, or else of all regions."""
        prices_by_region = {price.region: price for price in self._list_prices(expense)}
        # A price of the region is more exact than one of all regions.
        own = prices_by_region.get(expense.region) if expense.region else None
        return own or prices_by_region.get("")


def _get_price_key(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the key of a price: platform and unit, or platform, GPU type and billing."""
    if "unit" in entry:
        return entry["platform"], entry["unit"]
    return entry["platform"], entry["gpu_type"], entry.get("billing") or "on_demand"


def _get_hourly_price(entry: Mapping[str, Any]) -> float:
    """Return the price by the hour; storage is priced by the month."""
    if "unit" in entry:
        return float(entry["per_month"]) / HOURS_PER_MONTH
    return float(entry["per_hour"])


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


def compute_current_usage(entry: ResourceState) -> ResourceUsage | None:
    """Return the last observed usage of an entry, or None for another type than gpuform's."""
    return _compute_usage(entry, entry.outputs or entry.inputs, entry.outputs)


def compute_planned_usage(
    entry: ResourceState, observed: ResourceState | None
) -> ResourceUsage | None:
    """Return the usage of an entry as declared.

    `observed` is the entry of the existing object, if the declared resource keeps one.
    """
    return _compute_usage(entry, entry.inputs, observed.outputs if observed else {})


def _compute_usage(
    entry: ResourceState, values: PropertyMap, observed: PropertyMap
) -> ResourceUsage | None:
    """Compute the usage of a gpuform resource with `values`; None for any other resource.

    `observed` are the last outputs, empty for a new object.
    """
    lifecycle = find_lifecycle(entry.type)
    if lifecycle is None:
        return None
    observed_values = to_plain_properties(observed)
    return lifecycle.hooks.compute_resource_usage(
        observed_values if values is observed else to_plain_properties(values), observed_values
    )


def list_entry_nodes(entry: ResourceState) -> tuple[NodeRecord, ...]:
    """Return the GPU nodes of an entry, from the last outputs; none for another kind.

    An object that is only looked up is part of no inventory of this stack.
    """
    lifecycle = find_lifecycle(entry.type)
    if lifecycle is None or not entry.custom or entry.external or not entry.outputs:
        return ()
    inputs, outputs = to_plain_properties(entry.inputs), to_plain_properties(entry.outputs)
    identity = {"platform": lifecycle.platform, "resource": name_of(entry.urn)}
    return tuple(
        record.model_copy(update=identity)
        for record in lifecycle.hooks.list_node_records(entry.id, inputs, outputs)
    )


def to_plain_properties(properties: PropertyMap) -> dict[str, Any]:
    """Return properties as plain values; secrets become unknown, since many people read plans.

    The values are as providers get them: no nulls outside of lists, and numbers as doubles.
    """
    return to_plain(properties, hides_secrets=True)


_KEEPING_OPS = (Op.SAME, Op.UPDATE)
_OWNING_OPS = (*_KEEPING_OPS, Op.CREATE, Op.REPLACE, Op.IMPORT, Op.DELETE, Op.REFRESH)


@dataclass(frozen=True, slots=True)
class _UsageChange:
    """Hold the priced usage of one resource before and after a run.

    `was_there` is whether the resource existed before, `will_be_there` whether it exists after.
    """

    name: str
    before: ResourceUsage | None
    after: ResourceUsage | None
    was_there: bool
    will_be_there: bool


def add_costs(plan: Plan, steps: Iterable[Step], book: PriceBook) -> Plan:
    """Return the plan with the usage and cost of each change, and the cost of the stack.

    `steps` are all steps of the run, including those of unchanged resources. The plan's cost is
    None if neither a price book nor a platform knows any price.
    """
    usage_changes = {
        step.urn: _build_usage_change(step, book) for step in steps if _has_usage(step)
    }
    changes = [_set_usage(change, usage_changes.get(change.urn)) for change in plan.changes]
    before = sum_costs(
        (usage_change.name, usage_change.before)
        for usage_change in usage_changes.values()
        if usage_change.was_there
    )
    after = sum_costs(
        (usage_change.name, usage_change.after)
        for usage_change in usage_changes.values()
        if usage_change.will_be_there
    )
    is_cost_known = book.prices is not None or before.amounts or after.amounts
    cost = PlanCost(before=before, after=after) if is_cost_known else None
    return plan.model_copy(update={"changes": tuple(changes), "cost": cost})


def add_prices(plan: Plan, book: PriceBook) -> Plan:
    """Return the plan with the costs of all changes, without the cost of the stack."""
    changes = [
        change.model_copy(
            update={
                "before": price_usage(change.before, book),
                "after": price_usage(change.after, book),
            }
        )
        for change in plan.changes
    ]
    return plan.model_copy(update={"changes": tuple(changes)})


def _has_usage(step: Step) -> bool:
    """Return True if the step keeps, creates or deletes an object owned by the stack."""
    state = step.state
    is_own = state.custom and not (state.type == STACK_TYPE or is_provider(state.type))
    is_ours = is_own and not state.type.startswith(f"{BUILTIN_PACKAGE}:") and not state.external
    return is_ours and not step.skipped and step.op in _OWNING_OPS


def _build_usage_change(step: Step, book: PriceBook) -> _UsageChange:
    """Return the priced usage before and after a step; None while the stack lacks the resource."""
    # Before the import, the object was not the stack's cost.
    old = step.old if step.op is not Op.IMPORT else None
    new = step.new if step.op is not Op.DELETE else None
    # A new object has no observed values yet.
    observed = old if step.op in _KEEPING_OPS else None
    refreshed_usage = compute_current_usage(new) if new and step.op is Op.REFRESH else None
    return _UsageChange(
        name=name_of(step.urn),
        before=price_usage(compute_current_usage(old), book) if old else None,
        after=price_usage(
            refreshed_usage or compute_planned_usage(_fill_defaults(new, step), observed), book
        )
        if new
        else None,
        was_there=old is not None,
        will_be_there=new is not None,
    )


def _fill_defaults(new: ResourceState, step: Step) -> ResourceState:
    """Return the new entry, with the planned default values of undeclared properties as inputs."""
    default_values = {
        change.path: change.after
        for change in (step.change.changes if step.change else ())
        if change.action is Action.UPDATE and change.path not in new.inputs
        if not (change.unknown or change.secret)
    }
    return replace(new, inputs={**new.inputs, **default_values}) if default_values else new


def _set_usage(change: ResourceChange, usage_change: _UsageChange | None) -> ResourceChange:
    """Return `change` with the priced usage before and after; unchanged for None."""
    if usage_change is None:
        return change
    return change.model_copy(update={"before": usage_change.before, "after": usage_change.after})

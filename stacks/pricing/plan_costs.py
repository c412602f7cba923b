"""Add resource usage and costs to a plan: of each change, and of the complete stack.

Called while planning.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import Plan, PlanCost, ResourceChange
from gpuform.schemas.resource_facts import ResourceUsage
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import BUILTIN_PACKAGE, STACK_TYPE, is_provider, name_of
from gpuform.stacks.pricing.costs import price_usage, sum_costs
from gpuform.stacks.pricing.price_book import PriceBook
from gpuform.stacks.pricing.usage import compute_current_usage, compute_planned_usage

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
    """Return True if the step keeps, creates or deletes an object that the stack owns."""
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
    """Return the entry with the planned values of undeclared properties."""
    default_values = {
        change.path: change.after
        for change in (step.change.changes if step.change else ())
        if change.action is Action.UPDATE and change.path not in new.inputs
        if not (change.unknown or change.secret)
    }
    return replace(new, inputs={**new.inputs, **default_values}) if default_values else new


def _set_usage(change: ResourceChange, usage_change: _UsageChange | None) -> ResourceChange:
    """Return `change` with the priced usage before and after it; unchanged for None."""
    if usage_change is None:
        return change
    return change.model_copy(update={"before": usage_change.before, "after": usage_change.after})

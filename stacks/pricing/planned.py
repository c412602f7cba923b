"""A plan with what each of its changes takes up, and with what the whole stack costs."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import Plan, PlanCost, ResourceChange
from gpuform.schemas.resource_facts import ResourceUsage
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import BUILTIN_PACKAGE, STACK_TYPE, is_provider, name_of
from gpuform.stacks.pricing.book import PriceBook
from gpuform.stacks.pricing.costs import cost_of, priced
from gpuform.stacks.pricing.footprints import footprint_now, footprint_then

_KEPT = (Op.SAME, Op.UPDATE)
_OWNED = (*_KEPT, Op.CREATE, Op.REPLACE, Op.IMPORT, Op.DELETE, Op.REFRESH)


@dataclass(frozen=True, slots=True)
class _Course:
    """What one resource takes up before and after; `is_there` says when it is there at all."""

    name: str
    before: ResourceUsage | None
    after: ResourceUsage | None
    was_there: bool
    will_be_there: bool


def with_costs(plan: Plan, steps: Iterable[Step], book: PriceBook) -> Plan:
    """The plan with footprints and costs; `steps` are all of the run, unchanged ones as well.

    Its cost is None where neither a price book nor a platform tells any.
    """
    courses = {step.urn: _course(step, book) for step in steps if _has_course(step)}
    changes = [_with_course(change, courses.get(change.urn)) for change in plan.changes]
    before = cost_of((each.name, each.before) for each in courses.values() if each.was_there)
    after = cost_of((each.name, each.after) for each in courses.values() if each.will_be_there)
    is_told = book.prices is not None or before.amounts or after.amounts
    cost = PlanCost(before=before, after=after) if is_told else None
    return plan.model_copy(update={"changes": tuple(changes), "cost": cost})


def with_prices(plan: Plan, book: PriceBook) -> Plan:
    """The plan with its changes priced; what the whole stack costs, it does not tell."""
    changes = [
        change.model_copy(
            update={"before": priced(change.before, book), "after": priced(change.after, book)}
        )
        for change in plan.changes
    ]
    return plan.model_copy(update={"changes": tuple(changes)})


def _has_course(step: Step) -> bool:
    state = step.state
    is_own = state.custom and not (state.type == STACK_TYPE or is_provider(state.type))
    is_ours = is_own and not state.type.startswith(f"{BUILTIN_PACKAGE}:") and not state.external
    return is_ours and not step.skipped and step.op in _OWNED


def _course(step: Step, book: PriceBook) -> _Course:
    old = step.old if step.op is not Op.IMPORT else None
    new = step.new if step.op is not Op.DELETE else None
    seen = old if step.op in _KEPT else None
    then = footprint_now(new) if new and step.op is Op.REFRESH else None
    return _Course(
        name=name_of(step.urn),
        before=priced(footprint_now(old), book) if old else None,
        after=priced(then or footprint_then(_with_defaults(new, step), seen), book)
        if new
        else None,
        was_there=old is not None,
        will_be_there=new is not None,
    )


def _with_defaults(new: ResourceState, step: Step) -> ResourceState:
    """With what the change gives to properties that are not declared, such as a start."""
    given = {
        each.path: each.after
        for each in (step.change.changes if step.change else ())
        if each.action is Action.UPDATE and each.path not in new.inputs
        if not (each.unknown or each.secret)
    }
    return replace(new, inputs={**new.inputs, **given}) if given else new


def _with_course(change: ResourceChange, course: _Course | None) -> ResourceChange:
    if course is None:
        return change
    return change.model_copy(update={"before": course.before, "after": course.after})

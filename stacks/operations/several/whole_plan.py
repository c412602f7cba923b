"""Combine the plans of several stacks into one."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gpuform.providers import permissions
from gpuform.schemas.errors import UserError
from gpuform.schemas.plan import Amount, Plan, PlanCost, ResourceChange, StackCost
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.store import read_sealed
from gpuform.stacks.engine.urn import is_noise, name_of
from gpuform.stacks.gates.evaluating import Keeper
from gpuform.stacks.gates.file import Gate, gates_in, project_gates
from gpuform.stacks.multi_stack import Estate, Member
from gpuform.stacks.operations.opening.emulating import emulators, shared_store
from gpuform.stacks.pricing.book import PriceBook
from gpuform.stacks.pricing.costs import cost_of, priced
from gpuform.stacks.pricing.footprints import footprint_now


def resting_costs(
    estate: Estate, planned: Mapping[str, object], environ: Mapping[str, str]
) -> Iterator[tuple[str, StackCost]]:
    """By name, the cost of each stack that is not planned, by its last state."""
    for name, member in estate.members.items():
        if name not in planned:
            try:
                yield name, _cost(member, environ)
            except UserError as error:
                yield name, StackCost(unknown=(f"cannot be read: {error.message}",))


def _cost(member: Member, environ: Mapping[str, str]) -> StackCost:
    workspace = member.workspace(environ)
    if not workspace.backend.exists(member.project.name, member.stack):
        return StackCost()
    state = read_sealed(workspace.backend, member.project.name, member.stack)
    book = PriceBook.read(member.project.directory)
    there = [
        entry
        for entry in state.snapshot.resources
        if entry.custom and not (entry.external or entry.delete or is_noise(entry.type))
    ]
    return cost_of((name_of(each.urn), priced(footprint_now(each), book)) for each in there)


def judged(
    plan: StacksPlan, estate: Estate, allowed: Collection[str], environ: Mapping[str, str]
) -> StacksPlan:
    """The plan with what the gates of stacks.yaml say of all of it; unchanged without any.

    A stack that is not planned counts with what it costs now. Raises EngineError for what is wrong
    in the file.
    """
    gates = estate_gates(estate)
    if not gates or all(each.operation == "refresh" for each in plan.plans):
        return plan
    resting: list[tuple[str, StackCost]] = []
    if any(gate.rule == "max_hourly_cost" for gate in gates):
        planned = {_name(each): each for each in plan.plans}
        resting = list(resting_costs(estate, planned, environ))
    whole = _as_one(plan.plans, resting)
    own = {gate.permission for gate in gates}
    keeper = Keeper(gates, {each for each in allowed if each in own}, estate.root)
    return plan.model_copy(update={"gates": keeper.judged(whole).gates})


def estate_gates(estate: Estate) -> Sequence[Gate]:
    """The gates of stacks.yaml. Raises EngineError."""
    return () if estate.file is None else gates_in(estate.file)


def allowed_in(estate: Estate, allowed: Collection[str]) -> dict[str, list[str]]:
    """By member, what of a run's permissions is for it: all but the gates that it has not.

    Raises EngineError for a gate that nobody has.
    """
    lifted = {each for each in allowed if each.startswith(permissions.GATE)}
    others = sorted(set(allowed) - lifted)
    known = {gate.permission for gate in estate_gates(estate)} if lifted else set()
    found: dict[str, list[str]] = {}
    for name, member in estate.members.items():
        gates = project_gates(member.project.directory) if lifted else ()
        own = {gate.permission for gate in gates}
        found[name] = [*others, *sorted(own & lifted)]
        known |= own
    if lifted - known:
        raise EngineError(
            f"{', '.join(sorted(lifted - known))}: there is no such gate",
            hint=f"gates are lifted by {', '.join(sorted(known))}" if known else "there are none",
        )
    return found


def _as_one(plans: Sequence[Plan], resting: Sequence[tuple[str, StackCost]]) -> Plan:
    """All plans as that of one stack, for rules over a plan. A name says of which stack it is.

    `resting` are the costs of the stacks that stay as they are.
    """
    changes = [_named(change, plan) for plan in plans for change in plan.changes]
    costs = [(_name(plan), plan.cost or _untold(plan)) for plan in plans]
    costs += [(name, PlanCost(before=each, after=each)) for name, each in resting]
    cost = PlanCost(
        before=_sum((name, each.before) for name, each in costs),
        after=_sum((name, each.after) for name, each in costs),
    )
    whole = Plan.from_changes("", "", changes, unchecked=())
    is_told = any(plan.cost is not None for plan in plans)
    told = {"operation": plans[0].operation, "cost": cost if is_told else None}
    return whole.model_copy(update=told)


def _untold(plan: Plan) -> PlanCost:
    """The cost of a stack that nobody has reckoned: not known where it gets what is paid for."""
    gets = any(each.after is not None and each.after.expenses for each in plan.changes)
    unknown = ("costs what nobody tells: its project has no prices.yaml",) if gets else ()
    return PlanCost(before=StackCost(), after=StackCost(unknown=unknown))


def _name(plan: Plan) -> str:
    return f"{plan.project}/{plan.stack}"


def _named(change: ResourceChange, plan: Plan) -> ResourceChange:
    return change.model_copy(update={"name": f"{_name(plan)} {change.name}"})


def _sum(costs: Iterable[tuple[str, StackCost]]) -> StackCost:
    sums: dict[tuple[str, str], Amount] = {}
    unknown = []
    for name, cost in costs:
        unknown += [f"{name} {text}" for text in cost.unknown]
        for each in cost.amounts:
            key = (each.billing, each.currency)
            hourly = each.hourly + (sums[key].hourly if key in sums else 0.0)
            sums[key] = each.model_copy(update={"hourly": round(hourly, 6)})
    return StackCost(amounts=tuple(sums.values()), unknown=tuple(unknown))


@contextmanager
def emulated(
    estate: Estate, names: Iterable[str], *, wanted: bool
) -> Iterator[Mapping[str, Mapping[str, str]]]:
    """The variables that lead each stack's process to its emulator; none when not wanted.

    Stacks whose folders have no emulator of their own share one in the folder of all.
    """
    if not wanted:
        yield {}
        return
    folders = {name: estate.members[name].project.directory for name in names}
    stores: dict[str, Path] = {
        name: shared_store(folder, estate.root) for name, folder in folders.items()
    }
    with ExitStack() as held:
        variables = held.enter_context(emulators(sorted(set(stores.values()))))
        yield {name: variables[store] for name, store in stores.items()}

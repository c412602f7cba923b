"""Combine the stacks of a multi-stack run: plans, costs, gates, permissions and emulators.

Multi-stack runs and reviews call this module.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from gpuform.providers import permissions
from gpuform.schemas.errors import EngineError, GpuformError
from gpuform.schemas.models import share_field_names
from gpuform.schemas.plan import (
    Amount,
    GateResult,
    Plan,
    PlanCost,
    ResourceChange,
    StackCost,
)
from gpuform.schemas.rehearsal import HazardKind, HazardOutcome, Rehearsal
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.document.diagnostics import Diagnostics, format_text
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.store import (
    Backend,
    StackMoved,
    anchor_file_url,
    get_configured_url,
    read_sealed,
)
from gpuform.stacks.engine.urn import is_noise, name_of
from gpuform.stacks.gates.base_branch import (
    ProjectGates,
    open_project_gates,
    open_stacks_gates,
)
from gpuform.stacks.gates.evaluating import GateEvaluator, allow_gates
from gpuform.stacks.gates.rules import COST_RULES
from gpuform.stacks.multi_stack import (
    MultiStackError,
    MultiStackWorkspace,
    WorkspaceStack,
    find_workspace,
)
from gpuform.stacks.operations.opening.emulator import find_shared_store, serve_emulators
from gpuform.stacks.pricing import PriceBook, compute_current_usage, price_usage, sum_costs
from gpuform.stacks.review.value_text import counted


def read_unplanned_costs(
    workspace: MultiStackWorkspace,
    planned: Mapping[str, object],
    environ: Mapping[str, str],
    gates_from: str | None = None,
) -> Iterator[tuple[str, StackCost]]:
    """Yield the name and current cost of each stack without a plan, by the last state.

    The prices are those of the git revision `gates_from`, or else of the folders. A stack that
    cannot be read has an unknown cost with the reason.
    """
    for name, stack in workspace.stacks.items():
        if name not in planned:
            try:
                yield name, _read_current_cost(stack, environ, gates_from)
            except GpuformError as error:
                yield name, StackCost(unknown=(f"cannot be read: {error.message}",))


def _read_current_cost(
    stack: WorkspaceStack, environ: Mapping[str, str], gates_from: str | None
) -> StackCost:
    """Return the current cost of a stack by its state; nothing before the first run."""
    workspace = stack.open_workspace(environ)
    # A stack before its first run costs nothing.
    if not workspace.backend.exists(stack.project.name, stack.stack):
        return StackCost()
    with open_project_gates(stack.project, gates_from) as project_gates:
        book = PriceBook.read(project_gates.directory)
    return sum_costs(
        (name_of(entry.urn), price_usage(compute_current_usage(entry), book))
        for entry in _read_objects(workspace.backend, stack)
    )


def _read_objects(backend: Backend, stack: WorkspaceStack) -> list[ResourceState]:
    """Return the stack's own objects in its state. Raises EngineError."""
    state = read_sealed(backend, stack.project.name, stack.stack)
    return [
        entry
        for entry in state.snapshot.resources
        if entry.custom and not (entry.external or entry.delete or is_noise(entry.type))
    ]


def _find_lost_stacks(
    workspace: MultiStackWorkspace, base_folder: Path, environ: Mapping[str, str]
) -> Iterator[str]:
    """Yield a finding for each stack of the base branch that has objects and counts no longer.

    `base_folder` has the stacks.yaml, the projects and the settings of the base branch. A stack
    with another backend than there is another stack: its former state still has the objects.
    """
    problems = Diagnostics()
    try:
        base = find_workspace(base_folder, environ, problems, is_root=True)
    except MultiStackError:  # the base branch has no stack
        return
    if problems:
        yield f"the stacks of the base branch cannot be read: {format_text(list(problems))}"
    for name, base_stack in base.stacks.items():
        # Relative URLs of states are those of the work tree: git has no states.
        folder = workspace.root / base_stack.project.directory.relative_to(base_folder)
        url = anchor_file_url(get_configured_url(environ, base_stack.project), folder)
        if workspace.find(url, name) is not None:
            continue
        stack = replace(base_stack, backend=url)
        try:
            backend = stack.open_workspace(environ).backend
            is_created = backend.exists(stack.project.name, stack.stack)
            objects = _read_objects(backend, stack) if is_created else []
        except StackMoved as error:
            if name not in workspace.stacks:
                yield f"{name} is no longer one of the stacks: {error.message}"
        except GpuformError as error:
            yield f"{name} is no longer one of the stacks, and cannot be read: {error.message}"
        else:
            if objects:
                yield (
                    f"{name} is no longer one of the stacks, but has "
                    f"{counted(len(objects), 'object')} that no gate would count: if the base "
                    "branch has added the stack meanwhile, merge the base branch; otherwise "
                    "destroy the stack before you remove it"
                )


def evaluate_workspace_gates(
    plan: StacksPlan,
    workspace: MultiStackWorkspace,
    allowed: Collection[str],
    environ: Mapping[str, str],
    gates_from: str | None = None,
    *,
    load_changes: Callable[[Iterable[str]], StacksPlan] | None = None,
) -> StacksPlan:
    """Return the plan with the results of the gates of stacks.yaml.

    `load_changes` returns the plans of the named stacks where `plan` has no changes. It is called
    only if there are gates.

    The gates and the prices are those of the git revision `gates_from`, or else of the folder. The
    results are unchanged without gates, or if all stacks are only refreshed. A stack without a plan
    counts with its current cost. A gate on cost stops a change that removes a stack of the revision
    that still has objects; without such a gate, a new plan names the stack as a danger.

    Raises:
        EngineError: stacks.yaml or a price book is wrong, or git cannot show the revision.
    """
    with open_workspace_gates(workspace, gates_from) as stacks_gates:
        weakened = stacks_gates.weakened
        if gates_from is not None and load_changes is None and not _judges_cost(stacks_gates):
            weakened += tuple(_find_lost_stacks(workspace, stacks_gates.directory, environ))
        plan = plan.model_copy(update={"weakened_gates": weakened})
        # A refresh changes no platform, and passes no gate.
        if not stacks_gates.gates or all(item.operation == "refresh" for item in plan.plans):
            return plan
        judged_plan = plan
        if load_changes is not None:
            judged_plan = load_changes(item.project_stack for item in plan.plans)
        results = _evaluate_gates(
            judged_plan, workspace, stacks_gates, allowed, environ, gates_from
        )
        return plan.model_copy(update={"gates": results})


def _evaluate_gates(
    plan: StacksPlan,
    workspace: MultiStackWorkspace,
    stacks_gates: ProjectGates,
    allowed: Collection[str],
    environ: Mapping[str, str],
    gates_from: str | None,
) -> tuple[GateResult, ...]:
    """Return the results of `stacks_gates` for the plan. Raises EngineError."""
    gates = stacks_gates.gates
    unplanned_costs: list[tuple[str, StackCost]] = []
    # Only these rules look at stacks without a plan, whose states cost a request each.
    is_about_cost = _judges_cost(stacks_gates)
    if is_about_cost:
        planned = {stack_plan.project_stack: stack_plan for stack_plan in plan.plans}
        unplanned_costs = list(read_unplanned_costs(workspace, planned, environ, gates_from))
    combined_plan = _merge_plans(plan, unplanned_costs)
    gate_permissions = {gate.permission for gate in gates}
    evaluator = GateEvaluator(
        # Permissions for the gates of single projects are no matter of the gates over all.
        gates,
        {permission for permission in allowed if permission in gate_permissions},
        stacks_gates.program,
    )
    results = evaluator.evaluate(combined_plan).gates or ()
    if gates_from is None or not is_about_cost:
        return results
    lost_stacks = tuple(_find_lost_stacks(workspace, stacks_gates.directory, environ))
    results = tuple(
        gate.model_copy(update={"findings": (*gate.findings, *lost_stacks)})
        if gate.rule in COST_RULES
        else gate
        for gate in results
    )
    return allow_gates(results, allowed)


def _judges_cost(stacks_gates: ProjectGates) -> bool:
    """Return True if a gate is about the cost of all stacks."""
    return any(gate.rule in COST_RULES for gate in stacks_gates.gates)


def open_workspace_gates(
    workspace: MultiStackWorkspace, gates_from: str | None = None
) -> AbstractContextManager[ProjectGates]:
    """Return a context with the gates of stacks.yaml, of a git revision or of the folder.

    Entering the context raises EngineError if the file is wrong or git cannot show the revision.
    """
    return open_stacks_gates(workspace.start or workspace.root, workspace.file, gates_from)


def assign_permissions(
    workspace: MultiStackWorkspace,
    allowed: Collection[str],
    gates_from: str | None = None,
    *,
    is_complete: bool = True,
) -> dict[str, list[str]]:
    """Return each stack's permissions; a gate's permission only where the project has the gate.

    `is_complete` is False for a workspace without some of the stacks: any of them may declare a
    gate that is not found.

    Raises:
        EngineError: a permission is for a gate that no project and no stacks.yaml declares.
    """
    gate_permissions = {
        permission for permission in allowed if permission.startswith(permissions.GATE)
    }
    others = sorted(set(allowed) - gate_permissions)
    if not gate_permissions:
        return {name: list(others) for name in workspace.stacks}
    with open_workspace_gates(workspace, gates_from) as stacks_gates:
        known_gates = {gate.permission for gate in stacks_gates.gates}
    assigned: dict[str, list[str]] = {}
    for name, stack in workspace.stacks.items():
        with open_project_gates(stack.project, gates_from) as project_gates:
            project_gate_names = {gate.permission for gate in project_gates.gates}
        assigned[name] = [*others, *sorted(project_gate_names & gate_permissions)]
        known_gates |= project_gate_names
    if is_complete and gate_permissions - known_gates:
        raise EngineError(
            f"unknown gates: {', '.join(sorted(gate_permissions - known_gates))}",
            hint=f"the stacks' gates are {', '.join(sorted(known_gates))}"
            if known_gates
            else "the stacks have no gates",
        )
    return assigned


def _merge_plans(plan: StacksPlan, unplanned_costs: Sequence[tuple[str, StackCost]]) -> Plan:
    """Merge the plans into one for gates, with resources named `PROJECT/STACK RESOURCE`.

    The cost includes stacks without a plan; it is None if no plan has prices.
    """
    plans = plan.plans
    changes = [_add_stack_name(change, part) for part in plans for change in part.changes]
    costs = [(part.project_stack, part.cost or _build_unknown_cost(part)) for part in plans]
    costs += [
        (name, PlanCost(before=unplanned_cost, after=unplanned_cost))
        for name, unplanned_cost in unplanned_costs
    ]
    cost = PlanCost(
        before=_sum_costs((name, plan_cost.before) for name, plan_cost in costs),
        after=_sum_costs((name, plan_cost.after) for name, plan_cost in costs),
    )
    merged_plan = Plan.from_changes("", "", changes, unchecked=())
    is_priced = any(part.cost is not None for part in plans)
    updates = {
        "operation": plans[0].operation,
        "cost": cost if is_priced else None,
        "rehearsal": _merge_rehearsals(plan),
    }
    return merged_plan.model_copy(update=updates)


def _merge_rehearsals(stacks_plan: StacksPlan) -> Rehearsal | None:
    """Merge the rehearsals of the plans into one; None if no plan was rehearsed.

    A hazard meets one stack, and costs what it costs there and what the plans of the other stacks
    cost undisturbed. A plan with changes that was not rehearsed is a difference. The outcomes of
    the stacks together are added: only the rehearsal of each stack has a seal, and so they can
    never replace one.
    """
    rehearsals: dict[str, Rehearsal] = {}
    differences: list[str] = []
    for plan in stacks_plan.plans:
        name = plan.project_stack
        if plan.rehearsal is not None:
            rehearsals[name] = plan.rehearsal
            differences += [f"{name}: {item}" for item in plan.rehearsal.differences]
        elif plan.has_changes:
            differences.append(f"{name}: the plan was not rehearsed")
    if not rehearsals:
        return None
    usual = {name: rehearsal.undisturbed for name, rehearsal in rehearsals.items()}
    undisturbed = _add_losses(next(iter(usual.values())), [*usual.values()][1:])
    outcomes = [
        _add_losses(
            _add_hazard_name(outcome, name),
            [item for other, item in usual.items() if other != name],
        )
        for name, rehearsal in rehearsals.items()
        for outcome in rehearsal.outcomes
        if outcome.hazard.kind is not HazardKind.NONE
    ]
    if (together := stacks_plan.rehearsal) is not None:
        label = "all stacks together"
        usual_errors = together.undisturbed.errors if together.undisturbed.has_failed else ()
        differences += [f"{label}: {item}" for item in (*together.differences, *usual_errors)]
        outcomes += [
            _add_hazard_name(outcome, label)
            for outcome in together.outcomes
            if outcome.hazard.kind is not HazardKind.NONE
        ]
    changes = sum(rehearsal.changes for rehearsal in rehearsals.values())
    played_changes = sum(
        rehearsal.changes if rehearsal.played_changes is None else rehearsal.played_changes
        for rehearsal in rehearsals.values()
    )
    return Rehearsal(
        project="",
        stack="",
        outcomes=(undisturbed, *outcomes),
        differences=tuple(differences),
        changes=changes,
        actions={urn: action for r in rehearsals.values() for urn, action in r.actions.items()},
        played_changes=None if played_changes == changes else played_changes,
    )


def _add_losses(outcome: HazardOutcome, others: Sequence[HazardOutcome]) -> HazardOutcome:
    """Return the outcome with the losses and errors of other stacks' undisturbed runs."""
    parts = [outcome, *others]
    failed_endings = [part.ending for part in parts if part.has_failed]
    return outcome.model_copy(
        update={
            "ending": failed_endings[0] if failed_endings else outcome.ending,
            "errors": tuple(error for part in parts for error in part.errors),
            "lost_gpus": sum(part.lost_gpus for part in parts),
            "gpu_hours_without_work": sum(part.gpu_hours_without_work for part in parts),
            "jobs_ended": tuple(job for part in parts for job in part.jobs_ended),
        }
    )


def _add_hazard_name(outcome: HazardOutcome, name: str) -> HazardOutcome:
    """Return the outcome of a hazard with the description `PROJECT/STACK: DESCRIPTION`."""
    description = f"{name}: {outcome.hazard.description}"
    hazard = outcome.hazard.model_copy(update={"description": description})
    return outcome.model_copy(update={"hazard": hazard})


def _build_unknown_cost(plan: Plan) -> PlanCost:
    """Return the cost of a stack without prices, unknown where the plan adds paid resources."""
    adds_expenses = any(
        change.after is not None and change.after.expenses for change in plan.changes
    )
    unknown = ("its cost is unknown: its project has no prices.yaml",) if adds_expenses else ()
    return PlanCost(before=StackCost(), after=StackCost(unknown=unknown))


def _add_stack_name(change: ResourceChange, plan: Plan) -> ResourceChange:
    """Return the change with the name `<project>/<stack> <resource>`."""
    named_change = change.model_copy(update={"name": f"{plan.project_stack} {change.name}"})
    share_field_names(named_change)
    return named_change


def _sum_costs(costs: Iterable[tuple[str, StackCost]]) -> StackCost:
    """Add the amounts by billing and currency; name the stack of each unknown cost."""
    sums: dict[tuple[str, str], Amount] = {}
    unknown = []
    for name, cost in costs:
        unknown += [f"{name} {item}" for item in cost.unknown]
        for amount in cost.amounts:
            key = (amount.billing, amount.currency)
            hourly = amount.hourly + (sums[key].hourly if key in sums else 0.0)
            sums[key] = amount.model_copy(update={"hourly": round(hourly, 6)})
    return StackCost(amounts=tuple(sums.values()), unknown=tuple(unknown))


@contextmanager
def run_emulators(
    workspace: MultiStackWorkspace, names: Iterable[str], *, emulate: bool
) -> Iterator[Mapping[str, Mapping[str, str]]]:
    """Run the stacks' emulators, and yield by stack the variables for access to its emulator.

    Stacks of projects without an emulator share one in the workspace's folder. Without `emulate` no
    emulator runs, and there are no variables.
    """
    if not emulate:
        yield {}
        return
    folders = {name: workspace.stacks[name].project.directory for name in names}
    stores: dict[str, Path] = {
        name: find_shared_store(folder, workspace.root) for name, folder in folders.items()
    }
    with ExitStack() as resources:
        variables = resources.enter_context(serve_emulators(sorted(set(stores.values()))))
        yield {name: variables[store] for name, store in stores.items()}

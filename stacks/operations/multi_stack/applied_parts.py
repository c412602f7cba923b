"""Choose the stacks of a saved multi-stack plan, and say which of them may be applied now.

`runner` calls this module. One machine applies all stacks of a plan in their order. Several
machines apply some of the stacks each: the histories of the stacks show what others have applied.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from gpuform.schemas.plan import Plan
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.engine.store import build_full_name
from gpuform.stacks.multi_stack import MultiStackWorkspace
from gpuform.stacks.operations.runs.plan_file import PlanRefused, PlanRun, find_plan_run


def find_apply_order(
    workspace: MultiStackWorkspace, plans: Mapping[str, Plan]
) -> dict[str, set[str]]:
    """Return, for each stack with a plan, the stacks to apply before.

    These are its dependencies (`after` of stacks.yaml, and the stacks that its plan reads) or, if a
    plan is of a destroy, its dependents.
    """
    dependencies: dict[str, set[str]] = {}
    for name, plan in plans.items():
        required_names = set(workspace.stacks[name].after)
        for stack in plan.stack_references:
            other = workspace.find(workspace.stacks[name].backend, stack)
            required_names |= {other.name} if other is not None else set()
        dependencies[name] = (required_names - {name}) & plans.keys()
    if all(plan.operation != "destroy" for plan in plans.values()):
        return dependencies
    # Destroyed in reverse: what reads a stack is deleted before it.
    dependents: dict[str, set[str]] = {name: set() for name in dependencies}
    for name, required_names in dependencies.items():
        for required_name in required_names:
            dependents[required_name].add(name)
    return dependents


def select_planned_names(
    path: Path,
    saved_plan: StacksPlan,
    workspace: MultiStackWorkspace,
    operation: str,
    chosen_names: Collection[str],
) -> list[str]:
    """Return the chosen stacks of the saved plan of the file `path`.

    Raises:
        PlanRefused: the plan belongs to another workspace or operation (an update takes any), or
            has none of the chosen stacks.
    """
    names = [plan.project_stack for plan in saved_plan.plans]
    missing = [name for name in names if name not in workspace.stacks]
    if missing:
        raise PlanRefused(
            f"{path} contains stacks that do not belong to this workspace: {', '.join(missing)}",
            hint="apply the plan in the folder where you made it: the folder of stacks.yaml, or "
            "of the projects",
        )
    planned = saved_plan.plans[0].operation
    if operation not in ("update", planned):
        raise PlanRefused(
            f"{path} is a plan of another operation: {planned}",
            hint=f"apply it with `gpuform up --all --plan {path}`",
        )
    selected_names = [name for name in names if name in chosen_names]
    if not selected_names:
        raise PlanRefused(
            f"{path} has a plan of none of the chosen stacks",
            hint=f"its stacks are {', '.join(names)}",
        )
    return selected_names


def require_upstream_applied(
    path: Path,
    saved_plan: StacksPlan,
    workspace: MultiStackWorkspace,
    selected_names: Sequence[str],
    environ: Mapping[str, str],
) -> None:
    """Raise PlanRefused unless all stacks before the selected stacks are applied.

    A stack of the plan that is not selected must have been applied by another run, as the last run
    of that stack. Only direct dependencies are looked at: these were applied after their own. A
    plan of a refresh needs no other one.

    Raises:
        PlanRefused: a stack is not applied, or was changed since, or was planned again.
        EngineError: a history cannot be read.
    """
    plans = {plan.project_stack: plan for plan in saved_plan.plans}
    seals = {
        build_full_name(plan.project, plan.stack): plan.basis.seal if plan.basis else ""
        for plan in saved_plan.plans
    }
    if saved_plan.plans[0].operation == "refresh":
        return
    order = find_apply_order(workspace, plans)
    runs: dict[str, PlanRun] = {}
    for name in selected_names:
        for stack, seal in plans[name].planned_with.items():
            if seals.get(stack) != seal:
                other = stack.removeprefix("organization/")
                raise PlanRefused(
                    f"the plan of {name} uses the planned outputs of {other}, but {other} is not "
                    f"in {path}, or was planned again",
                    hint=f"apply the complete plan {path}, or make a new plan",
                )
        for other in sorted(order[name] - set(selected_names)):
            if other not in runs:
                runs[other] = _read_run(plans[other], workspace, environ)
            if runs[other] is not PlanRun.DONE:
                raise _build_upstream_error(path, plans[name], plans[other], runs[other])


def list_applied_names(
    saved_plan: StacksPlan,
    workspace: MultiStackWorkspace,
    names: Collection[str],
    environ: Mapping[str, str],
) -> list[str]:
    """Return the named stacks whose last run has applied the saved plan.

    Raises:
        EngineError: a history cannot be read.
    """
    plans = {plan.project_stack: plan for plan in saved_plan.plans}
    return [name for name in names if _read_run(plans[name], workspace, environ) is PlanRun.DONE]


def _read_run(plan: Plan, workspace: MultiStackWorkspace, environ: Mapping[str, str]) -> PlanRun:
    """Return from the stack's history whether and how the plan was run. Raises EngineError."""
    stack = workspace.stacks[plan.project_stack]
    backend = stack.open_workspace(environ).backend
    seal = plan.basis.seal if plan.basis else ""
    return find_plan_run(backend.open_history(plan.project, plan.stack), seal)


def _build_upstream_error(path: Path, plan: Plan, upstream: Plan, run: PlanRun) -> PlanRefused:
    """Build the error of a plan whose dependency `upstream` was not applied as planned."""
    name, other = plan.project_stack, upstream.project_stack
    is_read = build_full_name(upstream.project, upstream.stack) in plan.planned_with
    relation = (
        f"the plan of {name} uses the planned outputs of {other}, but {other}"
        if is_read
        else f"{name} comes after {other} in the plan, but {other}"
    )
    if run is PlanRun.OVERTAKEN:
        return PlanRefused(
            f"{relation} was changed by another run after its plan was applied",
            hint=f"make a new plan of {name}",
        )
    reason = (
        "the run of its plan has failed, or still runs"
        if run is PlanRun.UNFINISHED
        else "no run has applied its plan"
    )
    return PlanRefused(
        f"{relation} is not selected, and {reason}",
        hint=f"apply {other} first: `gpuform up --all --plan {path} --stack {other}`; or apply the "
        "complete plan, without --stack and --filter",
    )

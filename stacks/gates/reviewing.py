"""Evaluate the gates of saved plans that are reviewed, perhaps on another machine.

`gpuform review` calls `evaluate_gates`; it calls `evaluating` with the gates of a file, of a git
revision, or of the project in the current folder.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuform.providers.context import RunContext
from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import find_project
from gpuform.stacks.gates.base_branch import open_project_gates
from gpuform.stacks.gates.evaluating import GateEvaluator, allow_gates
from gpuform.stacks.gates.file import Gate, read_gates, read_project_gates
from gpuform.stacks.price_book import PriceBook
from gpuform.stacks.pricing import add_prices


def evaluate_gates(
    plans: Sequence[Plan],
    file: Path | None,
    allow: Sequence[str],
    environ: Mapping[str, str],
    gates_from: str | None = None,
) -> list[Plan]:
    """Return the plans with the results of their gates.

    The gates are read from `file`, or from the git revision `gates_from`. Without both, a plan
    keeps the results that it has. A plan without results is then evaluated by the gates of the
    project in the current folder, if it is a plan of this project. A gate that `allow` or the
    environment names does not block.

    Raises:
        EngineError: a file of gates or prices is wrong.
    """
    allowed = RunContext(environ).with_permissions(allow).permissions
    if file is not None:
        evaluator = GateEvaluator(_read_gates(file), allowed, file.parent)
        return [evaluator.evaluate(plan) for plan in plans]
    if gates_from is not None:
        return _evaluate_base_gates(plans, gates_from, allowed)
    return [_allow_gates(_evaluate_project_gates(plan), allowed) for plan in plans]


def _evaluate_base_gates(
    plans: Sequence[Plan], revision: str, allowed: frozenset[str]
) -> list[Plan]:
    """Evaluate the gates that this folder's project has at a git revision.

    Raises:
        EngineError: a plan is of another project, or git cannot show the revision.
    """
    project = find_project(Path.cwd())
    for plan in plans:
        if plan.project != project.name:
            raise EngineError(
                f"the plan of {plan.project}/{plan.stack} is not one of project {project.name}, "
                "whose gates --gates-from reads",
                hint="run the command in the folder of the plan's project",
            )
    with open_project_gates(project, revision) as base:
        evaluator = GateEvaluator(base.gates, allowed, base.program)
        update = {"weakened_gates": base.weakened}
        return [evaluator.evaluate(plan.model_copy(update=update)) for plan in plans]


def _read_gates(file: Path) -> Sequence[Gate]:
    """Read the gates of the file. Raises EngineError, also without the file."""
    if not file.exists():
        raise EngineError(f"the gates file {file} does not exist")
    return read_gates(file, str(file))


def _evaluate_project_gates(plan: Plan) -> Plan:
    """Evaluate the gates of this folder's project, unless the plan has results of gates already.

    The plan of another project, or outside of one, stays as it is.
    """
    if plan.gates is not None:
        return plan
    try:
        project = find_project(Path.cwd())
    except EngineError:
        return plan
    # The gates of another project are not in this folder.
    if project.name != plan.project:
        return plan
    # A preview of the Pulumi CLI has no costs, which gates may limit.
    if plan.basis is None and plan.cost is None:
        plan = add_prices(plan, PriceBook.read(project.directory))
    return GateEvaluator(read_project_gates(project.directory), (), project.program).evaluate(plan)


def _allow_gates(plan: Plan, allowed: frozenset[str]) -> Plan:
    """Return the plan with the permissions in `allowed` applied to the plan's gates, if any."""
    if plan.gates is None:
        return plan
    return plan.model_copy(update={"gates": allow_gates(plan.gates, allowed)})

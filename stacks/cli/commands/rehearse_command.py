"""Run `gpuform rehearse`: play a plan on the emulator while something goes wrong.

`stacks/rehearsing` plays; this module reads or makes the plan, and prints the result.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuform.schemas.rehearsal import HazardKind
from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.flags import add_multi_stack_flags, emulate_flag, reject_filter_without_all
from gpuform.stacks.cli.session import Session, add_stack_flags, open_session

if TYPE_CHECKING:
    from gpuform.schemas.plan import Plan
    from gpuform.schemas.rehearsal import Rehearsal
    from gpuform.stacks.operations.opening.selected_stack import SelectedStack
    from gpuform.stacks.rehearsing import PlannedStack, RehearsalOptions

_NAMES = tuple(str(kind) for kind in HazardKind)


def _parse_hazards(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[HazardKind, ...]:
    """Return the hazards of a comma-separated list; all without the flag. A callback of click."""
    if value is None:
        return tuple(HazardKind)
    names = [name.strip() for name in value.split(",") if name.strip()]
    unknown = [name for name in names if name not in _NAMES]
    if unknown or not names:
        raise click.BadParameter(
            f"unknown hazard {', '.join(unknown) or repr(value)}; known: {', '.join(_NAMES)}",
            context,
            parameter,
        )
    return tuple(HazardKind(name) for name in names)


@click.command()
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The saved plan to rehearse; default: a plan that the command makes now.",
)
@click.option(
    "--hazards",
    metavar="NAME[,NAME]",
    callback=_parse_hazards,
    help=f"Only these hazards: {', '.join(_NAMES)}.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the emulator."
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Number of processes that play at a time; default: the number of processors.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="NAME",
    help="Permissions of the rehearsed run, as of `gpuform up`.",
)
@click.option("--json", "-j", "as_json", is_flag=True, help="Print JSON instead of text.")
@emulate_flag
@add_multi_stack_flags
@add_stack_flags
def rehearse(  # noqa: PLR0913, PLR0917 - the flags
    plan_file: Path | None,
    hazards: tuple[HazardKind, ...],
    seed: int,
    jobs: int | None,
    allow: tuple[str, ...],
    as_json: bool,
    emulate: bool,
    every_stack: bool,
    filters: tuple[str, ...],
) -> int:
    """Show what a plan does when something goes wrong.

    Plays the plan on an emulator that has the objects of the stack's state: once undisturbed, and
    then once for each hazard, such as no capacity, a lost request, a killed run, or a node that
    never becomes ready. For each hazard it shows the GPUs that do not work and for how long, ended
    jobs, lost data, cost, what is left half done, and the command that completes the plan. The
    worst comes first. Advice is rehearsed too, and shown only if it avoids the loss. With --all,
    the plans of the stacks are played together, in the order of `gpuform up --all`.

    Changes nothing: the processes that play have no credentials, and reach only the emulator. The
    same plan and seed give the same result.

    \b
    Examples:
      gpuform rehearse --stack prod
      gpuform rehearse --plan plan.json --hazards no-capacity,killed
      gpuform rehearse --all --json
    """
    from gpuform.stacks.cli.stack_runs import create_rehearsal_progress  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.cli.terminal.signals import raise_on_signals  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.opening.emulator import require_emulator  # noqa: PLC0415 - as above
    from gpuform.stacks.rehearsing import RehearsalOptions  # noqa: PLC0415 - as above

    reject_filter_without_all(every_stack=every_stack, filters=filters)
    with open_session() as session, raise_on_signals():
        require_emulator()
        options = RehearsalOptions(
            hazards=hazards,
            seed=seed,
            jobs=jobs or os.cpu_count() or 1,
            allow=allow,
            on_progress=create_rehearsal_progress(session.screen),
        )
        if every_stack:
            return _rehearse_all(session, filters, plan_file, options, (as_json, emulate))
        return _rehearse_one(session, plan_file, options, as_json=as_json, emulate=emulate)


def _rehearse_one(
    session: Session,
    plan_file: Path | None,
    options: "RehearsalOptions",
    *,
    as_json: bool,
    emulate: bool,
) -> int:
    """Rehearse the plan of one stack, and print the result."""
    from gpuform.stacks.cli.opening import find_workspace, select_stack  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.cli.stack_runs import is_continued_in_virtualenv  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.runs.plan_file import read_plan  # noqa: PLC0415 - as above
    from gpuform.stacks.rehearsing import rehearse as rehearse_plan  # noqa: PLC0415 - as above

    workspace = find_workspace(session)
    if is_continued_in_virtualenv(workspace.project):
        return SUCCESS
    selected = select_stack(session, workspace)
    plan = (
        read_plan(plan_file)
        if plan_file is not None
        else _make_plan(session, selected, options.allow, emulate=emulate)
    )
    if plan is None:
        return FAILED
    rehearsal = rehearse_plan(selected, plan, options)
    if as_json:
        session.screen.write(rehearsal.model_dump_json(indent=2) + "\n")
    else:
        _print_rehearsals(session, [rehearsal])
    return SUCCESS


def _rehearse_all(
    session: Session,
    filters: tuple[str, ...],
    plan_file: Path | None,
    options: "RehearsalOptions",
    flags: tuple[bool, bool],
) -> int:
    """Rehearse the plans of the chosen stacks together, and print the result."""
    from gpuform.schemas.rehearsal import StacksRehearsal  # noqa: PLC0415 - as above
    from gpuform.stacks.cli.multi_stack_runs import (  # noqa: PLC0415 - the engine, not for help
        build_planned_stacks,
        plan_all_stacks,
    )
    from gpuform.stacks.cli.stack_selection import order_stacks  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.multi_stack.applied_parts import (  # noqa: PLC0415 - as above
        select_planned_names,
    )
    from gpuform.stacks.operations.runs.stacks_plan_file import (  # noqa: PLC0415 - as above
        read_stacks_plan,
    )

    as_json, emulate = flags
    order, chosen_names = order_stacks(session, filters, runs_programs=True)
    if plan_file is not None:
        stacks_plan = read_stacks_plan(plan_file)
        names = select_planned_names(
            plan_file, stacks_plan, order.workspace, "update", chosen_names
        )
    else:
        made_plan = plan_all_stacks(order, chosen_names, session, options.allow, emulate=emulate)
        if made_plan is None:
            return FAILED
        stacks_plan, names = made_plan, [plan.project_stack for plan in made_plan.plans]
    plans = {plan.project_stack: plan for plan in stacks_plan.plans}
    planned = build_planned_stacks(order, {name: plans[name] for name in names}, session)
    rehearsals, is_complete = _rehearse_planned_stacks(session, planned, options)
    if as_json:
        result = StacksRehearsal(rehearsals=tuple(rehearsals))
        session.screen.write(result.model_dump_json(indent=2) + "\n")
    elif not planned:
        session.screen.print("No plan changes anything: there is nothing to rehearse.")
    elif rehearsals:
        _print_rehearsals(session, rehearsals)
    return SUCCESS if is_complete else FAILED


def _rehearse_planned_stacks(
    session: Session, planned: "list[PlannedStack]", options: "RehearsalOptions"
) -> "tuple[list[Rehearsal], bool]":
    """Return one rehearsal of all stacks, or of each stack if no common rehearsal is possible.

    Stacks that cannot be played are named on stderr. Also return whether there are none of these.
    """
    from gpuform.stacks.rehearsing import RehearsalError, rehearse_together  # noqa: PLC0415 - as above
    from gpuform.stacks.rehearsing import rehearse as rehearse_plan  # noqa: PLC0415 - as above

    if len(planned) > 1:
        try:
            return [rehearse_together(planned, options)], True
        except RehearsalError as error:
            session.screen.warn(f"warning: each stack is rehearsed alone: {error.message}")
    rehearsals = []
    for item in planned:
        try:
            rehearsals.append(rehearse_plan(item.stack, item.plan, options))
        except RehearsalError as error:
            # The last one is the result of the command.
            if len(planned) == 1:
                raise
            session.screen.warn(f"warning: {item.plan.project}/{error.message}")
    return rehearsals, len(rehearsals) == len(planned)


def _make_plan(
    session: Session, selected: "SelectedStack", allow: tuple[str, ...], *, emulate: bool
) -> "Plan | None":
    """Return the plan of a preview, or None, with errors on stderr, if the preview fails."""
    from gpuform.stacks.operations import automation  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.operations.runs.options import RunOptions  # noqa: PLC0415 - as above

    result = automation.preview(selected, RunOptions(allow=allow, emulate=emulate))
    if result.plan is None:
        for diagnostic in result.diagnostics:
            if diagnostic.severity == "error":
                session.screen.warn(f"error: {diagnostic.message}")
    return result.plan


def _print_rehearsals(session: Session, rehearsals: "list[Rehearsal]") -> None:
    """Print rehearsals as text, with an empty line between two rehearsals."""
    from gpuform.stacks.review.rehearsal_text import render_all_hazards  # noqa: PLC0415 - not for help

    blocks = ["\n".join(render_all_hazards(item, session.screen.paint)) for item in rehearsals]
    session.screen.print("\n\n".join(blocks))

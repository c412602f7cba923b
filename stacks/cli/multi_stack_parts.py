"""Plan parts of a multi-stack plan, and join parts into the plan, for `plan-part` and `join`.

The commands call this module; it calls `operations/multi_stack/parts.py` for the files, and
`runner` for the plans.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from gpuform.schemas.safe_text import escape_invisible, format_json
from gpuform.schemas.stacks_plan import PartSchedule
from gpuform.stacks.ci_workflows import find_repository_root
from gpuform.stacks.cli import multi_stack_worker
from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.flags import RunArguments
from gpuform.stacks.cli.multi_stack_runs import (
    MultiStackPrinter,
    create_multi_stack_callbacks,
    trace_multi_stack_run,
)
from gpuform.stacks.cli.session import Session
from gpuform.stacks.cli.stack_runs import choose_exit_code
from gpuform.stacks.cli.stack_selection import order_stacks
from gpuform.stacks.cli.terminal.signals import raise_on_signals
from gpuform.stacks.document.diagnostics import Diagnostics, format_text
from gpuform.stacks.multi_stack import MultiStackError, StackOrder, find_workspace
from gpuform.stacks.operations.multi_stack.gitlab_jobs import render_gitlab_jobs
from gpuform.stacks.operations.multi_stack.parts import (
    PartFolder,
    build_apply_schedule,
    build_part_order,
    build_schedule,
    open_upstream_parts,
    read_all_parts,
)
from gpuform.stacks.operations.multi_stack.runner import (
    MultiStackOptions,
    plan_stacks,
    run_multi_stack,
)


def write_waves(
    folder: Path,
    filters: Sequence[str],
    runners: int | None,
    gitlab_job: str | None,
    session: Session,
) -> int:
    """Write the schedule of the chosen stacks into the folder, and print the waves.

    They are jobs of GitLab which extend the hidden job `gitlab_job`, or JSON without one. Without
    any chosen stack the waves are empty. Raises EngineError.
    """
    order, names = order_stacks(session, filters, runs_programs=True)
    part_folder = PartFolder.create(folder, build_schedule(order, names, runners))
    _print_waves(part_folder.schedule, part_folder, gitlab_job, session)
    return SUCCESS


def print_apply_waves(
    path: Path,
    filters: Sequence[str],
    runners: int | None,
    gitlab_job: str | None,
    session: Session,
) -> int:
    """Print the waves in which the chosen stacks of a saved plan are applied.

    The form is that of `write_waves`. Without any chosen stack in the plan the waves are empty. No
    file is written. Raises EngineError.
    """
    order, chosen_names = order_stacks(session, filters, runs_programs=False, applies_plan=True)
    schedule = build_apply_schedule(path, order.workspace, chosen_names, runners)
    _print_waves(schedule, None, gitlab_job, session)
    return SUCCESS


def _print_waves(
    schedule: PartSchedule, folder: PartFolder | None, gitlab_job: str | None, session: Session
) -> None:
    """Print the waves of a schedule as one line of JSON, or as the jobs of a GitLab pipeline.

    The jobs pass on the parts of the folder; None for jobs that apply. Raises EngineError.
    """
    if gitlab_job is not None:
        root = find_repository_root(Path.cwd().resolve())
        jobs_yaml = render_gitlab_jobs(gitlab_job, schedule, folder, root)
        session.screen.print(jobs_yaml.removesuffix("\n"))
        return
    waves = [[part.model_dump() for part in wave] for wave in schedule.waves]
    session.screen.print(format_json(waves))


def plan_part(
    folder: Path, names: Sequence[str], arguments: RunArguments, jobs: int | None, session: Session
) -> int:
    """Plan the named stacks, write a part of each, and return the exit code.

    Nothing is written for a stack that cannot be planned. Raises EngineError.
    """
    start = Path.cwd()
    part_folder = PartFolder.open(folder, start)
    order, upstream = build_part_order(part_folder, names, start, session.environ)
    upstream_stacks = [order.workspace.stacks[name] for name in upstream]
    planned = open_upstream_parts(
        part_folder, upstream_stacks, session.environ, session.screen.create_passphrase_prompt()
    )
    options = MultiStackOptions(
        arguments.options,
        names,
        multi_stack_worker.__name__,
        jobs,
        color=session.screen.paint.color,
        debug=session.verbose,
        rehearses=arguments.rehearse,
        planned=planned,
        planned_elsewhere=part_folder.names,
        part_facts=part_folder.part_facts,
    )
    printer = MultiStackPrinter(session.screen, arguments, None)
    callbacks = create_multi_stack_callbacks(printer, session)
    with raise_on_signals(), trace_multi_stack_run("plan-part", session) as traceparent:
        results, _ = plan_stacks(order, replace(options, traceparent=traceparent), callbacks)
    for name, result in results.items():
        if result.code == 0:
            session.screen.print(f"{name}: wrote {part_folder.write_part(name, result)}")
    failed = [name for name, result in results.items() if result.code != 0]
    if failed:
        session.screen.warn(escape_invisible(f"error: no part was written of {', '.join(failed)}"))
    return FAILED if failed else SUCCESS


def join_parts(folder: Path, arguments: RunArguments, session: Session) -> int:
    """Join the parts of all stacks into one plan, show and save the plan, and return the exit code.

    Gates stop the plan as those of `preview --all` do. Raises EngineError.
    """
    part_folder = PartFolder.open(folder, Path.cwd())
    if not part_folder.names:
        session.screen.print("No stack is affected: nothing to do.")
        return SUCCESS
    problems = Diagnostics()
    workspace = find_workspace(Path.cwd(), session.environ, problems)
    if problems:
        raise MultiStackError(f"cannot load the stacks:\n{format_text(list(problems))}")
    warn = session.screen.warn
    joined = read_all_parts(part_folder, workspace.stacks, session.environ, warn)
    bases = [result.plan.basis for result in joined.results.values() if result.plan is not None]
    emulates = any(basis is not None and basis.options.get("emulate") for basis in bases)
    arguments = replace(arguments, options=replace(arguments.options, emulate=emulates))
    options = MultiStackOptions(
        arguments.options,
        part_folder.names,
        multi_stack_worker.__name__,
        planned=joined.results,
        load_planned=joined.load_plan,
    )
    printer = MultiStackPrinter(session.screen, arguments, arguments.options.save_plan)
    with raise_on_signals(), trace_multi_stack_run("join", session):
        result = run_multi_stack(
            # The plans name the stacks that they read: no file of a stack is read again.
            StackOrder(workspace, {name: {} for name in part_folder.names}, {}, {}),
            options,
            create_multi_stack_callbacks(printer, session),
        )
    printer.print_result(result)
    has_changes = result.plan is not None and result.plan.has_changes
    return choose_exit_code(arguments, result.reason, has_changes=has_changes)


def require_names(names: Sequence[str], *, waves: bool) -> None:
    """Raise UsageError unless the command has stacks, or --waves instead."""
    if waves and names:
        raise click.UsageError("--waves plans nothing: leave the stacks out")
    if not waves and not names:
        raise click.UsageError("name the stacks as PROJECT/STACK, or pass --waves")

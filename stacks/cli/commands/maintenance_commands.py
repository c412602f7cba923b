"""Run `gpuform drift`, `expire`, `repair` and `cancel`.

`expire` and `repair` run operations; `drift` compares without changing anything, `cancel` removes
locks.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuform.stacks.cli.failures import CHANGES, FAILED, SUCCESS
from gpuform.stacks.cli.flags import (
    MultiStackFlags,
    RunArguments,
    add_format_flags,
    adopt_flag,
    all_flag,
    allow_flag,
    create_anew_flag,
    emulate_flag,
    file_option,
    filter_flag,
    jobs_flag,
    lock_flag,
    message_flag,
    output_flag,
    parallel_flag,
    pulumi_json_flag,
    reject_filter_without_all,
    require_checks_flag,
    yes_flag,
)
from gpuform.stacks.cli.session import (
    FORMATS,
    Session,
    add_stack_flags,
    open_session,
    write_review,
)
from gpuform.stacks.cli.terminal.prompts import is_confirmed
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.operations.runs.options import RunOptions

if TYPE_CHECKING:
    from gpuform.stacks.operations.status_reading import DriftResult


@click.command()
@add_format_flags(FORMATS, default="text", help_text="The format, as in `gpuform review`.")
@output_flag
@file_option("--save-plan", help="Also write the result to this file, for `gpuform review FILE`.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 2 if drift is found.")
@click.option(
    "--target",
    "-t",
    multiple=True,
    metavar="URN",
    help="Only this resource: a URN, a name, or a pattern with * or **.",
)
@all_flag
@filter_flag
@jobs_flag
@emulate_flag
@add_stack_flags
def drift(  # noqa: PLR0913, PLR0917 - the flags
    form: str,
    output: Path | None,
    save_plan: Path | None,
    detailed_exitcode: bool,
    target: tuple[str, ...],
    every_stack: bool,
    filters: tuple[str, ...],
    jobs: int | None,
    emulate: bool,
) -> int:
    """Show drift: what changed outside of the stack.

    Reads every resource and compares it with the stack's state. Does not run the program, so the
    result contains no changes of the program. Writes no state and takes no lock. Exits with 1 when
    a resource could not be read; the output still shows the drift of the others.

    \b
    Examples:
      gpuform drift --stack prod
      gpuform drift --detailed-exitcode --format github --output drift.md
    """
    from gpuform.schemas.plan import Plan  # noqa: PLC0415 - the engine, not for help
    from gpuform.schemas.stacks_plan import StacksPlan  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.runs.plan_file import write_plan  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.runs.stacks_plan_file import (  # noqa: PLC0415 - as above
        write_stacks_plan,
    )
    from gpuform.stacks.review.facts import Review, StackFacts  # noqa: PLC0415 - as above

    reject_filter_without_all(every_stack=every_stack, filters=filters)
    if every_stack and target:
        raise click.UsageError(
            "--target selects resources of one stack: it cannot be combined with --all"
        )
    plan: Plan | StacksPlan
    with open_session() as session:
        if every_stack:
            from gpuform.stacks.cli import multi_stack_runs  # noqa: PLC0415 - as above

            stacks_flags = MultiStackFlags(filters, jobs)
            stacks_result = multi_stack_runs.find_drift(stacks_flags, session, emulate=emulate)
            if stacks_result.plan is None:
                return FAILED
            plan, succeeded = stacks_result.plan, stacks_result.succeeded
            problems: list[str] = []  # each stack's process has reported its own
            review = Review.from_stacks_plan(plan, emulate=emulate)
        else:
            result = _find_stack_drift(session, target, emulate=emulate)
            if result is None:
                return SUCCESS
            plan, succeeded, problems = result.plan, result.succeeded, [*_list_problems(result)]
            review = Review([StackFacts(plan, emulate=emulate)])
        write_review(review, form, output, session)
        if save_plan is not None:
            if isinstance(plan, StacksPlan):
                write_stacks_plan(save_plan, plan, None)
            else:
                write_plan(save_plan, plan)
        # After the review: what could be read is shown in any case.
        for problem in problems:
            session.screen.warn(problem)
    if not succeeded:
        return FAILED
    return CHANGES if detailed_exitcode and plan.has_changes else SUCCESS


def _find_stack_drift(
    session: Session, targets: tuple[str, ...], *, emulate: bool
) -> "DriftResult | None":
    """Return the drift of the selected stack; None if another interpreter has run the command."""
    from gpuform.stacks.cli.opening import (  # noqa: PLC0415 - as above
        create_message_callbacks,
        find_workspace,
        select_stack,
    )
    from gpuform.stacks.cli.stack_runs import is_continued_in_virtualenv  # noqa: PLC0415 - as above
    from gpuform.stacks.cli.terminal.signals import raise_on_signals  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.reporting import find_reported_drift  # noqa: PLC0415 - as above

    # The state is enough: no program runs.
    workspace = find_workspace(session, runs_program=False)
    if is_continued_in_virtualenv(workspace.project):
        return None
    selected = select_stack(session, workspace)
    callbacks = create_message_callbacks(session.screen)
    with raise_on_signals():
        return find_reported_drift(selected, targets, callbacks, emulate=emulate)


def _list_problems(drift_result: "DriftResult") -> Iterator[str]:
    """Yield the reasons for unreadable resources, then a line about the incomplete result."""
    from gpuform.stacks.review.history_text import render_diagnostics  # noqa: PLC0415 - as above

    if not drift_result.succeeded:
        yield from render_diagnostics(drift_result.diagnostics)
        yield "error: not all resources could be read"


@click.command()
@yes_flag
@click.option(
    "--dry-run",
    "--preview-only",
    "preview_only",
    is_flag=True,
    help="Only show what is due; exits with 3 if anything is.",
)
@click.option(
    "--target-dependents",
    is_flag=True,
    help="Also destroy the dependents of expired resources.",
)
@allow_flag
@message_flag
@pulumi_json_flag
@require_checks_flag
@adopt_flag
@create_anew_flag
@parallel_flag
@lock_flag
@emulate_flag
@add_stack_flags
def expire(**flags: Any) -> int:
    """Destroy what has expired, and stop or start resources with running hours.

    Uses the state and does not run the program: reads the resources that declare expires, ttl or
    schedule, and destroys, stops or starts only those that are due. As `destroy`, refuses protected
    resources, those that need a permission and those that others depend on. Exit codes for a
    scheduled job: 0 when everything due is done or nothing is due, 1 when something failed or was
    refused, 3 when --dry-run finds something that is due, 4 when the start of a ttl is
    unknown or, with --require-checks, a check could not be made.

    \b
    Examples:
      gpuform expire --dry-run
      gpuform expire --yes --stack prod
    """
    from gpuform.stacks.cli import stack_runs  # noqa: PLC0415 - the engine, not for help

    with open_session() as session:
        return stack_runs.run_command(RunArguments.from_flags(RunOptions("expire"), flags), session)


@click.command()
@click.argument("node", nargs=-1)
@click.option(
    "--mode",
    metavar="MODE",
    default="",
    help="The repair action, in the platform's words, such as REBOOT_VM; for all named nodes. "
    "REJECT or CANCEL ends a repair that the platform proposes, or that waits for its run.",
)
@yes_flag
@click.option(
    "--dry-run",
    "--preview-only",
    "preview_only",
    is_flag=True,
    help="Only show what would be repaired; exits with 3 if anything would.",
)
@file_option(
    "--save-plan",
    help="With --dry-run: write the plan to this file, for a review and for --plan.",
)
@file_option("--plan", help="Do only what this plan contains.")
@click.option(
    "--allow",
    multiple=True,
    metavar="NAME",
    help="Allow a refused action, such as evict-jobs, for this run only.",
)
@message_flag
@pulumi_json_flag
@require_checks_flag
@parallel_flag
@lock_flag
@emulate_flag
@add_stack_flags
def repair(node: tuple[str, ...], mode: str, **flags: Any) -> int:
    """Repair broken nodes that run no jobs.

    Repairs the nodes that the `repair` of their resources allows, or the named nodes without regard
    to `repair`. Uses the state and does not run the program: reads the resources that have nodes,
    and shows the broken nodes, the evidence and their jobs. Drains each node before its repair, so
    that no job runs on it. If `repair` requires a review, repairs only after a confirmation or with
    a saved plan; --yes repairs only named nodes and nodes with `approve: automatic`. Exits with 0
    when everything due is done or nothing is due, with 1 when something failed or was refused, and
    with 3 when --dry-run finds something that is due.

    \b
    Examples:
      gpuform repair --dry-run
      gpuform repair training-worker-0 --mode REBOOT_VM
      gpuform repair training-worker-2 --mode REJECT
    """
    from gpuform.stacks.cli import stack_runs  # noqa: PLC0415 - the engine, not for help

    if mode and not node:
        raise click.UsageError("--mode requires named nodes: gpuform repair NODE --mode")
    if flags.get("save_plan") and not flags["preview_only"]:
        raise click.UsageError("--save-plan requires --dry-run")
    if flags.get("plan") and (node or flags["preview_only"]):
        raise click.UsageError(
            "--plan determines the nodes to repair: leave the other arguments out"
        )
    repair_nodes = tuple(f"{node_name}={mode}" if mode else node_name for node_name in node)
    options = RunOptions("repair", repair_nodes=repair_nodes)
    with open_session() as session:
        return stack_runs.run_command(RunArguments.from_flags(options, flags), session)


@click.command()
@click.argument("name", required=False)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@add_stack_flags
def cancel(name: str | None, yes: bool) -> int:
    """Remove the locks that an ended command left on a stack.

    Shows the owners of the locks and removes the locks, as `pulumi cancel` does. The command ends
    no process. It keeps the lock of a gpuform process that still works on the stack, on this
    machine or, with the state in a bucket, on any machine. The state has the changes of the
    interrupted command, and the next `gpuform up` continues from there.

    \b
    Example:
      gpuform cancel dev
    """
    with open_session() as session:
        workspace = Workspace.find(Path.cwd(), session.environ, runs_program=False)
        name = workspace.resolve(name or session.stack)
        lock = workspace.backend.create_lock(workspace.project.name, name)
        holders = lock.list_holders()
        if not holders:
            lock.cancel()  # refused while a process works whose file somebody removed
            session.screen.print(f"Stack {name} is not locked.")
            return SUCCESS
        for holder in holders:
            session.screen.print(holder.describe())
        question = (
            "If one of these processes still runs, the state may lose the further changes "
            "of the process. Remove the locks?"
        )
        if not is_confirmed(session.screen, question, yes=yes):
            return FAILED
        lock.cancel()
        session.screen.print(f"Removed the locks of stack {name}.")
        return SUCCESS

"""`gpuform drift`: what changed behind the stack's back, without a lock and without a change."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuform.stacks.cli.commands.review.review_output import FORMATS, write_review
from gpuform.stacks.cli.failures import CHANGES, FAILED, SUCCESS
from gpuform.stacks.cli.flags import emulate_flag, output_flag
from gpuform.stacks.cli.session import Session, session, stack_flags
from gpuform.stacks.cli.several import Several, all_flag, check_several, filter_flag, jobs_flag

if TYPE_CHECKING:
    from gpuform.stacks.operations.drifting import DriftResult
    from gpuform.stacks.operations.several.running import SeveralResult


@click.command()
@click.option(
    "--format",
    "-f",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="As in `gpuform review`.",
)
@output_flag
@click.option(
    "--save-plan",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write what was found to this file as well, for `gpuform review FILE`.",
)
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 2 if there is drift.")
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
@stack_flags
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
    """Show what was changed behind the stack's back.

    Reads every resource and compares it with what the stack last knew; the program is not run, so
    that what it wants is not mixed in. No state is written and no lock is taken. Exits with 1 when
    a resource could not be read: what the others show is still told.

    \b
    Examples:
      gpuform drift --stack prod
      gpuform drift --detailed-exitcode --format github --output drift.md
    """
    from gpuform.stacks.cli.opening import (  # noqa: PLC0415 - as above
        chosen_stack,
        told_on,
        workspace_of,
    )
    from gpuform.stacks.cli.running import goes_on_elsewhere  # noqa: PLC0415 - as above
    from gpuform.stacks.cli.terminal.stopping import unwinding  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.drifting import find_drift  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.operations.plans.plan_file import write_plan  # noqa: PLC0415 - as above
    from gpuform.stacks.review.facts import Review, StackFacts  # noqa: PLC0415 - as above

    check_several(every_stack=every_stack, filters=filters)
    if every_stack and target:
        raise click.UsageError("--target is about one stack: it does not go with --all")
    with session() as current:
        if every_stack:
            whole = _drift_of_all(Several(filters, jobs), current, emulate=emulate)
            if whole.plan is None:
                return FAILED
            write_review(Review.of(whole.plan, emulate=emulate), form, output, current)
            if save_plan is not None:
                write_plan(save_plan, whole.plan)
            if not whole.succeeded:
                return FAILED
            return CHANGES if detailed_exitcode and whole.plan.has_changes else SUCCESS
        workspace = workspace_of(current, runs_program=False)
        if goes_on_elsewhere(workspace.project):
            return SUCCESS
        selected = chosen_stack(current, workspace)
        with unwinding():
            found = find_drift(selected, target, told_on(current.screen), emulate=emulate)
        plan, problems = found.plan, list(_problems(found))
        review = Review([StackFacts(plan, emulate=emulate)])
        write_review(review, form, output, current)
        if save_plan is not None:
            write_plan(save_plan, plan)
        for text in problems:
            current.screen.warn(text)
    if problems:
        return FAILED
    return CHANGES if detailed_exitcode and plan.has_changes else SUCCESS


def _drift_of_all(several: Several, current: Session, *, emulate: bool) -> "SeveralResult":
    from gpuform.stacks.cli import several_runs  # noqa: PLC0415 - the engine, not for help

    return several_runs.drift(several, current, emulate=emulate)


def _problems(found: "DriftResult") -> Iterator[str]:
    """Why some of it could not be read."""
    from gpuform.stacks.review.text.diagnostics_text import (  # noqa: PLC0415 - not for help
        diagnostics_lines,
    )

    if not found.succeeded:
        yield from diagnostics_lines(found.diagnostics)
        yield "error: not every resource could be read"

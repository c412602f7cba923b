"""Run `gpuform explain`, `calendar` and `notify`: what happened, what comes, who is notified."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuform.schemas.errors import EngineError
from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.flags import (
    add_format_flags,
    add_multi_stack_flags,
    emulate_flag,
    emulated_state_flag,
    output_flag,
    reject_filter_without_all,
)
from gpuform.stacks.cli.session import Session, add_stack_flags, open_session

if TYPE_CHECKING:
    from gpuform.stacks.review.multi_stack_status_text import StackStatus


@click.command()
@click.argument("name")
@click.option("--json", "-j", "as_json", is_flag=True, help="Print JSON instead of text.")
@emulated_state_flag
@add_stack_flags
def explain(name: str, as_json: bool) -> None:
    """Explain who created, changed or deleted something, when and why.

    NAME is a resource's name or URN, a node's name or id, or the id of an object, also of one that
    no longer exists. Shows the runs with their people, commits, pull requests, plans and approvals;
    the tests and repairs of nodes with figures and evidence; and the cost. Reads the state, the
    history and the records of the stack. Runs of the Pulumi CLI count as well. Requests no platform
    and changes nothing.

    \b
    Examples:
      gpuform explain train
      gpuform explain training-worker-0 --json
    """
    from gpuform.stacks.cli.opening import find_workspace, select_stack  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.operations.explaining import explain_name  # noqa: PLC0415 - as above
    from gpuform.stacks.review.timeline_text import render_explanation  # noqa: PLC0415

    with open_session() as session:
        selected = select_stack(session, find_workspace(session, runs_program=False))
        explanation = explain_name(selected, name)
        if as_json:
            session.screen.print(format_json(explanation.model_dump(mode="json"), indent=2))
            return
        lines = render_explanation(explanation, paint=session.screen.paint)
        session.screen.print("\n".join(lines))


@click.command()
@add_format_flags(
    ("text", "ics", "json"), default="text", help_text="A table, an iCalendar file, or JSON."
)
@click.option(
    "--refresh", "-r", is_flag=True, help="Request the platforms now; the state does not change."
)
@output_flag
@emulate_flag
@add_multi_stack_flags
@add_stack_flags
def calendar(
    form: str,
    refresh: bool,
    output: Path | None,
    emulate: bool,
    every_stack: bool,
    filters: tuple[str, ...],
) -> int:
    """Show what begins and ends: reservations, lifetimes, running hours.

    Reads the state: the start and end of reservations, the end of what declares expires or ttl, the
    weekly running hours, rollouts in progress, and certifications that have become stale. The table
    and JSON are sorted by time; other programs can subscribe to the iCalendar file. With --all the
    calendar has all stacks, and the exit code is 1 if a stack could not be read.

    \b
    Examples:
      gpuform calendar --stack prod
      gpuform calendar --all --format ics --output fleet.ics
    """
    from gpuform.stacks.cli.terminal.screen import write_parts  # noqa: PLC0415 - not for help

    reject_filter_without_all(every_stack=every_stack, filters=filters)
    _require_icalendar(form)
    with open_session() as session:
        if every_stack:
            from gpuform.stacks.cli.stack_selection import read_statuses  # noqa: PLC0415 - as above
            from gpuform.stacks.document.diagnostics import Diagnostics  # noqa: PLC0415 - as above

            statuses = [
                *read_statuses(session, filters, Diagnostics(), refresh=refresh, emulate=emulate)
            ]
        else:
            statuses = [_read_one_stack(session, refresh=refresh, emulate=emulate)]
        write_parts([_render_calendar(session, statuses, form)], output, session.screen)
    has_unread_stacks = any(it.problem and it.exists for it in statuses)
    # With --refresh a platform was asked for each resource.
    has_unread_resources = refresh and any(it.status and it.status.unread_names for it in statuses)
    return FAILED if has_unread_stacks or has_unread_resources else SUCCESS


def _require_icalendar(form: str) -> None:
    """Raise EngineError if iCalendar is asked for, and the package is not installed."""
    from gpuform.stacks.engine.machine import get_pip_requirement  # noqa: PLC0415 - not for help

    if form == "ics" and find_spec("icalendar") is None:
        raise EngineError(
            "`gpuform calendar --format ics` requires a package that is not installed: icalendar",
            f"Install it: pip install '{get_pip_requirement('calendar')}'",
        )


def _read_one_stack(session: Session, *, refresh: bool, emulate: bool) -> "StackStatus":
    """Return the status of the selected stack, including the calendar."""
    from gpuform.stacks.cli.opening import find_workspace, select_stack  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.operations.status_reading import read_status  # noqa: PLC0415 - as above
    from gpuform.stacks.review.multi_stack_status_text import StackStatus  # noqa: PLC0415

    selected = select_stack(session, find_workspace(session, runs_program=False))
    status = read_status(selected, refresh=refresh, emulate=emulate)
    return StackStatus(selected.name, status)


def _render_calendar(session: Session, statuses: "list[StackStatus]", form: str) -> str:
    """Return the calendar of the stacks in a format, with a final line break."""
    from datetime import UTC, datetime  # noqa: PLC0415 - not for help

    from gpuform.schemas.timeline import Agenda  # noqa: PLC0415 - as above
    from gpuform.stacks.review.timeline_text import render_agenda, render_icalendar  # noqa: PLC0415
    from gpuform.stacks.schedule.calendar import sort_agenda  # noqa: PLC0415 - as above

    lines = [line for it in statuses if it.status for line in it.status.agenda]
    agenda = Agenda(
        made_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        entries=tuple(sort_agenda(lines)),
        unread=tuple(f"{it.name}: {it.problem}" for it in statuses if it.problem and it.exists),
    )
    if form == "json":
        return format_json(agenda.model_dump(mode="json"), indent=2) + "\n"
    if form == "ics":
        return render_icalendar(agenda)
    return "\n".join(render_agenda(agenda, paint=session.screen.paint)) + "\n"


@click.command()
@click.option("--test", is_flag=True, help="Send a message to the address of each rule.")
@emulated_state_flag
@add_stack_flags
def notify(test: bool) -> int:
    """Show who is notified of what, or send a test to everybody.

    Shows the rules of notify.yaml and of `notify` in stacks.yaml, and whether the stack's
    configuration has the address of each. With --test sends a message by each rule, and exits with
    1 when one of them was not accepted, or has no address.

    \b
    Examples:
      gpuform notify
      gpuform notify --test --stack prod
    """
    from gpuform.stacks.cli.opening import find_workspace, select_stack  # noqa: PLC0415 - not for help
    from gpuform.stacks.notify import FILE, read_rules  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.notifying import describe_rules, send_test_messages  # noqa: PLC0415

    with open_session() as session:
        selected = select_stack(session, find_workspace(session, runs_program=False))
        rules = read_rules(selected.workspace.project.directory)
        if not rules:
            raise EngineError(
                "the project has no notification rules",
                f"write them into {FILE}, or as `notify` into stacks.yaml",
            )
        if not test:
            for line in describe_rules(selected.open(), rules):
                session.screen.print(line)
            return SUCCESS
        problems = send_test_messages(selected, rules)
        for name, problem in problems.items():
            if problem:
                session.screen.warn(f"error: {name}: {problem}")
            else:
                session.screen.print(f"{name}: sent")
        return FAILED if any(problems.values()) else SUCCESS

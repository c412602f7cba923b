"""Run `gpuform status` and `graph`: commands that show what a stack has."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.failures import FAILED, OUT_OF_CREDIT, SUCCESS
from gpuform.stacks.cli.flags import (
    emulate_flag,
    multi_stack_flags,
    output_flag,
    reject_filter_without_all,
)
from gpuform.stacks.cli.session import Session, open_session, stack_flags
from gpuform.stacks.cli.terminal.screen import read_content, write_parts

if TYPE_CHECKING:
    from gpuform.schemas.plan import Plan
    from gpuform.stacks.document.diagnostics import Diagnostics
    from gpuform.stacks.engine.state import ResourceState
    from gpuform.stacks.graph.arranging import Drawing
    from gpuform.stacks.multi_stack import WorkspaceStack
    from gpuform.stacks.review.text.multi_stack_status_text import StackStatus


@click.command()
@click.option("--json", "-j", "as_json", is_flag=True, help="JSON instead of a table.")
@click.option(
    "--refresh",
    "-r",
    is_flag=True,
    help="Ask the platforms now; the state stays as it is.",
)
@emulate_flag
@multi_stack_flags
@stack_flags
def status(
    as_json: bool, refresh: bool, emulate: bool, every_stack: bool, filters: tuple[str, ...]
) -> int:
    """Show the stack's resources: state, readiness, GPUs, cost, alerts.

    It shows what the state says, or with --refresh what the platforms say and measure now. Where
    Lens is configured (LENS_URL or lens:url), idle and busy nodes, the hottest GPUs and the top
    consumers are shown, too. Nothing is locked and nothing is changed. Exits with 1 when --refresh
    could not look at something, and with 9 when something has stopped because no credit is left.

    With --all it shows each stack under its name, and what all of them come to. One that cannot be
    read holds no other, and it exits with 1; one that is not made yet is told.

    \b
    Examples:
      gpuform status --stack dev
      gpuform status --refresh --json
      gpuform status --all
    """
    reject_filter_without_all(every_stack=every_stack, filters=filters)
    with open_session() as current:
        if every_stack:
            return _show_all_stacks(
                current, filters, as_json=as_json, refresh=refresh, emulate=emulate
            )
        return _show_stack(current, as_json=as_json, refresh=refresh, emulate=emulate)


def _show_stack(current: Session, *, as_json: bool, refresh: bool, emulate: bool) -> int:
    from gpuform.stacks.cli.opening import (  # noqa: PLC0415 - the engine, not for help
        find_workspace,
        select_stack,
    )
    from gpuform.stacks.operations.status_reading import read_status  # noqa: PLC0415 - as above
    from gpuform.stacks.review.text.status_text import (  # noqa: PLC0415 - as above
        build_status_document,
        render_status,
    )
    from gpuform.stacks.schedule.noticing import is_out_of_credit  # noqa: PLC0415 - as above

    selected = select_stack(current, find_workspace(current, runs_program=False))
    stack_status = read_status(selected, refresh=refresh, emulate=emulate)
    if as_json:
        document = build_status_document(stack_status)
        current.screen.print(format_json(document, indent=2))
    else:
        lines = render_status(stack_status, paint=current.screen.paint)
        current.screen.print("\n".join(lines))
    unread_names = stack_status.unread_names if refresh else ()
    if unread_names:
        current.screen.warn(f"error: could not look at {', '.join(unread_names)}")
        return FAILED
    return OUT_OF_CREDIT if is_out_of_credit(stack_status.notices) else SUCCESS


def _show_all_stacks(
    current: Session, filters: Sequence[str], *, as_json: bool, refresh: bool, emulate: bool
) -> int:
    from gpuform.stacks.cli.choosing import choose_stacks, require_any_stack  # noqa: PLC0415 - not for help
    from gpuform.stacks.document.diagnostics import Diagnostics  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.status_reading import StatusQuery, read_stack_statuses  # noqa: PLC0415
    from gpuform.stacks.review.text.multi_stack_status_text import (  # noqa: PLC0415 - as above
        StackStatus,
        Totals,
        build_multi_stack_document,
        format_totals,
        render_stack_status,
    )

    problems = Diagnostics()
    chosen = choose_stacks(current, filters, problems)
    require_any_stack(chosen, problems)
    ask = current.screen.create_passphrase_prompt()
    query = StatusQuery(
        chosen.order.workspace.root,
        current.environ,
        refresh,
        emulate,
        None if ask is None else lambda name, prompt: ask(f"{name}: {prompt}"),
    )
    statuses: list[StackStatus] = []
    for status in read_stack_statuses(chosen.members, query):
        if not as_json:
            shown = [s.status.monitoring for s in statuses if s.status and s.status.monitoring]
            lines = render_stack_status(status, shown, paint=current.screen.paint)
            current.screen.print("\n".join([*lines, ""]))
        statuses.append(status)
    if as_json:
        current.screen.print(format_json(build_multi_stack_document(statuses), indent=2))
    else:
        current.screen.print(format_totals(Totals.from_statuses(statuses)))
    return _choose_exit_code(current, statuses, problems, refresh=refresh)


def _choose_exit_code(
    current: Session, statuses: Sequence["StackStatus"], problems: "Diagnostics", *, refresh: bool
) -> int:
    """Print what failed, and return the exit code for all stacks."""
    from gpuform.stacks.schedule.noticing import is_out_of_credit  # noqa: PLC0415 - not for help

    failed = [str(problem) for problem in problems]
    failed += [
        f"{stack_status.name} could not be read"
        for stack_status in statuses
        if stack_status.is_unread
    ]
    read = {
        stack_status.name: stack_status.status
        for stack_status in statuses
        if stack_status.status is not None
    }
    failed += [
        f"{name}: could not look at {', '.join(status.unread_names)}"
        for name, status in read.items()
        if refresh and status.unread_names
    ]
    for text in failed:
        current.screen.warn(f"error: {text}")
    if failed:
        return FAILED
    is_out = any(is_out_of_credit(status.notices) for status in read.values())
    return OUT_OF_CREDIT if is_out else SUCCESS


_MOST = 60


@click.command()
@click.option(
    "--format",
    "-f",
    "form",
    type=click.Choice(["dot", "mermaid", "html"]),
    default="dot",
    show_default=True,
    help="dot is Graphviz's, mermaid is for Markdown; html is one page with nothing to load.",
)
@click.option(
    "--plan",
    "plan_file",
    metavar="FILE",
    help="Draw what this plan does, in the colours and symbols of a review; - is stdin.",
)
@output_flag
@click.option(
    "--most",
    type=click.IntRange(min=0),
    default=_MOST,
    show_default=True,
    help="Where there are more shapes, like resources are one shape with a count; 0 never.",
)
@multi_stack_flags
@stack_flags
def graph(
    form: str,
    plan_file: str | None,
    output: Path | None,
    most: int,
    every_stack: bool,
    filters: tuple[str, ...],
) -> int:
    """Draw the stack: clusters with what is in them, volumes and fabrics beside.

    It draws the state, which needs no passphrase; nothing is asked of a platform and no secret is
    shown. With --plan it draws what a saved plan, or the output of `gpuform preview --json` or
    `pulumi preview --json`, would do; in its project, with what the state knows. An arrow leads
    from what needs something to what it needs.

    With --all each stack is a box with its resources inside, and an arrow leads to each stack that
    comes before it. A stack that is not made yet is an empty box. Exits with 1 when one could not
    be read.

    \b
    Examples:
      gpuform graph --format html --output stack.html
      gpuform graph | dot -Tsvg > stack.svg
      gpuform preview --save-plan plan.json && gpuform graph --plan plan.json --format mermaid
      gpuform graph --all --format mermaid
    """
    reject_filter_without_all(every_stack=every_stack, filters=filters)
    if every_stack and plan_file is not None:
        raise click.UsageError("--all draws states: it does not go with --plan")
    with open_session() as current:
        if every_stack:
            drawing, code = _show_graphs(current, filters, most)
        else:
            drawing, code = _show_graph(current, plan_file, most), SUCCESS
        write_parts([_render_drawing(drawing, form, current)], output, current.screen)
    return code


def _show_graph(current: Session, plan_file: str | None, most: int) -> "Drawing":
    from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - as above
    from gpuform.stacks.graph.arranging import arrange  # noqa: PLC0415 - not for help
    from gpuform.stacks.graph.things import build_plan_nodes, build_state_nodes  # noqa: PLC0415
    from gpuform.stacks.review.previews import read_plan  # noqa: PLC0415 - as above

    if plan_file is None:
        title, entries = _read_selected_state(current)
        things = build_state_nodes(entries)
    else:
        plan = read_plan("stdin" if plan_file == "-" else plan_file, read_content(plan_file))
        if plan.errors:
            raise EngineError(
                f"there is no graph of a plan that is not whole: its preview has failed: "
                f"{plan.errors[0]}",
                "`gpuform review` shows how far it came",
            )
        title = f"{plan.project}/{plan.stack}"
        things = build_plan_nodes(plan, _read_planned_state(current, plan))
    return arrange(title, things, most or len(things))


def _show_graphs(current: Session, filters: Sequence[str], most: int) -> tuple["Drawing", int]:
    """Return the drawing of all stacks and the exit code, and report unreadable stacks."""
    from gpuform.stacks.cli.choosing import choose_stacks, require_any_stack  # noqa: PLC0415 - not for help
    from gpuform.stacks.document.diagnostics import Diagnostics  # noqa: PLC0415 - as above
    from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - as above
    from gpuform.stacks.graph.arranging import StackPart, arrange_stacks  # noqa: PLC0415
    from gpuform.stacks.graph.things import build_state_nodes  # noqa: PLC0415 - as above

    problems = Diagnostics()
    chosen = choose_stacks(current, filters, problems)
    require_any_stack(chosen, problems)
    failed = [str(problem) for problem in problems]
    parts = []
    for member in chosen.members:
        entries, note = None, "could not be read"
        try:
            entries = _read_entries(current, member)
            note = "not made yet" if entries is None else ""
        except EngineError as error:
            failed.append(f"{member.name}: {error}")
        things = build_state_nodes(entries or ())
        parts.append(StackPart(member.name, things, chosen.list_dependencies(member.name), note))
    for text in failed:
        current.screen.warn(f"error: {text}")
    count = sum(len(part.nodes) for part in parts)
    drawing = arrange_stacks(chosen.order.workspace.root.name, parts, most or count)
    return drawing, FAILED if failed else SUCCESS


def _read_entries(current: Session, member: "WorkspaceStack") -> "list[ResourceState] | None":
    """Return the resources of the stack's state, or None if the stack does not exist."""
    from gpuform.stacks.engine.store import add_backup_hint  # noqa: PLC0415 - not for help
    from gpuform.stacks.operations.opening.selected_stack import read_sealed_state  # noqa: PLC0415

    workspace = member.open_workspace(current.environ)
    if member.stack not in workspace.stacks():
        return None

    def warn(text: str) -> None:
        current.screen.warn(f"{member.name}: {text}")

    with add_backup_hint(workspace.backend, member.project.name, member.stack):
        return read_sealed_state(workspace, member.stack, warn).snapshot.resources


def _read_selected_state(current: Session) -> tuple[str, list["ResourceState"]]:
    from gpuform.stacks.cli.opening import find_workspace, read_sealed_snapshot  # noqa: PLC0415

    workspace = find_workspace(current)
    name = workspace.resolve(current.stack)
    return f"{workspace.project.name}/{name}", read_sealed_snapshot(current, workspace).resources


def _read_planned_state(current: Session, plan: "Plan") -> list["ResourceState"]:
    """Return the resources of the planned stack's state, or none outside of its project."""
    from gpuform.stacks.cli.opening import find_workspace, read_sealed_snapshot  # noqa: PLC0415
    from gpuform.stacks.engine.project import ProjectError  # noqa: PLC0415 - as above

    try:
        workspace = find_workspace(current)
    except ProjectError:
        return []
    if plan.project != workspace.project.name or plan.stack not in workspace.stacks():
        return []
    return read_sealed_snapshot(replace(current, stack=plan.stack), workspace).resources


def _render_drawing(drawing: "Drawing", form: str, current: Session) -> str:
    if form == "html":
        from gpuform.stacks.graph.page import render_page  # noqa: PLC0415 - not for help

        return render_page(drawing)
    if form == "dot":
        from gpuform.stacks.graph.diagrams import render_dot  # noqa: PLC0415 - as above

        return render_dot(drawing)
    from gpuform.stacks.graph.diagrams import is_within_limits, render_mermaid  # noqa: PLC0415 - as above

    text = render_mermaid(drawing)
    if not is_within_limits(text, drawing):
        current.screen.warn(
            "warning: Mermaid refuses drawings of this size as it comes: give a smaller --most"
        )
    return text

"""Run `gpuform status` and `graph`: commands that show what a stack has, and change nothing."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuform.schemas.errors import EngineError
from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.failures import FAILED, OUT_OF_CREDIT, SUCCESS
from gpuform.stacks.cli.flags import (
    add_format_flags,
    add_multi_stack_flags,
    emulate_flag,
    emulated_state_flag,
    file_option,
    output_flag,
    reject_filter_without_all,
)
from gpuform.stacks.cli.session import Session, add_stack_flags, open_session
from gpuform.stacks.cli.terminal.screen import read_content, write_parts

if TYPE_CHECKING:
    from gpuform.schemas.plan import Plan
    from gpuform.stacks.document.diagnostics import Diagnostics
    from gpuform.stacks.engine.state import ResourceState
    from gpuform.stacks.graph.arranging import Drawing
    from gpuform.stacks.multi_stack import WorkspaceStack
    from gpuform.stacks.review.multi_stack_status_text import StackStatus


@click.command()
@click.option("--json", "-j", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--refresh",
    "-r",
    is_flag=True,
    help="Request the platforms now; the state does not change.",
)
@file_option(
    "--prometheus",
    help="Also write the figures to this file, in the text format of Prometheus, for node "
    "exporter's textfile collector.",
)
@emulate_flag
@add_multi_stack_flags
@add_stack_flags
def status(
    as_json: bool,
    refresh: bool,
    prometheus: Path | None,
    emulate: bool,
    every_stack: bool,
    filters: tuple[str, ...],
) -> int:
    """Show the stack's resources: state, readiness, GPUs, cost, alerts.

    Shows the state, or with --refresh what the platforms report and measure now. With Lens
    configured (LENS_URL or lens:url), also shows idle and busy nodes, hot GPUs (from 80 °C) and the
    top consumers. Takes no lock and changes nothing. Exits with 1 when --refresh could not read a
    resource, and with 9 when a platform has stopped something because no credit is left.

    With --all the command shows each stack under its name, and the totals. A stack that cannot be
    read does not stop the others, and the exit code is 1; the output also names stacks that do not
    exist yet.

    \b
    Examples:
      gpuform status --stack dev
      gpuform status --refresh --json
      gpuform status --all
      gpuform status --all --refresh --prometheus /var/lib/node_exporter/gpuform.prom
    """
    from gpuform.providers.context import trace_run  # noqa: PLC0415 - not for help

    reject_filter_without_all(every_stack=every_stack, filters=filters)
    with open_session() as session, contextlib.ExitStack() as reports:
        # Without --refresh no request is sent: there is nothing to trace.
        if refresh:
            title = f"gpuform status{' --all' if every_stack else ''}"
            reports.enter_context(trace_run(title, "", session.environ, session.screen.warn))
        flags = _StatusFlags(as_json, refresh, emulate, prometheus)
        if every_stack:
            return _show_all_stacks(session, filters, flags)
        return _show_stack(session, flags)


@dataclass(frozen=True, slots=True)
class _StatusFlags:
    """The flags of a status."""

    as_json: bool
    refresh: bool
    emulate: bool
    prometheus: Path | None

    def sends_metrics(self, session: Session) -> bool:
        """Return True if figures of the platforms go to a collector."""
        from gpuform.providers.context import is_exported  # noqa: PLC0415 - not for help

        return self.refresh and is_exported("metrics", session.environ)


def _report_figures(
    session: Session, statuses: Sequence["StackStatus"], flags: _StatusFlags
) -> None:
    """Write the figures of the stacks into the file of --prometheus, and send them, if asked.

    Raises:
        EngineError: the file cannot be written.
    """
    if flags.prometheus is None and not flags.sends_metrics(session):
        return
    from gpuform.stacks import fleet_metrics  # noqa: PLC0415 - only for figures

    samples = []
    for stack_status in statuses:
        fleet = None if stack_status.status is None else stack_status.status.fleet
        if fleet is not None:
            samples += fleet_metrics.collect_samples(fleet)
        elif stack_status.is_unread:
            samples.append(fleet_metrics.build_unreadable_sample(stack_status.name))
    if flags.prometheus is not None:
        fleet_metrics.write_textfile(flags.prometheus, samples)
    if flags.sends_metrics(session):
        fleet_metrics.export_samples(samples, session.environ, session.screen.warn)


def _show_stack(session: Session, flags: _StatusFlags) -> int:
    """Print the stack's status, and return the exit code.

    FAILED if a resource could not be read with `refresh`, else OUT_OF_CREDIT if credit is gone.
    """
    from gpuform.stacks.cli.opening import (  # noqa: PLC0415 - the engine, not for help
        find_workspace,
        select_stack,
    )
    from gpuform.stacks.operations.status_reading import read_status  # noqa: PLC0415 - as above
    from gpuform.stacks.review.multi_stack_status_text import StackStatus  # noqa: PLC0415
    from gpuform.stacks.review.status_text import build_status_document, render_status  # noqa: PLC0415 - as above
    from gpuform.stacks.schedule.noticing import is_out_of_credit  # noqa: PLC0415 - as above

    selected = select_stack(session, find_workspace(session, runs_program=False))
    measures = flags.prometheus is not None or flags.sends_metrics(session)
    stack_status = read_status(
        selected, refresh=flags.refresh, emulate=flags.emulate, measures=measures
    )
    if flags.as_json:
        document = build_status_document(stack_status)
        session.screen.print(format_json(document, indent=2))
    else:
        lines = render_status(stack_status, paint=session.screen.paint)
        session.screen.print("\n".join(lines))
    full_name = f"{selected.workspace.project.name}/{selected.name}"
    _report_figures(session, [StackStatus(full_name, stack_status)], flags)
    # Without --refresh nothing was asked, and nothing is missing.
    unread_names = stack_status.unread_names if flags.refresh else ()
    if unread_names:
        session.screen.warn(f"error: could not read {', '.join(unread_names)}")
        return FAILED
    return OUT_OF_CREDIT if is_out_of_credit(stack_status.notices) else SUCCESS


def _show_all_stacks(session: Session, filters: Sequence[str], flags: _StatusFlags) -> int:
    """Print the status of each chosen stack and the totals, and return the exit code.

    A stack that cannot be read does not stop the others.
    """
    from gpuform.stacks.cli.stack_selection import read_statuses  # noqa: PLC0415 - not for help
    from gpuform.stacks.document.diagnostics import Diagnostics  # noqa: PLC0415 - as above
    from gpuform.stacks.review.multi_stack_status_text import (  # noqa: PLC0415 - as above
        StackStatus,
        Totals,
        build_multi_stack_document,
        format_totals,
        render_stack_status,
    )

    problems = Diagnostics()
    measures = flags.prometheus is not None or flags.sends_metrics(session)
    refresh, emulate = flags.refresh, flags.emulate
    statuses: list[StackStatus] = []
    for status in read_statuses(
        session, filters, problems, refresh=refresh, emulate=emulate, measures=measures
    ):
        if not flags.as_json:
            # Stacks with the same Lens show its figures once.
            shown_monitoring = [
                stack_status.status.monitoring
                for stack_status in statuses
                if stack_status.status and stack_status.status.monitoring
            ]
            lines = render_stack_status(status, shown_monitoring, paint=session.screen.paint)
            # Printed one by one: reading many stacks takes a while.
            session.screen.print("\n".join([*lines, ""]))
        statuses.append(status)
    if flags.as_json:
        session.screen.print(format_json(build_multi_stack_document(statuses), indent=2))
    else:
        session.screen.print(format_totals(Totals.from_statuses(statuses)))
    _report_figures(session, statuses, flags)
    return _report_failures(session, statuses, problems, refresh=flags.refresh)


def _report_failures(
    session: Session, statuses: Sequence["StackStatus"], problems: "Diagnostics", *, refresh: bool
) -> int:
    """Print what a status could not show on stderr, and return the command's exit code.

    Failures are problems, unreadable stacks and, with `refresh`, unreadable resources.
    """
    from gpuform.stacks.schedule.noticing import is_out_of_credit  # noqa: PLC0415 - not for help

    failures = [str(problem) for problem in problems]
    failures += [
        f"{stack_status.name} could not be read"
        for stack_status in statuses
        if stack_status.is_unread
    ]
    statuses_by_name = {
        stack_status.name: stack_status.status
        for stack_status in statuses
        if stack_status.status is not None
    }
    failures += [
        f"{name}: could not read {', '.join(status.unread_names)}"
        for name, status in statuses_by_name.items()
        if refresh and status.unread_names
    ]
    for failure in failures:
        session.screen.warn(f"error: {failure}")
    if failures:
        return FAILED
    is_out = any(is_out_of_credit(status.notices) for status in statuses_by_name.values())
    return OUT_OF_CREDIT if is_out else SUCCESS


_MAX_SHAPES = 60


@click.command()
@add_format_flags(
    ("dot", "mermaid", "html", "json"),
    default="dot",
    help_text="dot: for Graphviz; mermaid: for Markdown; html: one self-contained page; json: the "
    "nodes with their dependencies, for programs.",
)
@click.option(
    "--plan",
    "plan_file",
    metavar="FILE",
    help="Draw the changes of this plan, in the colours and symbols of a review; - is stdin.",
)
@output_flag
@click.option(
    "--most",
    type=click.IntRange(min=0),
    default=_MAX_SHAPES,
    show_default=True,
    help="Above this number of shapes, draw similar resources as one shape with a count; 0: never.",
)
@emulated_state_flag
@add_multi_stack_flags
@add_stack_flags
def graph(
    form: str,
    plan_file: str | None,
    output: Path | None,
    most: int,
    every_stack: bool,
    filters: tuple[str, ...],
) -> int:
    """Draw a graph of the stack: clusters with their nodes, volumes and fabrics.

    Draws the state. This requires no passphrase and no request to a platform, and the graph
    contains no secrets. With --plan it draws the changes of a saved plan, or of the output of
    `gpuform preview --json` or `pulumi preview --json`; in the project of the plan, together with
    the state. An arrow leads from a resource to its dependency.

    With --all each stack is a box with its resources inside, and an arrow leads from a stack to
    each stack that it depends on. A stack that does not exist yet is an empty box. Exits with 1
    when a stack could not be read.

    \b
    Examples:
      gpuform graph --format html --output stack.html
      gpuform graph | dot -Tsvg > stack.svg
      gpuform preview --save-plan plan.json && gpuform graph --plan plan.json --format mermaid
      gpuform graph --all --format mermaid
    """
    reject_filter_without_all(every_stack=every_stack, filters=filters)
    if every_stack and plan_file is not None:
        raise click.UsageError("--all draws states: it cannot be combined with --plan")
    with open_session() as session:
        if every_stack:
            drawing, code = _build_workspace_drawing(session, filters, most)
        else:
            drawing, code = _build_stack_drawing(session, plan_file, most), SUCCESS
        write_parts([_render_drawing(drawing, form, session)], output, session.screen)
    return code


def _build_stack_drawing(session: Session, plan_file: str | None, max_shapes: int) -> "Drawing":
    """Return the drawing of the stack's state, or of the plan in the file.

    Raises:
        EngineError: the plan's preview failed, or the file is not a plan.
        FileError: the file cannot be read.
    """
    from gpuform.stacks.graph.arranging import (  # noqa: PLC0415
        build_drawing,
        build_plan_nodes,
        build_state_nodes,
    )
    from gpuform.stacks.review.plan_files import read_plan  # noqa: PLC0415 - as above

    if plan_file is None:
        title, entries = _read_selected_state(session)
        nodes = build_state_nodes(entries)
    else:
        plan = read_plan("stdin" if plan_file == "-" else plan_file, read_content(plan_file))
        if plan.errors:
            raise EngineError(
                f"cannot draw an incomplete plan: its preview failed: {plan.errors[0]}",
                "`gpuform review` shows how far the preview came",
            )
        title = plan.project_stack
        nodes = build_plan_nodes(plan, _read_planned_state(session, plan))
    return build_drawing(title, nodes, max_shapes or len(nodes))


def _build_workspace_drawing(
    session: Session, filters: Sequence[str], max_shapes: int
) -> tuple["Drawing", int]:
    """Return the drawing of the chosen stacks and the exit code, and report unreadable stacks.

    The code is FAILED if something was reported.
    """
    from gpuform.stacks.cli.stack_selection import require_stacks  # noqa: PLC0415 - not for help
    from gpuform.stacks.document.diagnostics import Diagnostics  # noqa: PLC0415 - as above
    from gpuform.stacks.graph.arranging import (  # noqa: PLC0415
        StackPart,
        build_multi_stack_drawing,
        build_state_nodes,
    )

    problems = Diagnostics()
    chosen_stacks = require_stacks(session, filters, problems)
    failures = [str(problem) for problem in problems]
    parts = []
    for workspace_stack in chosen_stacks.stacks:
        entries, note = None, "could not be read"
        try:
            entries = _read_entries(session, workspace_stack)
            note = "not created yet" if entries is None else ""
        # A stack that cannot be read keeps no other from being drawn.
        except EngineError as error:
            failures.append(f"{workspace_stack.name}: {error}")
        nodes = build_state_nodes(entries or ())
        parts.append(
            StackPart(
                workspace_stack.name,
                nodes,
                chosen_stacks.list_dependencies(workspace_stack.name),
                note,
            )
        )
    for failure in failures:
        session.screen.warn(f"error: {failure}")
    count = sum(len(part.nodes) for part in parts)
    drawing = build_multi_stack_drawing(
        chosen_stacks.order.workspace.root.name, parts, max_shapes or count
    )
    return drawing, FAILED if failures else SUCCESS


def _read_entries(
    session: Session, workspace_stack: "WorkspaceStack"
) -> "list[ResourceState] | None":
    """Return the resources of the stack's state, or None if the stack does not exist."""
    from gpuform.stacks.engine.store import add_backup_hint  # noqa: PLC0415 - not for help
    from gpuform.stacks.operations.opening.selected_stack import read_sealed_state  # noqa: PLC0415

    workspace = workspace_stack.open_workspace(session.environ)
    if workspace_stack.stack not in workspace.list_stacks():
        return None

    def warn(message: str) -> None:
        session.screen.warn(f"{workspace_stack.name}: {message}")

    with add_backup_hint(workspace.backend, workspace_stack.project.name, workspace_stack.stack):
        return read_sealed_state(workspace, workspace_stack.stack, warn).snapshot.resources


def _read_selected_state(session: Session) -> tuple[str, list["ResourceState"]]:
    """Return `PROJECT/STACK` of the chosen stack, and the resources with sealed secrets."""
    from gpuform.stacks.cli.opening import find_workspace, read_sealed_snapshot  # noqa: PLC0415

    workspace = find_workspace(session)
    name = workspace.resolve(session.stack)
    return f"{workspace.project.name}/{name}", read_sealed_snapshot(session, workspace).resources


def _read_planned_state(session: Session, plan: "Plan") -> list["ResourceState"]:
    """Return the planned stack's resources; none outside of the project or before its creation."""
    from gpuform.stacks.cli.opening import find_workspace, read_sealed_snapshot  # noqa: PLC0415
    from gpuform.stacks.engine.project import ProjectError  # noqa: PLC0415 - not for help

    try:
        workspace = find_workspace(session)
    # A plan can be drawn outside of its project, without what the state knows.
    except ProjectError:
        return []
    if plan.project != workspace.project.name or plan.stack not in workspace.list_stacks():
        return []
    return read_sealed_snapshot(replace(session, stack=plan.stack), workspace).resources


def _render_drawing(drawing: "Drawing", form: str, session: Session) -> str:
    """Return the drawing as text of the format; warn of one too large for Mermaid."""
    if form == "html":
        from gpuform.stacks.graph.drawing import render_page  # noqa: PLC0415 - not for help

        return render_page(drawing)
    from gpuform.stacks.graph.drawing import (  # noqa: PLC0415 - as above
        is_within_limits,
        render_dot,
        render_json,
        render_mermaid,
    )

    if form in ("dot", "json"):
        return render_dot(drawing) if form == "dot" else render_json(drawing)
    mermaid = render_mermaid(drawing)
    if not is_within_limits(mermaid, drawing):
        session.screen.warn(
            "warning: Mermaid's default settings refuse drawings of this size: pass a "
            "smaller --most"
        )
    return mermaid

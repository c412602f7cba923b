"""`gpuform graph`: the stack as a picture."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.flags import output_flag
from gpuform.stacks.cli.session import Session, session, stack_flags
from gpuform.stacks.cli.several import check_several, several_flags
from gpuform.stacks.cli.terminal.files import content_of, deliver

if TYPE_CHECKING:
    from gpuform.schemas.plan import Plan
    from gpuform.stacks.engine.state import ResourceState
    from gpuform.stacks.graph.arranging import Drawing
    from gpuform.stacks.multi_stack import Member

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
@several_flags
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
    check_several(every_stack=every_stack, filters=filters)
    if every_stack and plan_file is not None:
        raise click.UsageError("--all draws states: it does not go with --plan")
    with session() as current:
        if every_stack:
            drawing, code = _all(current, filters, most)
        else:
            drawing, code = _one(current, plan_file, most), SUCCESS
        deliver([_drawn(drawing, form, current)], output, current.screen)
    return code


def _one(current: Session, plan_file: str | None, most: int) -> "Drawing":
    from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - as above
    from gpuform.stacks.graph.arranging import arrange  # noqa: PLC0415 - not for help
    from gpuform.stacks.graph.things import things_of_plan, things_of_state  # noqa: PLC0415
    from gpuform.stacks.review.previews import read_plan  # noqa: PLC0415 - as above

    if plan_file is None:
        title, entries = _state(current)
        things = things_of_state(entries)
    else:
        plan = read_plan("stdin" if plan_file == "-" else plan_file, content_of(plan_file))
        if plan.errors:
            raise EngineError(
                f"there is no graph of a plan that is not whole: its preview has failed: "
                f"{plan.errors[0]}",
                "`gpuform review` shows how far it came",
            )
        title = f"{plan.project}/{plan.stack}"
        things = things_of_plan(plan, _known(current, plan))
    return arrange(title, things, most or len(things))


def _all(current: Session, filters: Sequence[str], most: int) -> tuple["Drawing", int]:
    """The drawing of all stacks, and the exit code; what cannot be read is told."""
    from gpuform.stacks.cli.choosing import chosen_of, refuse_unknown  # noqa: PLC0415 - not for help
    from gpuform.stacks.document.diagnostics import Diagnostics  # noqa: PLC0415 - as above
    from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - as above
    from gpuform.stacks.graph.arranging import StackPart, arrange_stacks  # noqa: PLC0415
    from gpuform.stacks.graph.things import things_of_state  # noqa: PLC0415 - as above

    problems = Diagnostics()
    chosen = chosen_of(current, filters, problems)
    refuse_unknown(chosen, problems)
    failed = [str(each) for each in problems]
    parts = []
    for member in chosen.members:
        entries, note = None, "could not be read"
        try:
            entries = _entries(current, member)
            note = "not made yet" if entries is None else ""
        except EngineError as error:
            failed.append(f"{member.name}: {error}")
        things = things_of_state(entries or ())
        parts.append(StackPart(member.name, things, chosen.reads(member.name), note))
    for text in failed:
        current.screen.warn(f"error: {text}")
    count = sum(len(part.things) for part in parts)
    drawing = arrange_stacks(chosen.order.estate.root.name, parts, most or count)
    return drawing, FAILED if failed else SUCCESS


def _entries(current: Session, member: "Member") -> "list[ResourceState] | None":
    """What its state holds; None where nobody has made it yet."""
    from gpuform.stacks.engine.store import name_the_last_good  # noqa: PLC0415 - not for help
    from gpuform.stacks.operations.opening.selecting import read_for_showing  # noqa: PLC0415

    workspace = member.workspace(current.environ)
    if member.stack not in workspace.stacks():
        return None

    def warn(text: str) -> None:
        current.screen.warn(f"{member.name}: {text}")

    with name_the_last_good(workspace.backend, member.project.name, member.stack):
        return read_for_showing(workspace, member.stack, warn).snapshot.resources


def _state(current: Session) -> tuple[str, list["ResourceState"]]:
    from gpuform.stacks.cli.opening import sealed_snapshot, workspace_of  # noqa: PLC0415

    workspace = workspace_of(current)
    name = workspace.resolve(current.stack)
    return f"{workspace.project.name}/{name}", sealed_snapshot(current, workspace).resources


def _known(current: Session, plan: "Plan") -> list["ResourceState"]:
    """What the state of the plan's stack holds, where the command runs in its project."""
    from gpuform.stacks.cli.opening import sealed_snapshot, workspace_of  # noqa: PLC0415
    from gpuform.stacks.engine.project import ProjectError  # noqa: PLC0415 - as above

    try:
        workspace = workspace_of(current)
    except ProjectError:
        return []
    if plan.project != workspace.project.name or plan.stack not in workspace.stacks():
        return []
    return sealed_snapshot(replace(current, stack=plan.stack), workspace).resources


def _drawn(drawing: "Drawing", form: str, current: Session) -> str:
    if form == "html":
        from gpuform.stacks.graph.page import page  # noqa: PLC0415 - not for help

        return page(drawing)
    if form == "dot":
        from gpuform.stacks.graph.diagrams import dot  # noqa: PLC0415 - as above

        return dot(drawing)
    from gpuform.stacks.graph.diagrams import fits, mermaid  # noqa: PLC0415 - as above

    text = mermaid(drawing)
    if not fits(text, drawing):
        current.screen.warn(
            "warning: Mermaid refuses drawings of this size as it comes: give a smaller --most"
        )
    return text

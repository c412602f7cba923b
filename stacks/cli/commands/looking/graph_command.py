"""`gpuform graph`: the stack as a picture."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuform.stacks.cli.flags import output_flag
from gpuform.stacks.cli.session import Session, session, stack_flags
from gpuform.stacks.cli.terminal.files import content_of, deliver

if TYPE_CHECKING:
    from gpuform.schemas.plan import Plan
    from gpuform.stacks.drawing.arranging import Drawing
    from gpuform.stacks.engine.state import ResourceState

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
@stack_flags
def graph(form: str, plan_file: str | None, output: Path | None, most: int) -> None:
    """Draw the stack: clusters with what is in them, volumes and fabrics beside.

    It draws the state, which needs no passphrase; nothing is asked of a platform and no secret is
    shown. With --plan it draws what a saved plan, or the output of `gpuform preview --json` or
    `pulumi preview --json`, would do; in its project, with what the state knows. An arrow leads
    from what needs something to what it needs.

    \b
    Examples:
      gpuform graph --format html --output stack.html
      gpuform graph | dot -Tsvg > stack.svg
      gpuform preview --save-plan plan.json && gpuform graph --plan plan.json --format mermaid
    """
    from gpuform.stacks.drawing.arranging import arrange  # noqa: PLC0415 - not for help
    from gpuform.stacks.drawing.things import things_of_plan, things_of_state  # noqa: PLC0415
    from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - as above
    from gpuform.stacks.review.previews import read_plan  # noqa: PLC0415 - as above

    with session() as current:
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
        drawing = arrange(title, things, most or len(things))
        deliver([_drawn(drawing, form, current)], output, current.screen)


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
        from gpuform.stacks.drawing.page import page  # noqa: PLC0415 - not for help

        return page(drawing)
    if form == "dot":
        from gpuform.stacks.drawing.dot import dot  # noqa: PLC0415 - as above

        return dot(drawing)
    from gpuform.stacks.drawing.mermaid import fits, mermaid  # noqa: PLC0415 - as above

    text = mermaid(drawing)
    if not fits(text, drawing):
        current.screen.warn(
            "warning: Mermaid refuses drawings of this size as it comes: give a smaller --most"
        )
    return text

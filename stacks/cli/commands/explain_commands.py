"""Run `gpuform explain`: the life of a resource, a node or an object."""

import click

from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.flags import emulated_state_flag
from gpuform.stacks.cli.session import add_stack_flags, open_session


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
    from gpuform.stacks.review.text.explanation_text import render_explanation  # noqa: PLC0415

    with open_session() as session:
        selected = select_stack(session, find_workspace(session, runs_program=False))
        explanation = explain_name(selected, name)
        if as_json:
            session.screen.print(format_json(explanation.model_dump(mode="json"), indent=2))
            return
        lines = render_explanation(explanation, paint=session.screen.paint)
        session.screen.print("\n".join(lines))

"""`gpuform status`: the stack at a glance, without a lock and without a change."""

import click

from gpuform.schemas.visible import json_text
from gpuform.stacks.cli.failures import FAILED, OUT_OF_CREDIT, SUCCESS
from gpuform.stacks.cli.flags import emulate_flag
from gpuform.stacks.cli.session import session, stack_flags


@click.command()
@click.option("--json", "-j", "as_json", is_flag=True, help="JSON instead of a table.")
@click.option(
    "--refresh",
    "-r",
    is_flag=True,
    help="Ask the platforms now; the state stays as it is.",
)
@emulate_flag
@stack_flags
def status(as_json: bool, refresh: bool, emulate: bool) -> int:
    """Show the stack's resources: state, readiness, GPUs, cost, alerts.

    It shows what the state says, or with --refresh what the platforms say and measure now. Where
    Lens is configured (LENS_URL or lens:url), idle and busy nodes, the hottest GPUs and the top
    consumers are shown, too. Nothing is locked and nothing is changed. Exits with 1 when --refresh
    could not look at something, and with 9 when something has stopped because no credit is left.

    \b
    Examples:
      gpuform status --stack dev
      gpuform status --refresh --json
    """
    from gpuform.stacks.cli.opening import (  # noqa: PLC0415 - the engine, not for help
        chosen_stack,
        workspace_of,
    )
    from gpuform.stacks.expiry.noticing import is_out_of_credit  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.status_reading import read_status  # noqa: PLC0415 - as above
    from gpuform.stacks.review.text.status_text import (  # noqa: PLC0415 - as above
        status_document,
        status_lines,
    )

    with session() as current:
        selected = chosen_stack(current, workspace_of(current))
        found = read_status(selected, refresh=refresh, emulate=emulate)
        if as_json:
            document = status_document(found)
            current.screen.print(json_text(document, indent=2))
        else:
            lines = status_lines(found, paint=current.screen.paint)
            current.screen.print("\n".join(lines))
        unseen = found.unseen if refresh else ()
        if unseen:
            current.screen.warn(f"error: could not look at {', '.join(unseen)}")
            return FAILED
    return OUT_OF_CREDIT if is_out_of_credit(found.notices) else SUCCESS

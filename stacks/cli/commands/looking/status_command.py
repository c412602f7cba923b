"""`gpuform status`: the stack at a glance, without a lock and without a change."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.failures import FAILED, OUT_OF_CREDIT, SUCCESS
from gpuform.stacks.cli.flags import emulate_flag
from gpuform.stacks.cli.session import Session, session, stack_flags
from gpuform.stacks.cli.several import check_several, several_flags

if TYPE_CHECKING:
    from gpuform.stacks.document.diagnostics import Diagnostics
    from gpuform.stacks.review.text.several_status_text import StackStatus


@click.command()
@click.option("--json", "-j", "as_json", is_flag=True, help="JSON instead of a table.")
@click.option(
    "--refresh",
    "-r",
    is_flag=True,
    help="Ask the platforms now; the state stays as it is.",
)
@emulate_flag
@several_flags
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
    check_several(every_stack=every_stack, filters=filters)
    with session() as current:
        if every_stack:
            return _all(current, filters, as_json=as_json, refresh=refresh, emulate=emulate)
        return _one(current, as_json=as_json, refresh=refresh, emulate=emulate)


def _one(current: Session, *, as_json: bool, refresh: bool, emulate: bool) -> int:
    from gpuform.stacks.cli.opening import (  # noqa: PLC0415 - the engine, not for help
        chosen_stack,
        workspace_of,
    )
    from gpuform.stacks.operations.status_reading import read_status  # noqa: PLC0415 - as above
    from gpuform.stacks.review.text.status_text import (  # noqa: PLC0415 - as above
        status_document,
        status_lines,
    )
    from gpuform.stacks.schedule.noticing import is_out_of_credit  # noqa: PLC0415 - as above

    selected = chosen_stack(current, workspace_of(current, runs_program=False))
    found = read_status(selected, refresh=refresh, emulate=emulate)
    if as_json:
        document = status_document(found)
        current.screen.print(format_json(document, indent=2))
    else:
        lines = status_lines(found, paint=current.screen.paint)
        current.screen.print("\n".join(lines))
    unseen = found.unseen if refresh else ()
    if unseen:
        current.screen.warn(f"error: could not look at {', '.join(unseen)}")
        return FAILED
    return OUT_OF_CREDIT if is_out_of_credit(found.notices) else SUCCESS


def _all(
    current: Session, filters: Sequence[str], *, as_json: bool, refresh: bool, emulate: bool
) -> int:
    from gpuform.stacks.cli.choosing import chosen_of, refuse_unknown  # noqa: PLC0415 - not for help
    from gpuform.stacks.document.diagnostics import Diagnostics  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.status_reading import Looking, read_several  # noqa: PLC0415
    from gpuform.stacks.review.text.several_status_text import (  # noqa: PLC0415 - as above
        StackStatus,
        Totals,
        several_document,
        stack_lines,
        totals_line,
    )

    problems = Diagnostics()
    chosen = chosen_of(current, filters, problems)
    refuse_unknown(chosen, problems)
    ask = current.screen.passphrase()
    looking = Looking(
        chosen.order.estate.root,
        current.environ,
        refresh,
        emulate,
        None if ask is None else lambda name, prompt: ask(f"{name}: {prompt}"),
    )
    found: list[StackStatus] = []
    for each in read_several(chosen.members, looking):
        if not as_json:
            shown = [s.status.monitoring for s in found if s.status and s.status.monitoring]
            lines = stack_lines(each, shown, paint=current.screen.paint)
            current.screen.print("\n".join([*lines, ""]))
        found.append(each)
    if as_json:
        current.screen.print(format_json(several_document(found), indent=2))
    else:
        current.screen.print(totals_line(Totals.of(found)))
    return _code_of_all(current, found, problems, refresh=refresh)


def _code_of_all(
    current: Session, found: Sequence["StackStatus"], problems: "Diagnostics", *, refresh: bool
) -> int:
    """The worst of all; what failed is told."""
    from gpuform.stacks.schedule.noticing import is_out_of_credit  # noqa: PLC0415 - not for help

    failed = [str(each) for each in problems]
    failed += [f"{each.name} could not be read" for each in found if each.is_unread]
    read = {each.name: each.status for each in found if each.status is not None}
    failed += [
        f"{name}: could not look at {', '.join(status.unseen)}"
        for name, status in read.items()
        if refresh and status.unseen
    ]
    for text in failed:
        current.screen.warn(f"error: {text}")
    if failed:
        return FAILED
    is_out = any(is_out_of_credit(status.notices) for status in read.values())
    return OUT_OF_CREDIT if is_out else SUCCESS

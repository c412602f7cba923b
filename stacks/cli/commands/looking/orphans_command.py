"""`gpuform orphans`: what costs money and belongs to no stack, without a lock and a change."""

import click

from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.failures import FOUND, INCOMPLETE, SUCCESS
from gpuform.stacks.cli.flags import emulate_flag, in_seconds
from gpuform.stacks.cli.session import session, stack_flags
from gpuform.stacks.operations.opening.emulating import emulator_for


@click.command()
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    metavar="NAME",
    help="Only this one's account; all that have credentials when not given.",
)
@click.option(
    "--region",
    "regions",
    multiple=True,
    metavar="REGION",
    help="Ask scp at this region's address; the default region's when not given.",
)
@click.option(
    "--older-than",
    default="0",
    metavar="DURATION",
    callback=in_seconds,
    help="Leave out what is younger (30m, 12h); what is of unknown age stays.",
)
@click.option("--json", "-j", "as_json", is_flag=True, help="JSON instead of a table.")
@emulate_flag
@stack_flags
def orphans(
    platforms: tuple[str, ...],
    regions: tuple[str, ...],
    older_than: float,
    as_json: bool,
    emulate: bool,
) -> int:
    """Show what the platforms hold and no stack of this backend owns.

    Reads the state of every stack and the platforms' lists, with age and cost where a platform
    tells them; and the records of creates of this project that were never settled. Credentials are
    those of the environment, else of the stack. Nothing is locked and nothing is changed.

    \b
    Exit codes, for a scheduled job:
      0  no orphans, and every platform asked has answered
      3  there are orphans, or creates that were never settled
      4  a platform or a state could not be read: there may be more

    \b
    Examples:
      gpuform orphans
      gpuform orphans --platform tensorone --older-than 12h --json
    """
    from gpuform.providers.values import Redactor  # noqa: PLC0415 - as below
    from gpuform.stacks.cli.opening import workspace_of  # noqa: PLC0415 - as above
    from gpuform.stacks.importing.orphans import find  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.operations.orphans import Account, question_of  # noqa: PLC0415 - as above
    from gpuform.stacks.review.text.orphans_text import (  # noqa: PLC0415 - as above
        orphans_document,
        orphans_lines,
    )

    with session() as current:
        workspace = workspace_of(current, runs_program=False)
        account = Account(workspace, current.stack, current.screen.passphrase())
        question = question_of(account, platforms, regions, older_than)
        with emulator_for(workspace.project.directory, wanted=emulate):
            found = find(question)
        screen, redact = current.screen, Redactor(question.secrets).redact
        if as_json:
            screen.print(format_json(orphans_document(found, redact), indent=2))
        else:
            url = question.backend.url
            for line in orphans_lines(found, url, paint=screen.paint, redact=redact):
                screen.print(line)
        for failure in found.failures:
            screen.warn(f"error: {redact(failure)}")
        if found.failures or not found.asked:
            return INCOMPLETE
        return FOUND if found.objects or found.unsettled else SUCCESS

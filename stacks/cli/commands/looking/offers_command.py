"""`gpuform offers`: what can be declared, from the platforms' own lists."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from gpuform.stacks.cli.failures import FAILED, INCOMPLETE, SUCCESS
from gpuform.stacks.cli.session import Session, session, stack_flags

if TYPE_CHECKING:
    from gpuform.providers.offering import Offer
    from gpuform.stacks.operations.orphans import Account

Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completing(key: "Callable[[Offer], str]") -> Completion:
    """Completes an argument with what was offered lately; nothing is asked."""

    def complete(
        _context: click.Context, _parameter: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        from time import time  # noqa: PLC0415 - for a shell alone

        from gpuform.stacks.offering.seen import completed  # noqa: PLC0415 - as above

        values = completed(Path.cwd(), time(), key)
        return [CompletionItem(each) for each in values if each.startswith(begun)]

    return complete


@click.command()
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    metavar="NAME",
    shell_complete=_completing(lambda offer: offer.platform),
    help="Only this one; all when not given.",
)
@click.option(
    "--gpu",
    metavar="TYPE",
    shell_complete=_completing(lambda offer: offer.gpu),
    help="Only GPUs of this type, and what else there is in their regions: H100, h100_sxm.",
)
@click.option(
    "--region",
    "regions",
    multiple=True,
    metavar="REGION",
    shell_complete=_completing(lambda offer: offer.region),
    help="Only this region; scp is asked at its address, else at the default region's.",
)
@click.option("--json", "-j", "as_json", is_flag=True, help="JSON instead of a table.")
@click.option(
    "--emulate",
    is_flag=True,
    help="Run an emulator of the platforms meanwhile, and ask that.",
)
@stack_flags
def offers(
    platforms: tuple[str, ...],
    gpu: str | None,
    regions: tuple[str, ...],
    as_json: bool,
    emulate: bool,
) -> int:
    """Show what the platforms offer: regions, GPU types, drivers, images, server types.

    Asks their own lists, with the credentials of the environment, else of the stack; prices are
    those of prices.yaml. STOCK is told where the platform tells it. Works outside of a project,
    too. For a day, `validate` tells misspellings by what was seen, and a shell with
    `gpuform completion` completes it.

    \b
    Exit codes:
      0  every platform asked has answered
      1  none could be asked
      4  some could not be asked: there may be more

    \b
    Examples:
      gpuform offers --gpu H100
      gpuform offers --platform scp --region kr-west1 --json
    """
    from gpuform.schemas.safe_text import format_json  # noqa: PLC0415 - as below
    from gpuform.stacks.offering.asking import priced, with_gpu  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.orphans import ask_offers  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.review.text.orphans_text import (  # noqa: PLC0415 - as above
        offers_document,
        offers_lines,
    )

    with session() as current:
        found, book = ask_offers(_account(current), platforms, regions, emulate=emulate)
        screen = current.screen
        for failure in found.failures:
            screen.warn(f"error: {failure}")
        chosen = with_gpu(found.found, gpu) if gpu and found.found else found.found
        shown = priced(chosen, book)
        if as_json:
            screen.print(format_json(offers_document(found, shown, book.currency), indent=2))
        else:
            for line in offers_lines(found, shown, book.currency, paint=screen.paint):
                screen.print(line)
        if not found.asked and set(platforms or ("",)) - {*found.documented}:
            screen.warn("error: no platform could be asked")
            return FAILED
        return INCOMPLETE if found.failures else SUCCESS


def _account(current: Session) -> "Account | None":
    """That of the folder's project; outside of one there is only the environment."""
    from gpuform.stacks.cli.opening import workspace_of  # noqa: PLC0415 - not for help
    from gpuform.stacks.engine.project import ProjectError  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.orphans import Account  # noqa: PLC0415 - as above

    try:
        workspace = workspace_of(current)
    except ProjectError:
        return None
    return Account(workspace, current.stack, current.screen.passphrase())

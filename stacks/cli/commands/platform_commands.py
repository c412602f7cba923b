"""Run `gpuform doctor`, `orphans` and `offers`, which ask the platforms and change nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from gpuform.schemas.errors import EngineError
from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.failures import FAILED, FOUND, INCOMPLETE, SUCCESS
from gpuform.stacks.cli.flags import emulate_flag, parse_duration
from gpuform.stacks.cli.session import Session, add_stack_flags, open_session
from gpuform.stacks.operations.opening.emulator import run_emulator

if TYPE_CHECKING:
    from gpuform.providers.catalog import Offer
    from gpuform.stacks.operations.importing import Account


@click.command()
@click.option("--json", "-j", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option(
    "--emulate",
    is_flag=True,
    help="Use an emulator of the platforms, as `up --emulate` does.",
)
@click.option(
    "--ci",
    "examines_ci",
    is_flag=True,
    help="Check only the CI files of the repository: which jobs get keys that may write, whose "
    "gates judge a change, and who owns these files.",
)
@add_stack_flags
def doctor(as_json: bool, emulate: bool, examines_ci: bool) -> int:
    """Check for what would make a run fail, and say how to fix it.

    Checks versions, the project's program, the backend, the stack's passphrase, state and locks,
    and for each platform whether the credentials exist, are valid and may read: the command sends
    one request to each. Changes nothing. Exits with 1 when it finds a problem, and with 0 when it
    finds only warnings.

    \b
    Examples:
      gpuform doctor
      gpuform doctor --stack prod --json
      gpuform doctor --ci
    """
    from gpuform.stacks.cli.terminal.findings_view import show_findings  # noqa: PLC0415 - not for help
    from gpuform.stacks.doctor.examining import examine  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.opening.interpreter import find_other_interpreter  # noqa: PLC0415 - as above

    if examines_ci:
        from gpuform.stacks.doctor.ci_files import examine_ci_files  # noqa: PLC0415 - as above
        from gpuform.stacks.doctor.findings import Examination  # noqa: PLC0415 - as above

        examination = Examination()
        examination.add_findings("ci", lambda: examine_ci_files(_find_project_folder()))
        with open_session() as session:
            return show_findings(examination.list_redacted(), session.screen, as_json=as_json)
    with (
        open_session() as session,
        run_emulator(_find_project_folder(), emulate=emulate) as run_context,
    ):
        findings = examine(Path.cwd(), run_context.environ, session.stack, find_other_interpreter)
        return show_findings(findings, session.screen, as_json=as_json)


def _find_project_folder() -> Path:
    """Return the project's folder, or the current one without a project."""
    from gpuform.stacks.engine.project import find_project  # noqa: PLC0415 - not for help

    try:
        return find_project(Path.cwd()).directory
    except EngineError:
        return Path.cwd()


@click.command()
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    metavar="NAME",
    help="Only this platform's account; default: all with credentials.",
)
@click.option(
    "--region",
    "regions",
    multiple=True,
    metavar="REGION",
    help="Request scp in this region; default: the default region.",
)
@click.option(
    "--older-than",
    default="0",
    metavar="DURATION",
    callback=parse_duration,
    help="Omit objects younger than this (30m, 12h); objects of unknown age stay.",
)
@click.option("--json", "-j", "as_json", is_flag=True, help="Print JSON instead of a table.")
@emulate_flag
@add_stack_flags
def orphans(
    platforms: tuple[str, ...],
    regions: tuple[str, ...],
    older_than: float,
    as_json: bool,
    emulate: bool,
) -> int:
    """Show objects on the platforms that no stack of this backend owns.

    Reads the state of every stack and the lists of the platforms, with age and cost where a
    platform reports them, and the records of this project's creates whose result is unknown. Uses
    the credentials of the environment, else of the stack. Takes no lock and changes nothing.

    \b
    Exit codes, for a scheduled job:
      0  no orphans, and every queried platform has answered
      3  there are orphans, or creates whose result is unknown
      4  a platform or a state could not be read: there may be more

    \b
    Examples:
      gpuform orphans
      gpuform orphans --platform tensorone --older-than 12h --json
    """
    from gpuform.providers.values import Redactor  # noqa: PLC0415 - as below
    from gpuform.stacks.cli.opening import find_workspace  # noqa: PLC0415 - as above
    from gpuform.stacks.importing.selection import find_orphans  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.operations.importing import Account, build_orphan_search  # noqa: PLC0415 - as above
    from gpuform.stacks.review.orphans_text import (  # noqa: PLC0415 - as above
        build_orphans_document,
        render_import_commands,
        render_orphans,
    )

    with open_session() as session:
        workspace = find_workspace(session, runs_program=False)
        account = Account(workspace, session.stack, session.screen.create_passphrase_prompt())
        with run_emulator(workspace.project.directory, emulate=emulate):
            question = build_orphan_search(account, platforms, regions, older_than)
            report = find_orphans(question)
        # A platform's error message may repeat a key of the request.
        screen, redact = session.screen, Redactor(question.secrets).redact
        if as_json:
            screen.print(format_json(build_orphans_document(report, redact), indent=2))
        else:
            url = question.backend.url
            for line in render_orphans(report, url, paint=screen.paint, redact=redact):
                screen.print(line)
            for line in render_import_commands(report, emulate=emulate):
                screen.print(line)
        for failure in report.failures:
            screen.warn(f"error: {redact(failure)}")
        # Before FOUND: with a list missing there may be more orphans than those shown.
        if report.failures or not report.asked_platforms:
            return INCOMPLETE
        return FOUND if report.objects or report.unresolved_intents else SUCCESS


Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _create_completion(get_value: "Callable[[Offer], str]") -> Completion:
    """Return a completion with the values of recent offers; no platform is asked.

    `get_value` returns the completed value of an offer.
    """

    def complete(
        _context: click.Context, _parameter: click.Parameter, prefix: str
    ) -> list[CompletionItem]:
        from time import time  # noqa: PLC0415 - for a shell alone

        from gpuform.stacks.offers import complete_argument  # noqa: PLC0415 - as above

        values = complete_argument(Path.cwd(), time(), get_value)
        return [CompletionItem(value) for value in values if value.startswith(prefix)]

    return complete


@click.command()
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    metavar="NAME",
    shell_complete=_create_completion(lambda offer: offer.platform),
    help="Only this platform; default: all.",
)
@click.option(
    "--gpu",
    metavar="TYPE",
    shell_complete=_create_completion(lambda offer: offer.gpu),
    help="Only GPUs of this type, and other offers in their regions: H100, h100_sxm.",
)
@click.option(
    "--region",
    "regions",
    multiple=True,
    metavar="REGION",
    shell_complete=_create_completion(lambda offer: offer.region),
    help="Only this region; gpuform asks scp in this region instead of the default one.",
)
@click.option("--json", "-j", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--emulate",
    is_flag=True,
    help="Start an emulator for this command, and ask it instead of the platforms.",
)
@add_stack_flags
def offers(
    platforms: tuple[str, ...],
    gpu: str | None,
    regions: tuple[str, ...],
    as_json: bool,
    emulate: bool,
) -> int:
    """Show what the platforms offer: regions, GPU types, drivers, images, server types.

    Requests the lists of the platforms, with the credentials of the environment, else of the stack;
    prices are those of prices.yaml. STOCK shows the stock of platforms that report it. Works
    outside of a project, too. For one day, `validate` uses the lists to report misspellings, and a
    shell with `gpuform completion` completes their names.

    \b
    Exit codes:
      0  every queried platform has answered
      1  no platform could be queried
      4  some platforms did not answer: there may be more

    \b
    Examples:
      gpuform offers --gpu H100
      gpuform offers --platform scp --region kr-west1 --json
    """
    from gpuform.schemas.safe_text import format_json  # noqa: PLC0415 - as below
    from gpuform.stacks.offers import add_prices, filter_by_gpu  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.importing import read_offers  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.review.orphans_text import build_offers_document, render_offers  # noqa: PLC0415 - as above

    with open_session() as session:
        offers_found, book = read_offers(
            _find_account(session), platforms, regions, emulate=emulate
        )
        screen = session.screen
        for failure in offers_found.failures:
            screen.warn(f"error: {failure}")
        matching_offers = (
            filter_by_gpu(offers_found.offers, gpu)
            if gpu and offers_found.offers
            else offers_found.offers
        )
        priced_offers = add_prices(matching_offers, book)
        if as_json:
            screen.print(
                format_json(
                    build_offers_document(offers_found, priced_offers, book.currency), indent=2
                )
            )
        else:
            for line in render_offers(
                offers_found, priced_offers, book.currency, paint=screen.paint
            ):
                screen.print(line)
        # Offers that are documented need no answer of the platform.
        if not offers_found.asked and set(platforms or ("",)) - {*offers_found.documented}:
            screen.warn("error: no platform could be reached")
            return FAILED
        return INCOMPLETE if offers_found.failures else SUCCESS


def _find_account(session: Session) -> "Account | None":
    """Return the account of the folder's project, or None without a usable project."""
    from gpuform.stacks.cli.opening import find_workspace  # noqa: PLC0415 - not for help
    from gpuform.stacks.engine.project import ProjectError  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.importing import Account  # noqa: PLC0415 - as above

    try:
        workspace = find_workspace(session)
    except ProjectError:
        return None
    return Account(workspace, session.stack, session.screen.create_passphrase_prompt())

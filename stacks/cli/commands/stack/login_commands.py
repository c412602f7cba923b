"""`gpuform login` and `gpuform logout`: which backend is used where nothing else names one."""

from pathlib import Path

import click

from gpuform.stacks.cli.session import common_flags, session
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.store import Backend, anchor, credentials, without_credentials

_LOCAL = "file://~"


@click.command()
@click.argument("url", required=False)
@click.option("--local", "-l", is_flag=True, help="Keep state in your home folder: file://~.")
@common_flags
def login(url: str | None, local: bool) -> None:
    """Choose where stacks live: a folder or a bucket.

    URL is file://DIRECTORY, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or azblob://CONTAINER/PREFIX, as
    for the Pulumi CLI, which takes the same choice from the same file. It holds where neither
    PULUMI_BACKEND_URL nor backend.url in Pulumi.yaml says another. The place is tried; credentials
    stay where the cloud's own tools have them.

    \b
    Examples:
      gpuform login 's3://team-state/gpu?region=eu-central-1'
      gpuform login --local
    """
    if local and url is not None:
        raise click.UsageError("--local and a URL exclude each other")
    with session() as current:
        chosen = _LOCAL if local else url or credentials.current_url(current.environ) or _LOCAL
        chosen = anchor(chosen, Path.cwd())
        Backend.open(chosen, current.environ)
        credentials.log_in(chosen, current.environ)
        current.screen.print(f"Logged in to {without_credentials(chosen)}.")
        given = current.environ.get("PULUMI_BACKEND_URL")
        if given and given != chosen:
            current.screen.warn(
                f"warning: PULUMI_BACKEND_URL is set, and {without_credentials(given)} is used"
            )


@click.command()
@click.argument("url", required=False)
@click.option("--all", "everywhere", is_flag=True, help="Forget every backend.")
@click.option("--local", "-l", is_flag=True, help="Forget your home folder: file://~.")
@common_flags
def logout(url: str | None, everywhere: bool, local: bool) -> None:
    """Forget the backend that `login` chose.

    State and credentials stay.

    \b
    Example:
      gpuform logout
    """
    if sum((everywhere, local, url is not None)) > 1:
        raise click.UsageError("give a URL, --local or --all, not several")
    with session() as current:
        if everywhere:
            credentials.log_out_of_all(current.environ)
            current.screen.print("Logged out of everything.")
            return
        chosen = _LOCAL if local else url or credentials.current_url(current.environ)
        whole = anchor(chosen, Path.cwd())
        if not any(credentials.log_out(each, current.environ) for each in (chosen, whole) if each):
            which = without_credentials(chosen) if chosen else "any backend"
            raise EngineError(f"not logged in to {which}")
        current.screen.print(f"Logged out of {without_credentials(chosen)}.")

"""`gpuform stack history`: what was done to a stack."""

import json
from datetime import UTC, datetime
from typing import Any

import click

from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.opening import workspace_of
from gpuform.stacks.cli.session import Session, session, stack_flags
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import is_secure, to_text
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.engine.store import IN_PROGRESS, HistoryEntry
from gpuform.stacks.engine.values import Crypter, Json
from gpuform.stacks.operations.opening.selecting import passphrase_of
from gpuform.stacks.review.text.history_text import history_lines

_UNREADABLE = "ERROR_UNABLE_TO_DECRYPT"
"""Pulumi's word for a secret that the present passphrase does not open."""


@click.command()
@click.option("--json", "-j", "as_json", is_flag=True, help="Pulumi's JSON instead of a table.")
@click.option("--show-secrets", is_flag=True, help="Show secret configuration, in JSON.")
@click.option(
    "--page-size",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="N",
    help="Operations on a page.",
)
@click.option(
    "--page",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="The page to show.",
)
@click.option(
    "--full-dates",
    is_flag=True,
    expose_value=False,
    help="Accepted for Pulumi's sake: dates are always full.",
)
@stack_flags
def history(as_json: bool, show_secrets: bool, page_size: int, page: int) -> None:
    """Show what was done to the stack, the latest first.

    Who did it, when, from where (account, machine, CI job, commit), with which saved plan, how it
    ended and how much it changed; all that is known is in --json. `gpuform logs NUMBER` shows what
    happened.

    \b
    Examples:
      gpuform stack history
      gpuform stack history --json --page-size 100
    """
    with session() as current:
        workspace = workspace_of(current, runs_program=False)
        name = workspace.resolve(current.stack)
        runs, skip = workspace.backend.runs(workspace.project.name, name), (page - 1) * page_size
        latest = len(runs.names) - skip
        found = runs.latest(skip, page_size)
        if as_json:
            crypter = _crypter(workspace, current) if show_secrets else None
            rows = [_document(entry, latest - n, crypter) for n, entry in enumerate(found)]
            current.screen.print(format_json(rows, indent=2))
            return
        if not found:
            here = f"on page {page}" if page > 1 else "yet"
            current.screen.print(f"Nothing was done to stack {name} {here}.")
            return
        current.screen.print("\n".join(history_lines(found, latest)))


def _crypter(workspace: Workspace, current: Session) -> Crypter:
    opened = workspace.open(current.stack, passphrase_of(workspace, current.screen.passphrase()))
    opened.crypter.check()
    return opened.crypter


def _document(entry: HistoryEntry, number: int, crypter: Crypter | None) -> dict[str, Any]:
    """As `pulumi stack history --json` has it; `version` is the number, which no file holds."""
    made: dict[str, Any] = {
        "version": entry.version or number,
        "kind": entry.kind,
        "startTime": _time(entry.start_time),
        "message": entry.message,
        "environment": dict(entry.environment),
        "config": {key: _value(value, crypter) for key, value in sorted(entry.config.items())},
        "result": entry.result,
    }
    if entry.result != IN_PROGRESS:
        made["endTime"] = _time(entry.end_time)
        made["resourceChanges"] = dict(entry.resource_changes)
    return made


def _value(value: Json, crypter: Crypter | None) -> dict[str, Any]:
    secret = is_secure(value)
    if secret and crypter is None:
        return {"secret": True}
    try:
        text = to_text(value, crypter)
    except EngineError:  # of a passphrase that was changed since
        return {"value": _UNREADABLE, "secret": secret}
    made: dict[str, Any] = {"value": text, "secret": secret}
    if isinstance(value, dict | list) and text[:1] in ("{", "["):
        made["objectValue"] = json.loads(text)
    return made


def _time(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.000Z"

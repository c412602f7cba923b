"""`gpuform stack history`: what was done to a stack."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from gpuform.stacks.cli.opening import workspace_of
from gpuform.stacks.cli.passphrase import passphrase_of
from gpuform.stacks.cli.session import Session, session, stack_flags
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.history import HistoryEntry
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.engine.stack_settings import is_secure, to_text
from gpuform.stacks.engine.value_json import Crypter, Json

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

    \b
    Examples:
      gpuform stack history
      gpuform stack history --json --page-size 100
    """
    with session() as current:
        workspace = workspace_of(current)
        name = workspace.resolve(current.stack)
        found = workspace.backend.history(
            workspace.project.name, name, (page - 1) * page_size, page_size
        )
        if as_json:
            crypter = _crypter(workspace, current) if show_secrets else None
            rows = [_document(entry, crypter) for entry in found]
            current.screen.print(json.dumps(rows, indent=2, ensure_ascii=False))
            return
        if not found:
            here = f"on page {page}" if page > 1 else "yet"
            current.screen.print(f"Nothing was done to stack {name} {here}.")
            return
        current.screen.print(f"{'STARTED':<20}  {'WHAT':<15}  {'RESULT':<9}  TOOK      CHANGES")
        for entry in found:
            current.screen.print(_line(entry))


def _crypter(workspace: Workspace, current: Session) -> Crypter:
    opened = workspace.open(current.stack, passphrase_of(workspace, current.screen))
    opened.crypter.check()
    return opened.crypter


def _line(entry: HistoryEntry) -> str:
    started = datetime.fromtimestamp(entry.start_time, UTC)
    took = timedelta(seconds=max(0, entry.end_time - entry.start_time))
    changes = ", ".join(f"{count} {op}" for op, count in sorted(entry.resource_changes.items()))
    return (
        f"{started:%Y-%m-%dT%H:%M:%SZ}  {entry.kind:<15}  {entry.result:<9}  {took!s:<8}  {changes}"
    ).rstrip()


def _document(entry: HistoryEntry, crypter: Crypter | None) -> dict[str, Any]:
    """As `pulumi stack history --json` has it."""
    made: dict[str, Any] = {
        "version": entry.version,
        "kind": entry.kind,
        "startTime": _time(entry.start_time),
        "message": entry.message,
        "environment": dict(entry.environment),
        "config": {key: _value(value, crypter) for key, value in sorted(entry.config.items())},
        "result": entry.result,
    }
    if entry.result != "in-progress":
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

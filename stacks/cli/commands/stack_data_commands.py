"""Run the commands on what a stack holds: history, logs, outputs, secrets, export and import."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gpuform.providers.values import PropertyMap
from gpuform.schemas.errors import EngineError
from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.flags import emulated_state_flag, lock_flag
from gpuform.stacks.cli.opening import find_workspace, open_for_change, select_stack
from gpuform.stacks.cli.session import Session, add_stack_flags, open_session
from gpuform.stacks.cli.terminal.signals import raise_on_signals
from gpuform.stacks.engine.project import is_secure, to_config_text
from gpuform.stacks.engine.secrets import create_new_crypter, is_passphrase, reject_unknown_provider
from gpuform.stacks.engine.stack import SecretsChange, Workspace
from gpuform.stacks.engine.store import IN_PROGRESS, HistoryEntry
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.engine.value_json import Crypter, Json
from gpuform.stacks.operations.opening.selected_stack import create_passphrase_finder
from gpuform.stacks.operations.transfer import export_deployment, import_deployment
from gpuform.stacks.review.history_text import render_history
from gpuform.stacks.review.value_text import render_outputs, to_display_value

_UNREADABLE = "ERROR_UNABLE_TO_DECRYPT"
"""Pulumi's word for a secret that the present passphrase does not open."""


@click.command("history")
@click.option(
    "--json", "-j", "as_json", is_flag=True, help="Print Pulumi's JSON instead of a table."
)
@click.option("--show-secrets", is_flag=True, help="Show secret configuration, in JSON.")
@click.option(
    "--page-size",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of runs on a page.",
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
    help="Accepted for compatibility with Pulumi: dates are always full.",
)
@emulated_state_flag
@add_stack_flags
def show_history(as_json: bool, show_secrets: bool, page_size: int, page: int) -> None:
    """Show the runs of the stack, the latest first.

    Shows the user, the time, the origin (account, machine, CI job, commit), the saved plan, the
    result and the number of changes of each run; --json shows all recorded fields. `gpuform logs
    NUMBER` shows the steps of a run.

    \b
    Examples:
      gpuform stack history
      gpuform stack history --json --page-size 100
    """
    with open_session() as session:
        workspace = find_workspace(session, runs_program=False)
        name = workspace.resolve(session.stack)
        runs, skip = (
            workspace.backend.open_history(workspace.project.name, name),
            (page - 1) * page_size,
        )
        # Numbers count from the oldest run; the page shows the newest first.
        latest = len(runs.names) - skip
        entries = runs.list_latest(skip, page_size)
        if as_json:
            # Only secrets need the passphrase.
            crypter = _open_crypter(workspace, session) if show_secrets else None
            rows = [
                _build_document(entry, latest - offset, crypter)
                for offset, entry in enumerate(entries)
            ]
            session.screen.print(format_json(rows, indent=2))
            return
        if not entries:
            page_text = f"on page {page}" if page > 1 else "yet"
            session.screen.print(f"No runs of stack {name} {page_text}.")
            return
        session.screen.print("\n".join(render_history(entries, latest)))


def _open_crypter(workspace: Workspace, session: Session) -> Crypter:
    """Open the selected stack and return the stack's crypter. Raises WrongPassphrase."""
    opened = workspace.open(
        session.stack,
        create_passphrase_finder(workspace, session.screen.create_passphrase_prompt()),
    )
    opened.crypter.check()
    return opened.crypter


def _build_document(entry: HistoryEntry, number: int, crypter: Crypter | None) -> dict[str, Any]:
    """Build an entry of `pulumi stack history --json`; `version` is the number of the run."""
    document: dict[str, Any] = {
        "version": entry.version or number,
        "kind": entry.kind,
        "startTime": _format_time(entry.start_time),
        "message": entry.message,
        "environment": dict(entry.environment),
        "config": {
            key: _build_value(value, crypter) for key, value in sorted(entry.config.items())
        },
        "result": entry.result,
    }
    if entry.result != IN_PROGRESS:
        document["endTime"] = _format_time(entry.end_time)
        document["resourceChanges"] = dict(entry.resource_changes)
    return document


def _build_value(value: Json, crypter: Crypter | None) -> dict[str, Any]:
    """Return a value as in Pulumi's history; without a crypter, a secret has no value.

    A secret encrypted with an earlier passphrase is marked as unreadable.
    """
    secret = is_secure(value)
    if secret and crypter is None:
        return {"secret": True}
    try:
        value_text = to_config_text(value, crypter)
    except EngineError:  # encrypted with an earlier passphrase
        return {"value": _UNREADABLE, "secret": secret}
    document: dict[str, Any] = {"value": value_text, "secret": secret}
    if isinstance(value, dict | list) and value_text[:1] in ("{", "["):
        document["objectValue"] = json.loads(value_text)
    return document


def _format_time(seconds: int) -> str:
    """Return the time as Pulumi's JSON has times, in UTC: `2026-01-31T12:00:00.000Z`."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.000Z"


@click.command()
@click.argument("number", type=click.IntRange(1), required=False)
@click.option(
    "--json", "-j", "as_json", is_flag=True, help="Print one JSON object instead of text."
)
@emulated_state_flag
@add_stack_flags
def logs(number: int | None, as_json: bool) -> None:
    """Show a run step by step: its changes and its messages.

    NUMBER is that of `gpuform stack history`; default: the latest run. gpuform stores the log
    beside the history, with secrets masked; runs of the Pulumi CLI have no log.

    \b
    Examples:
      gpuform logs
      gpuform logs 1 --stack prod
    """
    from gpuform.stacks.cli.opening import find_workspace  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.operations.runs.run_log import read_run  # noqa: PLC0415 - as above
    from gpuform.stacks.review.history_text import render_log, render_run  # noqa: PLC0415 - as above

    with open_session() as session:
        workspace = find_workspace(session, runs_program=False)
        stack = workspace.resolve(session.stack)
        run = read_run(workspace, stack, number)
        if as_json:
            document = run.log.model_dump(mode="json") if run.log else None
            document_with_log = {
                "number": run.number,
                "run": json.loads(run.entry.to_json()),
                "log": document,
            }
            document_with_log["run"].pop("config")
            session.screen.print(format_json(document_with_log, indent=2))
            return
        paint = session.screen.paint
        session.screen.print("\n".join(render_run(run.entry, run.number, stack, paint=paint)))
        log_lines = list(render_log(run.log, paint=paint)) if run.log else ["This run has no log."]
        if log_lines:
            session.screen.print("\n" + "\n".join(log_lines))


@click.command("output")
@click.argument("name", required=False)
@click.option("--json", "-j", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option("--show-secrets", is_flag=True, help="Show secret values in plain text.")
@emulated_state_flag
@add_stack_flags
def show_outputs(name: str | None, as_json: bool, show_secrets: bool) -> None:
    """Show all outputs of the stack, or one output.

    Prints a single text output without quotes, so that you can redirect it to a file.

    \b
    Examples:
      gpuform stack output
      gpuform stack output kubeconfig --show-secrets > kubeconfig.yaml
    """
    with open_session() as session:
        workspace = find_workspace(session, runs_program=False)
        opened = workspace.open(
            session.stack,
            create_passphrase_finder(workspace, session.screen.create_passphrase_prompt()),
        )
        outputs: PropertyMap = next(
            (
                resource.outputs
                for resource in opened.snapshot.resources
                if resource.type == STACK_TYPE
            ),
            {},
        )
        if name is None:
            _print_outputs(session, outputs, as_json=as_json, show_secrets=show_secrets)
            return
        if name not in outputs:
            hint = (
                f"its outputs: {', '.join(sorted(outputs))}"
                if outputs
                else ("it has no outputs yet")
            )
            raise EngineError(f"stack '{opened.name}' has no output '{name}'", hint=hint)
        value = to_display_value(outputs[name], show_secrets=show_secrets)
        is_text = isinstance(value, str) and not as_json
        session.screen.write(f"{value if is_text else format_json(value)}\n")


def _print_outputs(
    session: Session, outputs: PropertyMap, *, as_json: bool, show_secrets: bool
) -> None:
    """Print the outputs as text or JSON; secrets are masked without `show_secrets`."""
    if as_json:
        values = {
            key: to_display_value(value, show_secrets=show_secrets)
            for key, value in sorted(outputs.items())
        }
        session.screen.print(format_json(values, indent=2))
        return
    lines = list(render_outputs(outputs, show_secrets=show_secrets, paint=session.screen.paint))
    session.screen.print("\n".join(lines) if lines else "The stack has no outputs.")


NEW_PASSPHRASE = "GPUFORM_NEW_PASSPHRASE"  # noqa: S105 - the name of a variable


def check_provider(
    _context: click.Context, _parameter: click.Parameter, provider: str | None
) -> Any:
    """Return the name of a secrets provider after a check; a callback of click.

    Raises:
        EngineError: no such provider is known.
    """
    reject_unknown_provider(provider or "")
    return provider


@click.command("change-secrets-provider")
@click.argument("provider", callback=check_provider)
@lock_flag
@add_stack_flags
def change_secrets_provider(provider: str) -> None:
    """Encrypt the stack's secrets with a new passphrase, or with a key of a key service.

    PROVIDER is `passphrase` or the URL of a key, as for the Pulumi CLI: awskms://,
    azurekeyvault://, gcpkms://, hashivault://. Encrypts the settings and the state again, both or
    neither, even if PROVIDER is the present one. Reads a new passphrase from
    GPUFORM_NEW_PASSPHRASE, asks for it, or reads the first line of stdin.

    \b
    Examples:
      gpuform stack change-secrets-provider passphrase
      gpuform stack change-secrets-provider "awskms://alias/team?region=eu-central-1"
    """
    with open_session() as session, open_for_change(session) as stack:
        # A journal under the old key could not be recovered after the change.
        stack.reject_orphaned_journals()
        new_crypter = create_new_crypter(provider, lambda: _ask_new_passphrase(session))
        SecretsChange(stack.backend, stack.project, stack.name).make(
            stack.settings, stack.snapshot, stack.crypter, new_crypter
        )
        session.screen.print(
            f"The secrets of stack {stack.name} "
            f"{_describe_new_provider(provider)}.\nEarlier states, in the .bak file and in "
            ".pulumi/backups, keep their encryption."
        )


def _describe_new_provider(provider: str) -> str:
    """Return the rest of a sentence about secrets: a new passphrase, or the provider's new key."""
    if is_passphrase(provider):
        return "have a new passphrase: set PULUMI_CONFIG_PASSPHRASE to the new passphrase"
    return f"are encrypted with a new key, which {provider.partition('?')[0]} protects"


def _ask_new_passphrase(session: Session) -> str:
    """Return the new passphrase from the variable, from a person asked twice, or from stdin.

    Only the first line of stdin counts.

    Raises:
        EngineError: the two answers differ, or nothing is on stdin.
    """
    passphrase = session.environ.get(NEW_PASSPHRASE)
    if passphrase is not None:
        return passphrase
    ask = session.screen.create_passphrase_prompt()
    # Scripts write the passphrase to stdin: it is on no command line.
    if ask is None:
        missing = "the new passphrase is missing"
        hint = (
            f"Set {NEW_PASSPHRASE} to the new passphrase (it may be empty), or write the "
            "passphrase to stdin."
        )
        passphrase = session.screen.read_stdin(missing, hint)
        if not passphrase:
            raise EngineError(missing, hint=hint)
        return passphrase.partition("\n")[0].strip()
    first = ask("Enter the new passphrase for the stack's secrets")
    if ask("Enter it again") != first:
        raise EngineError("the two passphrases differ", hint="run the command again")
    return first


@click.command()
@click.option(
    "--file",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file instead of stdout.",
)
@click.option("--show-secrets", is_flag=True, help="Show secret values in plain text.")
@emulated_state_flag
@add_stack_flags
def export(file: Path | None, show_secrets: bool) -> None:
    """Write the stack's state as Pulumi's deployment JSON.

    Secrets stay encrypted unless --show-secrets is given.

    \b
    Example:
      gpuform stack export --file dev.json
    """
    with open_session() as session:
        selected = select_stack(session, find_workspace(session, runs_program=False))
        report = session.screen.warn
        document = export_deployment(selected, report, show_secrets=show_secrets)
        document_json = format_json(document, indent=4)
        if file is None:
            session.screen.print(document_json)
            return
        _write_file(file, document_json + "\n", private=show_secrets)


@click.command("import")
@click.option(
    "--file",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Read this file instead of stdin.",
)
@click.option(
    "--force",
    "-f",
    is_flag=True,
    help="Import even a file that fails the integrity check or belongs to another stack.",
)
@lock_flag
@add_stack_flags
def import_state(file: Path | None, force: bool) -> None:
    """Replace the stack's state with an exported one.

    Checks the file first: its version, its integrity, and whether its resources belong to this
    stack. Encrypts all secrets for this stack, including those in plain text. Drops pending
    operations: an export followed by an import resolves them. Keeps the previous state as a .bak
    file.

    \b
    Example:
      gpuform stack import --file dev.json
    """
    with open_session() as session:
        selected = select_stack(session, find_workspace(session, runs_program=False))
        deployment_json, source = _read_input(file)
        with raise_on_signals():
            count = import_deployment(
                selected, deployment_json, source, session.screen.warn, force=force
            )
        entries = "1 entry" if count == 1 else f"{count} entries"
        session.screen.print(f"Imported {source} as the state of stack {selected.name}: {entries}.")


def _write_file(file: Path, content: str, *, private: bool) -> None:
    """Write the file; with `private`, only the owner can read the file. Raises EngineError."""
    try:
        with file.open("w", encoding="utf-8") as stream:
            # Before the first byte: a file with secrets is never readable by others.
            if private:
                file.chmod(0o600)
            stream.write(content)
    except OSError as error:
        raise EngineError(f"{file} cannot be written: {error.strerror}") from error


def _read_input(file: Path | None) -> tuple[bytes, str]:
    """Return the content of the file or of stdin, and a name of the source for messages."""
    if file is None:
        return sys.stdin.buffer.read(), "stdin"
    try:
        return file.read_bytes(), str(file)
    except OSError as error:
        raise EngineError(f"{file} cannot be read: {error.strerror}") from error

"""Run `gpuform stack`: create, list, select, rename and remove stacks.

The commands on what a stack holds (outputs, history, export) are in `stack_data_commands`.
"""

import contextlib
from pathlib import Path
from typing import Any

import click

from gpuform.providers.context import CLOCK_VARIABLE, RunContext
from gpuform.providers.environment import StackEnvironment, record_environment
from gpuform.schemas.errors import EngineError
from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.commands.stack_data_commands import (
    change_secrets_provider,
    check_provider,
    export,
    import_state,
    show_history,
    show_outputs,
)
from gpuform.stacks.cli.flags import (
    AliasedGroup,
    adopt_flag,
    build_lock_timeout,
    create_anew_flag,
    emulate_flag,
    lock_flag,
)
from gpuform.stacks.cli.opening import (
    create_message_callbacks,
    find_workspace,
    open_for_change,
    select_stack,
)
from gpuform.stacks.cli.session import Session, add_common_flags, add_stack_flags, open_session
from gpuform.stacks.cli.terminal.signals import raise_on_signals
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.stack import (
    Stack,
    StackNotFound,
    Workspace,
    build_lasting_url,
    get_short_name,
    migrate_stack,
    parse_new_name,
    rename_stack,
)
from gpuform.stacks.engine.state import load_checkpoint
from gpuform.stacks.engine.store import Backend, Files, add_backup_hint, build_full_name
from gpuform.stacks.multi_stack import read_workspace
from gpuform.stacks.operations.opening.selected_stack import create_passphrase_finder
from gpuform.stacks.operations.runs.recovery import add_adoption_answers, recover_leftovers

_PROVIDER = click.option(
    "--secrets-provider",
    metavar="PROVIDER",
    callback=check_provider,
    help="The secrets provider of the new stack: passphrase (the default) or the URL of a key "
    "(awskms://, azurekeyvault://, gcpkms://, hashivault://).",
)


@click.group(cls=AliasedGroup, invoke_without_command=True)
@add_stack_flags
@click.pass_context
def stack(context: click.Context) -> None:
    """Create, list, select, rename, remove and read stacks.

    A stack is one instance of the project, with its own configuration and state.

    \b
    Examples:
      gpuform stack init dev
      gpuform stack init trial --emulate
      gpuform stack output --json
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (show_outputs, export, import_state, show_history, change_secrets_provider):
    stack.add_command(_command)


@stack.command("init")
@click.argument("name", required=False)
@_PROVIDER
@click.option(
    "--emulate",
    is_flag=True,
    help="Create the stack on the emulator: every command on it requires --emulate.",
)
@click.option(
    "--all",
    "every_stack",
    is_flag=True,
    help="Create every stack of stacks.yaml that does not exist yet.",
)
@add_common_flags
def create(
    name: str | None, secrets_provider: str | None, emulate: bool, every_stack: bool
) -> None:
    """Create an empty stack and select it.

    The first run of a stack decides whether it lives on real platforms or on the emulator. Writes
    an empty state and Pulumi.NAME.yaml, which contains the encryption settings of the stack's
    secrets. Reads a passphrase from PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE, or
    asks for it.

    \b
    Examples:
      gpuform stack init dev
      gpuform stack init prod --secrets-provider "awskms://alias/team?region=eu-central-1"
      gpuform stack init --all
    """
    if (name is None) is not every_stack:
        raise click.UsageError("pass the NAME of the stack, or --all")
    with open_session() as session:
        if name is None:
            _create_all_stacks(session, secrets_provider, emulate=emulate)
            return
        _create_stack(
            find_workspace(session, runs_program=False),
            name,
            session,
            secrets_provider,
            emulate=emulate,
        )


@stack.command("ls")
@click.option("--all", "-a", "everything", is_flag=True, help="List the stacks of all projects.")
@click.option("--json", "-j", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
@add_common_flags
def list_stacks(everything: bool, as_json: bool) -> None:
    """List the project's stacks, or all of the backend's.

    \b
    Examples:
      gpuform stack ls --json
      gpuform stack ls --all
    """
    with open_session() as session:
        workspace = find_workspace(session, runs_program=False)
        project, selected = workspace.project.name, None
        with contextlib.suppress(StackNotFound):  # a stack of another project is selected
            selected = workspace.find_selected()
        if everything:
            selected_full_name = None if selected is None else build_full_name(project, selected)
            full_names = workspace.backend.list_stacks()
            names = [(full_name, full_name.split("/")) for full_name in full_names]
            rows = [
                _build_row(workspace, parts[1], parts[2], full_name, selected_full_name)
                for full_name, parts in names
            ]
        else:
            rows = [
                _build_row(workspace, project, name, name, selected)
                for name in workspace.list_stacks()
            ]
        if as_json:
            session.screen.print(format_json(rows, indent=2))
            return
        width = max([len(row["name"]) for row in rows] + [4]) + 1
        session.screen.print(f"{'NAME':<{width}}  RESOURCES  LAST UPDATE")
        for row in rows:
            name = row["name"] + ("*" if row["current"] else "")
            session.screen.print(f"{name:<{width}}  {row['resourceCount']:>9}  {row['lastUpdate']}")


@stack.command()
@click.argument("name")
@click.option("--create", "-c", is_flag=True, help="Create the stack if it does not exist.")
@_PROVIDER
@add_common_flags
def select(name: str, create: bool, secrets_provider: str | None) -> None:
    """Select the stack that other commands work on.

    Stores the selection in the Pulumi CLI's file, so that both tools use the same stack.

    \b
    Example:
      gpuform stack select --create dev
    """
    with open_session() as session:
        workspace = find_workspace(session, runs_program=False)
        if create and get_short_name(workspace.project, name) not in workspace.list_stacks():
            _create_stack(workspace, name, session, secrets_provider)
            return
        workspace.select(name)


@stack.command("unselect")
@add_common_flags
def clear_selection() -> None:
    """Clear the selection: every command requires --stack until a stack is selected.

    \b
    Example:
      gpuform stack unselect
    """
    with open_session() as session:
        find_workspace(session, runs_program=False).clear_selection()


@stack.command("rm")
@click.argument("name", required=False)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option(
    "--force",
    "-f",
    is_flag=True,
    help="Remove the stack although it has resources; they keep running and cost money.",
)
@adopt_flag
@create_anew_flag
@emulate_flag
@lock_flag
@add_stack_flags
def remove(
    name: str | None,
    yes: bool,
    force: bool,
    adopt: tuple[str, ...],
    create_anew: bool,
    emulate: bool,
) -> int:
    """Remove a stack with its settings and history.

    Refuses a stack that has resources, including those that interrupted runs created: `gpuform
    destroy` deletes them.

    \b
    Example:
      gpuform stack rm dev --yes
    """
    with open_session() as session:
        workspace = find_workspace(session, runs_program=False)
        name = workspace.resolve(name or session.stack)
        screen = session.screen
        if not yes and not screen.interactive:
            raise EngineError(
                f"removing stack '{name}' requires a confirmation, and the command cannot "
                "ask for it here",
                hint="add --yes",
            )
        if not yes:
            answer = screen.ask(f"This removes stack {name}. Type its name to confirm: ")
            if answer != name:
                screen.print("Nothing was changed.")
                return 1
        selected = select_stack(session, workspace, name)
        callbacks = create_message_callbacks(screen)

        def add_answers(run_context: RunContext) -> RunContext:
            return add_adoption_answers(run_context, adopt, create_anew=create_anew)

        with selected.begin_operation(add_answers) as begun:
            workspace.remove(
                name,
                force=force,
                timeout=build_lock_timeout(screen),
                recover=lambda lock: recover_leftovers(begun, callbacks, lock, emulate=emulate),
            )
        screen.print(f"Removed stack {name}.")
        return 0


@stack.command()
@click.argument("name")
@lock_flag
@add_stack_flags
def rename(name: str) -> None:
    """Rename the stack, and select it.

    The stack keeps its state, settings and history; nothing changes on a platform. The next `up`
    recreates resources whose names the program makes from the stack's name.

    `organization/PROJECT/NAME` renames the stack's project as well. Then you have to write the
    project's new name in Pulumi.yaml, and to rename the keys of the stack's settings that begin
    with the project's old name.

    \b
    Examples:
      gpuform stack rename staging --stack dev
      gpuform stack rename organization/training/prod --stack prod
    """
    with open_session() as session, open_for_change(session) as opened:
        old_project = opened.project.name
        new_project, new_name = parse_new_name(opened.project, name)
        if (new_project, new_name) == (old_project, opened.name):
            raise EngineError(f"the name of the stack already is '{new_name}'")
        rename_stack(
            opened, new_project, new_name, session.environ, build_lock_timeout(session.screen)
        )
        if new_project == old_project:
            session.screen.print(f"Renamed stack {opened.name} to {new_name} and selected it.")
            _print_outdated_workflows(session, opened, new_name)
            return
        full_name = build_full_name(new_project, new_name)
        settings = opened.project.get_settings_path(new_name).name
        session.screen.print(
            f"Renamed stack {opened.name} to {full_name} and selected it.\nBefore the next "
            f"command, write `name: {new_project}` in {opened.project.path.name}, and in "
            f"{settings} change the keys that begin with `{old_project}:` to begin with "
            f"`{new_project}:`."
        )
        _print_outdated_workflows(session, opened, new_name)


def _print_outdated_workflows(session: Session, stack: Stack, new_name: str) -> None:
    """Print which workflows of `gpuform new ci` still have the old name of a renamed stack."""
    from gpuform.stacks.ci_workflows import describe_outdated_workflows  # noqa: PLC0415 - jinja2, for a rename alone

    project = stack.project
    old_name = f"{project.name}/{stack.name}"
    folder = project.directory.resolve()
    for sentence in describe_outdated_workflows(folder, old_name, new_name):
        session.screen.print(sentence)


@stack.command()
@click.argument("url")
@lock_flag
@add_stack_flags
def migrate(url: str) -> None:
    """Move the stack to another backend, with history, backups and records.

    URL is as for `gpuform login`; a relative path starts at the current folder. Holds the stack's
    lock in both places, reads every copied file back and compares it. In the former place remains a
    pointer: commands there refuse the stack and name the new URL. Nothing changes on a platform. An
    interrupted move continues when the command is repeated.

    \b
    Examples:
      gpuform stack migrate "s3://team-state/gpu?region=eu-central-1" --stack prod
      gpuform stack migrate file:///srv/state --stack dev
    """
    with open_session() as session:
        workspace = find_workspace(session, runs_program=False)
        target = Backend.open(url, session.environ)
        with raise_on_signals():
            name, copied = migrate_stack(
                workspace, session.stack, target, build_lock_timeout(session.screen)
            )
        lasting_url = build_lasting_url(target)
        counted_files = f": {copied} files, each compared after reading it back" if copied else ""
        session.screen.print(
            f"Moved stack {name} to {lasting_url}{counted_files}.\n"
            + _describe_next_backend(
                session, workspace, f"{lasting_url}?..." if "?" in target.url else lasting_url
            )
        )


def _describe_next_backend(session: Session, workspace: Workspace, url: str) -> str:
    """Return the sentence about how later commands find the new backend."""
    if session.environ.get("PULUMI_BACKEND_URL"):
        return f"Before the next command, set PULUMI_BACKEND_URL to {url}"
    if workspace.project.backend_url:
        path = workspace.project.path.name
        return f"Before the next command, write this URL into backend.url of {path}: {url}"
    return f"Before the next command, run `gpuform login {url}`."


def _create_stack(
    workspace: Workspace,
    name: str,
    session: Session,
    provider: str | None,
    *,
    emulate: bool = False,
) -> None:
    """Create and select a stack; with `emulate`, record the emulator as the stack's environment."""
    name = get_short_name(workspace.project, name)
    workspace.create_stack(
        name,
        create_passphrase_finder(workspace, session.screen.create_passphrase_prompt(), twice=True),
        provider or "",
    )
    if emulate:
        records = open_intents(workspace.backend, workspace.project.name, name).records
        # Recorded before the first run: no command can take the stack for one of real
        # platforms.
        record_environment(records, StackEnvironment(emulated=True, emulator=""))
    environment_text = " on the emulator" if emulate else ""
    session.screen.print(f"Created and selected stack {name}{environment_text}.")
    # With an emulator's clock, the first run makes it a stack of the emulator.
    is_real = not emulate and not session.environ.get(CLOCK_VARIABLE)
    if is_real and isinstance(workspace.backend.storage, Files):
        session.screen.warn(
            f"warning: the state of {name} lies in a folder of this machine. Before it creates "
            "anything real,\nmove it to a bucket: gpuform stack migrate URL"
        )


def _create_all_stacks(session: Session, provider: str | None, *, emulate: bool) -> None:
    """Create every missing stack of stacks.yaml."""
    workspace_stacks = read_workspace(Path.cwd(), session.environ).stacks.values()
    for workspace_stack in workspace_stacks:
        backend = Backend.open(workspace_stack.backend, session.environ)
        workspace = Workspace(workspace_stack.project, backend, session.environ)
        # The command can be repeated after a failure.
        if workspace_stack.stack in workspace.list_stacks():
            session.screen.print(f"Stack {workspace_stack.name} already exists.")
            continue
        session.screen.print(f"{workspace_stack.name}:")
        _create_stack(workspace, workspace_stack.stack, session, provider, emulate=emulate)


def _build_row(
    workspace: Workspace, project: str, name: str, shown_name: str, selected: str | None
) -> dict[str, Any]:
    """Return the row of `pulumi stack ls --json` for a stack."""
    data = workspace.backend.read(project, name)
    with add_backup_hint(workspace.backend, project, name):
        latest = load_checkpoint(data).latest if data is not None else {}
    resources = latest.get("resources") or []
    return {
        "name": shown_name,
        "current": shown_name == selected,
        "lastUpdate": (latest.get("manifest") or {}).get("time", "") if resources else "",
        "resourceCount": len(resources),  # as the CLI counts: the stack and providers, too
    }

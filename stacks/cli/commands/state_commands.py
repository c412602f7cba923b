"""Run `gpuform state`: show, recover and repair a stack's state.

The commands that edit entries are in `state_edit_commands`.
"""

from collections.abc import Sequence

import click

from gpuform.schemas.errors import EngineError
from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.commands.state_edit_commands import (
    delete,
    move,
    protect,
    rename,
    taint,
    unprotect,
    untaint,
)
from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.flags import AliasedGroup, emulated_state_flag, lock_flag
from gpuform.stacks.cli.opening import find_workspace, lock_stack, read_sealed_snapshot
from gpuform.stacks.cli.session import Session, add_common_flags, add_stack_flags, open_session
from gpuform.stacks.cli.terminal.prompts import is_confirmed
from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.engine.project import yaml_text
from gpuform.stacks.engine.stack import Workspace, get_unsaved_path
from gpuform.stacks.engine.stack import recover as recover_unsaved_state
from gpuform.stacks.engine.state import (
    Snapshot,
    get_entries,
    journal,
    load_checkpoint,
    reject_unknown_newer_fields,
)
from gpuform.stacks.engine.state import repair as repair_snapshot
from gpuform.stacks.engine.store import (
    SEALED,
    Backup,
    add_backup_hint,
    find_backups,
    load_backup,
)
from gpuform.stacks.operations.opening.selected_stack import (
    create_passphrase_finder,
    read_sealed_state,
)
from gpuform.stacks.review.plan_text import build_entry_document, build_state_rows, render_state
from gpuform.stacks.review.value_text import counted


@click.command()
@lock_flag
@add_stack_flags
def recover() -> int:
    """Write the changes of a run into the state after the state's store failed.

    When the store of the state fails in the middle of a run, the run starts no further changes, and
    saves the completed ones in the project's .gpuform/unsaved/. This command writes them into the
    state when the store answers again. It creates, changes and deletes nothing on a platform.

    \b
    Example:
      gpuform state recover --stack prod
    """
    with open_session() as session:
        workspace = find_workspace(session, runs_program=False)
        name = workspace.resolve(session.stack)
        path = get_unsaved_path(workspace.project, name)
        with lock_stack(session, workspace, name):
            workspace.finish_secrets_change(name, exclusive=True)
            count = recover_unsaved_state(workspace.backend, workspace.project.name, name, path)
        if count:
            changes = counted(count, "change")
            session.screen.print(f"Recovered {changes} into the state of stack {name}.")
            session.screen.print("Run `gpuform refresh` to compare the state with the platforms.")
        else:
            session.screen.print(f"The state of stack {name} already has all changes.")
        return SUCCESS


@click.command()
@click.option(
    "--from-backup",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Restore an earlier state: this one, or the last good one.",
)
@click.option(
    "--discard-journal",
    is_flag=True,
    help="Discard the journal of an interrupted run; its file is kept.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@lock_flag
@add_stack_flags
def repair(from_backup: str | None, discard_journal: bool, yes: bool) -> int:
    """Repair a damaged state.

    Sorts the entries, drops references to missing resources, and lists these repairs. Refuses
    repairs that would lose data, and leaves a valid state unchanged.

    --from-backup lists the earlier states, the .bak file and those in .pulumi/backups, and restores
    one of them; the replaced state stays beside it as a backup.

    \b
    Examples:
      gpuform state repair
      gpuform state repair --from-backup
      gpuform state repair --from-backup .pulumi/stacks/training/dev.json.bak
    """
    if from_backup is not None and discard_journal:
        raise click.UsageError("--from-backup and --discard-journal cannot be combined")
    with open_session() as session:
        workspace = find_workspace(session, runs_program=False)
        name = workspace.resolve(session.stack)
        with lock_stack(session, workspace, name):
            workspace.finish_secrets_change(name, exclusive=True)
            if discard_journal:
                return _discard_journal(session.screen, workspace, name, yes=yes)
            if from_backup is not None:
                return _restore_backup(session.screen, workspace, name, from_backup, yes=yes)
            return _repair_state(session.screen, workspace, name, yes=yes)


def _repair_state(screen: Screen, workspace: Workspace, name: str, *, yes: bool) -> int:
    """Show the repairs of the state, ask, and write; return FAILED after a no.

    A sound state stays. A repaired state includes the changes of the journal, which is removed.
    """
    backend, project = workspace.backend, workspace.project.name
    with add_backup_hint(backend, project, name):
        sealed_state = read_sealed_state(workspace, name, screen.warn)
    result = repair_snapshot(sealed_state.snapshot)
    if not result.done:
        screen.print("The state is valid: nothing to repair.")
        return SUCCESS
    # Writing the state would drop fields of a newer format.
    reject_unknown_newer_fields(load_checkpoint(sealed_state.data))
    for line in result.done:
        screen.print(line)
    if not is_confirmed(screen, "Write the repaired state?", yes=yes):
        return FAILED
    backup_location = backend.restore(project, name, result.snapshot.to_json(SEALED))
    # The journal's changes are in the repaired state; journals of other states stay.
    if sealed_state.recovered and not sealed_state.orphaned_journals:
        backend.open_journal(project, name).remove()
    screen.print(f"Repaired the state. The previous state is in {backup_location}.")
    return SUCCESS


def _restore_backup(
    screen: Screen, workspace: Workspace, name: str, backup_name: str, *, yes: bool
) -> int:
    """Replace the state by the named backup, or by one chosen by the user.

    Returns FAILED after a no; a choice from the list needs no other answer. The replaced state is
    kept. Raises EngineError for a backup of another stack.
    """
    backend, project = workspace.backend, workspace.project.name
    location = backup_name or _choose_backup(screen, find_backups(backend, project, name), yes=yes)
    if location is None:
        return FAILED
    snapshot = load_backup(backend, location)
    _reject_state_of_another_stack(
        [entry.urn for entry in snapshot.resources], location, project, name
    )
    # A choice from the list was confirmation enough.
    if backup_name:
        question = f"Restore {location} with {len(snapshot.resources)} resources?"
        if not is_confirmed(screen, question, yes=yes):
            return FAILED
    backup_location = backend.restore(project, name, backend.read_backup(location))
    screen.print(f"Restored the state of stack {name} from {location}.")
    if backup_location is not None:
        screen.print(f"The previous state is in {backup_location}.")
    # A journal may belong to the state that is back: its changes count again.
    sealed_state = read_sealed_state(workspace, name, screen.warn)
    if sealed_state.recovered:
        screen.print(f"The {sealed_state.recovered} changes of its journal are included.")
    screen.print("Run `gpuform refresh` to compare the state with the platforms.")
    return SUCCESS


def _choose_backup(screen: Screen, backups: Sequence[Backup], *, yes: bool) -> str | None:
    """Return the location of the earlier state chosen by the user, or None for a no.

    With `yes` the newest usable one is chosen without a question.

    Raises:
        EngineError: no earlier state can be used, or nobody can answer.
    """
    usable_backups = [backup for backup in backups if not backup.fault]
    for number, backup in enumerate(usable_backups, 1):
        screen.print(f"{number}  {backup.describe()}")
    for backup in backups:
        if backup.fault:
            screen.print(f"-  {backup.describe()}")
    if not usable_backups:
        raise EngineError("no usable earlier state found")
    if yes:
        return usable_backups[0].where
    if not screen.interactive:
        raise EngineError(
            "which backup should be restored?", hint="pass it: --from-backup FILE --yes"
        )
    answer = screen.ask(f"Restore which one? [1-{len(usable_backups)}/no] ")
    if answer.isdigit() and 1 <= int(answer) <= len(usable_backups):
        return usable_backups[int(answer) - 1].where
    screen.print("Nothing was changed.")
    return None


def _reject_state_of_another_stack(
    urns: Sequence[str], location: str, project: str, name: str
) -> None:
    """Raise EngineError if a URN is of another stack or project."""
    foreign = [urn for urn in urns if not urn.startswith(f"urn:pulumi:{name}::{project}::")]
    if foreign:
        raise EngineError(
            f"{location} is not a state of stack {name} of {project}: the file contains "
            f"{foreign[0]}",
            hint="Pass another file.",
        )


def _discard_journal(screen: Screen, workspace: Workspace, name: str, *, yes: bool) -> int:
    """List the objects of the journal, ask, and set the journal aside; FAILED after a no."""
    backend, project = workspace.backend, workspace.project.name
    stack_journal = backend.open_journal(project, name)
    if not stack_journal.read():
        screen.print(f"Stack {name} has no journal of an interrupted run.")
        return SUCCESS
    screen.print(f"{stack_journal.where} records these objects:")
    # Named before the question: nothing else knows of these objects afterwards.
    for urn, id_ in journal.find_objects(stack_journal):
        screen.print(f"  {urn} (id {id_})")
    if not is_confirmed(screen, "Discard them?", yes=yes):
        return FAILED
    screen.print(f"Kept the journal in {stack_journal.set_aside()}.")
    return SUCCESS


@click.command()
@add_common_flags
def upgrade() -> None:
    """Upgrade the backend to the latest layout.

    gpuform supports one layout, in which stacks belong to projects. Lists the stacks of Pulumi's
    first layout, for an upgrade with `pulumi state upgrade`.

    \b
    Example:
      gpuform state upgrade
    """
    with open_session() as session:
        workspace = find_workspace(session, runs_program=False)
        legacy = workspace.backend.list_legacy_stacks()
        if legacy:
            raise EngineError(
                "these stacks have the layout of old Pulumi CLIs, without projects:"
                + "".join(f"\n  {path}" for path in legacy),
                hint="upgrade them with `pulumi state upgrade`",
            )
        session.screen.print("The backend has the latest layout: nothing to upgrade.")


@click.group(cls=AliasedGroup, invoke_without_command=True)
@add_stack_flags
@click.pass_context
def state(context: click.Context) -> None:
    """Read and edit a stack's state.

    The state records which objects on the platforms belong to the stack. The edits change only the
    state: they create, change and delete nothing on a platform. Each edit keeps the previous state
    as a .bak file. Name a resource by its URN, or by a name that no other resource has.

    \b
    Examples:
      gpuform state list
      gpuform state delete train --yes
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (
    delete,
    protect,
    unprotect,
    taint,
    untaint,
    rename,
    move,
    recover,
    repair,
    upgrade,
):
    state.add_command(_command)


@state.command("list")
@click.option("--json", "-j", "as_json", is_flag=True, help="Print JSON instead of a table.")
@emulated_state_flag
@add_stack_flags
def list_entries(as_json: bool) -> None:
    """List every entry of the state: URN, id and what is special about it.

    \b
    Example:
      gpuform state list --stack dev
    """
    with open_session() as session:
        snapshot = read_sealed_snapshot(session)
        if not as_json:
            lines = render_state(snapshot.resources, snapshot.pending_operations)
            session.screen.print("\n".join(lines))
            return
        pending = [
            {"urn": operation.resource.urn, "type": operation.type}
            for operation in snapshot.pending_operations
        ]
        document = {"resources": build_state_rows(snapshot.resources), "pendingOperations": pending}
        session.screen.print(format_json(document, indent=2))


@state.command()
@click.argument("resource")
@click.option("--json", "-j", "as_json", is_flag=True, help="Print JSON instead of YAML.")
@click.option("--show-secrets", is_flag=True, help="Show secret values in plain text.")
@emulated_state_flag
@add_stack_flags
def show(resource: str, as_json: bool, show_secrets: bool) -> None:
    """Show one resource of the state.

    RESOURCE is a URN, or a name. Also shows replaced objects that `up` has not deleted yet.

    \b
    Examples:
      gpuform state show train
      gpuform state show train --json --show-secrets
    """
    with open_session() as session:
        entries = get_entries(_read_state(session, show_secrets=show_secrets).resources, resource)
        documents = [build_entry_document(entry, show_secrets=show_secrets) for entry in entries]
        if as_json:
            document = documents[0] if len(documents) == 1 else documents
            session.screen.print(format_json(document, indent=2))
        else:
            session.screen.write("---\n".join(map(yaml_text.dump, documents)))


def _read_state(session: Session, *, show_secrets: bool) -> Snapshot:
    """Return the state with secrets, or sealed without `show_secrets`, without a passphrase."""
    if not show_secrets:
        return read_sealed_snapshot(session)
    workspace = find_workspace(session, runs_program=False)
    return workspace.open(
        session.stack,
        create_passphrase_finder(workspace, session.screen.create_passphrase_prompt()),
    ).snapshot

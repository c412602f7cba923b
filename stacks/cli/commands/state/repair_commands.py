"""`gpuform state repair` and `gpuform state upgrade`."""

from collections.abc import Sequence

import click

from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.flags import lock_flag
from gpuform.stacks.cli.opening import locked, workspace_of
from gpuform.stacks.cli.session import common_flags, session, stack_flags
from gpuform.stacks.cli.terminal.asking import agreed
from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.engine.state import journal, load_checkpoint, refuse_newer
from gpuform.stacks.engine.state import repair as repaired
from gpuform.stacks.engine.store import (
    SEALED,
    Backup,
    find_backups,
    load_backup,
    name_the_last_good,
)
from gpuform.stacks.operations.opening.selecting import read_for_showing


@click.command()
@click.option(
    "--from-backup",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Bring back an earlier state: this one, or the last good one.",
)
@click.option(
    "--discard-journal",
    is_flag=True,
    help="Give up what the journal of an interrupted run tells; it is kept beside its place.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@lock_flag
@stack_flags
def repair(from_backup: str | None, discard_journal: bool, yes: bool) -> int:
    """Put a damaged state right.

    Sorts its entries and drops references to what is not there, and says what it did. What would
    lose something is left to you. Nothing is written to a state that is sound.

    --from-backup lists the earlier states, the .bak file and those in .pulumi/backups, and brings
    one back; the state that it replaces is kept beside it.

    \b
    Examples:
      gpuform state repair
      gpuform state repair --from-backup
      gpuform state repair --from-backup .pulumi/stacks/training/dev.json.bak
    """
    if from_backup is not None and discard_journal:
        raise click.UsageError("--from-backup and --discard-journal exclude each other")
    with session() as current:
        workspace = workspace_of(current, runs_program=False)
        name = workspace.resolve(current.stack)
        with locked(current, workspace, name):
            workspace.finish_secrets_change(name, exclusive=True)
            if discard_journal:
                return _discard_journal(current.screen, workspace, name, yes=yes)
            if from_backup is not None:
                return _restore(current.screen, workspace, name, from_backup, yes=yes)
            return _repair(current.screen, workspace, name, yes=yes)


def _repair(screen: Screen, workspace: Workspace, name: str, *, yes: bool) -> int:
    backend, project = workspace.backend, workspace.project.name
    with name_the_last_good(backend, project, name):
        found = read_for_showing(workspace, name, screen.warn)
    result = repaired(found.snapshot)
    if not result.done:
        screen.print("The state is sound: there is nothing to repair.")
        return SUCCESS
    refuse_newer(load_checkpoint(found.data))
    for line in result.done:
        screen.print(line)
    if not agreed(screen, "Write the repaired state?", yes=yes):
        return FAILED
    kept = backend.restore(project, name, result.snapshot.to_json(SEALED))
    if found.recovered and not found.overtaken:  # its changes are in what was written
        backend.journal(project, name).remove()
    screen.print(f"The state is repaired. What was there is kept in {kept}.")
    return SUCCESS


def _restore(screen: Screen, workspace: Workspace, name: str, given: str, *, yes: bool) -> int:
    backend, project = workspace.backend, workspace.project.name
    where = given or _chosen(screen, find_backups(backend, project, name), yes=yes)
    if where is None:
        return FAILED
    snapshot = load_backup(backend, where)
    _refuse_another_stack([entry.urn for entry in snapshot.resources], where, project, name)
    if given:
        question = f"Bring back {where} with {len(snapshot.resources)} resources?"
        if not agreed(screen, question, yes=yes):
            return FAILED
    kept = backend.restore(project, name, backend.read_backup(where))
    screen.print(f"Stack {name} has the state of {where} again.")
    if kept is not None:
        screen.print(f"What was there is kept in {kept}.")
    found = read_for_showing(workspace, name, screen.warn)
    if found.recovered:
        screen.print(f"{found.recovered} changes of the journal belong to it and are kept.")
    screen.print("`gpuform refresh` compares it with what the platforms have.")
    return SUCCESS


def _chosen(screen: Screen, backups: Sequence[Backup], *, yes: bool) -> str | None:
    """The earlier state to bring back: the person's choice of those that are listed."""
    good = [backup for backup in backups if not backup.fault]
    for number, backup in enumerate(good, 1):
        screen.print(f"{number}  {backup.describe()}")
    for backup in backups:
        if backup.fault:
            screen.print(f"-  {backup.describe()}")
    if not good:
        raise EngineError("there is no earlier state that can be used")
    if yes:
        return good[0].where
    if not screen.interactive:
        raise EngineError(
            "which one is to be brought back?", hint="name it: --from-backup FILE --yes"
        )
    answer = screen.ask(f"Bring back which one? [1-{len(good)}/no] ")
    if answer.isdigit() and 1 <= int(answer) <= len(good):
        return good[int(answer) - 1].where
    screen.print("Nothing was changed.")
    return None


def _refuse_another_stack(urns: Sequence[str], where: str, project: str, name: str) -> None:
    foreign = [urn for urn in urns if not urn.startswith(f"urn:pulumi:{name}::{project}::")]
    if foreign:
        raise EngineError(
            f"{where} is not a state of stack {name} of {project}: it has {foreign[0]}",
            hint="Name another file.",
        )


def _discard_journal(screen: Screen, workspace: Workspace, name: str, *, yes: bool) -> int:
    backend, project = workspace.backend, workspace.project.name
    log = backend.journal(project, name)
    if not log.read():
        screen.print(f"Stack {name} has no journal of an interrupted run.")
        return SUCCESS
    screen.print(f"{log.where} tells of these objects:")
    for urn, id_ in journal.find_objects(log):
        screen.print(f"  {urn} (id {id_})")
    if not agreed(screen, "Give up what it tells?", yes=yes):
        return FAILED
    screen.print(f"The journal is kept in {log.set_aside()}.")
    return SUCCESS


@click.command()
@common_flags
def upgrade() -> None:
    """Bring the backend to the latest layout.

    gpuform knows one layout, in which stacks belong to projects. Stacks of Pulumi's first layout
    are named and left to `pulumi state upgrade`.

    \b
    Example:
      gpuform state upgrade
    """
    with session() as current:
        workspace = workspace_of(current, runs_program=False)
        legacy = workspace.backend.legacy_stacks()
        if legacy:
            raise EngineError(
                "these stacks have the layout of old Pulumi CLIs, which knows no projects:"
                + "".join(f"\n  {path}" for path in legacy),
                hint="bring them up to date with `pulumi state upgrade`",
            )
        current.screen.print("The backend has the latest layout: there is nothing to do.")

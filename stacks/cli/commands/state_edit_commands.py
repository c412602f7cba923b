"""Run the commands of `gpuform state` that edit entries: delete, rename, protect, taint, move.

The edits themselves are pure functions of the engine's `state`; these commands lock, ask and save.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

import click

from gpuform.providers.records import Intents
from gpuform.schemas.errors import EngineError
from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.flags import build_lock_timeout, lock_flag
from gpuform.stacks.cli.opening import find_workspace, open_for_change
from gpuform.stacks.cli.session import Session, add_common_flags, add_stack_flags, open_session
from gpuform.stacks.cli.terminal.prompts import is_confirmed
from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.cli.terminal.signals import raise_on_signals
from gpuform.stacks.engine.records import (
    move_intents,
    open_intents,
    record_moved_resources,
)
from gpuform.stacks.engine.secrets import WrongPassphrase
from gpuform.stacks.engine.stack import ForeignStack, Stack, Workspace
from gpuform.stacks.engine.state import (
    DroppedReference,
    Move,
    Snapshot,
    edits,
    get_live_entry,
    get_object_entry,
)
from gpuform.stacks.engine.state import move as move_resources
from gpuform.stacks.engine.store import build_full_name
from gpuform.stacks.operations.opening.selected_stack import create_passphrase_finder
from gpuform.stacks.review.value_text import counted

Command = TypeVar("Command", bound=Callable[..., object])

_QUESTION = "Edit the state?"


def add_edit_flags(command: Command) -> Command:
    """Add the flags of a command which edits the state."""
    yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
    return yes(lock_flag(add_stack_flags(command)))


@click.command()
@click.argument("resource", required=False)
@click.option("--all", "everything", is_flag=True, help="Delete every entry of the state.")
@click.option("--force", is_flag=True, help="Also delete protected resources.")
@click.option("--target-dependents", is_flag=True, help="Also delete all dependents.")
@click.option("--id", "id_", metavar="ID", help="The id of the object, if a resource has several.")
@add_edit_flags
def delete(
    resource: str | None,
    everything: bool,
    force: bool,
    target_dependents: bool,
    id_: str | None,
    yes: bool,
) -> int:
    """Remove a resource from the state: its object stays, and keeps costing money.

    Refuses protected resources, and resources that others depend on.

    \b
    Example:
      gpuform state delete 'urn:pulumi:dev::training::lab:index:Machine::old'
    """
    if (resource is None) != everything:
        raise click.UsageError("pass one resource, or --all")
    with open_session() as session, open_for_change(session) as stack:
        snapshot = stack.snapshot
        if resource is None:
            after, forgotten = edits.delete_all(snapshot, force=force)
        else:
            deleted_entry = get_object_entry(snapshot.resources, resource, id_)
            after, forgotten = edits.delete(
                snapshot, deleted_entry, force=force, target_dependents=target_dependents
            )
        for entry in forgotten:
            label = entry.urn + f" (id {entry.id})" * bool(entry.id)
            session.screen.print(f"removes {label} from the state")
        if not forgotten or not is_confirmed(session.screen, _QUESTION, yes=yes):
            return SUCCESS if not forgotten else FAILED
        stack.save(after)
        session.screen.print(f"Removed {counted(len(forgotten), 'resource')} from the state.")
        return SUCCESS


@click.command()
@click.argument("resources", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every resource of the program.")
@add_edit_flags
def protect(resources: Sequence[str], everything: bool, yes: bool) -> int:
    """Protect resources from deletion.

    The next `up` resets this to the program's value: set `protect=True` there, too.

    \b
    Example:
      gpuform state protect train data
    """
    return _change_flag(resources, everything, yes, edits.set_protect, "protected", value=True)


@click.command()
@click.argument("resources", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every resource of the program.")
@add_edit_flags
def unprotect(resources: Sequence[str], everything: bool, yes: bool) -> int:
    """Allow the deletion of protected resources.

    \b
    Example:
      gpuform state unprotect train
    """
    return _change_flag(resources, everything, yes, edits.set_protect, "unprotected", value=False)


@click.command()
@click.argument("resources", nargs=-1, required=True)
@add_edit_flags
def taint(resources: Sequence[str], yes: bool) -> int:
    """Mark resources for replacement by the next `up`.

    \b
    Example:
      gpuform state taint train
    """
    return _change_flag(resources, False, yes, edits.set_taint, "tainted", value=True)


@click.command()
@click.argument("resources", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every resource of the program.")
@add_edit_flags
def untaint(resources: Sequence[str], everything: bool, yes: bool) -> int:
    """Remove the marks of `taint`: the next `up` does not replace the resources.

    \b
    Example:
      gpuform state untaint --all
    """
    return _change_flag(resources, everything, yes, edits.set_taint, "untainted", value=False)


_SetFlag = Callable[[Snapshot, Collection[str], bool], Snapshot]


def _change_flag(
    resources: Sequence[str],
    everything: bool,
    yes: bool,
    edit: _SetFlag,
    participle: str,
    *,
    value: bool,
) -> int:
    """Set a flag of the resources to `value` with `edit`, after a question; FAILED after a no.

    Raises UsageError unless either resources are named or `everything` is set.
    """
    if bool(resources) == everything:
        raise click.UsageError("pass resources, or --all")
    with open_session() as session, open_for_change(session) as stack:
        snapshot = stack.snapshot
        if everything:
            urns = edits.list_program_resource_urns(snapshot)
        else:
            urns = [get_live_entry(snapshot.resources, resource).urn for resource in resources]
        for urn in urns:
            session.screen.print(f"{participle}: {urn}")
        if not is_confirmed(session.screen, _QUESTION, yes=yes):
            return FAILED
        stack.save(edit(snapshot, urns, value))
        # The user may have named a resource twice.
        session.screen.print(f"{counted(len(set(urns)), 'resource')} {participle}.")
        return SUCCESS


@click.command()
@click.argument("resource")
@click.argument("name")
@add_edit_flags
def rename(resource: str, name: str, yes: bool) -> int:
    """Rename a resource, also in every reference to it.

    Rename it in the program, too: otherwise the next `up` deletes the resource and creates a new
    one.

    \b
    Example:
      gpuform state rename train training
    """
    with open_session() as session, open_for_change(session) as stack:
        entry = get_live_entry(stack.snapshot.resources, resource)
        after, new_urn = edits.rename(stack.snapshot, entry.urn, name)
        session.screen.print(f"{entry.urn} becomes {new_urn}")
        if not is_confirmed(session.screen, _QUESTION, yes=yes):
            return FAILED
        # An intent names the URN: the next run looks for the object under the new one.
        with move_intents(stack.get_intents(), stack.get_intents(), {entry.urn: new_urn}):
            stack.save(after)
        session.screen.print("Renamed the resource.")
        return SUCCESS


DEST_PASSPHRASE = "GPUFORM_DEST_PASSPHRASE"  # noqa: S105 - the name of a variable


@click.command()
@click.argument("resources", nargs=-1, required=True)
@click.option("--source", metavar="STACK", help="The source stack; default: the selected stack.")
@click.option("--dest", metavar="STACK", help="The destination stack; default: the selected stack.")
@click.option("--include-parents", is_flag=True, help="Also move all parents of the resources.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@lock_flag
@add_common_flags
def move(
    resources: Sequence[str],
    source: str | None,
    dest: str | None,
    include_parents: bool,
    yes: bool,
) -> int:
    """Move resources from one stack to another.

    Moves their children with them, and copies their providers. Drops and lists the references
    between moved and remaining resources: change the programs accordingly. Encrypts the secrets for
    the destination. If the destination has another passphrase, the command reads it from
    GPUFORM_DEST_PASSPHRASE, or asks for it. Name a stack of another project in the same backend as
    organization/PROJECT/STACK.

    \b
    Example:
      gpuform state move --source dev --dest prod train data
    """
    if source is None and dest is None:
        raise click.UsageError("pass --source, --dest or both")
    with (
        open_session() as session,
        _open_source_and_dest(session, source, dest) as (source_stack, dest_stack),
    ):
        urns = [
            get_live_entry(source_stack.snapshot.resources, resource).urn for resource in resources
        ]
        result = move_resources(
            source_stack.snapshot,
            dest_stack.snapshot,
            build_full_name(_get_project_name(dest_stack), dest_stack.name),
            urns,
            include_parents=include_parents,
        )
        _print_move(session.screen, result, source_stack.name, dest_stack.name)
        if not is_confirmed(session.screen, "Move them?", yes=yes):
            return FAILED
        _save_move(result, source_stack, dest_stack)
        session.screen.print(
            f"Moved the resources from stack {source_stack.name} to stack {dest_stack.name}."
        )
        return SUCCESS


_OpenStack = Stack | ForeignStack


@contextlib.contextmanager
def _open_source_and_dest(
    session: Session, source: str | None, dest: str | None
) -> Iterator[tuple[_OpenStack, _OpenStack]]:
    """Yield the source and the destination of `gpuform state move`, locked and opened.

    Raises:
        EngineError: both are the same stack, or a passphrase is wrong.
    """
    workspace = find_workspace(session, runs_program=False)
    source_id, dest_id = (_split_stack_name(workspace, name) for name in (source, dest))
    # The lock of one stack cannot be taken twice.
    if source_id == dest_id:
        raise EngineError(f"the source and the destination are both stack '{source_id[1]}'")
    passphrase = create_passphrase_finder(workspace, session.screen.create_passphrase_prompt())
    backend, lock_timeout = workspace.backend, build_lock_timeout(session.screen)
    with contextlib.ExitStack() as resources:
        resources.enter_context(raise_on_signals())
        # In order: two moves at once must not wait for each other's lock.
        for stack_id in sorted((source_id, dest_id)):
            resources.enter_context(backend.create_lock(*stack_id, lock_timeout))
        opened = _open_stack(workspace, source_id, passphrase)
        yield (
            opened,
            _open_dest(workspace, dest_id, _create_dest_passphrase_finder(session, workspace)),
        )


def _split_stack_name(workspace: Workspace, name: str | None) -> tuple[str, str]:
    """Return the project and the name of a stack, which may be another project's."""
    parts = (name or "").split("/")
    if len(parts) > 1 and parts[-2] not in ("organization", workspace.project.name):
        return parts[-2], parts[-1]
    return workspace.project.name, workspace.resolve(name)


def _open_stack(
    workspace: Workspace, stack_id: tuple[str, str], passphrase: Callable[[], str]
) -> _OpenStack:
    """Open a stack of this or another project for changes, under the caller's lock.

    Raises:
        WrongPassphrase: the passphrase does not fit.
    """
    project, name = stack_id
    if project != workspace.project.name:
        return ForeignStack.open(workspace.backend, project, name, passphrase)
    stack = workspace.open(name, passphrase, exclusive=True)
    stack.crypter.check()
    return stack


def _open_dest(
    workspace: Workspace, stack_id: tuple[str, str], passphrase: Callable[[], str]
) -> _OpenStack:
    """Open the destination; an error about the passphrase names the destination."""
    try:
        return _open_stack(workspace, stack_id, passphrase)
    except WrongPassphrase as error:
        # The passphrase fits the source: the error has to name the destination.
        raise EngineError(
            f"incorrect passphrase for the destination, stack '{stack_id[1]}'",
            hint="If the destination has another passphrase than the source, set "
            f"{DEST_PASSPHRASE} to the passphrase of the destination.",
        ) from error


def _create_dest_passphrase_finder(session: Session, workspace: Workspace) -> Callable[[], str]:
    """Return a function for the destination's passphrase.

    GPUFORM_DEST_PASSPHRASE comes first, then the sources of every passphrase.
    """
    passphrase = session.environ.get(DEST_PASSPHRASE)
    return (
        create_passphrase_finder(workspace, session.screen.create_passphrase_prompt())
        if passphrase is None
        else lambda: passphrase
    )


def _get_project_name(stack: _OpenStack) -> str:
    """Return the name of the stack's project, also for a stack of another project."""
    return stack.project if isinstance(stack, ForeignStack) else stack.project.name


def _print_move(screen: Screen, move_result: Move, source_name: str, dest_name: str) -> None:
    """Print the old and new URNs, differing providers, and the dropped references."""
    for old, new in move_result.urns.items():
        screen.print(f"{old} becomes {new}")
    for urn in move_result.borrowed:
        screen.print(f"their provider is {urn}, with the configuration of stack {dest_name}")
    _print_dropped_references(
        screen,
        f"Dropped from the resources that stay in stack {source_name}:",
        move_result.dropped_here,
    )
    _print_dropped_references(
        screen,
        f"Dropped from the resources that move to stack {dest_name}:",
        move_result.dropped_there,
    )


def _print_dropped_references(
    screen: Screen, title: str, dropped: Sequence[DroppedReference]
) -> None:
    """Print the title and a line for each dropped reference; nothing without references."""
    if dropped:
        screen.print(title)
        for reference in dropped:
            screen.print(f"  {reference.describe()}")


def _save_move(move_result: Move, source: _OpenStack, dest: _OpenStack) -> None:
    """Save both states, the destination first: no resource is ever missing from both.

    Records of creates that have begun move as well. If the source cannot be saved, the destination
    is restored.

    Raises:
        EngineError: one of the states cannot be saved.
    """
    before = dest.snapshot
    with move_intents(_open_intents(source), _open_intents(dest), move_result.urns):
        dest.save(move_result.dest)
        try:
            source.save(move_result.source)
        except EngineError as error:
            _restore_dest(dest, before, error)
            raise
    # Only a hint for later plans: a crash before this line loses nothing.
    record_moved_resources(
        _open_intents(source).records,
        _open_intents(dest).records,
        move_result.urns,
        build_full_name(_get_project_name(dest), dest.name),
    )


def _open_intents(stack: _OpenStack) -> Intents:
    """Return the stack's records of begun creates, from the backend."""
    return open_intents(stack.backend, _get_project_name(stack), stack.name)


def _restore_dest(dest: _OpenStack, before: Snapshot, error: EngineError) -> None:
    """Save the destination's earlier state; after a failure, put the way out into `error`."""
    try:
        dest.save(before)
    # Neither write succeeded: a person has to remove the copies.
    except EngineError:
        error.hint = (
            f"Both states now have the resources. Delete them from stack {dest.name} with "
            f"`gpuform state delete --stack {dest.name}`, then try again."
        )

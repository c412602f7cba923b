"""Run the commands of `gpuform state` that edit entries: delete, rename, protect, taint, move."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

import click

from gpuform.providers.records import Intents
from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.flags import build_lock_timeout, lock_flag
from gpuform.stacks.cli.opening import find_workspace, open_for_change
from gpuform.stacks.cli.session import Session, common_flags, open_session, stack_flags
from gpuform.stacks.cli.terminal.asking import is_confirmed
from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.cli.terminal.stopping import raise_on_signals
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.records import move_intents, open_intents
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
from gpuform.stacks.engine.state import move as moved
from gpuform.stacks.engine.store import build_full_name
from gpuform.stacks.operations.opening.selected_stack import create_passphrase_finder
from gpuform.stacks.review.value_text import counted

F = TypeVar("F", bound=Callable[..., object])

_ASK = "Edit the state?"


def edit_flags(command: F) -> F:
    """Add the flags of a command that edits the state."""
    yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
    return yes(lock_flag(stack_flags(command)))


@click.command()
@click.argument("resource", required=False)
@click.option("--all", "everything", is_flag=True, help="Every entry of the state.")
@click.option("--force", is_flag=True, help="What is protected, too.")
@click.option("--target-dependents", is_flag=True, help="And all that depends on it.")
@click.option("--id", "id_", metavar="ID", help="The object, where a resource has several.")
@edit_flags
def delete(
    resource: str | None,
    everything: bool,
    force: bool,
    target_dependents: bool,
    id_: str | None,
    yes: bool,
) -> int:
    """Forget a resource: its object goes on existing, and costing.

    Refused while others depend on it, and for what is protected.

    \b
    Example:
      gpuform state delete 'urn:pulumi:dev::training::lab:index:Machine::old'
    """
    if (resource is None) != everything:
        raise click.UsageError("name one resource, or give --all")
    with open_session() as current, open_for_change(current) as stack:
        snapshot = stack.snapshot
        if resource is None:
            after, gone = edits.delete_all(snapshot, force=force)
        else:
            doomed = get_object_entry(snapshot.resources, resource, id_)
            after, gone = edits.delete(
                snapshot, doomed, force=force, target_dependents=target_dependents
            )
        for entry in gone:
            current.screen.print(f"forgets {entry.urn}" + f" (id {entry.id})" * bool(entry.id))
        if not gone or not is_confirmed(current.screen, _ASK, yes=yes):
            return SUCCESS if not gone else FAILED
        stack.save(after)
        current.screen.print(f"{counted(len(gone), 'resource')} forgotten.")
        return SUCCESS


@click.command()
@click.argument("resources", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every resource of the program.")
@edit_flags
def protect(resources: Sequence[str], everything: bool, yes: bool) -> int:
    """Protect resources from deletion.

    Until the next `up`, which takes over what the program says: put `protect=True` there.

    \b
    Example:
      gpuform state protect train data
    """
    return _change_flag(resources, everything, yes, edits.set_protect, "protected", wanted=True)


@click.command()
@click.argument("resources", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every resource of the program.")
@edit_flags
def unprotect(resources: Sequence[str], everything: bool, yes: bool) -> int:
    """Allow the deletion of protected resources.

    \b
    Example:
      gpuform state unprotect train
    """
    return _change_flag(resources, everything, yes, edits.set_protect, "unprotected", wanted=False)


@click.command()
@click.argument("resources", nargs=-1, required=True)
@edit_flags
def taint(resources: Sequence[str], yes: bool) -> int:
    """Have resources replaced by the next `up`.

    \b
    Example:
      gpuform state taint train
    """
    return _change_flag(resources, False, yes, edits.set_taint, "tainted", wanted=True)


@click.command()
@click.argument("resources", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every resource of the program.")
@edit_flags
def untaint(resources: Sequence[str], everything: bool, yes: bool) -> int:
    """Do not have tainted resources replaced.

    \b
    Example:
      gpuform state untaint --all
    """
    return _change_flag(resources, everything, yes, edits.set_taint, "untainted", wanted=False)


_SetFlag = Callable[[Snapshot, Collection[str], bool], Snapshot]


def _change_flag(
    resources: Sequence[str],
    everything: bool,
    yes: bool,
    edit: _SetFlag,
    done: str,
    *,
    wanted: bool,
) -> int:
    if bool(resources) == everything:
        raise click.UsageError("name resources, or give --all")
    with open_session() as current, open_for_change(current) as stack:
        snapshot = stack.snapshot
        if everything:
            urns = edits.list_program_resource_urns(snapshot)
        else:
            urns = [get_live_entry(snapshot.resources, given).urn for given in resources]
        for urn in urns:
            current.screen.print(f"{done}: {urn}")
        if not is_confirmed(current.screen, _ASK, yes=yes):
            return FAILED
        stack.save(edit(snapshot, urns, wanted))
        current.screen.print(f"{counted(len(set(urns)), 'resource')} {done}.")
        return SUCCESS


@click.command()
@click.argument("resource")
@click.argument("name")
@edit_flags
def rename(resource: str, name: str, yes: bool) -> int:
    """Give a resource another name, in every reference to it.

    The program must name it so, too: else the next `up` deletes it and makes a new one.

    \b
    Example:
      gpuform state rename train training
    """
    with open_session() as current, open_for_change(current) as stack:
        entry = get_live_entry(stack.snapshot.resources, resource)
        after, new = edits.rename(stack.snapshot, entry.urn, name)
        current.screen.print(f"{entry.urn} becomes {new}")
        if not is_confirmed(current.screen, _ASK, yes=yes):
            return FAILED
        with move_intents(stack.intents(), stack.intents(), {entry.urn: new}):
            stack.save(after)
        current.screen.print("Resource renamed.")
        return SUCCESS


DEST_PASSPHRASE = "GPUFORM_DEST_PASSPHRASE"  # noqa: S105 - the name of a variable


@click.command()
@click.argument("resources", nargs=-1, required=True)
@click.option("--source", metavar="STACK", help="Where they are; the selected stack by default.")
@click.option("--dest", metavar="STACK", help="Where they go; the selected stack by default.")
@click.option("--include-parents", is_flag=True, help="And all the parents of these.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@lock_flag
@common_flags
def move(
    resources: Sequence[str],
    source: str | None,
    dest: str | None,
    include_parents: bool,
    yes: bool,
) -> int:
    """Move resources from one stack to another.

    Their children go with them, their providers are copied, and references between what goes and
    what stays are dropped and told. The programs must be changed accordingly. Secrets are encrypted
    anew for the destination; where its passphrase is another one, it comes from
    GPUFORM_DEST_PASSPHRASE, or is asked. A stack of another project in the same backend is named
    organization/PROJECT/STACK.

    \b
    Example:
      gpuform state move --source dev --dest prod train data
    """
    if source is None and dest is None:
        raise click.UsageError("give --source, --dest or both")
    with open_session() as current, _open_both(current, source, dest) as (here, there):
        urns = [get_live_entry(here.snapshot.resources, given).urn for given in resources]
        done = moved(
            here.snapshot,
            there.snapshot,
            build_full_name(_project_of(there), there.name),
            urns,
            include_parents=include_parents,
        )
        _tell(current.screen, done, here.name, there.name)
        if not is_confirmed(current.screen, "Move them?", yes=yes):
            return FAILED
        _save(done, here, there)
        current.screen.print(f"Moved from stack {here.name} to stack {there.name}.")
        return SUCCESS


_Open = Stack | ForeignStack


@contextlib.contextmanager
def _open_both(
    current: Session, source: str | None, dest: str | None
) -> Iterator[tuple[_Open, _Open]]:
    workspace = find_workspace(current, runs_program=False)
    here, there = (_split_stack_name(workspace, name) for name in (source, dest))
    if here == there:
        raise EngineError(f"the source and the destination are both stack '{here[1]}'")
    passphrase = create_passphrase_finder(workspace, current.screen.create_passphrase_prompt())
    backend, waiting = workspace.backend, build_lock_timeout(current.screen)
    with contextlib.ExitStack() as held:
        held.enter_context(raise_on_signals())
        for place in sorted((here, there)):  # two moves at once do not wait for each other
            held.enter_context(backend.create_lock(*place, waiting))
        opened = _open(workspace, here, passphrase)
        yield (
            opened,
            _open_dest(workspace, there, _create_destination_passphrase(current, workspace)),
        )


def _split_stack_name(workspace: Workspace, name: str | None) -> tuple[str, str]:
    """Return the project and the name of a stack, which may be another project's."""
    parts = (name or "").split("/")
    if len(parts) > 1 and parts[-2] not in ("organization", workspace.project.name):
        return parts[-2], parts[-1]
    return workspace.project.name, workspace.resolve(name)


def _open(workspace: Workspace, place: tuple[str, str], passphrase: Callable[[], str]) -> _Open:
    project, name = place
    if project != workspace.project.name:
        return ForeignStack.open(workspace.backend, project, name, passphrase)
    stack = workspace.open(name, passphrase, exclusive=True)
    stack.crypter.check()
    return stack


def _open_dest(
    workspace: Workspace, place: tuple[str, str], passphrase: Callable[[], str]
) -> _Open:
    try:
        return _open(workspace, place, passphrase)
    except WrongPassphrase as error:
        raise EngineError(
            f"incorrect passphrase for the destination, stack '{place[1]}'",
            hint=f"Set {DEST_PASSPHRASE} to it, if it is not that of the source.",
        ) from error


def _create_destination_passphrase(current: Session, workspace: Workspace) -> Callable[[], str]:
    given = current.environ.get(DEST_PASSPHRASE)
    return (
        create_passphrase_finder(workspace, current.screen.create_passphrase_prompt())
        if given is None
        else lambda: given
    )


def _project_of(stack: _Open) -> str:
    return stack.project if isinstance(stack, ForeignStack) else stack.project.name


def _tell(screen: Screen, done: Move, here: str, there: str) -> None:
    for old, new in done.urns.items():
        screen.print(f"{old} becomes {new}")
    for urn in done.borrowed:
        screen.print(f"their provider is {urn}, whose configuration is stack {there}'s own")
    _tell_dropped(screen, f"Dropped from what stays in stack {here}:", done.dropped_here)
    _tell_dropped(screen, f"Dropped from what goes to stack {there}:", done.dropped_there)


def _tell_dropped(screen: Screen, title: str, dropped: Sequence[DroppedReference]) -> None:
    if dropped:
        screen.print(title)
        for each in dropped:
            screen.print(f"  {each.describe()}")


def _save(done: Move, here: _Open, there: _Open) -> None:
    """The destination first: nothing is ever in neither."""
    before = there.snapshot
    with move_intents(_open_intents(here), _open_intents(there), done.urns):
        there.save(done.dest)
        try:
            here.save(done.source)
        except EngineError as error:
            _take_back(there, before, error)
            raise


def _open_intents(stack: _Open) -> Intents:
    return open_intents(stack.backend, _project_of(stack), stack.name)


def _take_back(there: _Open, before: Snapshot, error: EngineError) -> None:
    try:
        there.save(before)
    except EngineError:
        error.hint = (
            f"The resources are in both states now. Take them out of stack {there.name} with "
            f"`gpuform state delete --stack {there.name}`, then try again."
        )

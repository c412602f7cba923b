"""`gpuform state delete`, `protect`, `unprotect`, `taint`, `untaint` and `rename`."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import click

from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.flags import lock_flag
from gpuform.stacks.cli.opening import opened_for_change
from gpuform.stacks.cli.session import session, stack_flags
from gpuform.stacks.cli.terminal.asking import agreed
from gpuform.stacks.engine.records import intents_follow
from gpuform.stacks.engine.state import Snapshot, edits, locate_live, locate_object
from gpuform.stacks.review.names import counted

F = TypeVar("F", bound=Callable[..., object])

_ASK = "Edit the state?"


def edit_flags(command: F) -> F:
    """Adds the flags of a command that edits the state."""
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
    with session() as current, opened_for_change(current) as stack:
        snapshot = stack.snapshot
        if resource is None:
            after, gone = edits.delete_all(snapshot, force=force)
        else:
            doomed = locate_object(snapshot.resources, resource, id_)
            after, gone = edits.delete(
                snapshot, doomed, force=force, target_dependents=target_dependents
            )
        for entry in gone:
            current.screen.print(f"forgets {entry.urn}" + f" (id {entry.id})" * bool(entry.id))
        if not gone or not agreed(current.screen, _ASK, yes=yes):
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
    return _flag(resources, everything, yes, edits.set_protect, "protected", wanted=True)


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
    return _flag(resources, everything, yes, edits.set_protect, "unprotected", wanted=False)


@click.command()
@click.argument("resources", nargs=-1, required=True)
@edit_flags
def taint(resources: Sequence[str], yes: bool) -> int:
    """Have resources replaced by the next `up`.

    \b
    Example:
      gpuform state taint train
    """
    return _flag(resources, False, yes, edits.set_taint, "tainted", wanted=True)


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
    return _flag(resources, everything, yes, edits.set_taint, "untainted", wanted=False)


_SetFlag = Callable[[Snapshot, Collection[str], bool], Snapshot]


def _flag(
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
    with session() as current, opened_for_change(current) as stack:
        snapshot = stack.snapshot
        if everything:
            urns = edits.own_resources(snapshot)
        else:
            urns = [locate_live(snapshot.resources, given).urn for given in resources]
        for urn in urns:
            current.screen.print(f"{done}: {urn}")
        if not agreed(current.screen, _ASK, yes=yes):
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
    with session() as current, opened_for_change(current) as stack:
        entry = locate_live(stack.snapshot.resources, resource)
        after, new = edits.rename(stack.snapshot, entry.urn, name)
        current.screen.print(f"{entry.urn} becomes {new}")
        if not agreed(current.screen, _ASK, yes=yes):
            return FAILED
        with intents_follow(stack.intents(), stack.intents(), {entry.urn: new}):
            stack.save(after)
        current.screen.print("Resource renamed.")
        return SUCCESS

"""`gpuform state move`: resources of one stack become another's."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import click

from gpuform.providers.records import Intents
from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.flags import lock_flag, patience
from gpuform.stacks.cli.opening import workspace_of
from gpuform.stacks.cli.session import Session, common_flags, session
from gpuform.stacks.cli.terminal.asking import agreed
from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.cli.terminal.stopping import unwinding
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.records import intents_follow, intents_of
from gpuform.stacks.engine.secrets import WrongPassphrase
from gpuform.stacks.engine.stack import ForeignStack, Stack, Workspace
from gpuform.stacks.engine.state import DroppedReference, Move, Snapshot, locate_live
from gpuform.stacks.engine.state import move as moved
from gpuform.stacks.engine.store import full_name
from gpuform.stacks.operations.opening.selecting import passphrase_of

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
    with session() as current, _both(current, source, dest) as (here, there):
        urns = [locate_live(here.snapshot.resources, given).urn for given in resources]
        done = moved(
            here.snapshot,
            there.snapshot,
            full_name(_project_of(there), there.name),
            urns,
            include_parents=include_parents,
        )
        _tell(current.screen, done, here.name, there.name)
        if not agreed(current.screen, "Move them?", yes=yes):
            return FAILED
        _save(done, here, there)
        current.screen.print(f"Moved from stack {here.name} to stack {there.name}.")
        return SUCCESS


_Open = Stack | ForeignStack


@contextlib.contextmanager
def _both(current: Session, source: str | None, dest: str | None) -> Iterator[tuple[_Open, _Open]]:
    workspace = workspace_of(current, runs_program=False)
    here, there = (_place(workspace, name) for name in (source, dest))
    if here == there:
        raise EngineError(f"the source and the destination are both stack '{here[1]}'")
    passphrase = passphrase_of(workspace, current.screen.passphrase())
    backend, waiting = workspace.backend, patience(current.screen)
    with contextlib.ExitStack() as held:
        held.enter_context(unwinding())
        for place in sorted((here, there)):  # two moves at once do not wait for each other
            held.enter_context(backend.lock(*place, waiting))
        opened = _open(workspace, here, passphrase)
        yield opened, _open_dest(workspace, there, _dest_passphrase(current, workspace))


def _place(workspace: Workspace, name: str | None) -> tuple[str, str]:
    """The project and the name of a stack, which may be another project's."""
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


def _dest_passphrase(current: Session, workspace: Workspace) -> Callable[[], str]:
    given = current.environ.get(DEST_PASSPHRASE)
    return passphrase_of(workspace, current.screen.passphrase()) if given is None else lambda: given


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
    with intents_follow(_intents(here), _intents(there), done.urns):
        there.save(done.dest)
        try:
            here.save(done.source)
        except EngineError as error:
            _take_back(there, before, error)
            raise


def _intents(stack: _Open) -> Intents:
    return intents_of(stack.backend, _project_of(stack), stack.name)


def _take_back(there: _Open, before: Snapshot, error: EngineError) -> None:
    try:
        there.save(before)
    except EngineError:
        error.hint = (
            f"The resources are in both states now. Take them out of stack {there.name} with "
            f"`gpuform state delete --stack {there.name}`, then try again."
        )

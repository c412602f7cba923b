"""The status of several stacks, one after the other; nothing changes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuform.schemas.errors import UserError
from gpuform.stacks.engine.stack import StackNotFound
from gpuform.stacks.engine.store import without_credentials
from gpuform.stacks.estate import Member
from gpuform.stacks.operations.opening.selecting import SelectedStack
from gpuform.stacks.operations.status_reading import read_status
from gpuform.stacks.review.text.several_status_text import StackStatus


@dataclass(frozen=True, slots=True)
class Looking:
    """How several stacks are looked at.

    With `refresh` the platforms are asked. With `emulate` each is looked at on its emulator; stacks
    whose folders have none share the one of `root`. `ask_passphrase` is given the name of a stack
    and a prompt; None where nobody can answer.
    """

    root: Path
    environ: Mapping[str, str]
    refresh: bool = False
    emulate: bool = False
    ask_passphrase: Callable[[str, str], str] | None = None


def read_several(members: Sequence[Member], looking: Looking) -> Iterator[StackStatus]:
    """Each stack in turn. What keeps one from being read is told, and holds no other."""
    for member in members:
        yield _read(member, looking)


def _read(member: Member, looking: Looking) -> StackStatus:
    ask = looking.ask_passphrase
    ask_own = None if ask is None else lambda prompt: ask(member.name, prompt)
    try:
        workspace = member.workspace(looking.environ)
        if member.stack not in workspace.stacks():
            where = without_credentials(workspace.backend.url)
            problem = f"It does not exist in {where} yet."
            return StackStatus(member.name, None, problem, exists=False)
        selected = SelectedStack(workspace, member.stack, ask_passphrase=ask_own)
        status = read_status(
            selected, refresh=looking.refresh, emulate=looking.emulate, root=looking.root
        )
    except StackNotFound as error:  # it went meanwhile
        return StackStatus(member.name, None, str(error), exists=False)
    except UserError as error:
        return StackStatus(member.name, None, str(error))
    return StackStatus(member.name, status)

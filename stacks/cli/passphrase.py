"""The stack's passphrase: from the environment, else from the person."""

import functools
from collections.abc import Callable

from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.secrets import find_passphrase
from gpuform.stacks.engine.stack import Workspace


def passphrase_of(
    workspace: Workspace, screen: Screen, *, twice: bool = False
) -> Callable[[], str]:
    """Finds it when it is first needed, and once; `twice` asks again, for a new one."""
    ask = screen.passphrase()

    def ask_twice(prompt: str) -> str:
        if ask is None:
            raise AssertionError("somebody is asked only where somebody can answer")
        first = ask(prompt)
        if ask("Enter it again") != first:
            raise EngineError("the two passphrases differ", hint="run the command again")
        return first

    @functools.cache
    def find() -> str:
        asked = ask_twice if twice and ask is not None else ask
        return find_passphrase(workspace.environ, workspace.project.directory, asked)

    return find

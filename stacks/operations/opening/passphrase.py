"""The stack's passphrase: from the environment, else from the person."""

import functools
from collections.abc import Callable

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.secrets import find_passphrase
from gpuform.stacks.engine.stack import Workspace

AskPassphrase = Callable[[str], str]
"""Asks a person for a passphrase: a prompt in, the passphrase out."""


def passphrase_of(
    workspace: Workspace, ask: AskPassphrase | None, *, twice: bool = False
) -> Callable[[], str]:
    """Finds it when it is first needed, and once; `twice` asks again, for a new one.

    `ask` is None where nobody can answer.
    """

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

"""Where to look for what no stack owns."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuform.providers.actions import Settings
from gpuform.providers.catalog import platform_of
from gpuform.stacks.adopting.orphans import Question
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.operations.opening.passphrase import AskPassphrase, passphrase_of


@dataclass(frozen=True, slots=True)
class Account:
    """Whose lists are asked: by the configuration of a stack, and the environment.

    `stack` is None for the selected one, if there is one. `ask_passphrase` is None where nobody can
    answer.
    """

    workspace: Workspace
    stack: str | None = None
    ask_passphrase: AskPassphrase | None = None

    def config(self) -> tuple[Mapping[str, str], Sequence[str]]:
        """The stack's configuration, and which keys of it are secret; nothing without a stack."""
        workspace = self.workspace
        if self.stack is None and workspace.selected() not in workspace.stacks():
            return {}, []
        stack = workspace.open(self.stack, passphrase_of(workspace, self.ask_passphrase))
        return stack.settings.program_config(stack.crypter)


def question_of(
    account: Account, platforms: Sequence[str], regions: Sequence[str], older_than: float
) -> Question:
    """Raises UnsupportedKind for a platform that there is not."""
    for each in platforms:
        platform_of(each)
    config, secret_keys = account.config()
    settings = Settings(config=config.get, environ=os.environ)
    return Question(
        backend=account.workspace.backend,
        settings=settings,
        platforms=platforms,
        regions=regions,
        older_than=older_than,
        secrets=[*settings.secrets(), *(config[key] for key in secret_keys)],
    )

"""List objects that no stack owns, and what platforms offer."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import time

from gpuform.providers.catalog import require_platform
from gpuform.providers.operations import Settings
from gpuform.providers.values import Redactor
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.importing.orphans import Question
from gpuform.stacks.offers import Offers, ask, keep
from gpuform.stacks.operations.opening.emulating import emulator_for
from gpuform.stacks.operations.opening.selecting import AskPassphrase, passphrase_of
from gpuform.stacks.pricing.book import PriceBook


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
        require_platform(each)
    config, secret_keys = account.config()
    settings = Settings(config=config.get, environ=os.environ)
    return Question(
        backend=account.workspace.backend,
        settings=settings,
        platforms=platforms,
        regions=regions,
        older_than=older_than,
        secrets=[*settings.list_secrets(), *(config[key] for key in secret_keys)],
    )


def ask_offers(
    account: Account | None, platforms: Sequence[str], regions: Sequence[str], *, emulate: bool
) -> tuple[Offers, PriceBook]:
    """What the platforms offer, kept with the project for a day, and the project's price book.

    Without an `account` only the environment counts.
    """
    if account is None:
        with tempfile.TemporaryDirectory() as folder, emulator_for(Path(folder), wanted=emulate):
            return _ask({}, (), platforms, regions), PriceBook()
    folder_ = account.workspace.project.directory
    config, secret_keys = account.config()
    book = PriceBook.read(folder_)
    with emulator_for(folder_, wanted=emulate):
        found = _ask(config, [config[key] for key in secret_keys], platforms, regions)
    if not emulate and not regions:
        keep(folder_, found.found, [*found.asked, *found.documented], time())
    return found, book


def _ask(
    config: Mapping[str, str],
    secrets: Sequence[str],
    platforms: Sequence[str],
    regions: Sequence[str],
) -> Offers:
    settings = Settings(config=config.get)
    redact = Redactor([*settings.list_secrets(), *secrets]).redact
    found = ask(settings, platforms, regions)
    return replace(found, failures=list(map(redact, found.failures)))

"""List objects that no stack owns, and what the platforms offer.

`gpuform orphans` and `gpuform offers` call this module; it reads the stack's configuration and
passes it to the platforms' lists.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import time

from gpuform.providers.catalog import require_platform
from gpuform.providers.operations import Settings
from gpuform.providers.values import Redactor
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.importing.orphans import OrphanSearch
from gpuform.stacks.offers import Offers, query_offers, save_offers
from gpuform.stacks.operations.opening.emulator import run_emulator
from gpuform.stacks.operations.opening.selected_stack import AskPassphrase, create_passphrase_finder
from gpuform.stacks.price_book import PriceBook


@dataclass(frozen=True, slots=True)
class Account:
    """The platform accounts of a stack's configuration and of the environment.

    `stack` is None for the selected stack, if one is selected. `ask_passphrase` is None where
    nobody can answer.
    """

    workspace: Workspace
    stack: str | None = None
    ask_passphrase: AskPassphrase | None = None

    def read_config(self) -> tuple[Mapping[str, str], Sequence[str]]:
        """Return the stack's configuration and its secret keys, both empty without a stack."""
        workspace = self.workspace
        if self.stack is None and workspace.find_selected() not in workspace.list_stacks():
            return {}, []
        stack = workspace.open(self.stack, create_passphrase_finder(workspace, self.ask_passphrase))
        return stack.settings.build_program_config(stack.crypter)


def build_orphan_search(
    account: Account, platforms: Sequence[str], regions: Sequence[str], older_than: float
) -> OrphanSearch:
    """Build the search for objects without an owner; no platform is asked yet.

    `older_than` is the least age of a reported object, in seconds. Reading the stack's
    configuration
    may ask for the passphrase.

    Raises:
        UnsupportedKind: a platform is unknown.
    """
    for platform in platforms:
        require_platform(platform)
    config, secret_keys = account.read_config()
    settings = Settings(config=config.get)
    return OrphanSearch(
        backend=account.workspace.backend,
        settings=settings,
        platforms=platforms,
        regions=regions,
        min_age_s=older_than,
        secrets=[*settings.list_secrets(), *(config[key] for key in secret_keys)],
    )


def read_offers(
    account: Account | None, platforms: Sequence[str], regions: Sequence[str], *, emulate: bool
) -> tuple[Offers, PriceBook]:
    """Ask the platforms for offers, and return the offers and the project's price book.

    The project stores the offers for a day, unless `emulate` or `regions` are given. Without an
    `account` only the environment is read, and nothing is stored.
    """
    if account is None:
        # The emulator keeps its objects in a folder; without a project there is none.
        with tempfile.TemporaryDirectory() as folder, run_emulator(Path(folder), emulate=emulate):
            return _query_offers({}, (), platforms, regions), PriceBook()
    project_folder = account.workspace.project.directory
    config, secret_keys = account.read_config()
    book = PriceBook.read(project_folder)
    with run_emulator(project_folder, emulate=emulate):
        offers = _query_offers(config, [config[key] for key in secret_keys], platforms, regions)
    # Stored offers are what completion and `validate` read: only complete lists of real platforms.
    if not emulate and not regions:
        save_offers(project_folder, offers.offers, [*offers.asked, *offers.documented], time())
    return offers, book


def _query_offers(
    config: Mapping[str, str],
    secrets: Sequence[str],
    platforms: Sequence[str],
    regions: Sequence[str],
) -> Offers:
    """Ask the platforms for offers, and mask secrets in the failures."""
    settings = Settings(config=config.get)
    redact = Redactor([*settings.list_secrets(), *secrets]).redact
    offers = query_offers(settings, platforms, regions)
    # A platform's error message may repeat a key of the request.
    return replace(offers, failures=list(map(redact, offers.failures)))

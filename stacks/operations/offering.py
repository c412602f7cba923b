"""What the platforms offer, by the keys of a stack or of the environment."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import time

from gpuform.providers.actions import Settings
from gpuform.providers.values import Redactor
from gpuform.stacks.offering.asking import Offers, ask
from gpuform.stacks.offering.seen import keep
from gpuform.stacks.operations.opening.emulating import emulator_for
from gpuform.stacks.operations.orphans import Account
from gpuform.stacks.pricing.book import PriceBook


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
    redact = Redactor([*settings.secrets(), *secrets]).redact
    found = ask(settings, platforms, regions)
    return replace(found, failures=list(map(redact, found.failures)))

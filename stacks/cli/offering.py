"""From the flags of `offers` to what the platforms say."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import time

from gpuform.providers.actions import Settings
from gpuform.providers.redaction import Redactor
from gpuform.stacks.cli.opening import workspace_of
from gpuform.stacks.cli.orphans_question import config_of
from gpuform.stacks.cli.session import Session
from gpuform.stacks.engine.project import ProjectError
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.offering.asking import Offers, ask
from gpuform.stacks.offering.seen import keep
from gpuform.stacks.operations.opening.emulating import emulator_for
from gpuform.stacks.pricing.book import PriceBook


def asked(
    session: Session, platforms: Sequence[str], regions: Sequence[str], *, emulate: bool
) -> tuple[Offers, PriceBook]:
    """What the platforms offer, kept with the project for a day, and the project's price book."""
    workspace = _workspace(session)
    if workspace is None:
        with tempfile.TemporaryDirectory() as folder, emulator_for(Path(folder), wanted=emulate):
            return _ask({}, (), platforms, regions), PriceBook()
    folder_ = workspace.project.directory
    config, secret_keys = config_of(session, workspace)
    book = PriceBook.read(folder_)
    with emulator_for(folder_, wanted=emulate):
        found = _ask(config, [config[key] for key in secret_keys], platforms, regions)
    if not emulate and not regions:
        keep(folder_, found.found, [*found.asked, *found.documented], time())
    return found, book


def _workspace(session: Session) -> Workspace | None:
    """The project of the folder; outside of one only the environment counts."""
    try:
        return workspace_of(session)
    except ProjectError:
        return None


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

"""List what an account can declare on its platforms, and which names, keys and images a stack
already uses there.

It completes arguments and tells probable misspellings where no platform is asked. It is never taken
for what a platform offers now.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from gpuform.providers.errors import GpuformError, MissingCredentials
from gpuform.providers.offering import (
    GPU_TYPE,
    SERVER_TYPE,
    Offer,
    is_documented,
    list_offers,
    list_platforms_with_offers,
)
from gpuform.providers.operations import Settings
from gpuform.schemas.checking import find_nearest_name
from gpuform.stacks.document.diagnostics import Diagnostic
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.pricing.price_book import Price, PriceBook
from gpuform.stacks.topology.planning import PlannedTopology


@dataclass(frozen=True, slots=True)
class Priced:
    """An offer with the prices of one GPU by how it is paid for; none are known of most things."""

    offer: Offer
    prices: Mapping[str, Price] = field(default_factory=dict)


@dataclass(slots=True)
class Offers:
    """What was found, and who was asked.

    `documented` are platforms that have no lists, `not_asked` those without credentials, with the
    reason; with `failures` the rest is not all that there is.
    """

    found: list[Offer] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    documented: list[str] = field(default_factory=list)
    not_asked: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def ask(settings: Settings, platforms: Sequence[str] = (), regions: Sequence[str] = ()) -> Offers:
    """What the platforms offer, all of them when none are named.

    Raises EngineError for a platform that says of nothing what it offers.
    """
    known = list_platforms_with_offers()
    for each in platforms:
        if each not in known:
            near = find_nearest_name(each, tuple(known))
            meant = f"did you mean {near}?" if near else f"use one of {', '.join(known)}"
            raise EngineError(f"{each} is no platform that says what it offers", hint=meant)
    offers = Offers()
    for platform in platforms or known:
        _ask_one(platform, settings, regions, offers)
    return offers


def _ask_one(platform: str, settings: Settings, regions: Sequence[str], offers: Offers) -> None:
    try:
        found = list_offers(platform, settings, regions)
    except MissingCredentials as error:
        offers.not_asked[platform] = error.message
    except GpuformError as error:
        offers.failures.append(f"{platform} could not be asked: {error}")
    else:
        offers.found += found
        (offers.documented if is_documented(platform) else offers.asked).append(platform)


def with_gpu(offers: Sequence[Offer], gpu: str) -> list[Offer]:
    """What has this GPU: types whose names hold `gpu`, and what else there is in their regions.

    Raises EngineError when there is none, with the nearest name.
    """
    wanted = _folded(gpu)
    having = [each for each in offers if each.gpu and wanted in _folded(each.gpu)]
    if not having:
        known = tuple(dict.fromkeys(each.gpu for each in offers if each.gpu))
        near = find_nearest_name(gpu, known)
        hint = f"did you mean {near}?" if near else f"there is {', '.join(known) or 'nothing'}"
        raise EngineError(f"nobody who was asked offers {gpu}", hint=hint)
    places = {(each.platform, each.region) for each in having}
    platforms = {each.platform for each in having if not each.region}
    return [
        each
        for each in offers
        if each in having
        or (not each.gpu and ((each.platform, each.region) in places or each.platform in platforms))
    ]


def priced(offers: Iterable[Offer], book: PriceBook) -> list[Priced]:
    """The offers with what the price book says of them."""
    return [
        Priced(each, book.find_gpu_prices(each.platform, each.name, each.region))
        if each.what in (GPU_TYPE, SERVER_TYPE)
        else Priced(each)
        for each in offers
    ]


def _folded(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))


FILE: Final = Path(".gpuform") / "offers.json"
LATELY: Final = 24 * 3600.0
"""Seconds for which it is used."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Offers, and when their platforms were asked, in Unix seconds, by platform."""

    offers: tuple[Offer, ...] = ()
    at: Mapping[str, float] | None = None


def keep(folder: Path, offers: Iterable[Offer], platforms: Iterable[str], now: float) -> None:
    """Keeps what these platforms offer; what is known of others stays. Failing to is no error."""
    before, asked = seen_lately(folder, now), set(platforms)
    at = {each: when for each, when in (before.at or {}).items() if each not in asked}
    kept = [each for each in before.offers if each.platform in at] + list(offers)
    document = {"at": {**at, **dict.fromkeys(asked, now)}, "offers": [asdict(e) for e in kept]}
    try:
        (folder / FILE).parent.mkdir(exist_ok=True)
        replace_file(folder / FILE, json.dumps(document).encode())
    except OSError:
        return


def seen_lately(folder: Path, now: float) -> Seen:
    """What was offered within a day; nothing where nobody has asked, or the file is damaged."""
    try:
        document = json.loads((folder / FILE).read_bytes())
        times = {str(key): float(when) for key, when in document["at"].items()}
        at = {key: when for key, when in times.items() if 0 <= now - when <= LATELY}
        offers = tuple(Offer(**each) for each in document["offers"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Seen()
    return Seen(tuple(each for each in offers if each.platform in at), at)


def misspelt(planned: PlannedTopology, seen: Seen) -> Iterator[Diagnostic]:
    """Warnings of values that no platform offered, and that look like one that it did."""
    known: dict[tuple[str, str], dict[str, None]] = {}
    for offer in seen.offers:
        known.setdefault((offer.platform, offer.field), {})[offer.name] = None
    for resource in planned.resources:
        own = resource.instance.declaration
        for key, value in resource.values.items():
            offered = known.get((own.platform, key), {})
            near = _near(value, offered)
            if near:
                message = f"{resource.instance.address}.{key}: {own.platform} offered no {value}"
                yield Diagnostic(
                    resource.find_position(key),
                    "offers",
                    f"{message} when it was asked lately",
                    f"did you mean {near}? `gpuform offers` asks again",
                    "warning",
                )


def completed(folder: Path, now: float, key: Callable[[Offer], str]) -> list[str]:
    """Values for a shell to complete an argument with."""
    return sorted({key(each) for each in seen_lately(folder, now).offers} - {""})


def _near(value: Any, offered: Mapping[str, None]) -> str | None:
    if not isinstance(value, str) or not offered or value in offered:
        return None
    return find_nearest_name(value, offered)

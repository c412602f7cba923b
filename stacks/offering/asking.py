"""Asks the platforms what they offer, and what that costs by the price book."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuform.providers.errors import GpuformError, MissingCredentials
from gpuform.providers.offering import (
    GPU_TYPE,
    SERVER_TYPE,
    Offer,
    is_documented,
    offered_by,
    platforms_with_offers,
)
from gpuform.providers.operations import Settings
from gpuform.schemas.checking import nearest
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.pricing.book import Price, PriceBook


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
    known = platforms_with_offers()
    for each in platforms:
        if each not in known:
            near = nearest(each, tuple(known))
            meant = f"did you mean {near}?" if near else f"use one of {', '.join(known)}"
            raise EngineError(f"{each} is no platform that says what it offers", hint=meant)
    offers = Offers()
    for platform in platforms or known:
        _ask_one(platform, settings, regions, offers)
    return offers


def _ask_one(platform: str, settings: Settings, regions: Sequence[str], offers: Offers) -> None:
    try:
        found = offered_by(platform, settings, regions)
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
        near = nearest(gpu, known)
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
        Priced(each, book.prices_of(each.platform, each.name, each.region))
        if each.what in (GPU_TYPE, SERVER_TYPE)
        else Priced(each)
        for each in offers
    ]


def _folded(name: str) -> str:
    return "".join(filter(str.isalnum, name.casefold()))

"""List an account's offers on the platforms, for `gpuform offers`, and keep the last answers.

The kept answers complete arguments of commands and reveal probable misspellings without a request
to a platform. They are never taken for a platform's present offers.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from gpuform.providers.catalog import (
    GPU_TYPE,
    SERVER_TYPE,
    Offer,
    is_documented,
    list_offers,
    list_platforms_with_offers,
)
from gpuform.providers.errors import GpuformError, MissingCredentials
from gpuform.providers.operations import Settings
from gpuform.schemas.checking import find_nearest_name, suggest_name
from gpuform.schemas.errors import EngineError
from gpuform.stacks.document.diagnostics import DocumentDiagnostic
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.pricing import Price, PriceBook
from gpuform.stacks.topology.planning import PlannedTopology


@dataclass(frozen=True, slots=True)
class PricedOffer:
    """An offer with the prices of one GPU by billing type; most offers have no known price."""

    offer: Offer
    prices: Mapping[str, Price] = field(default_factory=dict)


@dataclass(slots=True)
class Offers:
    """The offers found, and the platforms that were asked.

    `documented` are platforms whose offers come from documents, `not_asked` those without
    credentials, with the reason. With `failures` the list is incomplete.
    """

    offers: list[Offer] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    documented: list[str] = field(default_factory=list)
    not_asked: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def query_offers(
    settings: Settings, platforms: Sequence[str] = (), regions: Sequence[str] = ()
) -> Offers:
    """Return the offers of the named platforms, or of all platforms if none is named.

    A platform without credentials, or one that fails, is noted in the result.

    Raises:
        EngineError: a platform has no list of offers.
    """
    platforms_with_offers = list_platforms_with_offers()
    for platform_name in platforms:
        if platform_name not in platforms_with_offers:
            hint = suggest_name(
                platform_name,
                platforms_with_offers,
                f"use one of {', '.join(platforms_with_offers)}",
            )
            raise EngineError(f"{platform_name} is not a platform with a list of offers", hint=hint)
    offers = Offers()
    for platform in platforms or platforms_with_offers:
        _query_platform(platform, settings, regions, offers)
    return offers


def _query_platform(
    platform: str, settings: Settings, regions: Sequence[str], offers: Offers
) -> None:
    """Add the offers of a platform to `offers`, or the reason why the platform has none there."""
    try:
        platform_offers = list_offers(platform, settings, regions)
    except MissingCredentials as error:
        offers.not_asked[platform] = error.message
    except GpuformError as error:
        # A platform that fails must not hide the offers of the others.
        offers.failures.append(f"{platform}: cannot list the offers: {error}")
    else:
        offers.offers += platform_offers
        (offers.documented if is_documented(platform) else offers.asked).append(platform)


def filter_by_gpu(offers: Sequence[Offer], gpu: str) -> list[Offer]:
    """Return the offers with a GPU type whose name contains `gpu`.

    Only letters and digits are compared, in any case. Offers without a GPU, such as images, are
    included if they are for a region with the GPU.

    Raises:
        EngineError: no offer has the GPU; the hint has the nearest name.
    """
    folded_gpu = _fold_name(gpu)
    gpu_offers = [offer for offer in offers if offer.gpu and folded_gpu in _fold_name(offer.gpu)]
    if not gpu_offers:
        known_gpus = dict.fromkeys(offer.gpu for offer in offers if offer.gpu)
        hint = suggest_name(gpu, known_gpus, f"offered GPUs: {', '.join(known_gpus) or 'none'}")
        raise EngineError(f"no queried platform offers {gpu}", hint=hint)
    regions = {(offer.platform, offer.region) for offer in gpu_offers}
    platforms = {offer.platform for offer in gpu_offers if not offer.region}
    # Images and node types without a GPU matter only where the GPU is.
    return [
        offer
        for offer in offers
        if offer in gpu_offers
        or (
            not offer.gpu
            and ((offer.platform, offer.region) in regions or offer.platform in platforms)
        )
    ]


def add_prices(offers: Iterable[Offer], book: PriceBook) -> list[PricedOffer]:
    """Return the offers with the prices of the price book."""
    return [
        PricedOffer(offer, book.find_gpu_prices(offer.platform, offer.name, offer.region))
        if offer.what in (GPU_TYPE, SERVER_TYPE)
        else PricedOffer(offer)
        for offer in offers
    ]


def _fold_name(name: str) -> str:
    """Return the letters and digits of a name in lower case, for comparisons."""
    # Users write h100 or H100-SXM for H100_SXM.
    return "".join(filter(str.isalnum, name.casefold()))


OFFERS_FILE: Final = Path(".gpuform") / "offers.json"
RECENT_S: Final = 24 * 3600.0
"""How long kept offers are used."""


@dataclass(frozen=True, slots=True)
class RecentOffers:
    """Kept offers, and when each platform was asked, in Unix seconds."""

    offers: tuple[Offer, ...] = ()
    asked_at: Mapping[str, float] | None = None


def save_offers(
    folder: Path, offers: Iterable[Offer], platforms: Iterable[str], now: float
) -> None:
    """Save the offers of the named platforms; recent ones of other platforms stay.

    `now` is Unix time in seconds. Errors of the disk are ignored.
    """
    recent, asked_platforms = read_recent_offers(folder, now), set(platforms)
    asked_at = {
        platform: asked_time
        for platform, asked_time in (recent.asked_at or {}).items()
        if platform not in asked_platforms
    }
    all_offers = [offer for offer in recent.offers if offer.platform in asked_at] + list(offers)
    document = {
        "at": {**asked_at, **dict.fromkeys(asked_platforms, now)},
        "offers": [asdict(offer) for offer in all_offers],
    }
    try:
        (folder / OFFERS_FILE).parent.mkdir(exist_ok=True)
        replace_file(folder / OFFERS_FILE, json.dumps(document).encode())
    # Saved offers only complete and warn: every command works without them.
    except OSError:
        return


def read_recent_offers(folder: Path, now: float) -> RecentOffers:
    """Return the offers saved within the last day; empty if the file is missing or damaged.

    `now` is Unix time in seconds.
    """
    try:
        document = json.loads((folder / OFFERS_FILE).read_bytes())
        times = {str(key): float(asked_time) for key, asked_time in document["at"].items()}
        asked_at = {
            key: asked_time
            for key, asked_time in times.items()
            # A time in the future means that the clock was changed.
            if 0 <= now - asked_time <= RECENT_S
        }
        offers = tuple(Offer(**fields) for fields in document["offers"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return RecentOffers()
    return RecentOffers(tuple(offer for offer in offers if offer.platform in asked_at), asked_at)


def find_misspelled_values(
    planned: PlannedTopology, recent: RecentOffers
) -> Iterator[DocumentDiagnostic]:
    """Yield a warning for each declared value similar to an offer and equal to none.

    A region without saved offers is compared with the regions that gpuform's reference names.
    """
    offered_names: dict[tuple[str, str], dict[str, None]] = {}
    for offer in recent.offers:
        offered_names.setdefault((offer.platform, offer.field), {})[offer.name] = None
    for resource in planned.resources:
        declaration = resource.instance.declaration
        for key, value in resource.values.items():
            offered = offered_names.get((declaration.platform, key), {})
            reason = f"{declaration.platform} did not offer {value} when last queried"
            if not offered and key == "region":
                examples = resource.instance.lifecycle.inputs.model_fields[key].examples
                # A region with another number is probably a region that the reference lacks.
                known_regions = (str(example) for example in examples or ())
                offered = {
                    region: None
                    for region in known_regions
                    if _remove_digits(region) != _remove_digits(str(value))
                }
                reason = f"the region {value} is unknown to gpuform"
            nearest_name = _find_nearest_offer(value, offered)
            if nearest_name:
                path = f"{resource.instance.address}.{key}"
                yield DocumentDiagnostic(
                    resource.find_position(key),
                    "offers",
                    f"{path}: {reason}",
                    f"did you mean {nearest_name}? `gpuform offers` queries again",
                    # The saved answer may be outdated: the value may be offered by now.
                    "warning",
                )


def complete_argument(folder: Path, now: float, key: Callable[[Offer], str]) -> list[str]:
    """Return the possible values of an argument in a shell, from the saved offers.

    `key` returns the value of an offer. `now` is Unix time in seconds.
    """
    return sorted({key(offer) for offer in read_recent_offers(folder, now).offers} - {""})


def _remove_digits(name: str) -> str:
    """Return a region's name without digits."""
    return "".join(character for character in name if not character.isdigit())


def _find_nearest_offer(value: Any, offered: Mapping[str, None]) -> str | None:
    """Return the offered name most similar to `value`, or None if no name is similar.

    None also for a value that is offered, or is not a text.
    """
    if not isinstance(value, str) or not offered or value in offered:
        return None
    return find_nearest_name(value, offered)

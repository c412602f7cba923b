"""What the platforms offered when they were last asked, kept beside the project.

It completes arguments and tells probable misspellings where no platform is asked. It is never taken
for what a platform offers now.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from gpuform.providers.offering import Offer
from gpuform.schemas.checking import nearest
from gpuform.stacks.document.diagnostics import Diagnostic
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.topology.planning import Planned

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


def misspelt(planned: Planned, seen: Seen) -> Iterator[Diagnostic]:
    """Warnings of values that no platform offered, and that look like one that it did."""
    known: dict[tuple[str, str], dict[str, None]] = {}
    for offer in seen.offers:
        known.setdefault((offer.platform, offer.field), {})[offer.name] = None
    for resource in planned.resources:
        own = resource.instance.declaration
        for field, value in resource.values.items():
            offered = known.get((own.platform, field), {})
            near = _near(value, offered)
            if near:
                message = f"{resource.instance.address}.{field}: {own.platform} offered no {value}"
                yield Diagnostic(
                    resource.place(field),
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
    return nearest(value, offered)

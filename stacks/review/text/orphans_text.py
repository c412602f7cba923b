"""Write what `gpuform orphans` and `gpuform offers` found, for people and for machines."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from gpuform.providers.records import Intent
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.importing.orphans import Orphan, Orphans
from gpuform.stacks.offering.asking import Offers, Priced
from gpuform.stacks.review.names import counted
from gpuform.stacks.review.paint import PLAIN, Paint

_ORPHAN_COLUMNS = ("TYPE", "NAME", "ID", "REGION", "STATE", "AGE", "COST")
_OWNER = "OWNER"
"""The last column, where a platform names an owner."""
_UNKNOWN = "unknown"


def orphans_lines(
    found: Orphans, backend: str, *, paint: Paint = PLAIN, redact: Callable[[str], str] = str
) -> Iterator[str]:
    """A table, what was never settled, and what was not asked; not the failures."""
    if found.objects:
        rows = [
            (*_ORPHAN_COLUMNS, _OWNER),
            *(tuple(map(redact, _orphan_row(each))) for each in found.objects),
        ]
        if not any(each.held.owner for each in found.objects):
            rows = [row[: len(_ORPHAN_COLUMNS)] for row in rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        yield paint("bold", lines[0])
        yield from lines[1:]
        yield ""
    for each in found.unsettled:
        yield paint("warning", f"never settled: {redact(_told(each))}")
    for platform, reason in found.not_asked.items():
        yield f"not asked: {platform} ({redact(reason)})"
    yield _sums(found, backend)


def orphans_document(found: Orphans, redact: Callable[[str], str] = str) -> dict[str, Any]:
    """The same as JSON: ages in seconds, times in UTC, null for what is unknown."""
    document = {
        "objects": [_object(each) for each in found.objects],
        "unsettled": [_intent(each) for each in found.unsettled],
        "asked": found.asked,
        "not_asked": found.not_asked,
        "failures": found.failures,
    }
    return {key: _redacted(value, redact) for key, value in document.items()}


def _redacted(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _redacted(item, redact) for key, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item, redact) for item in value]
    return redact(value) if isinstance(value, str) else value


def _orphan_row(orphan: Orphan) -> tuple[str, ...]:
    held = orphan.held
    cost = _UNKNOWN
    if held.hourly_cost is not None:
        cost = f"{held.hourly_cost:.2f} {held.currency}".rstrip() + "/h"
    age = _UNKNOWN if orphan.age is None else _span(orphan.age)
    told = (
        held.name,
        held.id,
        held.region or _UNKNOWN,
        held.status or "-",
        age,
        cost,
        held.owner or "-",
    )
    return f"{held.platform}:{held.kind}", *map(escape_invisible, told)


def _sums(found: Orphans, backend: str) -> str:
    if not found.asked:
        return "No platform was asked."
    *others, last = found.asked
    where = f"on {', '.join(others)} and {last}" if others else f"on {last}"
    if not found.objects and found.failures:
        return f"Nothing was found {where}, but not all could be read: there may be orphans."
    if not found.objects:
        return f"No orphans {where}: every object belongs to a stack (backend {backend})."
    costs: dict[str, float] = {}
    for held in (each.held for each in found.objects):
        if held.hourly_cost is not None:
            costs[held.currency] = costs.get(held.currency, 0.0) + held.hourly_cost
    known = [f"{cost:.2f} {currency}".rstrip() + "/h" for currency, cost in sorted(costs.items())]
    unknown = sum(each.held.hourly_cost is None for each in found.objects)
    known += [f"{counted(unknown, 'cost')} unknown"] if unknown else []
    parts = ", ".join([counted(len(found.objects), "orphan"), *known])
    return f"{parts}: {where}, owned by no stack (backend {backend})."


def _told(intent: Intent) -> str:
    region = intent.tried_region or intent.region
    where = f" in {region}" if region else ""
    made = ", ".join(intent.ids or ((intent.id,) if intent.id else ())) or "no id is known"
    text = f"{intent.platform}:{intent.kind} {intent.name!r}{where} ({made})"
    whose = f" for {intent.urn}" if intent.urn else ""
    return escape_invisible(
        f"{text}, begun {_moment(intent.started_at)}{whose}: `gpuform up` settles it"
    )


def _object(orphan: Orphan) -> dict[str, Any]:
    held = orphan.held
    return {
        "platform": held.platform,
        "kind": held.kind,
        "id": held.id,
        "name": held.name,
        "region": held.region or None,
        "tags": None if held.tags is None else dict(held.tags),
        "status": held.status or None,
        "owner": held.owner or None,
        "created_at": None if held.created_at is None else _moment(held.created_at),
        "age_seconds": orphan.age,
        "hourly_cost": held.hourly_cost,
        "currency": held.currency or None,
        "made_for": orphan.intent.urn if orphan.intent else None,
    }


def _intent(intent: Intent) -> dict[str, Any]:
    return {
        "platform": intent.platform,
        "kind": intent.kind,
        "name": intent.name,
        "region": intent.tried_region or intent.region or None,
        "ids": list(intent.ids or ((intent.id,) if intent.id else ())),
        "urn": intent.urn,
        "started_at": _moment(intent.started_at),
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _span(seconds: float) -> str:
    """The two greatest units: 3d 4h, 2h 5m."""
    minutes = int(seconds // 60)
    parts = [(minutes // 1440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "m")]
    told = [f"{number}{unit}" for number, unit in parts if number][:2]
    return " ".join(told) or "0m"


_OFFER_COLUMNS = ("PLATFORM", "REGION", "WHAT", "FIELD", "VALUE", "STOCK", "PRICE", "ABOUT")
_STOCK = {None: "-", True: "yes", False: "no"}


def offers_lines(
    offers: Offers, shown: Sequence[Priced], currency: str, *, paint: Paint = PLAIN
) -> Iterator[str]:
    """A table, and who was not asked; not the failures."""
    if shown:
        rows = [_OFFER_COLUMNS, *(_offer_row(each, currency) for each in shown)]
        used = [at for at in range(len(_OFFER_COLUMNS)) if any(row[at] != "-" for row in rows[1:])]
        widths = {at: max(len(row[at]) for row in rows) for at in used}
        lines = ["  ".join(row[at].ljust(widths[at]) for at in used).rstrip() for row in rows]
        yield paint("bold", lines[0])
        yield from lines[1:]
        yield ""
    for platform in offers.documented:
        yield f"not asked: {platform} (its API has no such lists; this is what it documents)"
    for platform, reason in offers.not_asked.items():
        yield f"not asked: {platform} ({reason})"


def offers_document(offers: Offers, shown: Sequence[Priced], currency: str) -> dict[str, Any]:
    """The same as JSON; null for what is not told."""
    return {
        "offers": [
            {
                **asdict(each.offer),
                "prices": [
                    {"billing": billing, "hourly": price.hourly, "currency": currency}
                    for billing, price in each.prices.items()
                ],
            }
            for each in shown
        ],
        "asked": offers.asked,
        "documented": offers.documented,
        "not_asked": offers.not_asked,
        "failures": offers.failures,
    }


def _offer_row(each: Priced, currency: str) -> tuple[str, ...]:
    offer = each.offer
    prices = [
        f"{price.hourly:.2f} {currency}/h" + ("" if billing == "on_demand" else f" {billing}")
        for billing, price in each.prices.items()
    ]
    cells = (offer.platform, offer.region, offer.what, offer.field, offer.name)
    told = (_STOCK[offer.in_stock], ", ".join(prices), offer.about)
    return tuple(escape_invisible(cell) or "-" for cell in (*cells, *told))

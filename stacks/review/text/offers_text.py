"""What `gpuform offers` found, for people and for machines."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from gpuform.schemas.visible import visible
from gpuform.stacks.offering.asking import Offers, Priced
from gpuform.stacks.review.paint import PLAIN, Paint

_COLUMNS = ("PLATFORM", "REGION", "WHAT", "FIELD", "VALUE", "STOCK", "PRICE", "ABOUT")
_STOCK = {None: "-", True: "yes", False: "no"}


def offers_lines(
    offers: Offers, shown: Sequence[Priced], currency: str, *, paint: Paint = PLAIN
) -> Iterator[str]:
    """A table, and who was not asked; not the failures."""
    if shown:
        rows = [_COLUMNS, *(_row(each, currency) for each in shown)]
        used = [at for at in range(len(_COLUMNS)) if any(row[at] != "-" for row in rows[1:])]
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


def _row(each: Priced, currency: str) -> tuple[str, ...]:
    offer = each.offer
    prices = [
        f"{price.hourly:.2f} {currency}/h" + ("" if billing == "on_demand" else f" {billing}")
        for billing, price in each.prices.items()
    ]
    cells = (offer.platform, offer.region, offer.what, offer.field, offer.name)
    told = (_STOCK[offer.in_stock], ", ".join(prices), offer.about)
    return tuple(visible(cell) or "-" for cell in (*cells, *told))

"""Format the results of `gpuform orphans`, `gpuform offers` and `gpuform topology --apply`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from gpuform.providers.records import Intent
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.importing.orphans import Orphan, Orphans
from gpuform.stacks.offers import Offers, Priced
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.value_text import counted
from gpuform.stacks.topology_export.applying import Action, Change

if TYPE_CHECKING:
    from gpuform.stacks.topology_export.formats import TopologyResult
    from gpuform.stacks.topology_export.model import Node, StackTopology

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


_SYMBOLS: Final = {
    Action.SET: ("+", "add"),
    Action.CHANGE: ("~", "change"),
    Action.REMOVE: ("-", "remove"),
}


def changes_lines(changes: Sequence[Change], paint: Paint = PLAIN) -> Iterator[str]:
    """What is written, by node or object; what stays as it is counts alone."""
    where = ""
    for each in changes:
        symbol = _SYMBOLS.get(each.action)
        if symbol is None:
            continue
        if each.where != where:
            where = each.where
            yield escape_invisible(where)
        text = escape_invisible(f"{each.key or 'the object'}{_values(each)}")
        yield paint(symbol[1], f"  {symbol[0]} {text}")
    for each in changes:
        if each.action is Action.LEFT:
            what = f"{each.key} is {each.there}" if each.key else "it is another's"
            yield escape_invisible(f"{each.where}: {what} by now: it stays")
    same = sum(each.action is Action.SAME for each in changes)
    if same:
        yield f"{same} unchanged"


def problems_lines(changes: Sequence[Change]) -> Iterator[str]:
    """What cannot be written, and why."""
    for each in changes:
        if each.action is Action.ABSENT:
            yield escape_invisible(f"{each.where}: the cluster has no such node")
        elif each.action is Action.CONFLICT and not each.key:
            yield escape_invisible(
                f"{each.where}: it is there, and not gpuform's: it stays as it is"
            )
        elif each.action is Action.CONFLICT:
            yield escape_invisible(
                f"{each.where}: {each.key} is {each.there}, and would be {each.wanted}: somebody "
                "else has set it, and it stays as it is"
            )


def topology_document(found: "TopologyResult") -> dict[str, Any]:
    """The model, the text in its format, and what is not known."""
    return {
        "format_version": 1,
        "project": found.topology.project,
        "stack": found.topology.stack,
        "format": found.form,
        "nodes": [_node(found.topology, each) for each in found.topology.nodes],
        "unknown": list(found.unknown),
        "text": found.text,
    }


def changes_document(
    kubernetes: str, changes: Sequence[Change], unknown: Sequence[str]
) -> dict[str, Any]:
    """What was done about each key and object."""
    return {
        "format_version": 1,
        "kubernetes": kubernetes,
        "changes": [
            {
                "action": str(each.action),
                "where": each.where,
                "key": each.key,
                "was": each.there,
                "is": each.wanted,
            }
            for each in changes
        ],
        "unknown": list(unknown),
    }


def _values(change: Change) -> str:
    if not change.key:
        return ""
    if change.action is Action.REMOVE:
        return f": {change.there}"
    before = "" if change.there is None else f"{change.there} => "
    return f": {before}{change.wanted}"


def _node(topology: "StackTopology", node: "Node") -> dict[str, Any]:
    """What is not known is left out."""
    told = {
        "name": node.name,
        "resource": topology.names.get(node.resource, ""),
        "urn": node.resource,
        "platform": node.platform,
        "region": node.region,
        "zone": node.zone,
        "pool": node.pool,
        "fabric": node.fabric,
        "fabric_id": node.fabric_id,
        "switches": list(node.tiers),
        "nvlink_domain": node.domain,
        "slurm_name": node.slurm,
        "address": node.address,
    }
    return {key: value for key, value in told.items() if value}

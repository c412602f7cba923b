"""Render the results of `gpuform orphans`, `gpuform offers` and `gpuform export-topology --apply`.

Called by these commands; texts from platforms are escaped and, where asked for, redacted.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from gpuform.providers.lifetime import format_moment
from gpuform.providers.records import Intent
from gpuform.schemas.safe_text import escape_invisible
from gpuform.schemas.values import convert_leaves
from gpuform.stacks.importing.selection import Orphan, OrphanReport
from gpuform.stacks.offers import Offers, PricedOffer
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.value_text import counted
from gpuform.stacks.topology_export.applying import Change, KeyAction

if TYPE_CHECKING:
    from gpuform.stacks.topology_export.formats import TopologyResult
    from gpuform.stacks.topology_export.model import Node, StackTopology

_ORPHAN_COLUMNS = ("TYPE", "NAME", "ID", "REGION", "STATE", "AGE", "COST")
_OWNER = "OWNER"
"""The last column, shown if a platform names owners."""
_UNKNOWN = "unknown"


def render_orphans(
    orphans: OrphanReport, backend: str, *, paint: Paint = PLAIN, redact: Callable[[str], str] = str
) -> Iterator[str]:
    """Yield a table of orphans, the unresolved creates, the unasked platforms and the totals.

    The failures of single lists are not shown.
    """
    if orphans.objects:
        rows = [
            (*_ORPHAN_COLUMNS, _OWNER),
            *(tuple(map(redact, _build_orphan_row(orphan))) for orphan in orphans.objects),
        ]
        # Without owners, the column would be empty.
        if not any(orphan.existing_object.owner for orphan in orphans.objects):
            rows = [row[: len(_ORPHAN_COLUMNS)] for row in rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        yield paint("bold", lines[0])
        yield from lines[1:]
        yield ""
    for intent in orphans.unresolved_intents:
        yield paint("warning", f"unresolved create: {redact(_describe_intent(intent))}")
    for platform, reason in orphans.unasked_platforms.items():
        yield f"not asked: {platform} ({redact(reason)})"
    yield _format_orphan_totals(orphans, backend)


def render_import_commands(orphans: OrphanReport, *, emulate: bool) -> Iterator[str]:
    """Yield the commands to import the orphans, one for each platform; nothing without orphans."""
    platforms = dict.fromkeys(orphan.existing_object.platform for orphan in orphans.objects)
    if platforms:
        yield "To import them (first with --preview-only to see their declarations):"
    for platform in platforms:
        yield f"    gpuform import --all --platform {platform}{' --emulate' if emulate else ''}"


def build_orphans_document(
    orphans: OrphanReport, redact: Callable[[str], str] = str
) -> dict[str, Any]:
    """Build the JSON document: ages in seconds, times in UTC, null for unknown values."""
    document = {
        "objects": [_orphan_to_json(orphan) for orphan in orphans.objects],
        "unsettled": [_intent_to_json(intent) for intent in orphans.unresolved_intents],
        "asked": orphans.asked_platforms,
        "not_asked": orphans.unasked_platforms,
        "failures": orphans.failures,
    }
    return {key: _redact_strings(value, redact) for key, value in document.items()}


def _redact_strings(value: Any, redact: Callable[[str], str]) -> Any:
    """Return a JSON value with all strings redacted."""
    return convert_leaves(value, lambda leaf: redact(leaf) if isinstance(leaf, str) else leaf)


def _build_orphan_row(orphan: Orphan) -> tuple[str, ...]:
    """Build the cells of an orphan, the owner last; unknown facts are marked."""
    existing = orphan.existing_object
    cost = _UNKNOWN
    # Not every platform reports what an object costs.
    if existing.hourly_cost is not None:
        cost = f"{existing.hourly_cost:.2f} {existing.currency}".rstrip() + "/h"
    age = _UNKNOWN if orphan.age_s is None else _format_age(orphan.age_s)
    cells = (
        existing.name,
        existing.id,
        existing.region or _UNKNOWN,
        existing.status or "-",
        age,
        cost,
        existing.owner or "-",
    )
    return f"{existing.platform}:{existing.kind}", *map(escape_invisible, cells)


def _format_orphan_totals(orphans: OrphanReport, backend: str) -> str:
    """Format the number of orphans, their cost, and the searched platforms."""
    if not orphans.asked_platforms:
        return "No platform was asked."
    *others, last = orphans.asked_platforms
    where = f"on {', '.join(others)} and {last}" if others else f"on {last}"
    if not orphans.objects and orphans.failures:
        return f"Incomplete result {where}: no orphans in the lists that could be read."
    if not orphans.objects:
        return f"No orphans {where}: every object belongs to a stack (backend {backend})."
    costs: dict[str, float] = {}
    for existing in (orphan.existing_object for orphan in orphans.objects):
        if existing.hourly_cost is not None:
            costs[existing.currency] = costs.get(existing.currency, 0.0) + existing.hourly_cost
    cost_texts = [
        f"{cost:.2f} {currency}".rstrip() + "/h" for currency, cost in sorted(costs.items())
    ]
    unknown = sum(orphan.existing_object.hourly_cost is None for orphan in orphans.objects)
    cost_texts += [f"{counted(unknown, 'cost')} unknown"] if unknown else []
    parts = ", ".join([counted(len(orphans.objects), "orphan"), *cost_texts])
    return f"{parts}: {where}, owned by no stack (backend {backend})."


def _describe_intent(intent: Intent) -> str:
    """Describe an unresolved create: what, where, its ids if known, and since when."""
    region = intent.tried_region or intent.region
    where = f" in {region}" if region else ""
    object_ids = ", ".join(intent.ids or ((intent.id,) if intent.id else ())) or "id unknown"
    label = f"{intent.platform}:{intent.kind} {intent.name!r}{where} ({object_ids})"
    purpose = f" for {intent.urn}" if intent.urn else ""
    return escape_invisible(
        f"{label}, started {format_moment(intent.started_at)}{purpose}: `gpuform up` resolves this"
    )


def _orphan_to_json(orphan: Orphan) -> dict[str, Any]:
    """Return an orphan as JSON; unknown facts are null."""
    existing = orphan.existing_object
    return {
        "platform": existing.platform,
        "kind": existing.kind,
        "id": existing.id,
        "name": existing.name,
        "region": existing.region or None,
        "tags": None if existing.tags is None else dict(existing.tags),
        "status": existing.status or None,
        "owner": existing.owner or None,
        "created_at": None if existing.created_at is None else format_moment(existing.created_at),
        "age_seconds": orphan.age_s,
        "hourly_cost": existing.hourly_cost,
        "currency": existing.currency or None,
        "made_for": orphan.intent.urn if orphan.intent else None,
    }


def _intent_to_json(intent: Intent) -> dict[str, Any]:
    """Return an unresolved create as JSON; `region` is the one tried last, null if unknown."""
    return {
        "platform": intent.platform,
        "kind": intent.kind,
        "name": intent.name,
        "region": intent.tried_region or intent.region or None,
        "ids": list(intent.ids or ((intent.id,) if intent.id else ())),
        "urn": intent.urn,
        "started_at": format_moment(intent.started_at),
    }


def _format_age(seconds: float) -> str:
    """Format an age with the two largest units: 3d 4h, 2h 5m.

    Units of zero are left out; an age below a minute is `0m`.
    """
    minutes = int(seconds // 60)
    parts = [(minutes // 1440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "m")]
    units = [f"{number}{unit}" for number, unit in parts if number][:2]
    return " ".join(units) or "0m"


_OFFER_COLUMNS = ("PLATFORM", "REGION", "WHAT", "FIELD", "VALUE", "STOCK", "PRICE", "ABOUT")
_STOCK = {None: "-", True: "yes", False: "no"}


def render_offers(
    offers: Offers, priced_offers: Sequence[PricedOffer], currency: str, *, paint: Paint = PLAIN
) -> Iterator[str]:
    """Yield a table of offers, and the unasked platforms; failures are not shown."""
    if priced_offers:
        rows = [_OFFER_COLUMNS, *(_build_offer_row(priced, currency) for priced in priced_offers)]
        # Columns without any value are left out.
        used = [
            column
            for column in range(len(_OFFER_COLUMNS))
            if any(row[column] != "-" for row in rows[1:])
        ]
        widths = {column: max(len(row[column]) for row in rows) for column in used}
        lines = [
            "  ".join(row[column].ljust(widths[column]) for column in used).rstrip() for row in rows
        ]
        yield paint("bold", lines[0])
        yield from lines[1:]
        yield ""
    for platform in offers.documented:
        yield (
            f"not asked: {platform} (its API has no such lists; these offers are from its "
            "documentation)"
        )
    for platform, reason in offers.not_asked.items():
        yield f"not asked: {platform} ({reason})"


def build_offers_document(
    offers: Offers, priced_offers: Sequence[PricedOffer], currency: str
) -> dict[str, Any]:
    """Build the JSON document of the offers, with null for unreported values."""
    return {
        "offers": [
            {
                **asdict(priced.offer),
                "prices": [
                    {"billing": billing, "hourly": price.hourly, "currency": currency}
                    for billing, price in priced.prices.items()
                ],
            }
            for priced in priced_offers
        ],
        "asked": offers.asked,
        "documented": offers.documented,
        "not_asked": offers.not_asked,
        "failures": offers.failures,
    }


def _build_offer_row(priced: PricedOffer, currency: str) -> tuple[str, ...]:
    """Build the cells of an offer, `-` for an empty one."""
    offer = priced.offer
    prices = [
        f"{price.hourly:.2f} {currency}/h" + ("" if billing == "on_demand" else f" {billing}")
        for billing, price in priced.prices.items()
    ]
    cells = (offer.platform, offer.region, offer.what, offer.field, offer.name)
    details = (_STOCK[offer.in_stock], ", ".join(prices), offer.about)
    return tuple(escape_invisible(cell) or "-" for cell in (*cells, *details))


_SYMBOLS: Final = {
    KeyAction.SET: ("+", "add"),
    KeyAction.CHANGE: ("~", "change"),
    KeyAction.REMOVE: ("-", "remove"),
}


def render_label_changes(changes: Sequence[Change], paint: Paint = PLAIN) -> Iterator[str]:
    """Yield the label changes by node or object, and labels kept because others changed them.

    Unchanged labels are only counted; unwritable labels are left out.
    """
    where = ""
    for change in changes:
        symbol = _SYMBOLS.get(change.action)
        if symbol is None:
            continue
        # One heading for all changes of a node.
        if change.where != where:
            where = change.where
            yield escape_invisible(where)
        label = escape_invisible(f"{change.key or 'the object'}{_format_change_values(change)}")
        yield paint(symbol[1], f"  {symbol[0]} {label}")
    for change in changes:
        if change.action is KeyAction.LEFT:
            reason = (
                f"{change.key} is {change.current_value}"
                if change.key
                else ("it belongs to another owner")
            )
            yield escape_invisible(f"{change.where}: unchanged, because meanwhile {reason}")
    same = sum(change.action is KeyAction.SAME for change in changes)
    if same:
        yield f"{same} unchanged"


def render_label_problems(changes: Sequence[Change]) -> Iterator[str]:
    """Yield a line for each unwritable label, with the reason."""
    for change in changes:
        if change.action is KeyAction.ABSENT:
            yield escape_invisible(f"{change.where}: node not found in the cluster")
        elif change.action is KeyAction.CONFLICT and not change.key:
            yield escape_invisible(
                f"{change.where}: exists and does not belong to gpuform: unchanged"
            )
        elif change.action is KeyAction.CONFLICT:
            yield escape_invisible(
                f"{change.where}: {change.key} is {change.current_value} instead of "
                f"{change.desired_value}, set by another owner: unchanged"
            )


def build_topology_document(topology_result: "TopologyResult") -> dict[str, Any]:
    """Build the JSON document of an exported topology: its model, its text, and unknown facts."""
    return {
        "format_version": 1,
        "project": topology_result.topology.project,
        "stack": topology_result.topology.stack,
        "format": topology_result.form,
        "nodes": [
            _node_to_json(topology_result.topology, node) for node in topology_result.topology.nodes
        ],
        "unknown": list(topology_result.unknown),
        "text": topology_result.text,
    }


def build_changes_document(
    kubernetes: str, changes: Sequence[Change], unknown: Sequence[str]
) -> dict[str, Any]:
    """Build the JSON document of the change of each label and object."""
    return {
        "format_version": 1,
        "kubernetes": kubernetes,
        "changes": [
            {
                "action": str(change.action),
                "where": change.where,
                "key": change.key,
                "was": change.current_value,
                "is": change.desired_value,
            }
            for change in changes
        ],
        "unknown": list(unknown),
    }


def _format_change_values(change: Change) -> str:
    """Format the old and new value of a label; empty for an object."""
    if not change.key:
        return ""
    if change.action is KeyAction.REMOVE:
        return f": {change.current_value}"
    before = "" if change.current_value is None else f"{change.current_value} => "
    return f": {before}{change.desired_value}"


def _node_to_json(topology: "StackTopology", node: "Node") -> dict[str, Any]:
    """Convert a node to JSON without unknown fields."""
    fields = {
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
    return {key: value for key, value in fields.items() if value}

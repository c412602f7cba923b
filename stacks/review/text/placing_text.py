"""What is written into a cluster's Kubernetes of where its nodes are, and what is not known."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.topology_export.applying import Action, Change

if TYPE_CHECKING:
    from gpuform.stacks.topology_export.formats import TopologyResult
    from gpuform.stacks.topology_export.model import Node, StackTopology

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

"""Find nodes that belong together but are in several fabrics.

`stacks/schedule/noticing` calls `list_fabric_notices` for the resources of a run.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from gpuform.schemas.resource_facts import NodePlacement, Notice, NoticeKind, ResourcePlacement
from gpuform.stacks.engine.urn import name_of

_MAX_LISTED_NAMES: Final = 3


def list_fabric_notices(placements: Iterable[tuple[str, ResourcePlacement]]) -> Iterator[Notice]:
    """Yield a notice for each pool, and for each fabric name, whose nodes are in several fabrics.

    `placements` are resources by URN, as last observed. A pool with a notice is left out of the
    comparison by fabric names.
    """
    all_placements = list(placements)
    by_name: dict[tuple[str, str, str], list[tuple[str, NodePlacement]]] = {}
    for urn, placement in all_placements:
        split = _describe_split([(node.name, node) for node in placement.nodes])
        if split:
            yield _build_notice(f"its nodes are in {split}", urn)
            continue
        for node in placement.nodes:
            if node.fabric and node.fabric_id:
                key = (placement.region, placement.pool, node.fabric)
                by_name.setdefault(key, []).append((urn, node))
    for (_, _, fabric), nodes in by_name.items():
        split = _describe_split([(node.name, node) for _, node in nodes])
        if split:
            yield _build_notice(f"the nodes of fabric {fabric} are in {split}", "")


def _describe_split(nodes: Iterable[tuple[str, NodePlacement]]) -> str:
    """Describe the fabrics of the nodes; empty for fewer than two fabrics.

    Nodes without a reported fabric do not count.
    """
    fabrics: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for name, node in nodes:
        # Two fabrics can have one name.
        key = node.fabric_id or node.fabric
        if key:
            fabrics.setdefault(key, []).append(name)
            names[key] = node.fabric if node.fabric in {"", key} else f"{node.fabric} ({key})"
    if len(fabrics) < 2:
        return ""
    parts = (
        f"{_format_names(sorted(node_names))} in {names[key] or key}"
        for key, node_names in sorted(fabrics.items())
    )
    return f"{len(fabrics)} fabrics: {'; '.join(parts)}"


def _format_names(names: list[str]) -> str:
    """Return at most three names, and the number of the others: `a, b, c and 2 more`."""
    more = f" and {len(names) - _MAX_LISTED_NAMES} more" if len(names) > _MAX_LISTED_NAMES else ""
    return f"{', '.join(names[:_MAX_LISTED_NAMES])}{more}"


def _build_notice(text: str, urn: str) -> Notice:
    """Return a notice about nodes in several fabrics; an empty `urn` means no single resource."""
    return Notice(
        kind=NoticeKind.FABRICS,
        text=f"{text}. A job that runs in several fabrics does not get the network speed of one "
        "fabric",
        urn=urn,
        name=name_of(urn) if urn else "",
    )

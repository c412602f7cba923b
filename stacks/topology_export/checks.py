"""What there is to know of where nodes are: those that belong together, in several fabrics."""

from collections.abc import Iterable, Iterator
from typing import Final

from gpuform.schemas.resource_facts import NodePlacement, Notice, NoticeKind, ResourcePlacement
from gpuform.stacks.engine.urn import name_of

_SHOWN: Final = 3


def fabric_notices(placed: Iterable[tuple[str, ResourcePlacement]]) -> Iterator[Notice]:
    """A notice for each pool, and for GPU nodes of one fabric's name, in more than one fabric.

    `placed` are resources by URN, as last seen.
    """
    found = list(placed)
    by_name: dict[tuple[str, str, str], list[tuple[str, NodePlacement]]] = {}
    for urn, placement in found:
        text = _apart([(node.name, node) for node in placement.nodes])
        if text:
            yield _notice(f"its nodes are in {text}", urn)
            continue
        for node in placement.nodes:
            if node.fabric and node.fabric_id:
                key = (placement.region, placement.pool, node.fabric)
                by_name.setdefault(key, []).append((urn, node))
    for (_, _, fabric), nodes in by_name.items():
        text = _apart([(node.name, node) for _, node in nodes])
        if text:
            yield _notice(f"nodes whose fabric is called {fabric} are in {text}", "")


def _apart(nodes: Iterable[tuple[str, NodePlacement]]) -> str:
    """In which fabrics they are, if these are several; those in none that is told do not count."""
    fabrics: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for name, node in nodes:
        key = node.fabric_id or node.fabric
        if key:
            fabrics.setdefault(key, []).append(name)
            names[key] = node.fabric if node.fabric in {"", key} else f"{node.fabric} ({key})"
    if len(fabrics) < 2:
        return ""
    parts = (
        f"{_listed(sorted(those))} in {names[key] or key}" for key, those in sorted(fabrics.items())
    )
    return f"{len(fabrics)} fabrics: {'; '.join(parts)}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _notice(text: str, urn: str) -> Notice:
    return Notice(
        kind=NoticeKind.FABRICS,
        text=f"{text}. A job on several of them does not have the network of one fabric",
        urn=urn,
        name=name_of(urn) if urn else "",
    )

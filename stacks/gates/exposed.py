"""The rule about ports that are open to the whole world, of what changes and of what stays."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from gpuform.schemas.exposure import Exposure
from gpuform.stacks.gates.rules import matches
from gpuform.stacks.review.names import counted


def open_ports(
    exposures: Sequence[Exposure] | None, value: Mapping[str, Any] | None, patterns: Sequence[str]
) -> Iterator[str]:
    """A text for each resource that has such ports, or of which nobody can tell."""
    if exposures is None:
        yield "open ports are looked for when the plan is made: make it with `gpuform preview`"
    allowed = {int(port) for port in (value or {}).get("allowed") or ()}
    for each in exposures or ():
        if patterns and not matches((each.name, each.urn), patterns):
            continue
        ports = [port for port in each.ports if not _is_allowed(port, allowed)]
        if ports:
            number = counted(len(ports), "port")
            yield f"{each.name} has {number} open to the whole world: {', '.join(ports)}"
        if each.unknown:
            yield f"{each.name}: its open ports cannot be told: {each.unknown}"


def _is_allowed(port: str, allowed: Collection[int]) -> bool:
    """Whether all of `22/tcp` or `8000-8010/tcp` may be open."""
    first, _, last = port.partition("/")[0].partition("-")
    try:
        low, high = int(first), int(last or first)
    except ValueError:
        return False
    return low <= high and set(range(low, high + 1)) <= {*allowed}

"""What SCP's GPU nodes take up. Samsung prices a server by its product.

Its GPU names a type where it is declared (`gpu_type`), else the id of the product does.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from gpuform.providers.declared import EXPIRES, names_in, not_known, text_of
from gpuform.schemas.footprint import Billing, Expense, Footprint
from gpuform.schemas.lifetime import has_end
from gpuform.schemas.scp.servers import GPUS_OF_A_SERVER
from gpuform.schemas.values import UNKNOWN, count_of


def pool_footprint(values: Mapping[str, Any], seen: Mapping[str, Any]) -> Footprint:
    nodes, shared = values.get("nodes"), text_of(values, "state")
    if nodes is UNKNOWN or values.get("count") is UNKNOWN or values.get("state") is UNKNOWN:
        return _footprint(values, seen, None)
    if isinstance(nodes, Mapping):
        states = Counter(_state_of(node, shared) for node in nodes.values())
    else:
        states = Counter({shared: count_of(values.get("count")) or 0})
    return _footprint(values, seen, states)


def node_footprint(values: Mapping[str, Any], seen: Mapping[str, Any]) -> Footprint:
    return _footprint(values, seen, Counter([text_of(values, "state")]))


def _state_of(node: Any, shared: str) -> str:
    return (text_of(node, "state") if isinstance(node, Mapping) else "") or shared


def _footprint(
    values: Mapping[str, Any], seen: Mapping[str, Any], states: Mapping[str, int] | None
) -> Footprint:
    """`states` has the number of servers by state; None while it is not known."""
    named = "server_type_id" if values.get("gpu_type") is None else "gpu_type"
    tags, gpu_type = names_in(values, "tags"), text_of(values, named)
    region = text_of(values, "region_id")
    counts: Mapping[Billing, int | None] = {Billing.ON_DEMAND: None}
    if states is not None:
        found = Counter[Billing]()
        for state, count in states.items():
            found[Billing.STOPPED if state == "STOPPED" else Billing.ON_DEMAND] += count
        counts = {billing: count for billing, count in found.items() if count}
    return Footprint(
        region=region,
        gpu_types=(gpu_type,) if gpu_type else (),
        tags=tags,
        expires=has_end(values) or EXPIRES in tags,
        running=any(state == "RUNNING" for state in _seen_states(seen)),
        unknown=not_known(values, region="region_id", gpu_types=named, tags="tags", expires="tags"),
        expenses=tuple(
            Expense(
                what="gpus",
                amount=None if count is None else count * GPUS_OF_A_SERVER,
                platform="scp",
                gpu_type=gpu_type,
                region=region,
                billing=billing,
            )
            for billing, count in counts.items()
        ),
    )


def _seen_states(seen: Mapping[str, Any]) -> Iterable[str]:
    nodes = seen.get("gpu_nodes")
    if isinstance(nodes, Mapping):
        return [text_of(node, "state") for node in nodes.values() if isinstance(node, Mapping)]
    return [text_of(seen, "state")]

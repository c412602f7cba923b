"""What the network writes into a record, beside what people declare: its reputation, its sums.

A record has them as data (AIOS registry reference, 'Clusters registry': `reputation` is optional
and not used yet, the sums are "aggregated"); who else writes them is not documented. They are
told, and no change: gpuform sends them when it changes what they are made of.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuform.schemas.aios import wire
from gpuform.schemas.aios.documents import declared_cluster
from gpuform.schemas.aios.outputs import TotalsOutputs
from gpuform.schemas.aios.totals import NODE_COUNT, totals, value_at, with_value
from gpuform.schemas.notices import Notice, NoticeKind
from gpuform.schemas.values import same

PLACES: Final[Mapping[str, str]] = {
    "nodes": NODE_COUNT,
    "gpus": "gpus.count",
    "gpu_memory": "gpus.memory",
    "vcpus": "vcpus.count",
    "memory": "memory",
    "swap": "swap",
    "disks": "storage.disks",
    "storage": "storage.size",
    "interfaces": "network.interfaces",
    "tx_bandwidth": "network.tx_bandwidth",
    "rx_bandwidth": "network.rx_bandwidth",
}
"""Where a record has each sum of the outputs."""


def totals_of(found: wire.Cluster) -> tuple[TotalsOutputs, bool]:
    """The sums of a record, and whether they are those of its nodes."""
    values = declared_cluster(found)
    told = {name: value_at(values, path) for name, path in PLACES.items()}
    sums = totals(values["nodes"]["node_data"])
    agree = all(same(told[name] or 0, sums[path]) for name, path in PLACES.items())
    return TotalsOutputs(**told), agree


def without_totals(observed: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """What was observed, with the sums as they are known: they are told apart from drift."""
    values = dict(observed)
    for path in PLACES.values():
        if value_at(values, path) is not None:
            values = with_value(values, path, value_at(known, path))
    return values


def network_news(before: Mapping[str, Any], seen: Mapping[str, Any]) -> Iterator[Notice]:
    """What has become another value since these outputs; nothing for what was not told before.

    Sums of nodes that other resources declare change with them: they are news where they are not
    what the nodes add up to.
    """
    old, new = before.get("network_reputation"), seen.get("network_reputation")
    if old is not None and not same(old, new):
        yield _notice("reputation", old, new)
    sums, now = before.get("totals"), seen.get("totals")
    is_own = value_at(seen, "nodes.node_data") is not None
    if isinstance(sums, Mapping) and isinstance(now, Mapping):
        for name, path in PLACES.items():
            is_news = sums.get(name) is not None and not same(sums[name], now.get(name))
            if is_news and (is_own or seen.get("totals_agree") is False):
                yield _notice(path, sums[name], now.get(name))


def _notice(what: str, old: Any, new: Any) -> Notice:
    after = "nothing" if new is None else _number(new)
    text = f"its {what} in the registry has become {after}; it was {_number(old)}"
    return Notice(kind=NoticeKind.CHANGED, text=text)


def _number(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return f"{int(value):,}" if whole or isinstance(value, int) else str(value)

"""Describe the totals, notices, access, owner and planned status of a record of a cluster.

The lifecycle (`cluster`) calls this module with records and stored values; it sends no request.

Sums and `reputation` are data of the record (AIOS registry reference, 'Clusters registry':
`reputation` is optional and not used yet, the sums are "aggregated"); who else writes them is not
documented. gpuform reports their changes and plans none; it sends sums with the entries that they
are computed from.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gpuform.schemas.access import Access
from gpuform.schemas.aios import wire
from gpuform.schemas.aios.inputs import TotalsOutputs
from gpuform.schemas.aios.parts import (
    NODE_COUNT,
    get_value,
    set_value,
    sum_declared_nodes,
    sum_reported_nodes,
)
from gpuform.schemas.aios.wire import cluster_to_declared
from gpuform.schemas.changes import KNOWN_AFTER_APPLY, Action, FieldChange
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.schemas.values import UNKNOWN, is_equal

TOTAL_PATHS: Final[Mapping[str, str]] = {
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
"""The path in a record of each sum in the outputs."""


def get_totals(record: wire.Cluster) -> tuple[TotalsOutputs, bool]:
    """Return the totals that a record has, and whether each is the sum over the record's nodes.

    A total that the record lacks counts as 0 for that.
    """
    values = cluster_to_declared(record)
    recorded_sums = {name: get_value(values, path) for name, path in TOTAL_PATHS.items()}
    computed_sums = sum_declared_nodes(values["nodes"]["node_data"])
    do_agree = all(
        is_equal(recorded_sums[name] or 0, computed_sums[path])
        for name, path in TOTAL_PATHS.items()
    )
    return TotalsOutputs(**recorded_sums), do_agree


def replace_totals(observed: Mapping[str, Any], known_inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return observed inputs with the totals of the state, so that changed totals are no drift.

    Totals that `observed` does not have stay missing. `known_inputs` are the inputs in the state.
    """
    values = dict(observed)
    for path in TOTAL_PATHS.values():
        if get_value(values, path) is not None:
            values = set_value(values, path, get_value(known_inputs, path))
    return values


def compute_totals(observed: Mapping[str, Any]) -> dict[str, Any]:
    """Return observed inputs with the sums over their nodes as totals.

    A total stays as observed if a node has no number for it, and all totals stay without nodes.
    """
    values, nodes = dict(observed), get_value(observed, "nodes.node_data")
    for path, total in sum_reported_nodes(nodes).items() if nodes else ():
        values = set_value(values, path, total)
    return values


def build_network_notices(
    before: Mapping[str, Any], observed: Mapping[str, Any]
) -> Iterator[Notice]:
    """Yield a notice if the reputation has changed, and for each total that has.

    `before` and `observed` are old and new outputs. A value that was unknown before gives no
    notice. Totals also change with the nodes of other resources. A changed total gives a notice
    only if the record declares its nodes itself, or if the totals disagree with the nodes.
    """
    old, new = before.get("network_reputation"), observed.get("network_reputation")
    if old is not None and not is_equal(old, new):
        yield _build_notice("reputation", old, new)
    old_sums, new_sums = before.get("totals"), observed.get("totals")
    declares_nodes = get_value(observed, "nodes.node_data") is not None
    if isinstance(old_sums, Mapping) and isinstance(new_sums, Mapping):
        for name, path in TOTAL_PATHS.items():
            is_news = old_sums.get(name) is not None and not is_equal(
                old_sums[name], new_sums.get(name)
            )
            if is_news and (declares_nodes or observed.get("totals_agree") is False):
                yield _build_notice(path, old_sums[name], new_sums.get(name))


def _build_notice(path: str, old: Any, new: Any) -> Notice:
    """Return the notice of a value at `path` which the network has changed from `old` to `new`."""
    after = "nothing" if new is None else _format_number(new)
    message = f"its {path} in the registry is now {after}; it was {_format_number(old)}"
    return Notice(kind=NoticeKind.CHANGED, text=message)


def _format_number(value: Any) -> str:
    """Return a number with separators of thousands; any other value as text."""
    is_integer = isinstance(value, float) and value.is_integer()
    return f"{int(value):,}" if is_integer or isinstance(value, int) else str(value)


def get_access(outputs: Mapping[str, Any]) -> Access | None:
    """Return the cluster's name, and why there are neither kubeconfig nor hosts.

    The registry has records alone, and no credentials. Never None.
    """
    reason = "the AIOS registry has a record of the cluster, but no credentials for it"
    name = str(outputs.get("cluster_id") or "")
    return Access(name=name, no_kubeconfig=reason, no_hosts=reason)


def get_owner_name(outputs: Mapping[str, Any]) -> str:
    """Return the owner in the record's metadata, or ""."""
    metadata = outputs.get("cluster_metadata")
    return str((isinstance(metadata, Mapping) and metadata.get("owner")) or "")


def find_planned_changes(
    old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
) -> Iterable[FieldChange]:
    """Yield a change if the declared status differs from the record's.

    Yields nothing if no status is declared, or if the record has none: some registries keep
    none. An UNKNOWN declared status gives a change.
    """
    before, after = old_outputs.get("status"), declared.get("status")
    if before is None or after is None or before == after:
        return
    because = KNOWN_AFTER_APPLY if after is UNKNOWN else ""
    yield FieldChange("status", Action.UPDATE, before, after, because=because)

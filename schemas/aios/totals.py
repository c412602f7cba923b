"""Sums over the nodes of a cluster, and over the GPUs of a node: filled in, and compared.

Values are declared ones in the registry's names (snake_case). What is not known yet makes its sum
unknown.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpuform.schemas.models import Problem
from gpuform.schemas.values import UNKNOWN, contains_unknown, same

Values = Mapping[str, Any]

PATHS: Final = (
    "gpus.count",
    "gpus.memory",
    "vcpus.count",
    "memory",
    "swap",
    "storage.disks",
    "storage.size",
    "network.interfaces",
    "network.tx_bandwidth",
    "network.rx_bandwidth",
)
"""What a node has and a cluster has the sum of, under the same path."""

NODE_COUNT: Final = "nodes.count"


def value_at(values: Any, path: str) -> Any:
    """The value of a dotted path: None where there is none, UNKNOWN below what is UNKNOWN."""
    for name in path.split("."):
        if not isinstance(values, Mapping):
            return UNKNOWN if values is UNKNOWN else None
        values = values.get(name)
    return values


def with_value(values: Values, path: str, value: Any) -> dict[str, Any]:
    """A copy with `value` at a dotted path; nothing is put into what is UNKNOWN."""
    name, _, rest = path.partition(".")
    if not rest:
        return {**values, name: value}
    inner = values.get(name)
    if inner is UNKNOWN:
        return dict(values)
    return {**values, name: with_value(inner or {}, rest, value)}


def whole_node(node: Any) -> Any:
    """A node with what its list of GPUs says of their number, memory and models."""
    gpus = node.get("gpus") if isinstance(node, Mapping) else None
    if not isinstance(gpus, Mapping):
        return node
    for name, value in _of_gpus(gpus.get("gpus")).items():
        if gpus.get(name) is None:
            gpus = {**gpus, name: value}
    return {**node, "gpus": gpus}


def totals(nodes: Any) -> dict[str, Any]:
    """The sums over declared nodes by path, and `nodes.count`."""
    if nodes is UNKNOWN:
        return dict.fromkeys((NODE_COUNT, *PATHS), UNKNOWN)
    whole = [whole_node(node) for node in nodes]
    sums = {path: _sum(value_at(node, path) for node in whole) for path in PATHS}
    return {NODE_COUNT: len(whole), **sums}


def told_totals(nodes: Sequence[Values]) -> dict[str, Any]:
    """Return the sums over entries of a record by path, and `nodes.count`.

    A number that an entry does not tell has no sum: what is missing is not zero.
    """
    whole = [whole_node(node) for node in nodes]
    columns = {path: [value_at(node, path) for node in whole] for path in PATHS}
    sums = {path: sum(column) for path, column in columns.items() if None not in column}
    return {NODE_COUNT: len(whole), **sums}


def with_totals(values: dict[str, Any]) -> dict[str, Any]:
    """A cluster that declares its nodes, with whole nodes and the sums that it does not declare."""
    nodes = value_at(values, "nodes.node_data")
    if nodes is None:
        return values
    if nodes is not UNKNOWN:
        values = with_value(values, "nodes.node_data", [whole_node(node) for node in nodes])
    for path, value in totals(nodes).items():
        if value_at(values, path) is None:
            values = with_value(values, path, value)
    return values


def total_problems(values: Values) -> Iterator[Problem]:
    """Declared sums that are not those of the declared nodes."""
    nodes = value_at(values, "nodes.node_data")
    sums = {} if nodes is None else totals(nodes)
    for path in (NODE_COUNT, *PATHS):
        declared = value_at(values, path)
        if declared is None or declared is UNKNOWN:
            continue
        if nodes is None:
            yield Problem(
                path,
                "is computed from nodes.node_data: declare the nodes there, or leave it out (the "
                "nodes of aios.GpuNode resources add to it by themselves)",
            )
        elif not contains_unknown(sums[path]) and not same(declared, sums[path]):
            yield Problem(
                path,
                f"{declared:g} is not what the nodes add up to: write {sums[path]:g}, or leave it "
                "out, it is computed",
            )


def gpu_problems(gpus: Values) -> Iterator[Problem]:
    """Of a node's GPUs: either listed one by one, or counted."""
    listed: Any = gpus.get("gpus")
    found = _of_gpus(listed)
    for name in ("count", "memory"):
        declared = gpus.get(name)
        if listed is None and declared is None:
            yield Problem(name, "is required: declare it, or list the node's GPUs in gpus")
        elif name in found and not _agree(declared, found[name]):
            yield Problem(
                name,
                f"{declared:g} is not what the {len(listed)} listed GPUs add up to: write "
                f"{found[name]:g}, or leave it out, it is computed",
            )
    names = gpus.get("model_names")
    if "model_names" in found and not _agree(names, found["model_names"]):
        yield Problem(
            "model_names",
            f"are not those of the listed GPUs: write {', '.join(found['model_names'])}, or leave "
            "it out, it is computed",
        )


def _of_gpus(listed: Any) -> dict[str, Any]:
    """What a list of GPUs says: nothing where there is none."""
    if listed is None:
        return {}
    if contains_unknown(listed):
        return dict.fromkeys(("count", "memory", "model_names"), UNKNOWN)
    models = [gpu.get("model_name") for gpu in listed]
    return {
        "count": len(listed),
        "memory": sum(gpu.get("memory", 0) for gpu in listed),
        "model_names": list(dict.fromkeys(models)),
    }


def _agree(declared: Any, found: Any) -> bool:
    if declared is None or contains_unknown(declared) or contains_unknown(found):
        return True
    return same(declared, found, unordered=isinstance(found, Sequence))


def _sum(values: Iterable[Any]) -> Any:
    found = [value for value in values if value is not None]
    return UNKNOWN if contains_unknown(found) else sum(found)

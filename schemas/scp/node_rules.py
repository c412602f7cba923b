"""The rules over several fields of GPU nodes and pools of them.

Each rule gets what is declared; UNKNOWN is a value not known yet, and a rule that needs it says
nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuform.schemas.models import Problem
from gpuform.schemas.scp.texts import NODE_NAME_RULE, is_node_name
from gpuform.schemas.values import UNKNOWN

Values = Mapping[str, Any]

ALONE: Final = (
    "one server cannot make a fabric (the platform makes 2 to 5 at a time): make it with an "
    "scp.NodePool, and declare the pool's cluster_fabric_id here"
)


def server_problems(values: Values) -> Iterator[Problem]:
    """A type of server is declared. (One that was found for a gpu_type stands beside that.)"""
    if values.get("server_type_id") is None and values.get("gpu_type") is None:
        yield Problem(
            "server_type_id",
            "is required: declare the id of a product, or a gpu_type such as H100",
        )


def node_problems(values: Values) -> Iterator[Problem]:
    """NAT and its public IP go together."""
    nat, public_ip = values.get("nat_enabled"), values.get("public_ip_address_id")
    if nat is True and public_ip is None:
        yield Problem(
            "public_ip_address_id",
            "is required with nat_enabled: declare the id of a public IP",
        )
    if public_ip not in (None, UNKNOWN) and nat in (None, False):
        yield Problem(
            "nat_enabled", "is required with public_ip_address_id: declare it true, or remove both"
        )


def gpu_node_problems(values: Values) -> Iterator[Problem]:
    yield from server_problems(values)
    yield from node_problems(values)
    yield from _repair(values)
    if values.get("cluster_fabric_id") == "":
        yield Problem("cluster_fabric_id", f"is empty, the fabric has no members yet: {ALONE}")


def node_pool_problems(values: Values) -> Iterator[Problem]:
    yield from server_problems(values)
    count, nodes = values.get("count"), values.get("nodes")
    if count is None and nodes is None:
        yield Problem("count", "is required: declare how many nodes, or each of them in nodes")
    if count is not None and nodes is not None:
        yield Problem("count", "does not go with nodes, which are counted: keep one of the two")
    if nodes is not None and values.get("remove") is not None:
        yield Problem("remove", "goes with count only: remove the node from nodes instead")
    declared = values.get("drain")
    if isinstance(declared, Mapping) and declared.get("nodes"):
        if nodes is not None:
            yield Problem("drain.nodes", "goes with count only: remove the node from nodes instead")
        elif values.get("remove"):
            yield Problem("remove", "does not go with drain.nodes, which says the same")
    yield from _repair(values)
    if isinstance(nodes, Mapping):
        yield from _nodes(nodes, values.get("gpu_node_name_prefix"))


def without_empty(values: dict[str, Any]) -> dict[str, Any]:
    """An empty init_script is none, and so is the id of a fabric without members."""
    empty = [name for name in ("init_script", "cluster_fabric_id") if values.get(name) == ""]
    return {name: value for name, value in values.items() if name not in empty}


def node_name(key: str, node: Values, prefix: str) -> Any:
    """The name of a pool's node; UNKNOWN as long as it is."""
    return node.get("gpu_node_name", f"{prefix}-{key}")


def _repair(values: Values) -> Iterator[Problem]:
    """The platform knows no scheduler: who says that a node is not ready has to be declared."""
    repair, drain = values.get("repair"), values.get("drain")
    on = repair.get("on") if isinstance(repair, Mapping) else None
    if not isinstance(on, list) or "not_ready" not in on or drain is UNKNOWN:
        return
    schedulers = drain if isinstance(drain, Mapping) else {}
    if all(schedulers.get(name) is None for name in ("kubernetes", "slurm")):
        yield Problem(
            "repair.on",
            "has not_ready, which a scheduler tells: declare drain.kubernetes or drain.slurm",
        )


def _nodes(nodes: Values, prefix: Any) -> Iterator[Problem]:
    if not nodes:
        yield Problem("nodes", "is empty: a pool has one node or more")
    taken: dict[str, str] = {}
    for key, node in nodes.items():
        if not isinstance(node, Mapping) or not isinstance(prefix, str):
            continue
        name = node_name(key, node, prefix)
        if not isinstance(name, str):
            continue
        if "gpu_node_name" not in node and not is_node_name(name):
            yield Problem(
                f"nodes.{key}",
                f"would be named {name}, and a name {NODE_NAME_RULE}: use another key, or declare "
                "its gpu_node_name",
            )
        elif name in taken:
            yield Problem(
                f"nodes.{key}",
                f"is named {name} like {taken[name]}: give each node its own gpu_node_name",
            )
        taken.setdefault(name, key)

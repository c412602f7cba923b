"""Report the resource usage, the placement and the SSH access of SCP's GPU nodes.

Its GPU names a type where it is declared (`gpu_type`), else the id of the product does.

From the SCP reference, 'Show GPU Node' (`cluster_fabric_id`, `cluster_fabric_name`,
`node_pool_id`). It tells no switches.

From the SCP reference, 'GPU node' (`policy_nat`) and 'Assign Public NAT IP'.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from gpuform.providers.declared import EXPIRES, names_in, not_known, text_of
from gpuform.schemas.access import Access, Host, is_user
from gpuform.schemas.policies.drain import KubernetesInputs
from gpuform.schemas.policies.lifetime import has_end
from gpuform.schemas.resource_facts import Billing, Expense, Footprint, PlacedNode, Placement
from gpuform.schemas.scp.statuses import GPUS_OF_A_SERVER
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


def pool_placement(seen: Mapping[str, Any]) -> Placement:
    """The nodes of a pool, each with the fabric that it is in itself."""
    nodes = seen.get("gpu_nodes")
    each = nodes.values() if isinstance(nodes, Mapping) else ()
    name = text_of(seen, "gpu_node_name_prefix")
    return _placement(seen, name, [node for node in each if isinstance(node, Mapping)])


def node_placement(seen: Mapping[str, Any]) -> Placement:
    """One node."""
    return _placement(seen, text_of(seen, "gpu_node_name"), [seen])


def _placement(seen: Mapping[str, Any], name: str, nodes: list[Mapping[str, Any]]) -> Placement:
    return Placement(
        name=name,
        region=text_of(seen, "region_id"),
        pool=text_of(seen, "node_pool_id"),
        nodes=tuple(_node(each) for each in nodes if text_of(each, "gpu_node_name")),
        kubernetes=_kubernetes(seen.get("drain")),
        untold=("switches",),
    )


def _node(node: Mapping[str, Any]) -> PlacedNode:
    return PlacedNode(
        name=text_of(node, "gpu_node_name"),
        address=text_of(node, "policy_nat") or text_of(node, "policy_ip"),
        fabric_id=text_of(node, "cluster_fabric_id"),
        fabric=text_of(node, "cluster_fabric_name"),
    )


def _kubernetes(drain: Any) -> KubernetesInputs | None:
    told = drain.get("kubernetes") if isinstance(drain, Mapping) else None
    try:
        return None if told is None else KubernetesInputs.model_validate(told)
    except ValidationError:  # of another version's state
        return None


_NO_KUBERNETES: Final = "SCP's GPU nodes are servers: Kubernetes is what you install on them"
_DEFAULT_USER: Final = "root"
_RUNNING: Final = "RUNNING"


def pool_access(seen: Mapping[str, Any]) -> Access:
    """A host for each of its nodes."""
    nodes = (seen.get("gpu_nodes") or {}).values()
    found = sorted((_host(node, seen) for node in nodes), key=lambda host: host.node)
    return Access(
        name=text_of(seen, "cluster_fabric_name"),
        no_kubeconfig=_NO_KUBERNETES,
        hosts=tuple(found),
        no_hosts="it has no nodes yet",
    )


def node_access(seen: Mapping[str, Any]) -> Access:
    return Access(
        name=text_of(seen, "gpu_node_name"),
        no_kubeconfig=_NO_KUBERNETES,
        hosts=(_host(seen, seen),),
    )


def _host(node: Mapping[str, Any], declared: Mapping[str, Any]) -> Host:
    name, address = text_of(node, "gpu_node_name"), text_of(node, "policy_nat")
    state = text_of(node, "state")
    user = text_of(declared, "os_user_id")
    because = ""
    if not address:
        private = text_of(node, "policy_ip") or "an address"
        because = f"it has no public address, only {private} in its subnet: declare nat_enabled"
    elif state != _RUNNING:
        because = f"it is {state or 'in no known state'}"
    return Host.of(name, address, user=user if is_user(user) else _DEFAULT_USER, because=because)

"""How people get on SCP's GPU nodes: by SSH at the public address that NAT gives them.

From the SCP reference, 'GPU node' (`policy_nat`) and 'Assign Public NAT IP'.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuform.providers.declared import text_of
from gpuform.schemas.access import Access, Host, is_user

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

"""How people get on TensorOne's clusters: one host each, and mapped ports with a web address.

From TensorOne's documentation, 'Get Cluster' (`network.ssh_connection`, `network.port_mappings`).
"""

from collections.abc import Mapping
from typing import Any

from gpuform.providers.declared import text_of
from gpuform.schemas.access import Access, Host, Port, is_host, is_user
from gpuform.schemas.tensorone.statuses import ClusterStatus

_NO_KUBERNETES = "TensorOne's clusters are hosts of their own, without Kubernetes"


def cluster_access(seen: Mapping[str, Any]) -> Access:
    """The ports as they were when the cluster was last seen."""
    host, urls = _host(seen), seen.get("port_urls") or {}
    return Access(
        name=text_of(seen, "name"),
        no_kubeconfig=_NO_KUBERNETES,
        hosts=(host,) if host else (),
        no_hosts=_why(seen),
        ports=tuple(
            Port.of(number, str(url))
            for number, url in sorted((int(n), url) for n, url in urls.items() if n.isdecimal())
        ),
    )


def _host(seen: Mapping[str, Any]) -> Host | None:
    told = seen.get("ssh_connection") or {}
    address, user = text_of(told, "host"), text_of(told, "username")
    if not is_host(address) or (user and not is_user(user)):
        return None
    status = text_of(seen, "status")
    because = f"it is {status}" if status != ClusterStatus.RUNNING else ""
    port = told.get("port") or 22
    if not isinstance(port, int | float) or not 0 < port < 65536:
        return None
    name = text_of(seen, "name")
    return Host(
        node=name, address=address, port=int(port), user=user, role="machine", because=because
    )


def _why(seen: Mapping[str, Any]) -> str:
    if seen.get("ssh_enabled") is False:
        return "it is declared with ssh_enabled: false"
    if "ssh_command" in seen:
        return "the state is older than this ability: `gpuform refresh` asks where it is"
    return f"the platform tells no SSH connection: it is {text_of(seen, 'status') or 'not there'}"

"""How people get on Together's clusters.

From the Together reference, 'Access Methods': a kubeconfig, `<node-address>.cloud.together.ai` for
each worker, and Slurm's login node, whose users have names of their own. Today's clusters are
reached through a jump host of their own (`ssh -J ada@ssh.t-....cloud.together.ai ada@slurm-login`,
as the cluster's page in Together's web interface shows it; the SDK's ClusterConfig has
`jumphost_enabled`). No API tells its address: it is declared, as `ssh_jump`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuform.providers.declared import text_of
from gpuform.schemas.access import Access, Host, is_jump

_DOMAIN: Final = ".cloud.together.ai"
_LOGIN: Final = "slurm-login"
_NOT_UP: Final = frozenset(
    {"pending", "scheduling", "booting", "bootstrapping", "failed", "paused", "succeeded"}
)
"""Phases of a node that is not up; another word, of a newer server, keeps nobody from trying."""


def cluster_access(seen: Mapping[str, Any]) -> Access:
    """Slurm runs on Kubernetes, so that its clusters have a kubeconfig as well."""
    is_slurm = seen.get("cluster_type") == "SLURM"
    jump = text_of(seen, "ssh_jump")
    jump = jump if is_jump(jump) else ""
    workers = tuple(_workers(seen, jump))
    why = text_of(seen, "not_ready_reason", "status") or "its status is not known"
    return Access(
        name=text_of(seen, "cluster_name"),
        kubeconfig=text_of(seen, "kube_config") or None,
        no_kubeconfig=f"Together gives out none yet: {why}",
        hosts=(*([_login(jump)] if is_slurm and workers else []), *workers),
        no_hosts=f"it has no nodes yet: {why}",
        prefers="slurm" if is_slurm else "kubectl",
    )


def ssh_address(host_name: str) -> str:
    """Where a worker's SSH server is; empty without a host name."""
    is_whole = not host_name or host_name.endswith(_DOMAIN)
    return host_name if is_whole else host_name + _DOMAIN


def _login(jump: str) -> Host:
    return Host(node=_LOGIN, address=_LOGIN, role="login", jump=jump)


def _workers(seen: Mapping[str, Any], jump: str) -> Iterator[Host]:
    for node in seen.get("gpu_worker_nodes") or ():
        name = text_of(node, "host_name")
        phase = text_of(node, "status").removeprefix("NODE_PHASE_")
        address = ssh_address(name)
        because = f"it is {phase}" if phase.lower() in _NOT_UP else ""
        yield Host.of(name or text_of(node, "node_id"), address, jump=jump, because=because)

"""Where the workers of Together's clusters are.

The Together reference tells a cluster's region, and each worker's host name and name in Slurm
('Get GPU cluster', `gpu_worker_nodes`). It tells neither switches nor fabrics.
"""

from collections.abc import Mapping
from typing import Any

from gpuform.providers.declared import text_of
from gpuform.providers.together.access import ssh_address
from gpuform.schemas.placement import PlacedNode, Placement


def cluster_placement(seen: Mapping[str, Any]) -> Placement:
    """The workers of a cluster, which has a Kubernetes, and perhaps a Slurm, of its own."""
    workers = seen.get("gpu_worker_nodes")
    told = workers if isinstance(workers, list | tuple) else ()
    nodes = [each for each in told if isinstance(each, Mapping)]
    return Placement(
        name=text_of(seen, "cluster_name"),
        region=text_of(seen, "placed_region", "region"),
        nodes=tuple(_node(each) for each in nodes if text_of(each, "host_name")),
        has_own_scheduler=True,
        kubeconfig=text_of(seen, "kube_config") or None,
        untold=("fabrics", "switches"),
    )


def _node(worker: Mapping[str, Any]) -> PlacedNode:
    return PlacedNode(
        name=text_of(worker, "host_name"),
        slurm=text_of(worker, "slurm_worker_hostname"),
        address=ssh_address(text_of(worker, "host_name")),
    )

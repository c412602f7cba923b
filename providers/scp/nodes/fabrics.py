"""Fabrics as nodes need them: found by name or id, and joined or left only where that is sound.

A fabric exists from its first node to its last and cannot be made alone (SCP user guide, 'Cluster
fabric').
"""

from gpuform.providers.errors import AmbiguousObject, GpuformError, NotFound
from gpuform.providers.scp.client import ScpClient
from gpuform.schemas.scp import wire


def find_fabric(client: ScpClient, node_pool_id: str, name: str) -> wire.ClusterFabric | None:
    """The fabric of a name in a vendor pool; None as long as it has no members."""
    listed = client.fabrics(cluster_fabric_name=name, node_pool_id=node_pool_id)
    # That the filters want whole names is not documented.
    found = [
        each for each in listed if (each.cluster_name, each.node_pool_id) == (name, node_pool_id)
    ]
    if len(found) > 1:
        ids = ", ".join(each.id for each in found)
        raise AmbiguousObject(
            f"several fabrics of {node_pool_id} are named {name!r} ({ids})",
            hint="declare cluster_fabric_id, or rename one of them",
        )
    return found[0] if found else None


def fabric_of_id(client: ScpClient, fabric_id: str) -> wire.ClusterFabric | None:
    """The fabric of an id; None when there is none."""
    try:
        return client.fabric(fabric_id)
    except NotFound:
        return None


def no_members(name: str) -> str:
    """Why nothing can be moved to a fabric that does not exist."""
    return (
        f"fabric {name} has no members, so it does not exist: nodes move to a fabric that has "
        "members; make one there first"
    )


def refuse_other_pool(fabric: wire.ClusterFabric, node_pool_id: str) -> None:
    """Raises GpuformError for a fabric of another vendor pool."""
    if fabric.node_pool_id != node_pool_id:
        raise GpuformError(other_pool(fabric, node_pool_id))


def other_pool(fabric: wire.ClusterFabric, node_pool_id: str) -> str:
    """Why a fabric cannot be used by nodes of a vendor pool."""
    return (
        f"fabric {fabric.cluster_name} ({fabric.id}) is of vendor pool {fabric.node_pool_id}, the "
        f"nodes are of {node_pool_id}: use a fabric of that one"
    )

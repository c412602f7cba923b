"""Find what resources of Samsung's Terraform provider declare about the nodes of a pool.

Here a public NAT IP is a setting of its node, and a cluster fabric member is the fabric of its
pool. `topology` calls `PoolAttachments`. Facts are from the source of
SamsungSDSCloud/samsungcloudplatformv2 6.x (cluster_fabric_member_resource.go,
gpunodepublicnatip_resource.go).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuform.stacks.convert.terraform.files import ResourceInstance
from gpuform.stacks.convert.terraform.resource_types import (
    CLUSTER_FABRIC,
    FABRIC_MEMBER,
    GPU_NODES,
    PUBLIC_NAT_IP,
    find_servers,
    get_fabric_details,
)


class IncompleteEntry(Exception):
    """Raised for a resource without a required value; the message says why."""


@dataclass(frozen=True, slots=True)
class PoolNode:
    """A node in the state: its id, its name and its pool."""

    id: str
    name: str
    pool: ResourceInstance


@dataclass(frozen=True, slots=True)
class PoolMove:
    """A move of all nodes of a pool to another fabric, by `member`."""

    member: ResourceInstance
    fabric_id: str
    fabric_name: str

    def apply_to(self, pool: ResourceInstance) -> ResourceInstance:
        """Return the pool as a refresh after the move has it."""
        fabric = {
            **get_fabric_details(pool.attributes),
            "cluster_fabric_id": self.fabric_id,
            "cluster_fabric_name": self.fabric_name,
        }
        return replace(pool, attributes={**pool.attributes, "cluster_fabric_details": fabric})


@dataclass(frozen=True, slots=True)
class PoolAttachments:
    """The resources that declare something about nodes of pools.

    `instances` are those with a block in the files, `data_sources` the state's data sources.
    """

    instances: Sequence[ResourceInstance]
    data_sources: Sequence[ResourceInstance]

    def find_nodes(self, attached: ResourceInstance) -> Iterator[tuple[str, PoolNode | None]]:
        """Yield the ids of the nodes that a resource is about, with the node or None.

        None stands for a node of no pool among the instances.
        """
        attributes = attached.attributes
        node_ids = (
            [attributes.get("gpu_node_id")]
            if attached.type == PUBLIC_NAT_IP
            else attributes.get("gpu_node_id_list")
        )
        nodes_by_id = {
            node.id: node
            for pool in self.instances
            if pool.type == GPU_NODES
            for node in _list_nodes(pool)
        }
        for node_id in node_ids if isinstance(node_ids, list) else ():
            yield str(node_id), nodes_by_id.get(str(node_id))

    def find_move(self, pool: ResourceInstance) -> PoolMove | None:
        """Return the move of a pool to another fabric, or None if no member names its nodes.

        Raises:
            IncompleteEntry: only some nodes were moved, or the state does not say where to.
        """
        members: dict[str, ResourceInstance] = {}
        moved_ids: dict[str, set[str]] = {}
        for member in self.instances:
            fabric_id = str(member.attributes.get("after_cluster_fabric_id"))
            for node_id, node in self.find_nodes(member) if member.type == FABRIC_MEMBER else ():
                if node is not None and node.pool is pool:
                    members.setdefault(fabric_id, member)
                    moved_ids.setdefault(fabric_id, set()).add(node_id)
        if not members:
            return None
        for fabric_id, ids in moved_ids.items():
            staying_names = [node.name for node in _list_nodes(pool) if node.id not in ids]
            if staying_names:
                raise IncompleteEntry(
                    f"{members[fabric_id].address} moves some of its nodes to another fabric, "
                    f"without {', '.join(staying_names)}, but an entry has all nodes in one "
                    "fabric: write a node_pools entry by hand for each fabric, with its nodes "
                    "under `nodes`"
                )
        current_id = str(get_fabric_details(pool.attributes).get("cluster_fabric_id"))
        # The state after a refresh has the fabric; before, the only move has it.
        fabric_id = current_id if current_id in members else next(iter(members))
        fabric_name = self._find_fabric_names().get(fabric_id)
        if fabric_name is None or (len(members) > 1 and current_id not in members):
            raise IncompleteEntry(
                f"{members[fabric_id].address} moves its nodes to the fabric {fabric_id}, and the "
                "state does not contain the name of that fabric: run `terraform apply "
                "-refresh-only`, or write the node_pools entry by hand with the name as "
                "cluster_fabric_name"
            )
        return PoolMove(members[fabric_id], fabric_id, fabric_name)

    def _find_fabric_names(self) -> Mapping[str, str]:
        """Return the names of the fabrics in the state by their ids."""
        names: dict[str, str] = {}
        for source in self.data_sources:
            if source.type == CLUSTER_FABRIC and source.attributes.get("cluster_name"):
                names[str(source.attributes.get("id"))] = str(source.attributes["cluster_name"])
        for pool in self.instances:
            fabric = get_fabric_details(pool.attributes)
            if fabric.get("cluster_fabric_name"):
                names[str(fabric.get("cluster_fabric_id"))] = str(fabric["cluster_fabric_name"])
        return names


def _list_nodes(pool: ResourceInstance) -> list[PoolNode]:
    """Return the nodes of a pool with ids and names in the state."""
    return [
        PoolNode(str(server["id"]), str(server["gpu_node_name"]), pool)
        for server in find_servers(pool.attributes)
        if server.get("id") and server.get("gpu_node_name")
    ]

"""Where the first nodes of a pool go, and whether what has their names is somebody else's."""

from collections.abc import Mapping, Sequence

from gpuform.providers.calls import Look
from gpuform.providers.errors import GpuformError, NameTaken
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.nodes import (
    DeclaredNode,
    Ledger,
    fabric_of_id,
    find_fabric,
    is_leaving,
    refuse_other_pool,
)
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.inputs import NodePoolInputs


class PoolPlace:
    """What is in the way of a pool's nodes. Without a record that it is ours, it is not taken."""

    def __init__(self, client: ScpClient, want: NodePoolInputs, ledger: Ledger) -> None:
        self._client = client
        self._want = want
        self._ledger = ledger

    def look(self, wanted: Sequence[DeclaredNode]) -> Look[wire.ClusterFabric | None]:
        """The fabric for the first nodes, or None for a new one; not done while it has to wait.

        Raises NameTaken for what is somebody else's, GpuformError for a fabric that does not fit.
        """
        listed = self._client.shared_nodes().all()
        taken = self.taken(listed, wanted)
        if taken:
            raise self.name_taken(taken)
        names = {each.name for each in wanted}
        leaving = [node for node in listed if is_leaving(node.state)]
        is_free = all(node.gpu_node_name not in names for node in leaving)
        fabric = self._fabric_to_join(leaving)
        is_free = is_free and (fabric is None or _stays(fabric, leaving))
        return Look(fabric, "waiting for nodes that are being deleted", done=is_free)

    def _fabric_to_join(self, leaving: Sequence[wire.GpuNode]) -> wire.ClusterFabric | None:
        """The declared fabric of somebody else's nodes. Raises for one that is not declared."""
        want = self._want
        if want.cluster_fabric_id is not None:
            return self._declared_fabric(want.cluster_fabric_id)
        fabric = find_fabric(self._client, want.node_pool_id, want.cluster_fabric_name)
        if fabric is not None and _stays(fabric, leaving):
            raise NameTaken(
                f"scp already has a fabric named {fabric.cluster_name!r} in {fabric.node_pool_id} "
                f"({fabric.id}), and no record says that this project made it",
                hint=f'to join it, declare cluster_fabric_id "{fabric.id}" (or the output of the '
                "resource that has it); otherwise give the fabric another name",
            )
        return fabric

    def _declared_fabric(self, fabric_id: str) -> wire.ClusterFabric:
        fabric = fabric_of_id(self._client, fabric_id)
        if fabric is None:
            raise GpuformError(
                f"cluster_fabric_id: there is no fabric {fabric_id}",
                hint="a fabric exists from its first node to its last: without the id, the pool "
                "makes it",
            )
        refuse_other_pool(fabric, self._want.node_pool_id)
        if fabric.cluster_name != self._want.cluster_fabric_name:
            raise GpuformError(
                f"cluster_fabric_name: the fabric {fabric.id} is named {fabric.cluster_name}",
                hint=f"declare cluster_fabric_name {fabric.cluster_name}",
            )
        return fabric

    def taken(
        self, listed: Sequence[wire.GpuNode], wanted: Sequence[DeclaredNode]
    ) -> dict[str, str]:
        """Ids by name of somebody else's nodes that have the names."""
        names = {each.name for each in wanted}
        return {
            node.gpu_node_name: node.id
            for node in listed
            if node.gpu_node_name in names
            and node.id not in self._ledger.ids
            and not is_leaving(node.state)
        }

    def name_taken(self, taken: Mapping[str, str]) -> NameTaken:
        """The refusal of names that others have."""
        told = ", ".join(f"{name} {id_}" for name, id_ in sorted(taken.items()))
        return NameTaken(
            f"scp already has nodes of the pool {self._want.gpu_node_name_prefix!r} ({told}), and "
            "no record says that this project made it",
            hint=f"to manage the pool, import it: give this resource opts=pulumi.ResourceOptions("
            f'import_="{pool_id_of(self._want)}") and run `gpuform up`; otherwise use another '
            "gpu_node_name_prefix",
        )


def _stays(fabric: wire.ClusterFabric, leaving: Sequence[wire.GpuNode]) -> bool:
    """Whether it has a member that is not about to go."""
    gone = {node.id for node in leaving}
    return any(each.gpu_node_id not in gone for each in fabric.gpu_node_details)


def pool_id_of(want: NodePoolInputs) -> str:
    """The id of a pool as a resource: what is known before anything is made."""
    return f"{want.node_pool_id}/{want.cluster_fabric_name}/{want.gpu_node_name_prefix}"

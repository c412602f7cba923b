"""All GPU nodes and fabrics in the store at one moment."""

from functools import lru_cache

from gpuform.providers.emulator.scp.errors import no_fabric, no_node
from gpuform.providers.emulator.scp.fabrics import Fabric
from gpuform.providers.emulator.scp.nodes import GpuNode
from gpuform.providers.emulator.store import Store

_NODE = "scp.gpu_node"
_FABRIC = "scp.fabric"


class Estate:
    """To be used within one transaction. Fabrics that have lost their last node are forgotten."""

    def __init__(self, store: Store, now: float) -> None:
        self._store = store
        self.now = now
        store.sweep(now)
        self._nodes = {each.node_id: each for each in map(_read_node, store.all(_NODE))}
        self._fabrics = {each.fabric_id: each for each in map(_read_fabric, store.all(_FABRIC))}
        for fabric in list(self._fabrics.values()):
            if not self._is_held(fabric):
                del self._fabrics[fabric.fabric_id]
                store.put(_FABRIC, fabric.fabric_id, fabric.model_dump_json(), gone_at=now)

    def new_id(self) -> str:
        """32 hexadecimal digits, as the platform's ids."""
        return self._store.new_id().replace("-", "")

    # Nodes, oldest first.

    def nodes(self) -> list[GpuNode]:
        """Those that are shown, TERMINATED ones among them."""
        return [node for node in self._nodes.values() if node.has_appeared(self.now)]

    def live_nodes(self) -> list[GpuNode]:
        """Also before they appear: a create has taken their names and servers."""
        return [node for node in self._nodes.values() if node.is_live(self.now)]

    def node(self, node_id: str) -> GpuNode:
        node = self._nodes.get(node_id)
        if node is None or not node.has_appeared(self.now):
            raise no_node(node_id)
        return node

    def keep_node(self, node: GpuNode) -> None:
        self._nodes[node.node_id] = node
        self._store.put(_NODE, node.node_id, node.model_dump_json(), gone_at=node.gone_at)

    def remove_node(self, node_id: str) -> None:
        """At once, without a trace."""
        node = self.node(node_id).model_copy(update={"gone_at": self.now})
        self.keep_node(node)
        self._store.sweep(self.now)

    # Fabrics.

    def fabrics(self) -> list[Fabric]:
        """Those that have appeared, oldest first."""
        return [each for each in self._fabrics.values() if each.has_appeared(self.now)]

    def fabric(self, fabric_id: str) -> Fabric:
        fabric = self._fabrics.get(fabric_id)
        if fabric is None or not fabric.has_appeared(self.now):
            raise no_fabric(fabric_id)
        return fabric

    def has_fabric_named(self, name: str, node_pool_id: str) -> bool:
        """Also before it appears: the create that names it has taken the name."""
        return any(
            (each.name, each.node_pool_id) == (name, node_pool_id)
            for each in self._fabrics.values()
        )

    def members(self, fabric: Fabric) -> list[GpuNode]:
        return [
            node
            for node in self.live_nodes()
            if node.has_appeared(self.now)
            and node.membership(self.now).fabric_id == fabric.fabric_id
        ]

    def keep_fabric(self, fabric: Fabric) -> None:
        self._fabrics[fabric.fabric_id] = fabric
        self._store.put(_FABRIC, fabric.fabric_id, fabric.model_dump_json())

    def _is_held(self, fabric: Fabric) -> bool:
        return any(node.holds_fabric(fabric.fabric_id, self.now) for node in self._nodes.values())


# Kept, for records are immutable and most requests read what others have read before.
@lru_cache(maxsize=4096)
def _read_node(body: str) -> GpuNode:
    return GpuNode.model_validate_json(body)


@lru_cache(maxsize=4096)
def _read_fabric(body: str) -> Fabric:
    return Fabric.model_validate_json(body)

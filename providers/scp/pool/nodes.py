"""A pool's nodes as they are now: a few lists for all who wait, never a request per node."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from gpuform.providers.context import ProviderContext
from gpuform.providers.creating import AGAIN, SETTLE
from gpuform.providers.errors import NotFound
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.nodes import Ledger, in_parallel, is_leaving
from gpuform.providers.scp.pool.repairs import stored_nodes
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.outputs import NodeOutputs


def shown(node: wire.GpuNode, public_ip_address_id: str | None) -> NodeOutputs:
    """A node as outputs; the id of its public IP is what we know, for the platform tells none."""
    return NodeOutputs(
        id=node.id,
        gpu_node_name=node.gpu_node_name,
        state=node.state,
        policy_ip=node.policy_ip or None,
        policy_use_nat=node.policy_use_nat,
        policy_nat=node.policy_nat or None,
        public_ip_address_id=public_ip_address_id if node.policy_use_nat else None,
        lock_enabled=node.lock_enabled,
        cluster_fabric_id=node.cluster_fabric_id or None,
        cluster_fabric_name=node.cluster_fabric_name or None,
        pfs_ip=list(node.pfs_ip),
        server_type=node.server_type or None,
        product_type_id=node.product_type_id or None,
        image_id=node.image_id or None,
        image_version=node.image_version or None,
        os_type=node.os_type or None,
        time_zone=node.time_zone or None,
        account_id=node.account_id or None,
        created_at=node.created_at,
        created_by=node.created_by or None,
        modified_at=node.modified_at,
        modified_by=node.modified_by or None,
    )


class PoolNodes:
    """The nodes of one pool during one call.

    `seen` are its nodes at the last look, by their ids; `others` those of the same fabrics that are
    somebody else's.
    """

    def __init__(
        self,
        client: ScpClient,
        call: ProviderContext,
        ledger: Ledger,
        known: Mapping[str, Any],
        fabrics: Iterable[str],
    ) -> None:
        self._client = client
        self._call = call
        self._ledger = ledger
        before = stored_nodes(known) or []
        self._fabrics = {*fabrics, *(each.cluster_fabric_name or "" for each in before)} - {""}
        self._public_ips = {each.id: each.public_ip_address_id for each in before}
        self._wanted_ips: dict[str, str | None] = {}
        self.seen: dict[str, NodeOutputs] = {}
        self.others: list[wire.GpuNode] = []

    @property
    def all(self) -> Sequence[NodeOutputs]:
        """The pool's nodes at the last look, by their names."""
        return sorted(self.seen.values(), key=lambda node: (node.gpu_node_name, node.id))

    def look(self) -> None:
        """Look at all nodes of the pool, and forget those that are gone.

        While the platform may not show yet what a create has made, or for a moment does not show a
        node that exists, the look is repeated. A preview does not wait; a call that only looks
        waits for what the state may lack, and before it reports that no node is left.
        """
        left = self._look_once()
        with self._call.searching(SETTLE):
            while left and self._waits() and self._call.remaining() != 0:
                self._call.on_progress(
                    "looking for what an interrupted create may have made"
                    if self._ledger.unsure
                    else "looking again for nodes that the platform does not show"
                )
                self._call.sleep(min(AGAIN, left))
                left = self._look_once()

    def _waits(self) -> bool:
        if self._call.preview:
            return False
        is_needed = self._ledger.unsure or self._ledger.has_recorded_absent or not self.seen
        return bool(is_needed) or not self._call.only_looks

    def _look_once(self) -> float:
        """Return for how many seconds the platform may still lack nodes that exist."""
        asked_at = self._ledger.now() if self._ledger.is_unsettled else self._call.clock.now()
        listed = self._listed()
        if self._ledger.hints and not self._ledger.seconds_left(asked_at):
            listed |= self._unlisted(self._ledger.hints - listed.keys())
        self._ledger.adopt(listed.values(), asked_at)
        listed |= self._unlisted(self._ledger.ids - listed.keys())
        found = {
            id_: shown(node, self._public_ips.get(id_, self._wanted_ips.get(node.gpu_node_name)))
            for id_, node in sorted(listed.items())
            if id_ in self._ledger.ids
        }
        self._ledger.expect_end(id_ for id_, node in found.items() if is_leaving(node.state))
        self._ledger.note_absent(self._ledger.ids - found.keys(), asked_at)
        self.seen = found
        self.others = [node for id_, node in listed.items() if id_ not in found]
        return self._ledger.seconds_left(asked_at)

    def _listed(self) -> dict[str, wire.GpuNode]:
        # Where the nodes of a create are is not certain before they are seen: then all are listed.
        places = [None] if self._ledger.unsure else sorted(self._fabrics)
        return {
            node.id: node for place in places for node in self._client.get_node_listing(place).all()
        }

    def expect_end(self, nodes: Iterable[NodeOutputs]) -> None:
        """Note nodes that are about to be deleted."""
        self._ledger.expect_end(node.id for node in nodes)

    def assigned(self, node: NodeOutputs, public_ip_address_id: str | None) -> None:
        """Notes which public IP a node has got."""
        self._public_ips[node.id] = public_ip_address_id

    def made_with(self, name: str, public_ip_address_id: str | None) -> None:
        """Notes which public IP a node of this name has, if it is not in the state yet."""
        self._wanted_ips[name] = public_ip_address_id

    def _unlisted(self, ids: Iterable[str]) -> dict[str, wire.GpuNode]:
        """Those that no list has and that are there: a list may lag behind, or a node be in another
        fabric. What is missing is gone by the platform's own word."""

        def look(id_: str) -> wire.GpuNode | None:
            try:
                return self._client.get_node_listing().one(id_)
            except NotFound:
                return None

        found = in_parallel([partial(look, id_) for id_ in sorted(ids)])
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return {node.id: node for node in found if isinstance(node, wire.GpuNode)}

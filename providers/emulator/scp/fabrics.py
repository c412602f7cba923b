"""A cluster fabric: it appears after the create that names it, and ends with its last node."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from gpuform.providers.emulator.scp.catalogue import ACCOUNT_ID, USER_ID
from gpuform.providers.emulator.scp.nodes import GpuNode, Membership, timestamp
from gpuform.providers.emulator.timeline import Timeline, until, value_at

CREATION_SECONDS = 30.0
"""From the time when it appears until it is RUNNING; ours."""


class Fabric(BaseModel, frozen=True):
    fabric_id: str
    name: str
    node_pool_id: str
    region_id: str
    product_id: str
    server_type: str
    states: Timeline[str]
    """The first one begins when the fabric appears."""

    @property
    def appears_at(self) -> float:
        return self.states[0][0]

    def has_appeared(self, now: float) -> bool:
        return self.appears_at <= now

    def state(self, now: float) -> str:
        return value_at(self.states, now)

    def membership(self) -> Membership:
        return Membership(fabric_id=self.fabric_id, fabric_name=self.name)

    def details(self) -> dict[str, str]:
        """How its node pool shows it: as a create names it (the document's example is empty)."""
        return {
            "cluster_fabric_id": self.fabric_id,
            "cluster_fabric_name": self.name,
            "node_pool_id": self.node_pool_id,
        }

    def view(self, now: float, members: Sequence[GpuNode]) -> dict[str, Any]:
        """The document's cluster fabric, whose name is `cluster_name` there."""
        return {
            "account_id": ACCOUNT_ID,
            "cluster_name": self.name,
            "created_at": timestamp(self.appears_at),
            "created_by": USER_ID,
            "description": f"fabric of {self.node_pool_id}",
            "gpu_node_details": [node.fabric_view(now) for node in members],
            "id": self.fabric_id,
            "modified_at": timestamp(until(self.states, now)[-1][0]),
            "modified_by": USER_ID,
            "node_pool_id": self.node_pool_id,
            "pirp_id": "20",
            "product_id": self.product_id,
            "region_id": self.region_id,
            "server_type": self.server_type,
            "state": self.state(now),
            "used_server_count": len(members),
        }

"""SCP's cluster fabric, bound by its name: nothing is sent to make or to delete one.

The platform makes a fabric with its first node and ends it with its last (SCP user guide, 'Cluster
fabric'). So one without members is no fault, and never gone.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuform.providers.context import PollResult, ProviderContext, wait_until_done, wait_until_gone
from gpuform.providers.errors import GpuformError
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.scp import declared_fabrics, offers
from gpuform.providers.scp.client import ScpClient, client_for
from gpuform.providers.scp.nodes import find_fabric
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.inputs import FabricInputs
from gpuform.schemas.scp.outputs import FabricOutputs, MemberOutputs
from gpuform.schemas.scp.statuses import FABRIC_READY, NODE_FAILED, NODE_LEAVING

INTERVAL = 10.0

Seen = Observed[FabricOutputs]


class FabricActions:
    """The verbs of a fabric."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def planning_problems(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """Whether the vendor pool exists."""
        pool, name = values.get("node_pool_id"), values.get("cluster_fabric_name")
        if isinstance(pool, str) and isinstance(name, str):
            declared_fabrics.record_declared_fabric(context, pool, name)
        client = self._client(values.get("region_id"))
        return offers.yield_while_answered(
            client, context, offers.find_offer_problems(client, values)
        )

    def create(self, context: ProviderContext, inputs: FabricInputs) -> str:  # noqa: ARG002 - the shape of ResourceOperations
        """Its id is its name in its vendor pool: there is nothing to make."""
        return f"{inputs.node_pool_id}/{inputs.cluster_fabric_name}"

    def wait_until_ready(
        self,
        context: ProviderContext,
        object_id: str,  # noqa: ARG002 - the shape of ResourceOperations
        inputs: FabricInputs,
    ) -> Seen:
        """RUNNING, or without members."""
        client, name = self._client(inputs.region_id), inputs.cluster_fabric_name

        def probe() -> PollResult[Seen]:
            return look_at(name, find_fabric(client, inputs.node_pool_id, name))

        rhythm = client.get_poll_schedule(INTERVAL)
        return wait_until_done(context, probe, label=f"fabric {name}", interval=rhythm)

    def read(
        self,
        context: ProviderContext,  # noqa: ARG002 - the shape of ResourceOperations
        object_id: str,
        known_inputs: Mapping[str, Any],
    ) -> Seen | None:
        """None only for what is no id of a fabric: without members it is not gone."""
        place = _ID.fullmatch(object_id)
        if place is None:
            return None
        pool, name = place.groups()
        fabric = find_fabric(self._client(known_inputs.get("region_id")), pool, name)
        seen = look_at(name, fabric).value
        return Observed({"node_pool_id": pool, "cluster_fabric_name": name}, seen.outputs)

    def update(
        self,
        context: ProviderContext,
        object_id: str,
        inputs: FabricInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """Nothing of a fabric can be changed."""

    def delete(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Refused while it has members; it ends by itself with the last of them."""
        place = _ID.fullmatch(object_id)
        if place is None:
            return
        pool, name = place.groups()
        client = self._client(known_inputs.get("region_id"))

        def probe() -> PollResult[object] | None:
            fabric = find_fabric(client, pool, name)
            if fabric is None:
                return None
            _refuse_members(fabric)
            return PollResult(None, "its last nodes are being deleted")

        wait_until_gone(context, probe, label=f"fabric {name}", interval=client.get_poll_schedule(INTERVAL))

    def _client(self, region: Any) -> ScpClient:
        return client_for(self._settings, region if isinstance(region, str) else None)


class FabricLifecycle(Lifecycle[FabricInputs, FabricOutputs]):
    """A fabric of SCP, which its nodes make."""

    platform = "scp"
    kind = "Fabric"
    inputs = FabricInputs
    outputs = FabricOutputs
    timeouts = Timeouts(create=1800, update=1800, delete=1800)
    operations = FabricActions
    id_example = "POOL001-krw1a/train-a"
    is_bound = True

    @classmethod
    def get_owner_name(cls, outputs: Mapping[str, Any]) -> str:
        """Who made it."""
        return str(outputs.get("created_by") or "")


_ID = re.compile(r"([^/]+)/([^/]+)")


def look_at(name: str, fabric: wire.ClusterFabric | None) -> PollResult[Seen]:
    """A fabric as seen by somebody who wants to use it."""
    if fabric is None:
        return PollResult(Observed({}, FabricOutputs(ready=True)), "no members yet", is_done=True)
    done = fabric.state in FABRIC_READY
    phase = fabric.state or "no state"
    failed = f"its state is {fabric.state}" if fabric.state in NODE_FAILED else None
    members = [
        MemberOutputs(
            gpu_node_id=each.gpu_node_id, gpu_node_name=each.gpu_node_name, state=each.state
        )
        for each in sorted(fabric.gpu_node_details, key=lambda each: each.gpu_node_name)
    ]
    outputs = FabricOutputs(
        ready=done,
        not_ready_reason=None if done else (failed or f"fabric {name} is {phase}"),
        cluster_fabric_id=fabric.id,
        state=fabric.state,
        gpu_node_details=members,
        server_type=fabric.server_type or None,
        used_server_count=fabric.used_server_count,
        description=fabric.description or None,
        product_id=fabric.product_id or None,
        pirp_id=fabric.pirp_id or None,
        account_id=fabric.account_id or None,
        created_at=fabric.created_at,
        created_by=fabric.created_by or None,
        modified_at=fabric.modified_at,
        modified_by=fabric.modified_by or None,
    )
    return PollResult(Observed({}, outputs), phase, is_done=done, failure=failed)


def _refuse_members(fabric: wire.ClusterFabric) -> None:
    names = [
        each.gpu_node_name for each in fabric.gpu_node_details if each.state not in NODE_LEAVING
    ]
    if names:
        raise GpuformError(
            f"fabric {fabric.cluster_name} cannot be deleted, it has nodes: {', '.join(names)}",
            hint="delete or move them first; the platform ends a fabric with its last node",
        )

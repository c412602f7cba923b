"""Bind SCP's cluster fabric by its name: no request creates or deletes a fabric.

The platform creates a fabric with its first node and ends it with its last (SCP user guide,
'Cluster fabric'). So a fabric without members is no fault, and never gone.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuform.providers.context import PollResult, ProviderContext, wait_until_done, wait_until_gone
from gpuform.providers.errors import GpuformError
from gpuform.providers.lifecycle import KindHooks, Lifecycle
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.scp import offers
from gpuform.providers.scp.client import get_client
from gpuform.providers.scp.nodes import moving
from gpuform.providers.scp.nodes.moving import find_fabric
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.inputs import FabricInputs
from gpuform.schemas.scp.outputs import (
    DELETING_NODE_STATES,
    FAILED_NODE_STATES,
    READY_FABRIC_STATES,
    FabricOutputs,
    MemberOutputs,
)

POLL_INTERVAL_S = 10.0
"""The longest pause between two reads of a fabric that is waited for, in seconds."""

ObservedFabric = Observed[FabricOutputs]


class FabricOperations:
    """Operations of a fabric."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def find_planning_problems(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """Record the fabric as declared, and yield a problem if the vendor pool does not exist.

        With version 1.3 of the API the vendor pool is not checked. If SCP does not answer, nothing
        is refused, and the context reports the missing check.
        """
        node_pool_id, name = values.get("node_pool_id"), values.get("cluster_fabric_name")
        if isinstance(node_pool_id, str) and isinstance(name, str):
            moving.record_declared_fabric(context, node_pool_id, name)
        client = get_client(self._settings, values.get("region_id"))
        return offers.yield_while_answered(
            client, context, offers.find_offer_problems(client, values)
        )

    def create(self, context: ProviderContext, inputs: FabricInputs) -> str:  # noqa: ARG002 - the shape of ResourceOperations
        """Return the id: the vendor pool and the name. Nothing is created."""
        # Nodes create the fabric when they join: the name is all that a declaration needs.
        return f"{inputs.node_pool_id}/{inputs.cluster_fabric_name}"

    def wait_until_ready(
        self,
        context: ProviderContext,
        object_id: str,  # noqa: ARG002 - the shape of ResourceOperations
        inputs: FabricInputs,
    ) -> ObservedFabric:
        """Wait until the fabric is RUNNING; a fabric without members is ready at once.

        Raises:
            NotReady: the fabric has failed, or the time is over.
        """
        client, name = get_client(self._settings, inputs.region_id), inputs.cluster_fabric_name

        def poll() -> PollResult[ObservedFabric]:
            return build_poll_result(name, find_fabric(client, inputs.node_pool_id, name))

        schedule = client.get_poll_schedule(POLL_INTERVAL_S)
        return wait_until_done(context, poll, label=f"fabric {name}", interval=schedule)

    def read(
        self,
        context: ProviderContext,  # noqa: ARG002 - the shape of ResourceOperations
        object_id: str,
        known_inputs: Mapping[str, Any],
    ) -> ObservedFabric | None:
        """Read the fabric; return None only for a malformed id.

        A fabric without members is not gone.
        """
        match = _ID_PATTERN.fullmatch(object_id)
        if match is None:
            return None
        node_pool_id, name = match.groups()
        fabric = find_fabric(
            get_client(self._settings, known_inputs.get("region_id")), node_pool_id, name
        )
        observed = build_poll_result(name, fabric).value
        return Observed(
            {"node_pool_id": node_pool_id, "cluster_fabric_name": name}, observed.outputs
        )

    def update(
        self,
        context: ProviderContext,
        object_id: str,
        inputs: FabricInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """Do nothing: no input of a fabric can change in place."""

    def delete(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Wait until the fabric has ended with the last node; no deletion is requested.

        A fabric without members, and a malformed id, are no errors.

        Raises:
            GpuformError: the fabric has members that nobody is deleting, or the time is over.
        """
        match = _ID_PATTERN.fullmatch(object_id)
        if match is None:
            return
        node_pool_id, name = match.groups()
        client = get_client(self._settings, known_inputs.get("region_id"))

        def poll() -> PollResult[object] | None:
            fabric = find_fabric(client, node_pool_id, name)
            if fabric is None:
                return None
            # Only nodes that are being deleted are worth waiting for.
            _refuse_members(fabric)
            return PollResult(None, "the platform is deleting its last nodes")

        wait_until_gone(
            context,
            poll,
            label=f"fabric {name}",
            interval=client.get_poll_schedule(POLL_INTERVAL_S),
        )


class FabricLifecycle(Lifecycle[FabricInputs, FabricOutputs]):
    """The lifecycle of a fabric of SCP, which its nodes create."""

    platform = "scp"
    kind = "Fabric"
    inputs = FabricInputs
    outputs = FabricOutputs
    timeouts = Timeouts(create=1800, update=1800, delete=1800)
    operations = FabricOperations
    id_example = "POOL001-krw1a/train-a"
    is_bound = True
    hooks = KindHooks(get_owner_name=lambda outputs: str(outputs.get("created_by") or ""))


_ID_PATTERN = re.compile(r"([^/]+)/([^/]+)")


def build_poll_result(name: str, fabric: wire.ClusterFabric | None) -> PollResult[ObservedFabric]:
    """Build the poll result of a fabric for waiters: ready, failed, or still changing.

    None stands for a fabric without members, which is ready.
    """
    # Ready without members: the platform creates the fabric with its first node.
    if fabric is None:
        return PollResult(Observed({}, FabricOutputs(ready=True)), "no members yet", is_done=True)
    is_ready = fabric.state in READY_FABRIC_STATES
    progress = fabric.state or "no state"
    failure = f"its state is {fabric.state}" if fabric.state in FAILED_NODE_STATES else None
    members = [
        MemberOutputs(
            gpu_node_id=member.gpu_node_id, gpu_node_name=member.gpu_node_name, state=member.state
        )
        for member in sorted(fabric.gpu_node_details, key=lambda member: member.gpu_node_name)
    ]
    outputs = FabricOutputs(
        ready=is_ready,
        not_ready_reason=None if is_ready else (failure or f"fabric {name} is {progress}"),
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
    return PollResult(Observed({}, outputs), progress, is_done=is_ready, failure=failure)


def _refuse_members(fabric: wire.ClusterFabric) -> None:
    """Raise GpuformError if the fabric has a member which is not being deleted."""
    member_names = [
        member.gpu_node_name
        for member in fabric.gpu_node_details
        if member.state not in DELETING_NODE_STATES
    ]
    if member_names:
        raise GpuformError(
            f"fabric {fabric.cluster_name} cannot be deleted: it has nodes: "
            f"{', '.join(member_names)}",
            hint="delete or move the nodes first; the platform deletes a fabric with its last node",
        )

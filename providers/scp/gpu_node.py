"""One GPU node of SCP that joins a fabric which exists."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.providers.context import (
    PollResult,
    ProviderContext,
    get_current_context,
    wait_until_done,
    wait_until_gone,
)
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.draining import NodeEviction
from gpuform.providers.errors import GpuformError, NotReady
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.lifetime import Power, Verdict
from gpuform.providers.operations import Guard, Observed, Settings, Timeouts
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Target
from gpuform.providers.repairing import Decision, faults_in, repair_of
from gpuform.providers.scp import offers
from gpuform.providers.scp.client import ScpClient, client_for
from gpuform.providers.scp.idleness import (
    forget_idleness,
    judged,
    remember_stop,
    stays_idle,
    with_idle_stop,
)
from gpuform.providers.scp.node_facts import (
    compute_node_usage,
    describe_node_access,
    describe_node_placement,
)
from gpuform.providers.scp.nodes import (
    Fabric,
    Inspection,
    NodeSteps,
    NodeTaking,
    candidate,
    decided,
    differences,
    fabric_of_id,
    interruptions,
    is_leaving,
    is_stopped_by_force,
    locked,
    no_fabric,
    node_problems,
    power_of,
    sent,
    why_not_to,
)
from gpuform.providers.scp.offers import image_notices, with_newer_image
from gpuform.providers.scp.one_node import (
    OneNode,
    create_request,
    failure,
    inputs_of,
    outputs_of,
    stored_node,
    wanted_node,
)
from gpuform.providers.scp.pool import INTERVAL, PATIENCE
from gpuform.schemas.access import Access
from gpuform.schemas.changes import KNOWN_AFTER_APPLY, Action, FieldChange, contains_unknown
from gpuform.schemas.changes import compute_changes as by_rules
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.drain import Leaving
from gpuform.schemas.policies.lifetime import Idleness
from gpuform.schemas.policies.repair import MachineRepairInputs, NodeFault
from gpuform.schemas.resource_facts import Footprint, Notice, Placement
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.inputs import GpuNodeInputs
from gpuform.schemas.scp.outputs import GpuNodeOutputs, NodeOutputs
from gpuform.schemas.scp.statuses import (
    FABRIC_READY,
    GPUS_OF_A_SERVER,
    NODE_AT_REST,
    NODE_FAILED,
    unix_time,
)
from gpuform.schemas.values import UNKNOWN

PLANNED: Final = (
    "cluster_fabric_id",
    "nat_enabled",
    "public_ip_address_id",
    "lock_enabled",
    "state",
)

Seen = Observed[GpuNodeOutputs]


class GpuNodeActions:
    """The verbs of a node."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def planning_problems(
        self, call: ProviderContext, values: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """Image and product; then the fabric."""
        client = self._client(values)
        checks = (offers.problems(client, values), node_problems(client, call, values))
        return offers.checked(client, call, chain(*checks))

    def create(self, call: ProviderContext, inputs: GpuNodeInputs) -> str:
        """Joins the fabric when that is RUNNING; the name has to be free."""
        client = self._client_of(inputs)
        fabric = self._joined(client, call, inputs)

        listed: list[Candidate] = []

        def candidates() -> list[Candidate]:
            nodes = client.get_node_listing().all()
            listed[:] = [candidate(n) for n in nodes if n.gpu_node_name == inputs.gpu_node_name]
            return list(listed)

        def wait_for_name() -> None:
            """Those that have the name are being deleted."""
            if listed:
                wait_until_done(
                    call,
                    lambda: PollResult(None, "its name is still in use", is_done=not candidates()),
                    label=f"GPU node {inputs.gpu_node_name}",
                    interval=client.rhythm(INTERVAL),
                )

        def has_name(id_: str) -> bool:
            node = OneNode(client, id_, None).look()
            return node is not None and node.gpu_node_name == inputs.gpu_node_name

        def send() -> str:
            return next(iter(client.create_nodes(body)), "")

        body = create_request(inputs, fabric, offers.id_of(client, inputs))
        creation = Creation(
            Target("scp", "GpuNode", call.kept(inputs.gpu_node_name), fabric.node_pool_id),
            candidates,
            exists=has_name,
            attempts=[Attempt(send, sent=sent(body))],
            has_hints=True,
            before=wait_for_name,
            clock_ahead=lambda: client.clock_ahead,
        )
        return create_once(call, creation)

    def wait_until_ready(
        self, call: ProviderContext, object_id: str, inputs: GpuNodeInputs
    ) -> Seen:
        """As declared, and RUNNING unless it is to be STOPPED."""
        client = self._client_of(inputs)
        node = OneNode(client, object_id, _known_ip(call, inputs))
        steps = NodeSteps(client, node)
        wanted, fabric = wanted_node(inputs.dump_declared()), Fabric(id=inputs.cluster_fabric_id)

        def probe() -> PollResult[Seen]:
            seen = node.look()
            if seen is None:
                raise NotReady(f"GPU node {object_id} is gone from the platform")
            is_told = steps.adjust([(seen, wanted)], fabric, fabric.id)
            left = any(differences(seen, wanted, fabric))
            failed = steps.refused.get(wanted.name) or failure(seen)
            done = seen.state in NODE_AT_REST and not left and not is_told
            reason = None if done else (failed or seen.state or "no state")
            seen, faults = self._inspected(call, inputs.dump_declared(), seen)
            observed = Observed({}, outputs_of(node.last, seen, reason, faults))
            return PollResult(
                observed, seen.state, is_done=done, failure=None if is_told else failed
            )

        what = f"GPU node {inputs.gpu_node_name}"
        seen = wait_until_done(call, probe, label=what, interval=client.rhythm(INTERVAL))
        try:
            _taking(call, object_id, inputs.dump_declared()).conclude(_present(node.look()))
        except GpuformError as error:
            raise NotReady(f"{what}: {error}", last=seen) from None
        seen = with_newer_image(client, call, inputs.dump_declared(), seen)
        return with_idle_stop(call, object_id, seen, is_off=inputs.state == "STOPPED")

    def read(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> Seen | None:
        """Which public IP it has is not told: that is as known.

        An import therefore leaves its address out, and says what is not as usual.
        """
        client = self._client(known_inputs)
        node = OneNode(client, object_id, call.known.get("public_ip_address_id"))
        seen = node.look()
        if seen is None:
            return None
        if not call.preview:
            _mend(call, object_id, known_inputs, seen)
        reason = None if seen.state in NODE_AT_REST else failure(seen) or f"it is {seen.state}"
        inputs = inputs_of(node.last)
        if not known_inputs:
            power = power_of(seen.state)
            inputs |= {"nat_enabled": None, "lock_enabled": seen.lock_enabled, "state": power}
        seen, faults = self._inspected(call, known_inputs, seen)
        found = Observed(inputs, outputs_of(node.last, seen, reason, faults))
        found = with_newer_image(client, call, known_inputs or inputs, found)
        return with_idle_stop(call, object_id, found, is_off=power_of(seen.state) == "STOPPED")

    def update(
        self,
        call: ProviderContext,
        object_id: str,
        inputs: GpuNodeInputs,
        changes: Sequence[FieldChange],  # noqa: ARG002 - the node says what is to be done
    ) -> None:
        """Refuse what cannot be done, before anything is sent; `wait_until_ready` does the work.

        A node that is stopped or moved has no job any more.
        """
        client = self._client_of(inputs)
        node = OneNode(client, object_id, None)
        seen = node.look()
        if seen is None:
            return
        if is_stopped_by_force(seen, wanted_node(inputs.dump_declared())):
            permissions.require(Permission.UNLOCK, locked([seen.gpu_node_name]))
        if seen.cluster_fabric_id not in (None, inputs.cluster_fabric_id):
            fabric = _existing(client, inputs.cluster_fabric_id)
            names = {seen.gpu_node_name}
            reason = why_not_to(client, call, seen.cluster_fabric_id, fabric, names)
            if reason:
                raise GpuformError(f"cluster_fabric_id: {reason}")
        _taking(call, object_id, inputs.dump_declared()).clear(_taken(seen, inputs), [seen])
        remember_stop(call, object_id, inputs.dump_declared())

    def predict_removed_nodes(
        self, call: ProviderContext, object_id: str, inputs: GpuNodeInputs
    ) -> Leaving | None:
        """The node, if an update would stop or move it now."""
        seen = OneNode(self._client_of(inputs), object_id, None).look()
        if seen is None:
            return None
        return _taking(call, object_id, inputs.dump_declared()).leaving(
            _taken(seen, inputs), [seen]
        )

    def predict_nodes_removed_with_object(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any], because: str
    ) -> Leaving | None:
        """The node, which goes."""
        seen = OneNode(self._client(known_inputs), object_id, None).look()
        if seen is None or is_leaving(seen.state):
            return None
        taking = NodeEviction({seen.gpu_node_name: because})
        return _taking(call, object_id, known_inputs).leaving(taking, [seen])

    def uncordon_leftover_nodes(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Uncordons the node that is gone, under whose name another one may come."""
        _taking(call, object_id, known_inputs).conclude(())

    def delete(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """When no job runs on it; done when it is gone. A locked one has to be allowed."""
        client = self._client(known_inputs)
        node = OneNode(client, object_id, None)
        steps = NodeSteps(client, node)
        taking, there = _taking(call, object_id, known_inputs), node.look()
        if there is not None and not is_leaving(there.state):
            taking.clear(NodeEviction({there.gpu_node_name: "deleted"}), [there])

        def probe() -> PollResult[object] | None:
            seen = node.look()
            if seen is None:
                return None
            if not is_leaving(seen.state):
                steps.delete([seen])
            if steps.refused:
                taking.conclude([seen])
                raise GpuformError(steps.refused[seen.gpu_node_name])
            return PollResult(None, seen.state)

        what = f"GPU node {known_inputs.get('gpu_node_name') or object_id}"
        wait_until_gone(call, probe, label=what, interval=client.rhythm(INTERVAL))
        taking.conclude(())
        forget_idleness(call, object_id)

    def _joined(
        self, client: ScpClient, call: ProviderContext, want: GpuNodeInputs
    ) -> wire.ClusterFabric:
        """The fabric, once it takes nodes; whether it does before it is RUNNING is not known."""

        def probe() -> PollResult[wire.ClusterFabric]:
            fabric = _existing(client, want.cluster_fabric_id)
            return PollResult(
                fabric, f"fabric {fabric.state}", is_done=fabric.state in FABRIC_READY
            )

        what = f"fabric {want.cluster_fabric_id}"
        rhythm = client.rhythm(INTERVAL)
        if call.finds_only:
            return _existing(client, want.cluster_fabric_id)
        try:
            return wait_until_done(call, probe, label=what, interval=rhythm, limit=PATIENCE)
        except NotReady:
            call.raise_if_cancelled()
            return _existing(client, want.cluster_fabric_id)

    def _inspected(
        self, call: ProviderContext, declared: Mapping[str, Any], seen: NodeOutputs
    ) -> tuple[NodeOutputs, list[NodeFault]]:
        what = f"GPU node {seen.gpu_node_name}"
        nodes, faults = Inspection(call, self._settings, what, declared).faults([seen])
        return nodes[0], faults

    def _client(self, values: Mapping[str, Any]) -> ScpClient:
        region = values.get("region_id")
        return client_for(self._settings, region if isinstance(region, str) else None)

    def _client_of(self, want: GpuNodeInputs) -> ScpClient:
        return client_for(self._settings, want.region_id)


class GpuNodeLifecycle(Lifecycle[GpuNodeInputs, GpuNodeOutputs]):
    """A GPU node of SCP."""

    platform = "scp"
    kind = "GpuNode"
    inputs = GpuNodeInputs
    outputs = GpuNodeOutputs
    timeouts = Timeouts(create=7200, update=7200, delete=3600)
    operations = GpuNodeActions
    id_example = "20c507a036c447cdb3b19468d8ea62ac"
    guarded_by = (Permission.UNLOCK, Permission.START_TERMINATED)
    asked = "server_type_id"
    planned = frozenset({*PLANNED, "gpu_type"})  # another GPU is another server_type_id
    moving = frozenset({"newer_image"})
    power = Power("state", "RUNNING", "STOPPED")
    remade_by_repair = True
    lags = True

    @classmethod
    def gpus(cls, values: Mapping[str, Any]) -> int | None:  # noqa: ARG003 - all servers are alike
        """Those of its server."""
        return GPUS_OF_A_SERVER

    @classmethod
    def footprint(cls, values: Mapping[str, Any], seen: Mapping[str, Any]) -> Footprint:
        """One server."""
        return compute_node_usage(values, seen)

    @classmethod
    def notices(
        cls, values: Mapping[str, Any], seen: Mapping[str, Any], now: float
    ) -> Iterable[Notice]:
        """Its end, and a newer image."""
        return (*super().notices(values, seen, now), *image_notices(seen))

    @classmethod
    def idle(cls, settings: Settings, id_: str, idleness: Idleness) -> Verdict | None:
        """By its scheduler and by Lens."""
        call = get_current_context()
        node, taking = stored_node(call.known), _taking(call, id_, call.known)
        return judged(call, settings, id_, taking, _present(node), idleness)

    @classmethod
    def owner(cls, seen: Mapping[str, Any]) -> str:
        """Who made it."""
        return str(seen.get("created_by") or "")

    @classmethod
    def access(cls, seen: Mapping[str, Any]) -> Access | None:
        """By SSH, if it has a public address."""
        return describe_node_access(seen)

    @classmethod
    def placement(cls, seen: Mapping[str, Any]) -> Placement | None:
        """Region, node pool and fabric."""
        return describe_node_placement(seen)

    @classmethod
    def is_off(cls, seen: Mapping[str, Any]) -> bool:
        """Its output `state` is the platform's."""
        return power_of(str(seen.get("state"))) == "STOPPED"

    @classmethod
    def stays_off(cls, old: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
        """As `gpuform expire` has left it."""
        return stays_idle(old, declared)

    @classmethod
    def created_at(cls, seen: Mapping[str, Any]) -> float | None:
        """By the platform."""
        return unix_time(seen.get("created_at"))

    @classmethod
    def is_stuck(cls, old: Mapping[str, Any]) -> bool:
        """It failed."""
        return old.get("state") in NODE_FAILED

    @classmethod
    def planned_changes(
        cls, old: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Iterable[FieldChange]:
        """What differs of the node as it was last seen."""
        node = stored_node(old)
        unknown = [name for name in PLANNED if contains_unknown(declared.get(name))]
        for name in unknown:
            before, because = old.get(name), KNOWN_AFTER_APPLY
            yield FieldChange(name, Action.UPDATE, before, UNKNOWN, because=because)
        if node is None:
            names = {name for name in PLANNED if name not in unknown}
            parts = ({k: v for k, v in each.items() if k in names} for each in (old, declared))
            yield from by_rules(GpuNodeInputs, *parts)
            return
        known = {name: value for name, value in declared.items() if name not in unknown}
        fabric = Fabric(id=known.get("cluster_fabric_id"))
        for each in differences(node, wanted_node(known), fabric):
            yield FieldChange(each.field, Action.UPDATE, each.before, each.after)

    @classmethod
    def repairs(cls, old: Mapping[str, Any], declared: Mapping[str, Any]) -> Decision:
        """A broken node is deleted and made anew: as another object."""
        node = stored_node(old)
        ids = {each.instance for each in faults_in(old)}
        nodes = [] if node is None else [node.model_copy(update={"id": next(iter(ids), "")})]
        return decided(repair_of(declared, MachineRepairInputs), old, nodes)

    @classmethod
    def guarded(cls, old: Mapping[str, Any]) -> Guard | None:
        """A locked node is deleted only with permission."""
        if not old.get("lock_enabled"):
            return None
        return Guard(Permission.UNLOCK, locked([str(old.get("gpu_node_name"))]))

    @classmethod
    def guarded_change(cls, old: Mapping[str, Any], declared: Mapping[str, Any]) -> Guard | None:
        """A locked node is stopped only with permission."""
        node = stored_node(old)
        known = {name: value for name, value in declared.items() if value is not UNKNOWN}
        if node is None or not is_stopped_by_force(node, wanted_node(known)):
            return None
        because = f"{locked([node.gpu_node_name])}, and this change stops it"
        return Guard(Permission.UNLOCK, because)

    def _completed(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[Problem]]:
        return offers.completed(self._settings or Settings(), context, values)


def _taking(call: ProviderContext, id_: str, declared: Mapping[str, Any]) -> NodeTaking:
    return NodeTaking(call, id_, f"GPU node {declared.get('gpu_node_name') or id_}", declared)


def _taken(seen: NodeOutputs, want: GpuNodeInputs) -> NodeEviction:
    """What the declaration takes of the node as it is now."""
    fabric = Fabric(id=want.cluster_fabric_id)
    return NodeEviction(dict(interruptions([(seen, wanted_node(want.dump_declared()))], fabric)))


def _present(seen: NodeOutputs | None) -> list[NodeOutputs]:
    return [] if seen is None else [seen]


def _mend(call: ProviderContext, id_: str, known: Mapping[str, Any], seen: NodeOutputs) -> None:
    """Uncordons what an interrupted run has left."""
    try:
        _taking(call, id_, known).conclude([seen])
    except GpuformError as error:
        call.on_warning(str(error))


def _known_ip(call: ProviderContext, want: GpuNodeInputs) -> str | None:
    """The public IP that it had, or was made with."""
    if call.just_created:
        return want.public_ip_address_id
    known: str | None = call.known.get("public_ip_address_id")
    return known


def _existing(client: ScpClient, fabric_id: str) -> wire.ClusterFabric:
    fabric = fabric_of_id(client, fabric_id)
    if fabric is None:
        raise GpuformError(f"cluster_fabric_id: {no_fabric(fabric_id)}")
    return fabric

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
    NodeDrainer,
    NodeInspection,
    NodeSteps,
    TargetFabric,
    decide_repairs,
    describe_missing_fabric,
    find_differences,
    find_fabric_by_id,
    find_interruptions,
    find_move_obstacle,
    find_node_problems,
    format_locked_nodes,
    get_power_state,
    is_stopped_by_force,
    is_terminating,
    node_to_candidate,
    request_to_node_fields,
)
from gpuform.providers.scp.offers import add_newer_image, build_image_notices
from gpuform.providers.scp.one_node import (
    SingleNode,
    build_create_request,
    build_node_outputs,
    build_observed_inputs,
    find_failure,
    parse_declared_node,
    parse_stored_node,
)
from gpuform.providers.scp.pool import FABRIC_READY_TIMEOUT_S, POLL_INTERVAL_S
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
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """Image and product; then the fabric."""
        client = self._client(values)
        checks = (
            offers.find_offer_problems(client, values),
            find_node_problems(client, context, values),
        )
        return offers.yield_while_answered(client, context, chain(*checks))

    def create(self, context: ProviderContext, inputs: GpuNodeInputs) -> str:
        """Joins the fabric when that is RUNNING; the name has to be free."""
        client = self._client_of(inputs)
        fabric = self._joined(client, context, inputs)

        listed: list[Candidate] = []

        def candidates() -> list[Candidate]:
            nodes = client.get_node_listing().all()
            listed[:] = [
                node_to_candidate(n) for n in nodes if n.gpu_node_name == inputs.gpu_node_name
            ]
            return list(listed)

        def wait_for_name() -> None:
            """Those that have the name are being deleted."""
            if listed:
                wait_until_done(
                    context,
                    lambda: PollResult(None, "its name is still in use", is_done=not candidates()),
                    label=f"GPU node {inputs.gpu_node_name}",
                    interval=client.get_poll_schedule(POLL_INTERVAL_S),
                )

        def has_name(id_: str) -> bool:
            node = SingleNode(client, id_, None).refresh()
            return node is not None and node.gpu_node_name == inputs.gpu_node_name

        def send() -> str:
            return next(iter(client.create_nodes(body)), "")

        body = build_create_request(inputs, fabric, offers.get_server_type_id(client, inputs))
        creation = Creation(
            Target(
                "scp",
                "GpuNode",
                context.redact_for_record(inputs.gpu_node_name),
                fabric.node_pool_id,
            ),
            candidates,
            exists=has_name,
            attempts=[Attempt(send, sent=request_to_node_fields(body))],
            has_hints=True,
            before=wait_for_name,
            clock_ahead=lambda: client.clock_ahead,
        )
        return create_once(context, creation)

    def wait_until_ready(
        self, context: ProviderContext, object_id: str, inputs: GpuNodeInputs
    ) -> Seen:
        """As declared, and RUNNING unless it is to be STOPPED."""
        client = self._client_of(inputs)
        node = SingleNode(client, object_id, _known_ip(context, inputs))
        steps = NodeSteps(client, node)
        wanted, fabric = (
            parse_declared_node(inputs.dump_declared()),
            TargetFabric(id=inputs.cluster_fabric_id),
        )

        def probe() -> PollResult[Seen]:
            seen = node.refresh()
            if seen is None:
                raise NotReady(f"GPU node {object_id} is gone from the platform")
            is_told = steps.send_next_steps([(seen, wanted)], fabric, fabric.id)
            left = any(find_differences(seen, wanted, fabric))
            failed = steps.refusals.get(wanted.name) or find_failure(seen)
            done = seen.state in NODE_AT_REST and not left and not is_told
            reason = None if done else (failed or seen.state or "no state")
            seen, faults = self._inspected(context, inputs.dump_declared(), seen)
            observed = Observed({}, build_node_outputs(node.last, seen, reason, faults))
            return PollResult(
                observed, seen.state, is_done=done, failure=None if is_told else failed
            )

        what = f"GPU node {inputs.gpu_node_name}"
        seen = wait_until_done(context, probe, label=what, interval=client.get_poll_schedule(POLL_INTERVAL_S))
        try:
            _taking(context, object_id, inputs.dump_declared()).uncordon_nodes(
                _present(node.refresh())
            )
        except GpuformError as error:
            raise NotReady(f"{what}: {error}", last=seen) from None
        seen = add_newer_image(client, context, inputs.dump_declared(), seen)
        return with_idle_stop(context, object_id, seen, is_off=inputs.state == "STOPPED")

    def read(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> Seen | None:
        """Which public IP it has is not told: that is as known.

        An import therefore leaves its address out, and says what is not as usual.
        """
        client = self._client(known_inputs)
        node = SingleNode(client, object_id, context.stored_properties.get("public_ip_address_id"))
        seen = node.refresh()
        if seen is None:
            return None
        if not context.preview:
            _mend(context, object_id, known_inputs, seen)
        reason = None if seen.state in NODE_AT_REST else find_failure(seen) or f"it is {seen.state}"
        inputs = build_observed_inputs(node.last)
        if not known_inputs:
            power = get_power_state(seen.state)
            inputs |= {"nat_enabled": None, "lock_enabled": seen.lock_enabled, "state": power}
        seen, faults = self._inspected(context, known_inputs, seen)
        found = Observed(inputs, build_node_outputs(node.last, seen, reason, faults))
        found = add_newer_image(client, context, known_inputs or inputs, found)
        return with_idle_stop(
            context, object_id, found, is_off=get_power_state(seen.state) == "STOPPED"
        )

    def update(
        self,
        context: ProviderContext,
        object_id: str,
        inputs: GpuNodeInputs,
        changes: Sequence[FieldChange],  # noqa: ARG002 - the node says what is to be done
    ) -> None:
        """Refuse what cannot be done, before anything is sent; `wait_until_ready` does the work.

        A node that is stopped or moved has no job any more.
        """
        client = self._client_of(inputs)
        node = SingleNode(client, object_id, None)
        seen = node.refresh()
        if seen is None:
            return
        if is_stopped_by_force(seen, parse_declared_node(inputs.dump_declared())):
            permissions.require(Permission.UNLOCK, format_locked_nodes([seen.gpu_node_name]))
        if seen.cluster_fabric_id not in (None, inputs.cluster_fabric_id):
            fabric = _existing(client, inputs.cluster_fabric_id)
            names = {seen.gpu_node_name}
            reason = find_move_obstacle(client, context, seen.cluster_fabric_id, fabric, names)
            if reason:
                raise GpuformError(f"cluster_fabric_id: {reason}")
        _taking(context, object_id, inputs.dump_declared()).drain_nodes(
            _taken(seen, inputs), [seen]
        )
        remember_stop(context, object_id, inputs.dump_declared())

    def predict_removed_nodes(
        self, context: ProviderContext, object_id: str, inputs: GpuNodeInputs
    ) -> Leaving | None:
        """The node, if an update would stop or move it now."""
        seen = SingleNode(self._client_of(inputs), object_id, None).refresh()
        if seen is None:
            return None
        return _taking(context, object_id, inputs.dump_declared()).predict_removed_nodes(
            _taken(seen, inputs), [seen]
        )

    def predict_nodes_removed_with_object(
        self,
        context: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any],
        because: str,
    ) -> Leaving | None:
        """The node, which goes."""
        seen = SingleNode(self._client(known_inputs), object_id, None).refresh()
        if seen is None or is_terminating(seen.state):
            return None
        taking = NodeEviction({seen.gpu_node_name: because})
        return _taking(context, object_id, known_inputs).predict_removed_nodes(taking, [seen])

    def uncordon_leftover_nodes(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Uncordons the node that is gone, under whose name another one may come."""
        _taking(context, object_id, known_inputs).uncordon_nodes(())

    def delete(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """When no job runs on it; done when it is gone. A locked one has to be allowed."""
        client = self._client(known_inputs)
        node = SingleNode(client, object_id, None)
        steps = NodeSteps(client, node)
        taking, there = _taking(context, object_id, known_inputs), node.refresh()
        if there is not None and not is_terminating(there.state):
            taking.drain_nodes(NodeEviction({there.gpu_node_name: "deleted"}), [there])

        def probe() -> PollResult[object] | None:
            seen = node.refresh()
            if seen is None:
                return None
            if not is_terminating(seen.state):
                steps.delete_nodes([seen])
            if steps.refusals:
                taking.uncordon_nodes([seen])
                raise GpuformError(steps.refusals[seen.gpu_node_name])
            return PollResult(None, seen.state)

        what = f"GPU node {known_inputs.get('gpu_node_name') or object_id}"
        wait_until_gone(context, probe, label=what, interval=client.get_poll_schedule(POLL_INTERVAL_S))
        taking.uncordon_nodes(())
        forget_idleness(context, object_id)

    def _joined(
        self, client: ScpClient, context: ProviderContext, inputs: GpuNodeInputs
    ) -> wire.ClusterFabric:
        """The fabric, once it takes nodes; whether it does before it is RUNNING is not known."""

        def probe() -> PollResult[wire.ClusterFabric]:
            fabric = _existing(client, inputs.cluster_fabric_id)
            return PollResult(
                fabric, f"fabric {fabric.state}", is_done=fabric.state in FABRIC_READY
            )

        what = f"fabric {inputs.cluster_fabric_id}"
        rhythm = client.get_poll_schedule(POLL_INTERVAL_S)
        if context.is_search_only:
            return _existing(client, inputs.cluster_fabric_id)
        try:
            return wait_until_done(
                context, probe, label=what, interval=rhythm, limit=FABRIC_READY_TIMEOUT_S
            )
        except NotReady:
            context.raise_if_cancelled()
            return _existing(client, inputs.cluster_fabric_id)

    def _inspected(
        self, context: ProviderContext, declared: Mapping[str, Any], seen: NodeOutputs
    ) -> tuple[NodeOutputs, list[NodeFault]]:
        what = f"GPU node {seen.gpu_node_name}"
        nodes, faults = NodeInspection(context, self._settings, what, declared).find_faults([seen])
        return nodes[0], faults

    def _client(self, values: Mapping[str, Any]) -> ScpClient:
        region = values.get("region_id")
        return client_for(self._settings, region if isinstance(region, str) else None)

    def _client_of(self, inputs: GpuNodeInputs) -> ScpClient:
        return client_for(self._settings, inputs.region_id)


class GpuNodeLifecycle(Lifecycle[GpuNodeInputs, GpuNodeOutputs]):
    """A GPU node of SCP."""

    platform = "scp"
    kind = "GpuNode"
    inputs = GpuNodeInputs
    outputs = GpuNodeOutputs
    timeouts = Timeouts(create=7200, update=7200, delete=3600)
    operations = GpuNodeActions
    id_example = "20c507a036c447cdb3b19468d8ea62ac"
    relevant_permissions = (Permission.UNLOCK, Permission.START_TERMINATED)
    import_field = "server_type_id"
    planned_fields = frozenset({*PLANNED, "gpu_type"})  # another GPU is another server_type_id
    volatile_outputs = frozenset({"newer_image"})
    power = Power("state", "RUNNING", "STOPPED")
    is_recreated_by_repair = True
    is_eventually_consistent = True

    @classmethod
    def count_gpus(cls, properties: Mapping[str, Any]) -> int | None:  # noqa: ARG003 - all servers are alike
        """Those of its server."""
        return GPUS_OF_A_SERVER

    @classmethod
    def compute_resource_usage(
        cls, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Footprint:
        """One server."""
        return compute_node_usage(inputs, outputs)

    @classmethod
    def list_notices(
        cls, inputs: Mapping[str, Any], outputs: Mapping[str, Any], now: float
    ) -> Iterable[Notice]:
        """Its end, and a newer image."""
        return (*super().list_notices(inputs, outputs, now), *build_image_notices(outputs))

    @classmethod
    def judge_idleness(
        cls, settings: Settings, object_id: str, idleness: Idleness
    ) -> Verdict | None:
        """By its scheduler and by Lens."""
        context = get_current_context()
        node, taking = (
            parse_stored_node(context.stored_properties),
            _taking(context, object_id, context.stored_properties),
        )
        return judged(context, settings, object_id, taking, _present(node), idleness)

    @classmethod
    def get_owner_name(cls, outputs: Mapping[str, Any]) -> str:
        """Who made it."""
        return str(outputs.get("created_by") or "")

    @classmethod
    def get_access(cls, outputs: Mapping[str, Any]) -> Access | None:
        """By SSH, if it has a public address."""
        return describe_node_access(outputs)

    @classmethod
    def get_placement(cls, outputs: Mapping[str, Any]) -> Placement | None:
        """Region, node pool and fabric."""
        return describe_node_placement(outputs)

    @classmethod
    def is_off(cls, outputs: Mapping[str, Any]) -> bool:
        """Its output `state` is the platform's."""
        return get_power_state(str(outputs.get("state"))) == "STOPPED"

    @classmethod
    def should_stay_off(cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
        """As `gpuform expire` has left it."""
        return stays_idle(old_outputs, declared)

    @classmethod
    def get_creation_time(cls, outputs: Mapping[str, Any]) -> float | None:
        """By the platform."""
        return unix_time(outputs.get("created_at"))

    @classmethod
    def is_stuck(cls, old_outputs: Mapping[str, Any]) -> bool:
        """It failed."""
        return old_outputs.get("state") in NODE_FAILED

    @classmethod
    def find_planned_changes(
        cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Iterable[FieldChange]:
        """What differs of the node as it was last seen."""
        node = parse_stored_node(old_outputs)
        unknown = [name for name in PLANNED if contains_unknown(declared.get(name))]
        for name in unknown:
            before, because = old_outputs.get(name), KNOWN_AFTER_APPLY
            yield FieldChange(name, Action.UPDATE, before, UNKNOWN, because=because)
        if node is None:
            names = {name for name in PLANNED if name not in unknown}
            parts = (
                {k: v for k, v in each.items() if k in names} for each in (old_outputs, declared)
            )
            yield from by_rules(GpuNodeInputs, *parts)
            return
        known = {name: value for name, value in declared.items() if name not in unknown}
        fabric = TargetFabric(id=known.get("cluster_fabric_id"))
        for each in find_differences(node, parse_declared_node(known), fabric):
            yield FieldChange(each.field, Action.UPDATE, each.before, each.after)

    @classmethod
    def decide_repairs(
        cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Decision:
        """A broken node is deleted and made anew: as another object."""
        node = parse_stored_node(old_outputs)
        ids = {each.instance for each in faults_in(old_outputs)}
        nodes = [] if node is None else [node.model_copy(update={"id": next(iter(ids), "")})]
        return decide_repairs(repair_of(declared, MachineRepairInputs), old_outputs, nodes)

    @classmethod
    def find_deletion_guard(cls, old_outputs: Mapping[str, Any]) -> Guard | None:
        """A locked node is deleted only with permission."""
        if not old_outputs.get("lock_enabled"):
            return None
        return Guard(
            Permission.UNLOCK, format_locked_nodes([str(old_outputs.get("gpu_node_name"))])
        )

    @classmethod
    def find_change_guard(
        cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Guard | None:
        """A locked node is stopped only with permission."""
        node = parse_stored_node(old_outputs)
        known = {name: value for name, value in declared.items() if value is not UNKNOWN}
        if node is None or not is_stopped_by_force(node, parse_declared_node(known)):
            return None
        because = f"{format_locked_nodes([node.gpu_node_name])}, and this change stops it"
        return Guard(Permission.UNLOCK, because)

    def _completed(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[Problem]]:
        return offers.add_server_type(self._settings or Settings(), context, values)


def _taking(context: ProviderContext, id_: str, declared: Mapping[str, Any]) -> NodeDrainer:
    return NodeDrainer(context, id_, f"GPU node {declared.get('gpu_node_name') or id_}", declared)


def _taken(seen: NodeOutputs, inputs: GpuNodeInputs) -> NodeEviction:
    """What the declaration takes of the node as it is now."""
    fabric = TargetFabric(id=inputs.cluster_fabric_id)
    return NodeEviction(
        dict(find_interruptions([(seen, parse_declared_node(inputs.dump_declared()))], fabric))
    )


def _present(seen: NodeOutputs | None) -> list[NodeOutputs]:
    return [] if seen is None else [seen]


def _mend(context: ProviderContext, id_: str, known: Mapping[str, Any], seen: NodeOutputs) -> None:
    """Uncordons what an interrupted run has left."""
    try:
        _taking(context, id_, known).uncordon_nodes([seen])
    except GpuformError as error:
        context.on_warning(str(error))


def _known_ip(context: ProviderContext, inputs: GpuNodeInputs) -> str | None:
    """The public IP that it had, or was made with."""
    if context.just_created:
        return inputs.public_ip_address_id
    known: str | None = context.stored_properties.get("public_ip_address_id")
    return known


def _existing(client: ScpClient, fabric_id: str) -> wire.ClusterFabric:
    fabric = find_fabric_by_id(client, fabric_id)
    if fabric is None:
        raise GpuformError(f"cluster_fabric_id: {describe_missing_fabric(fabric_id)}")
    return fabric

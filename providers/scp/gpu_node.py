"""Manage one GPU node of SCP that joins an existing fabric.

`GpuNodeOperations` sends the requests, through `nodes.steps`; `GpuNodeLifecycle` answers plans.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuform.providers.context import (
    PollResult,
    ProviderContext,
    get_current_context,
    wait_until_done,
    wait_until_gone,
)
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.draining import NodeEviction
from gpuform.providers.errors import GpuformError, NotReady, NotShown
from gpuform.providers.lifecycle import KindHooks, Lifecycle
from gpuform.providers.lifetime import IdlenessVerdict, Power
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Target
from gpuform.providers.scp import offers
from gpuform.providers.scp.client import ScpClient, get_client
from gpuform.providers.scp.idleness import (
    add_idle_stop,
    forget_idleness,
    judge_idleness,
    record_stop,
    should_stay_stopped,
)
from gpuform.providers.scp.node_changes import (
    PLANNED_FIELDS,
    decide_node_repairs,
    find_node_change_guard,
    find_node_changes,
    find_node_deletion_guard,
)
from gpuform.providers.scp.node_facts import (
    SingleNode,
    build_node_outputs,
    build_node_record,
    build_observed_inputs,
    compute_node_usage,
    describe_node_access,
    describe_node_placement,
    find_failure,
    parse_declared_node,
    parse_stored_node,
)
from gpuform.providers.scp.nodes.draining import NodeDrainer, find_interruptions
from gpuform.providers.scp.nodes.ledger import node_to_candidate, request_to_node_fields
from gpuform.providers.scp.nodes.moving import (
    describe_missing_fabric,
    find_fabric_by_id,
    find_move_obstacle,
    find_node_problems,
)
from gpuform.providers.scp.nodes.planning import (
    TargetFabric,
    find_differences,
    format_locked_nodes,
    get_power_state,
    is_switched_while_locked,
    is_terminating,
)
from gpuform.providers.scp.nodes.repairs import NodeInspection
from gpuform.providers.scp.nodes.steps import NodeSteps
from gpuform.providers.scp.offers import add_newer_image, build_image_notices
from gpuform.providers.scp.pool.creating import (
    FABRIC_READY_TIMEOUT_S,
    POLL_INTERVAL_S,
    build_create_request,
)
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.schemas.policies.lifetime import Idleness
from gpuform.schemas.policies.repair import NodeFault
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.inputs import GpuNodeInputs
from gpuform.schemas.scp.outputs import (
    FAILED_NODE_STATES,
    GPUS_PER_SERVER,
    READY_FABRIC_STATES,
    STABLE_NODE_STATES,
    GpuNodeOutputs,
    NodeOutputs,
    to_unix_time,
)

ObservedNode = Observed[GpuNodeOutputs]


class GpuNodeOperations:
    """Operations of a single GPU node."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def find_planning_problems(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """Yield problems of zone, image and server type, then problems of the fabric.

        Once SCP does not answer, no more problems are yielded, and the context gets a skipped
        check.
        """
        client = get_client(self._settings, values.get("region_id"))
        fabric_problems = find_node_problems(client, context, values)
        yield from offers.find_planning_problems(client, context, values, fabric_problems)

    def create(self, context: ProviderContext, inputs: GpuNodeInputs) -> str:
        """Create the node in an existing fabric, and return the id.

        Waits until the name is free, and at most `FABRIC_READY_TIMEOUT_S` until the fabric is
        RUNNING. A node that an earlier attempt has created is found again.

        Raises:
            GpuformError: the fabric does not exist, or SCP refuses; see `create_once` for the
                others.
        """
        client, name = get_client(self._settings, inputs.region_id), inputs.gpu_node_name
        # Before anything is recorded: a missing fabric fails without a trace.
        fabric = self._get_fabric_to_join(client, context, inputs)

        listed_candidates: list[Candidate] = []

        def list_candidates() -> list[Candidate]:
            nodes = client.get_node_listing().read_all()
            listed_candidates[:] = [
                node_to_candidate(node) for node in nodes if node.gpu_node_name == name
            ]
            return list(listed_candidates)

        def wait_for_name() -> None:
            """Wait until the terminating nodes of the name are gone."""
            if listed_candidates:
                wait_until_done(
                    context,
                    lambda: PollResult(
                        None, "its name is still in use", is_done=not list_candidates()
                    ),
                    label=f"GPU node {name}",
                    interval=client.get_poll_schedule(POLL_INTERVAL_S),
                )

        def has_name(id_: str) -> bool:
            node = SingleNode(context, client, id_).refresh()
            return node is not None and node.gpu_node_name == name

        def send() -> str:
            return next(iter(client.create_nodes(request)), "")

        request = build_create_request(
            inputs,
            wire.ClusterFabricDetails(
                cluster_fabric_name=fabric.cluster_name,
                node_pool_id=fabric.node_pool_id,
                cluster_fabric_id=fabric.id,
            ),
            [parse_declared_node(inputs.dump_declared())],
            offers.get_server_type_id(client, inputs),
        )
        creation = Creation(
            Target("scp", "GpuNode", context.redact_for_record(name), fabric.node_pool_id),
            list_candidates,
            exists=has_name,
            attempts=[Attempt(send, sent=request_to_node_fields(request))],
            # The answer's id may be another object's: only a node of the name counts.
            has_hints=True,
            check_before_request=wait_for_name,
            clock_ahead=lambda: client.clock_ahead,
        )
        return create_once(context, creation)

    def wait_until_ready(
        self, context: ProviderContext, object_id: str, inputs: GpuNodeInputs
    ) -> ObservedNode:
        """Send steps until the node is as declared: RUNNING, or STOPPED if declared; then uncordon.

        Raises:
            NotReady: the node is gone, has failed, refuses a step, may still be cordoned, or is not
                as declared at the deadline.
        """
        client = get_client(self._settings, inputs.region_id)
        node = SingleNode(context, client, object_id, _get_known_public_ip(context, inputs))
        steps = NodeSteps(client, node)
        declared_node = parse_declared_node(inputs.dump_declared())
        fabric = TargetFabric(id=inputs.cluster_fabric_id)

        def poll() -> PollResult[ObservedNode]:
            observed_node = node.refresh()
            if observed_node is None:
                raise NotShown(f"GPU node {object_id} no longer exists on the platform")
            # A node takes one step at a time: each poll sends the next one.
            has_sent = steps.send_next_steps([(observed_node, declared_node)], fabric, fabric.id)
            has_differences = any(find_differences(observed_node, declared_node, fabric))
            # A refused step is not repeated, so waiting longer would not help.
            failure = steps.refusals.get(declared_node.name) or find_failure(observed_node)
            is_done = (
                observed_node.state in STABLE_NODE_STATES and not has_differences and not has_sent
            )
            reason = None if is_done else (failure or observed_node.state or "no state")
            observed_node, faults = self._inspect_node(
                context, inputs.dump_declared(), observed_node
            )
            outputs = build_node_outputs(node.last, observed_node, reason, faults)
            return PollResult(
                Observed({}, outputs),
                observed_node.state,
                is_done=is_done,
                failure=None if has_sent else failure,
            )

        label = f"GPU node {inputs.gpu_node_name}"
        schedule = client.get_poll_schedule(POLL_INTERVAL_S)
        observed_node = wait_until_done(context, poll, label=label, interval=schedule)
        try:
            _build_drainer(context, object_id, inputs.dump_declared()).uncordon_nodes(
                _list_present(node.refresh())
            )
        except GpuformError as error:
            # The node is as declared, but takes no jobs while it is cordoned.
            raise NotReady(f"{label}: {error}", last=observed_node) from None
        observed_node = add_newer_image(client, context, inputs.dump_declared(), observed_node)
        return add_idle_stop(context, object_id, observed_node, is_off=inputs.state == "STOPPED")

    def read(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> ObservedNode | None:
        """Read the node; return None if SCP no longer has the node.

        Uncordons the node after an interrupted run, except in a preview; an error of this is only a
        warning. The platform returns no id of a public IP: the stored one stays. So an import
        leaves the public address out, and has the observed lock and state.
        """
        client = get_client(self._settings, known_inputs.get("region_id"))
        node = SingleNode(
            context, client, object_id, context.stored_properties.get("public_ip_address_id")
        )
        node_outputs = node.refresh()
        if node_outputs is None:
            return None
        _build_drainer(context, object_id, known_inputs).uncordon_leftovers([node_outputs])
        reason = (
            None
            if node_outputs.state in STABLE_NODE_STATES
            else find_failure(node_outputs) or f"it is {node_outputs.state}"
        )
        inputs = build_observed_inputs(node.last)
        # An import: nothing is declared yet.
        if not known_inputs:
            power_state = get_power_state(node_outputs.state)
            inputs |= {
                "nat_enabled": None,
                "lock_enabled": node_outputs.lock_enabled,
                "state": power_state,
            }
        node_outputs, faults = self._inspect_node(context, known_inputs, node_outputs)
        observed = Observed(inputs, build_node_outputs(node.last, node_outputs, reason, faults))
        observed = add_newer_image(client, context, known_inputs or inputs, observed)
        return add_idle_stop(
            context, object_id, observed, is_off=get_power_state(node_outputs.state) == "STOPPED"
        )

    def update(
        self,
        context: ProviderContext,
        object_id: str,
        inputs: GpuNodeInputs,
        changes: Sequence[FieldChange],  # noqa: ARG002 - the node says what is to be done
    ) -> None:
        """Refuse impossible changes before anything is sent, then drain a node to stop or to move.

        Records whether the stop is for idleness. `wait_until_ready` sends the steps, and reports a
        missing node.

        Raises:
            GpuformError: a move or another zone is impossible, a permission is missing, or jobs
                keep the node.
        """
        client = get_client(self._settings, inputs.region_id)
        node = SingleNode(context, client, object_id)
        node_outputs = node.refresh()
        if node_outputs is None:
            return
        # The state of a node of API 1.2 has no zone, so the plan could not compare it.
        if node_outputs.zone and inputs.zone not in (None, node_outputs.zone):
            raise GpuformError(
                f"zone: GPU node {node_outputs.gpu_node_name} is in {node_outputs.zone}",
                hint=f"declare zone {node_outputs.zone}, or replace the node",
            )
        if is_switched_while_locked(node_outputs, parse_declared_node(inputs.dump_declared())):
            context.run.require_permission(
                Permission.UNLOCK, format_locked_nodes([node_outputs.gpu_node_name])
            )
        if node_outputs.cluster_fabric_id not in (None, inputs.cluster_fabric_id):
            fabric = _require_fabric(client, inputs.cluster_fabric_id)
            own_names = {node_outputs.gpu_node_name}
            reason = find_move_obstacle(
                client, context, node_outputs.cluster_fabric_id, fabric, own_names
            )
            if reason:
                raise GpuformError(f"cluster_fabric_id: {reason}")
        _build_drainer(context, object_id, inputs.dump_declared()).drain_nodes(
            _build_eviction(node_outputs, inputs), [node_outputs]
        )
        # After draining: a run that is refused leaves no record.
        record_stop(context, object_id, inputs.dump_declared())

    def predict_removed_nodes(
        self, context: ProviderContext, object_id: str, inputs: GpuNodeInputs
    ) -> RemovedNodes | None:
        """Predict the node as removed if an update would stop or move the node now.

        None if the node is missing. Its jobs are unknown without a declared scheduler that reports
        them, which is reported as a skipped check.
        """
        node_outputs = SingleNode(
            context, get_client(self._settings, inputs.region_id), object_id
        ).refresh()
        if node_outputs is None:
            return None
        return _build_drainer(context, object_id, inputs.dump_declared()).predict_removed_nodes(
            _build_eviction(node_outputs, inputs), [node_outputs]
        )

    def predict_nodes_removed_with_object(
        self,
        context: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any],
        because: str,
    ) -> RemovedNodes | None:
        """Predict the node as removed by a deletion, for the reason `because`.

        None if the node is missing or being deleted. Its jobs are unknown without a declared
        scheduler that reports them, which is reported as a skipped check.
        """
        node_outputs = SingleNode(
            context, get_client(self._settings, known_inputs.get("region_id")), object_id
        ).refresh()
        if node_outputs is None or is_terminating(node_outputs.state):
            return None
        eviction = NodeEviction({node_outputs.gpu_node_name: because})
        return _build_drainer(context, object_id, known_inputs).predict_removed_nodes(
            eviction, [node_outputs]
        )

    def uncordon_leftover_nodes(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Uncordon a deleted node's name if a drain is recorded: a new node may get the name.

        The caller has checked that the node is gone.

        Raises:
            GpuformError: the name may still be cordoned.
        """
        _build_drainer(context, object_id, known_inputs).uncordon_nodes(())

    def delete(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Drain and delete the node, wait until it is gone, and forget its records.

        After a refusal the node is uncordoned. A missing node is no error.

        Raises:
            GpuformError: SCP refuses the deletion, the node must not be drained, the run may not
                unlock a locked node, or the time is over.
        """
        client = get_client(self._settings, known_inputs.get("region_id"))
        node = SingleNode(context, client, object_id)
        steps = NodeSteps(client, node)
        drainer, existing_node = _build_drainer(context, object_id, known_inputs), node.refresh()
        if existing_node is not None and not is_terminating(existing_node.state):
            drainer.drain_nodes(
                NodeEviction({existing_node.gpu_node_name: "deleted"}), [existing_node]
            )

        def poll() -> PollResult[object] | None:
            observed_node = node.refresh()
            if observed_node is None:
                return None
            # `NodeSteps` sends the deletion once, however often the node is polled.
            if not is_terminating(observed_node.state):
                steps.delete_nodes([observed_node])
            # The node stays, so it takes jobs again.
            if steps.refusals:
                drainer.uncordon_nodes([observed_node])
                raise GpuformError(steps.refusals[observed_node.gpu_node_name])
            return PollResult(None, observed_node.state)

        label = f"GPU node {known_inputs.get('gpu_node_name') or object_id}"
        wait_until_gone(
            context, poll, label=label, interval=client.get_poll_schedule(POLL_INTERVAL_S)
        )
        drainer.uncordon_nodes(())
        forget_idleness(context, object_id)

    def _get_fabric_to_join(
        self, client: ScpClient, context: ProviderContext, inputs: GpuNodeInputs
    ) -> wire.ClusterFabric:
        """Wait for the fabric to be RUNNING, at most `FABRIC_READY_TIMEOUT_S`; return the fabric.

        Whether a fabric accepts nodes before is not documented: after the time the fabric is
        returned all the same. A call that only searches does not wait.

        Raises:
            GpuformError: the fabric does not exist.
        """

        def poll() -> PollResult[wire.ClusterFabric]:
            fabric = _require_fabric(client, inputs.cluster_fabric_id)
            return PollResult(
                fabric, f"fabric {fabric.state}", is_done=fabric.state in READY_FABRIC_STATES
            )

        label = f"fabric {inputs.cluster_fabric_id}"
        schedule = client.get_poll_schedule(POLL_INTERVAL_S)
        if context.progress.is_search_only:
            return _require_fabric(client, inputs.cluster_fabric_id)
        try:
            return wait_until_done(
                context, poll, label=label, interval=schedule, limit=FABRIC_READY_TIMEOUT_S
            )
        except NotReady:
            context.raise_if_cancelled()
            return _require_fabric(client, inputs.cluster_fabric_id)

    def _inspect_node(
        self, context: ProviderContext, declared: Mapping[str, Any], node: NodeOutputs
    ) -> tuple[NodeOutputs, list[NodeFault]]:
        """Return the node with the scheduler's complaint, and the faults of a broken node.

        Asks scheduler and Lens as `NodeInspection.find_faults`.
        """
        label = f"GPU node {node.gpu_node_name}"
        nodes, faults = NodeInspection(context, self._settings, label, declared).find_faults([node])
        return nodes[0], faults


def _judge_idleness(
    settings: Settings, object_id: str, idleness: Idleness
) -> IdlenessVerdict | None:
    """Judge by the stored node, the scheduler and Lens whether the node is idle; never None.

    Idle means: quiet now, and in recorded observations over the declared time. Records this
    observation, or deletes the recorded ones if the node may be in use.

    Raises:
        GpuformError: the scheduler or Lens cannot be asked.
    """
    context = get_current_context()
    node, drainer = (
        parse_stored_node(context.stored_properties),
        _build_drainer(context, object_id, context.stored_properties),
    )
    return judge_idleness(context, settings, object_id, drainer, _list_present(node), idleness)


class GpuNodeLifecycle(Lifecycle[GpuNodeInputs, GpuNodeOutputs]):
    """The lifecycle of a GPU node of SCP."""

    platform = "scp"
    kind = "GpuNode"
    inputs = GpuNodeInputs
    outputs = GpuNodeOutputs
    timeouts = Timeouts(create=7200, update=7200, delete=3600)
    operations = GpuNodeOperations
    id_example = "20c507a036c447cdb3b19468d8ea62ac"
    relevant_permissions = (Permission.UNLOCK, Permission.START_TERMINATED)
    import_field = "server_type_id"
    planned_fields = frozenset(
        {*PLANNED_FIELDS, "gpu_type"}
    )  # another GPU is another server_type_id
    volatile_outputs = frozenset({"newer_image"})
    power = Power("state", "RUNNING", "STOPPED")
    is_recreated_by_repair = True
    is_eventually_consistent = True
    hooks = KindHooks(
        count_gpus=lambda _properties: GPUS_PER_SERVER,
        compute_resource_usage=compute_node_usage,
        find_kind_notices=lambda _inputs, outputs, _now: build_image_notices(outputs),
        judge_idleness=_judge_idleness,
        get_owner_name=lambda outputs: str(outputs.get("created_by") or ""),
        get_access=describe_node_access,
        get_placement=describe_node_placement,
        list_node_records=lambda object_id, inputs, outputs: (
            (build_node_record(outputs, object_id, inputs, outputs),) if outputs else ()
        ),
        is_off=lambda outputs: get_power_state(str(outputs.get("state"))) == "STOPPED",
        should_stay_off=should_stay_stopped,
        get_creation_time=lambda outputs: to_unix_time(outputs.get("created_at")),
        is_stuck=lambda old_outputs: old_outputs.get("state") in FAILED_NODE_STATES,
        find_planned_changes=find_node_changes,
        decide_repairs=decide_node_repairs,
        find_deletion_guard=find_node_deletion_guard,
        find_change_guard=find_node_change_guard,
    )

    def _complete_inputs(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[Problem]]:
        """Return the values with the `server_type_id` of a declared `gpu_type`, and problems.

        May request SCP's list of server types.
        """
        return offers.add_server_type(self._settings or Settings(), context, values)


def _build_drainer(context: ProviderContext, id_: str, declared: Mapping[str, Any]) -> NodeDrainer:
    """Create the drainer of one node, named in messages by `gpu_node_name`, else by the id."""
    return NodeDrainer(context, id_, f"GPU node {declared.get('gpu_node_name') or id_}", declared)


def _build_eviction(node: NodeOutputs, inputs: GpuNodeInputs) -> NodeEviction:
    """Build the eviction of the node: stopped or moved by the declaration, or empty."""
    fabric = TargetFabric(id=inputs.cluster_fabric_id)
    return NodeEviction(
        dict(find_interruptions([(node, parse_declared_node(inputs.dump_declared()))], fabric))
    )


def _list_present(node: NodeOutputs | None) -> list[NodeOutputs]:
    """Return a list of the node; an empty list for None."""
    return [] if node is None else [node]


def _get_known_public_ip(context: ProviderContext, inputs: GpuNodeInputs) -> str | None:
    """Return the id of the stored public IP, or of the declared one right after a create.

    None if there is none.
    """
    # The state has no outputs yet.
    if context.progress.just_created:
        return inputs.public_ip_address_id
    public_ip_address_id: str | None = context.stored_properties.get("public_ip_address_id")
    return public_ip_address_id


def _require_fabric(client: ScpClient, fabric_id: str) -> wire.ClusterFabric:
    """Return the fabric of an id.

    Raises:
        GpuformError: the fabric does not exist.
    """
    fabric = find_fabric_by_id(client, fabric_id)
    if fabric is None:
        raise GpuformError(f"cluster_fabric_id: {describe_missing_fabric(fabric_id)}")
    return fabric

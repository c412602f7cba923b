"""Manage a pool of SCP's GPU nodes: create, change and delete nodes together.

The platform has no such object (its node pools are the vendor's): a pool is its nodes, known by the
ids in its outputs. Its own id has the values that were declared first, for the platform assigns
none. `NodePoolOperations` works through `pool.reconciler`; `NodePoolLifecycle` answers plans.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from gpuform.providers.context import (
    PollResult,
    ProviderContext,
    get_current_context,
    wait_until_gone,
)
from gpuform.providers.creating import refuse_stored_object
from gpuform.providers.draining import NodeEviction
from gpuform.providers.errors import GpuformError, NotReady
from gpuform.providers.lifecycle import KindHooks, Lifecycle
from gpuform.providers.lifetime import IdlenessVerdict, Power
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Repairs
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
    find_change_guard,
    find_deletion_guard,
    find_pool_changes,
    has_stopped_nodes,
    list_locked_nodes,
    list_planned_fields,
)
from gpuform.providers.scp.node_facts import (
    compute_pool_usage,
    describe_pool_access,
    describe_pool_placement,
    list_open_rollouts,
    list_pool_nodes,
)
from gpuform.providers.scp.nodes.draining import NodeDrainer
from gpuform.providers.scp.nodes.ledger import NodeLedger
from gpuform.providers.scp.nodes.moving import find_pool_problems, refuse_unsafe_changes
from gpuform.providers.scp.nodes.planning import (
    ROLLOUT_FIELDS,
    DeclaredPool,
    format_locked_nodes,
    get_power_state,
    is_terminating,
    parse_stored_nodes,
)
from gpuform.providers.scp.nodes.repairs import NodeInspection, decide_pool_repairs
from gpuform.providers.scp.nodes.steps import NodeSteps
from gpuform.providers.scp.offers import add_newer_image, build_image_notices
from gpuform.providers.scp.pool.creating import POLL_INTERVAL_S, build_pool_id
from gpuform.providers.scp.pool.nodes import (
    PoolNodes,
    add_interrupted_nodes,
    build_import_inputs,
    build_observed_inputs,
)
from gpuform.providers.scp.pool.reconciler import (
    ObservedPool,
    PoolReconciler,
    build_pool_outputs,
    build_target,
)
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.schemas.policies.lifetime import Idleness
from gpuform.schemas.policies.repair import NodeFault
from gpuform.schemas.scp.inputs import NodePoolInputs
from gpuform.schemas.scp.outputs import (
    GPUS_PER_SERVER,
    STABLE_NODE_STATES,
    NodeOutputs,
    NodePoolOutputs,
    to_unix_time,
)
from gpuform.schemas.values import UNKNOWN, RemovalCount, parse_count

_ID_PATTERN = re.compile(r"([^/]+)/([^/]+)/([^/]+)")


class NodePoolOperations:
    """Operations of a node pool."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def find_planning_problems(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """Yield problems of zones, image, server type and vendor pool, then those of the fabric.

        Once SCP does not answer, no more problems are yielded, and the context gets a skipped
        check.
        """
        client = get_client(self._settings, values.get("region_id"))
        fabric_problems = find_pool_problems(client, context, values)
        yield from offers.find_planning_problems(client, context, values, fabric_problems)

    def create(self, context: ProviderContext, inputs: NodePoolInputs) -> str:
        """Create the first batch of nodes, unless an earlier attempt did; return the pool's id.

        `wait_until_ready` creates the other nodes.

        Raises:
            NameTaken: somebody else has a node or a fabric of the name, or another pool of this
                program is being created with the prefix.
            UnknownOutcome: nobody knows whether nodes were created.
            GpuformError: no node was created.
        """
        target = build_target(inputs.node_pool_id, inputs.gpu_node_name_prefix)
        # Two pools of one program must not create nodes of the same names.
        context.progress.exit_stack.enter_context(context.intents.claim(target))
        refuse_stored_object(context, target, build_pool_id(inputs))
        PoolReconciler(
            get_client(self._settings, inputs.region_id), self._settings, context, inputs
        ).create_first_nodes()
        # The parts of the id are declared: a lost answer to the create loses no pool.
        return build_pool_id(inputs)

    def wait_until_ready(
        self, context: ProviderContext, object_id: str, inputs: NodePoolInputs
    ) -> ObservedPool:
        """Reconcile until exactly the declared nodes exist, each as declared; then uncordon.

        Raises:
            NotReady: a node is not as declared, or may still be cordoned.
        """
        client = get_client(self._settings, inputs.region_id)
        reconciler = PoolReconciler(client, self._settings, context, inputs, object_id)
        observed = add_newer_image(client, context, inputs.dump_declared(), reconciler.reconcile())
        observed = add_idle_stop(context, object_id, observed, is_off=inputs.state == "STOPPED")
        try:
            reconciler.drainer.uncordon_nodes(reconciler.nodes.all)
        except GpuformError as error:
            raise NotReady(str(error), last=observed) from None
        return observed

    def read(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> ObservedPool | None:
        """Read the pool's nodes by the ids in the state and in the records of creates.

        A state that has never seen the pool is filled by an import: by the id, and by
        `known_inputs` if there are any. Uncordons nodes after an interrupted run, except in a
        preview. In the observed inputs, nodes of an interrupted repair count as existing. Returns
        None if no node exists, or if the id is malformed. A preview looks once: it returns a pool
        without nodes if none exists and nobody knows whether some were created.

        Raises:
            UnknownOutcome: no node exists, and nobody knows whether some were created; not in a
                preview.
            GpuformError: SCP does not show the nodes now, and may show them later. A preview
                returns None then.
        """
        match = _ID_PATTERN.fullmatch(object_id)
        if match is None:
            return None
        client = get_client(self._settings, known_inputs.get("region_id"))
        if "ready" not in context.stored_properties:  # nothing was ever seen of it
            return self._import_pool(client, context, object_id, known_inputs)
        nodes, ledger = self._build_pool_nodes(client, context, object_id, known_inputs)
        nodes.refresh()
        # The run after a preview looks for the nodes of the creates, and asks if need be: a preview
        # that failed would keep every `up --refresh` from doing so.
        if not nodes.nodes_by_id and not (context.preview and ledger.uncertain_names):
            ledger.refuse_while_uncertain()
            # Reported as gone, the pool would be created again beside nodes that still exist.
            if ledger.absent_ids and not context.preview:
                raise GpuformError(
                    f"pool {object_id}: the platform does not show its nodes, but may show them "
                    "later",
                    hint="run the command again in a minute",
                )
            return None
        NodeDrainer.for_pool(context, object_id, known_inputs).uncordon_leftovers(nodes.all)
        declared = DeclaredPool.from_inputs(known_inputs or context.stored_properties)
        inspected = self._inspect_nodes(context, known_inputs or context.stored_properties, nodes)
        reason = _describe_unready_nodes(nodes.all, declared)
        if not nodes.nodes_by_id:
            names = ", ".join(sorted(ledger.uncertain_names))
            reason = f"the result of creating {names} is unknown"
        outputs = build_pool_outputs(inspected, ledger, declared.get_key, reason)
        live_names = {node.gpu_node_name for node in nodes.all if not is_terminating(node.state)}
        repaired_names = (
            repair.node for repair in Repairs.from_intents(context.intents).list_for(object_id)
        )
        missing_names = [name for name in repaired_names if name not in live_names]
        observed_inputs = add_interrupted_nodes(
            build_observed_inputs(nodes.all, declared), declared, known_inputs, missing_names
        )
        observed = Observed(observed_inputs, outputs)
        observed = add_newer_image(
            client, context, known_inputs or context.stored_properties, observed
        )
        is_off = any(get_power_state(node.state) == "STOPPED" for node in nodes.all)
        return add_idle_stop(context, object_id, observed, is_off=is_off)

    def update(
        self,
        context: ProviderContext,
        object_id: str,
        inputs: NodePoolInputs,
        changes: Sequence[FieldChange],  # noqa: ARG002 - the nodes say what is to be done
    ) -> None:
        """Refuse impossible changes before anything is sent; drain nodes to remove, stop or move.

        Does nothing if all nodes are gone. Records whether a stop is for idleness.
        `wait_until_ready` sends the requests.

        Raises:
            GpuformError: a change is impossible, a permission is missing, or jobs keep a node.
        """
        client = get_client(self._settings, inputs.region_id)
        reconciler = PoolReconciler(client, self._settings, context, inputs, object_id)
        plan = reconciler.plan_changes()
        # All nodes are gone: `wait_until_ready` reports this.
        if not reconciler.nodes.nodes_by_id:
            return
        locked_names = list_locked_nodes(plan)
        if locked_names:
            context.run.require_permission(Permission.UNLOCK, format_locked_nodes(locked_names))
        # Before draining: a refused update leaves no node cordoned.
        refuse_unsafe_changes(client, context, inputs, plan)
        reconciler.drain_planned_nodes(plan)
        record_stop(context, object_id, inputs.dump_declared())

    def predict_removed_nodes(
        self, context: ProviderContext, object_id: str, inputs: NodePoolInputs
    ) -> RemovedNodes | None:
        """Predict the nodes whose jobs an update would end now.

        The jobs are unknown if no declared scheduler reports them, which is reported as a skipped
        check.

        Raises:
            GpuformError: a declared name does not fit the nodes.
        """
        return PoolReconciler(
            get_client(self._settings, inputs.region_id), self._settings, context, inputs, object_id
        ).predict_removed_nodes()

    def predict_nodes_removed_with_object(
        self,
        context: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any],
        because: str,
    ) -> RemovedNodes | None:
        """Predict all nodes not yet under deletion as removed, for the reason `because`.

        Nodes that the platform does not show now have no name. The jobs are unknown if no declared
        scheduler reports them, which is reported as a skipped check.
        """
        nodes, _ = self._build_pool_nodes(
            get_client(self._settings, known_inputs.get("region_id")),
            context,
            object_id,
            known_inputs,
        )
        nodes.refresh()
        removed_nodes = NodeDrainer.for_pool(
            context, object_id, known_inputs
        ).predict_removed_nodes(_build_full_eviction(nodes, because), nodes.all)
        return removed_nodes.add_unnamed_nodes(nodes.count_absent_nodes(), because, GPUS_PER_SERVER)

    def uncordon_leftover_nodes(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Uncordon the names of deleted nodes if an interrupted run has recorded a drain.

        The caller has checked that the nodes are gone.

        Raises:
            GpuformError: a name may still be cordoned.
        """
        NodeDrainer.for_pool(context, object_id, known_inputs).uncordon_nodes(())

    def delete(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Drain all nodes, delete them by one request, wait for the end, and forget the records.

        Nodes that appear late, from a create with an unknown outcome, are waited for and deleted,
        too. After a refusal the nodes are uncordoned.

        Raises:
            GpuformError: SCP refuses a deletion, nodes must not be drained, the run may not unlock
                locked nodes, or the time is over.
        """
        client = get_client(self._settings, known_inputs.get("region_id"))
        nodes, ledger = self._build_pool_nodes(client, context, object_id, known_inputs)
        nodes.refresh()
        drainer = NodeDrainer.for_pool(context, object_id, known_inputs)
        label = f"pool {known_inputs.get('gpu_node_name_prefix') or object_id}"
        eviction = _build_full_eviction(nodes, "deleted")
        count = len(eviction.reason_by_node) + nodes.count_absent_nodes()
        context.require_planned_removal(label, RemovalCount(count, count * GPUS_PER_SERVER))
        drainer.drain_nodes(eviction, nodes.all)

        def poll() -> PollResult[object] | None:
            nodes.refresh()
            if not nodes.nodes_by_id:
                # Nodes of an interrupted create may appear late: gone only when the ledger is
                # certain.
                is_unknown = ledger.has_uncertain_nodes
                return (
                    PollResult(None, "the pool may have nodes that the platform does not show yet")
                    if is_unknown
                    else None
                )
            steps.delete_nodes([node for node in nodes.all if not is_terminating(node.state)])
            if steps.refusals:
                drainer.uncordon_nodes(nodes.all)
                raise GpuformError(
                    "; ".join(f"{name}: {reason}" for name, reason in steps.refusals.items())
                )
            return PollResult(None, f"{len(nodes.nodes_by_id)} nodes remain")

        steps = NodeSteps(client, nodes)
        wait_until_gone(
            context, poll, label=label, interval=client.get_poll_schedule(POLL_INTERVAL_S)
        )
        drainer.uncordon_nodes(())
        forget_idleness(context, object_id)
        Repairs.from_intents(context.intents).forget(object_id)

    def _build_pool_nodes(
        self, client: ScpClient, context: ProviderContext, id_: str, known_inputs: Mapping[str, Any]
    ) -> tuple[PoolNodes, NodeLedger]:
        """Return a pool's nodes and ledger, from id, inputs and state; no node is listed yet.

        A malformed id counts as one with empty parts.
        """
        match = _ID_PATTERN.fullmatch(id_)
        node_pool_id, fabric, prefix = match.groups() if match else ("", "", "")
        node_ids, clock_ahead = (
            context.stored_properties.get("node_ids") or (),
            lambda: client.clock_ahead,
        )
        ledger = NodeLedger(context, build_target(node_pool_id, prefix), id_, node_ids, clock_ahead)
        fabrics = [known_inputs.get("cluster_fabric_name") or fabric]
        return PoolNodes(client, context, ledger, context.stored_properties, fabrics), ledger

    def _import_pool(
        self, client: ScpClient, context: ProviderContext, id_: str, known_inputs: Mapping[str, Any]
    ) -> ObservedPool | None:
        """Return the observed pool for an import of the id `NODE_POOL/FABRIC/PREFIX`.

        Without inputs, or with a declared `count`, the pool has all nodes of the fabric with names
        such as `PREFIX-1`. Otherwise it has the declared nodes. Nodes under deletion are left out;
        returns None if there are no others.
        """
        node_pool_id, fabric, prefix = id_.split("/")
        declared = DeclaredPool.from_inputs(known_inputs) if known_inputs else None

        def is_member(name: str) -> bool:
            if declared and declared.count is None:
                return declared.has_node(name)
            return name.rpartition("-")[0] == prefix

        member_nodes = [
            node
            for node in client.get_node_listing(fabric).read_all()
            if node.node_pool_id == node_pool_id
            and is_member(node.gpu_node_name)
            and not is_terminating(node.state)
        ]
        if not member_nodes:
            return None
        ledger = NodeLedger(
            context, build_target(node_pool_id, prefix), "", [node.id for node in member_nodes]
        )
        nodes = PoolNodes(client, context, ledger, {}, [fabric])
        nodes.refresh()
        inputs = build_import_inputs(member_nodes, prefix)
        declared = declared or DeclaredPool.from_inputs(inputs)
        observed_inputs = build_observed_inputs(nodes.all, declared) if known_inputs else {}
        inspected = self._inspect_nodes(context, known_inputs, nodes)
        outputs = build_pool_outputs(
            inspected, ledger, declared.get_key, _describe_unready_nodes(nodes.all, declared)
        )
        observed = Observed({**inputs, **observed_inputs}, outputs)
        return add_newer_image(client, context, observed.inputs, observed)

    def _inspect_nodes(
        self, context: ProviderContext, declared: Mapping[str, Any], nodes: PoolNodes
    ) -> tuple[Sequence[NodeOutputs], list[NodeFault]]:
        """Return the nodes with the scheduler's complaints, and the faults of broken nodes.

        Asks scheduler and Lens as `NodeInspection.find_faults`.
        """
        label = f"pool {declared.get('gpu_node_name_prefix') or ''}".strip()
        return NodeInspection(context, self._settings, label, declared).find_faults(nodes.all)


def _judge_idleness(
    settings: Settings, object_id: str, idleness: Idleness
) -> IdlenessVerdict | None:
    """Judge by the stored nodes, the scheduler and Lens whether all are idle; never None.

    Idle means: quiet now, and in recorded observations over the declared time. Records this
    observation, or deletes the recorded ones if a node may be in use.

    Raises:
        GpuformError: the scheduler or Lens cannot be asked.
    """
    context = get_current_context()
    drainer = NodeDrainer.for_pool(context, object_id, context.stored_properties)
    nodes = [
        node
        for node in parse_stored_nodes(context.stored_properties) or ()
        if not is_terminating(node.state)
    ]
    return judge_idleness(context, settings, object_id, drainer, nodes, idleness)


def _get_owner_name(outputs: Mapping[str, Any]) -> str:
    """Return the creators of the pool's nodes, separated by commas."""
    nodes = outputs.get("gpu_nodes")
    node_outputs = nodes.values() if isinstance(nodes, Mapping) else ()
    creators = {str(node.get("created_by") or "") for node in node_outputs}
    return ", ".join(sorted(creators - {""}))


def _get_creation_time(outputs: Mapping[str, Any]) -> float | None:
    """Return the creation time of the oldest node, in Unix seconds; None if unknown."""
    times = (to_unix_time(node.created_at) for node in parse_stored_nodes(outputs) or ())
    return min((time for time in times if time is not None), default=None)


def _describe_replacement(names: Collection[str], declared: Mapping[str, Any]) -> str:
    """Return how a pool's replacement could be avoided: by a rollout.

    Empty if a `rollout` is declared, or if `names`, the changed inputs, are not only image and
    server type.
    """
    if declared.get("rollout") is not None or not {*names} <= {*ROLLOUT_FIELDS}:
        return ""
    return (
        "this change replaces all nodes at once: declare a `rollout` to replace them step by step"
    )


def _count_gpus(properties: Mapping[str, Any]) -> int | None:
    """Return the number of GPUs of all declared servers; None if `nodes` or `count` is UNKNOWN.

    0 if neither is declared.
    """
    nodes = properties.get("nodes")
    if nodes is UNKNOWN:
        return None
    server_count = (
        len(nodes) if isinstance(nodes, Mapping) else parse_count(properties.get("count"))
    )
    return None if server_count is None else server_count * GPUS_PER_SERVER


class NodePoolLifecycle(Lifecycle[NodePoolInputs, NodePoolOutputs]):
    """The lifecycle of a node pool of SCP."""

    platform = "scp"
    kind = "NodePool"
    inputs = NodePoolInputs
    outputs = NodePoolOutputs
    timeouts = Timeouts(create=7200, update=7200, delete=3600)
    operations = NodePoolOperations
    id_example = "POOL001-krw1a/train-a/train"
    relevant_permissions = (Permission.UNLOCK, Permission.START_TERMINATED)
    import_field = "server_type_id"
    parts_field = "node_ids"
    parts_kind = "GpuNode"
    volatile_outputs = frozenset({"newer_image"})
    power = Power("state", "RUNNING", "STOPPED")
    hooks = KindHooks(
        count_gpus=_count_gpus,
        compute_resource_usage=compute_pool_usage,
        find_kind_notices=lambda _inputs, outputs, _now: build_image_notices(outputs),
        judge_idleness=_judge_idleness,
        get_owner_name=_get_owner_name,
        get_access=describe_pool_access,
        get_placement=describe_pool_placement,
        list_agenda_entries=list_open_rollouts,
        list_node_records=lambda _object_id, inputs, outputs: list_pool_nodes(inputs, outputs),
        is_off=has_stopped_nodes,
        should_stay_off=should_stay_stopped,
        get_creation_time=_get_creation_time,
        list_planned_fields=lambda declared: list_planned_fields(declared) | {"gpu_type"},
        describe_replacement=_describe_replacement,
        find_planned_changes=find_pool_changes,
        decide_repairs=decide_pool_repairs,
        find_deletion_guard=find_deletion_guard,
        find_change_guard=find_change_guard,
    )

    def _complete_inputs(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[Problem]]:
        """Return the values, with the `server_type_id` of a declared `gpu_type`, and the problems.

        May request SCP's list of server types.
        """
        return offers.add_server_type(self._settings or Settings(), context, values)


def _build_full_eviction(nodes: PoolNodes, reason: str) -> NodeEviction:
    """Build the eviction of all nodes of a pool, except nodes under deletion, for one reason."""
    live_nodes = (node for node in nodes.all if not is_terminating(node.state))
    return NodeEviction({node.gpu_node_name: reason for node in live_nodes})


def _describe_unready_nodes(
    nodes: Sequence[NodeOutputs], declared: DeclaredPool | None
) -> str | None:
    """Describe the nodes in a state other than declared; None if all are as declared.

    Without `declared`, and for a node that is not declared, RUNNING and STOPPED are right.
    """

    def is_as_declared(node: NodeOutputs) -> bool:
        if declared is None or not declared.has_node(node.gpu_node_name):
            return node.state in STABLE_NODE_STATES
        return node.state == declared.get_declared_node(node.gpu_node_name).state

    messages = [
        f"{node.gpu_node_name} is {node.state}" for node in nodes if not is_as_declared(node)
    ]
    return ", ".join(messages) or None

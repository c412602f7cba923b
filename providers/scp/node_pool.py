"""SCP's GPU nodes made and kept together: what it takes to make, change and delete a pool of them.

The platform has no such object (its node pools are the vendor's): a pool is its nodes, known by the
ids in its outputs. Its own id says what was declared first, for nobody gives it one.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from gpuform.providers import permissions
from gpuform.providers.context import (
    PollResult,
    ProviderContext,
    get_current_context,
    wait_until_gone,
)
from gpuform.providers.draining import NodeEviction
from gpuform.providers.errors import GpuformError, NotReady
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.lifetime import Power, Verdict
from gpuform.providers.operations import Guard, Observed, Settings, Timeouts
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Repairs
from gpuform.providers.repairing import Decision
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
    compute_pool_usage,
    describe_pool_access,
    describe_pool_placement,
)
from gpuform.providers.scp.nodes import (
    ROLLOUT_FIELDS,
    DeclaredPool,
    NodeDrainer,
    NodeInspection,
    NodeLedger,
    NodeSteps,
    find_pool_problems,
    format_locked_nodes,
    get_power_state,
    is_terminating,
    refuse_unsafe_changes,
)
from gpuform.providers.scp.offers import add_newer_image, build_image_notices
from gpuform.providers.scp.pool import (
    POLL_INTERVAL_S,
    ObservedPool,
    PoolNodes,
    PoolReconciler,
    build_pool_id,
    build_pool_outputs,
    build_target,
    decide_pool_repairs,
    find_change_guard,
    find_deletion_guard,
    find_pool_changes,
    has_stopped_nodes,
    list_locked_nodes,
    list_planned_fields,
    parse_stored_nodes,
)
from gpuform.schemas.access import Access
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.drain import Leaving
from gpuform.schemas.policies.lifetime import Idleness
from gpuform.schemas.policies.repair import NodeFault
from gpuform.schemas.resource_facts import Footprint, Notice, Placement
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.inputs import NodePoolInputs
from gpuform.schemas.scp.outputs import NodeOutputs, NodePoolOutputs
from gpuform.schemas.scp.statuses import GPUS_OF_A_SERVER, NODE_AT_REST, unix_time
from gpuform.schemas.values import UNKNOWN, parse_count

_ID = re.compile(r"([^/]+)/([^/]+)/([^/]+)")


class NodePoolActions:
    """The verbs of a pool."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def planning_problems(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """Image, product and vendor pool; then the fabric, for a move to it."""
        client = self._client(values)
        checks = (
            offers.find_offer_problems(client, values),
            find_pool_problems(client, context, values),
        )
        return offers.yield_while_answered(client, context, chain(*checks))

    def create(self, context: ProviderContext, inputs: NodePoolInputs) -> str:
        """The first batch of nodes; the others are made while they are waited for."""
        target = build_target(inputs.node_pool_id, inputs.gpu_node_name_prefix)
        context.exit_stack.enter_context(context.intents.claim(target))
        PoolReconciler(
            self._client_of(inputs), self._settings, context, inputs
        ).create_first_nodes()
        return build_pool_id(inputs)

    def wait_until_ready(
        self, context: ProviderContext, object_id: str, inputs: NodePoolInputs
    ) -> ObservedPool:
        """Every declared node is there and as declared, and no other."""
        client = self._client_of(inputs)
        work = PoolReconciler(client, self._settings, context, inputs, object_id)
        seen = add_newer_image(client, context, inputs.dump_declared(), work.reconcile())
        seen = with_idle_stop(context, object_id, seen, is_off=inputs.state == "STOPPED")
        try:
            work.drainer.uncordon_nodes(work.nodes.all)
        except GpuformError as error:
            raise NotReady(str(error), last=seen) from None
        return seen

    def read(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> ObservedPool | None:
        """The nodes that the state or an intent names; by the pool's id when it is imported."""
        place = _ID.fullmatch(object_id)
        if place is None:
            return None
        client = self._client(known_inputs)
        if "ready" not in context.stored_properties:  # nothing was ever seen of it
            return self._imported(client, context, object_id, known_inputs)
        nodes, ledger = self._nodes(client, context, object_id, known_inputs)
        nodes.refresh()
        if not nodes.nodes_by_id:
            ledger.refuse_while_uncertain()
            if ledger.absent_ids and not context.preview:
                raise GpuformError(
                    f"pool {object_id}: the platform does not show its nodes, and may show them "
                    "later",
                    hint="run it again in a minute",
                )
            return None
        self._mend(context, object_id, known_inputs, nodes.all)
        declared = DeclaredPool.from_inputs(known_inputs or context.stored_properties)
        inspected = self._inspected(context, known_inputs or context.stored_properties, nodes)
        outputs = build_pool_outputs(
            inspected, ledger, declared.get_key, _not_ready(nodes.all, declared)
        )
        there = {node.gpu_node_name for node in nodes.all if not is_terminating(node.state)}
        begun = (each.node for each in Repairs.beside(context.intents).of_object(object_id))
        remade = [name for name in begun if name not in there]
        observed = _with_interrupted(_observed(nodes.all, declared), declared, known_inputs, remade)
        found = Observed(observed, outputs)
        found = add_newer_image(client, context, known_inputs or context.stored_properties, found)
        is_off = any(get_power_state(node.state) == "STOPPED" for node in nodes.all)
        return with_idle_stop(context, object_id, found, is_off=is_off)

    def update(
        self,
        context: ProviderContext,
        object_id: str,
        inputs: NodePoolInputs,
        changes: Sequence[FieldChange],  # noqa: ARG002 - the nodes say what is to be done
    ) -> None:
        """Refuse what cannot be done, before anything is sent; `wait_until_ready` does the work.

        Nodes that are taken have no job any more.
        """
        client = self._client_of(inputs)
        work = PoolReconciler(client, self._settings, context, inputs, object_id)
        found = work.plan_changes()
        if not work.nodes.nodes_by_id:
            return
        names = list_locked_nodes(found)
        if names:
            permissions.require(Permission.UNLOCK, format_locked_nodes(names))
        refuse_unsafe_changes(client, context, inputs, found)
        work.drain_planned_nodes(found)
        remember_stop(context, object_id, inputs.dump_declared())

    def predict_removed_nodes(
        self, context: ProviderContext, object_id: str, inputs: NodePoolInputs
    ) -> Leaving | None:
        """The nodes that an update would take now; None when it takes none."""
        return PoolReconciler(
            self._client_of(inputs), self._settings, context, inputs, object_id
        ).predict_removed_nodes()

    def predict_nodes_removed_with_object(
        self,
        context: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any],
        because: str,
    ) -> Leaving | None:
        """All nodes, which go with the pool."""
        nodes, _ = self._nodes(self._client(known_inputs), context, object_id, known_inputs)
        nodes.refresh()
        return NodeDrainer.for_pool(context, object_id, known_inputs).predict_removed_nodes(
            _all(nodes, because), nodes.all
        )

    def uncordon_leftover_nodes(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Uncordons what a removal has left whose nodes are all gone."""
        NodeDrainer.for_pool(context, object_id, known_inputs).uncordon_nodes(())

    def delete(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """All nodes by one request, when no job runs on them; done when the last one is gone."""
        client = self._client(known_inputs)
        nodes, ledger = self._nodes(client, context, object_id, known_inputs)
        nodes.refresh()
        taking = NodeDrainer.for_pool(context, object_id, known_inputs)
        taking.drain_nodes(_all(nodes, "deleted"), nodes.all)
        what = f"pool {known_inputs.get('gpu_node_name_prefix') or object_id}"

        def probe() -> PollResult[object] | None:
            nodes.refresh()
            if not nodes.nodes_by_id:
                is_unknown = ledger.has_uncertain_nodes
                return (
                    PollResult(None, "nodes may exist that are not shown") if is_unknown else None
                )
            steps.delete_nodes([node for node in nodes.all if not is_terminating(node.state)])
            if steps.refusals:
                taking.uncordon_nodes(nodes.all)
                raise GpuformError("; ".join(f"{n}: {why}" for n, why in steps.refusals.items()))
            return PollResult(None, f"{len(nodes.nodes_by_id)} nodes left")

        steps = NodeSteps(client, nodes)
        wait_until_gone(context, probe, label=what, interval=client.get_poll_schedule(POLL_INTERVAL_S))
        taking.uncordon_nodes(())
        forget_idleness(context, object_id)
        Repairs.beside(context.intents).forget(object_id)

    def _mend(
        self,
        context: ProviderContext,
        id_: str,
        known: Mapping[str, Any],
        nodes: Sequence[NodeOutputs],
    ) -> None:
        """Uncordons what an interrupted removal has left, unless somebody only looks."""
        if context.preview:
            return
        try:
            NodeDrainer.for_pool(context, id_, known).uncordon_nodes(nodes)
        except GpuformError as error:
            context.on_warning(str(error))

    def _nodes(
        self, client: ScpClient, context: ProviderContext, id_: str, known: Mapping[str, Any]
    ) -> tuple[PoolNodes, NodeLedger]:
        place = _ID.fullmatch(id_)
        pool, fabric, prefix = place.groups() if place else ("", "", "")
        node_ids, ahead = (
            context.stored_properties.get("node_ids") or (),
            lambda: client.clock_ahead,
        )
        ledger = NodeLedger(context, build_target(pool, prefix), id_, node_ids, ahead)
        fabrics = [known.get("cluster_fabric_name") or fabric]
        return PoolNodes(client, context, ledger, context.stored_properties, fabrics), ledger

    def _imported(
        self, client: ScpClient, context: ProviderContext, id_: str, known: Mapping[str, Any]
    ) -> ObservedPool | None:
        """The nodes of the id's fabric that are declared one by one, else all with its prefix."""
        pool, fabric, prefix = id_.split("/")
        declared = DeclaredPool.from_inputs(known) if known else None

        def is_meant(name: str) -> bool:
            if declared and declared.count is None:
                return declared.has_node(name)
            return name.rpartition("-")[0] == prefix

        named = [
            node
            for node in client.get_node_listing(fabric).all()
            if node.node_pool_id == pool
            and is_meant(node.gpu_node_name)
            and not is_terminating(node.state)
        ]
        if not named:
            return None
        ledger = NodeLedger(context, build_target(pool, prefix), "", [node.id for node in named])
        nodes = PoolNodes(client, context, ledger, {}, [fabric])
        nodes.refresh()
        inputs = _importable(named, prefix)
        declared = declared or DeclaredPool.from_inputs(inputs)
        seen = _observed(nodes.all, declared) if known else {}
        inspected = self._inspected(context, known, nodes)
        outputs = build_pool_outputs(
            inspected, ledger, declared.get_key, _not_ready(nodes.all, declared)
        )
        found = Observed({**inputs, **seen}, outputs)
        return add_newer_image(client, context, found.inputs, found)

    def _inspected(
        self, context: ProviderContext, declared: Mapping[str, Any], nodes: PoolNodes
    ) -> tuple[Sequence[NodeOutputs], list[NodeFault]]:
        what = f"pool {declared.get('gpu_node_name_prefix') or ''}".strip()
        return NodeInspection(context, self._settings, what, declared).find_faults(nodes.all)

    def _client(self, values: Mapping[str, Any]) -> ScpClient:
        region = values.get("region_id")
        return client_for(self._settings, region if isinstance(region, str) else None)

    def _client_of(self, inputs: NodePoolInputs) -> ScpClient:
        return client_for(self._settings, inputs.region_id)


class NodePoolLifecycle(Lifecycle[NodePoolInputs, NodePoolOutputs]):
    """GPU nodes of SCP, made and kept together."""

    platform = "scp"
    kind = "NodePool"
    inputs = NodePoolInputs
    outputs = NodePoolOutputs
    timeouts = Timeouts(create=7200, update=7200, delete=3600)
    operations = NodePoolActions
    id_example = "POOL001-krw1a/train-a/train"
    relevant_permissions = (Permission.UNLOCK, Permission.START_TERMINATED)
    import_field = "server_type_id"
    parts_field = "node_ids"
    parts_kind = "GpuNode"
    volatile_outputs = frozenset({"newer_image"})
    power = Power("state", "RUNNING", "STOPPED")

    @classmethod
    def count_gpus(cls, properties: Mapping[str, Any]) -> int | None:
        """Those of its servers."""
        nodes = properties.get("nodes")
        if nodes is UNKNOWN:
            return None
        servers = len(nodes) if isinstance(nodes, Mapping) else parse_count(properties.get("count"))
        return None if servers is None else servers * GPUS_OF_A_SERVER

    @classmethod
    def compute_resource_usage(
        cls, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Footprint:
        """Its servers, those that run and those that are stopped."""
        return compute_pool_usage(inputs, outputs)

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
        """By its scheduler and by Lens, of all its nodes."""
        context = get_current_context()
        taking = NodeDrainer.for_pool(context, object_id, context.stored_properties)
        nodes = [
            node
            for node in parse_stored_nodes(context.stored_properties) or ()
            if not is_terminating(node.state)
        ]
        return judged(context, settings, object_id, taking, nodes, idleness)

    @classmethod
    def get_owner_name(cls, outputs: Mapping[str, Any]) -> str:
        """Those who made its nodes."""
        nodes = outputs.get("gpu_nodes")
        each = nodes.values() if isinstance(nodes, Mapping) else ()
        makers = {str(node.get("created_by") or "") for node in each}
        return ", ".join(sorted(makers - {""}))

    @classmethod
    def get_access(cls, outputs: Mapping[str, Any]) -> Access | None:
        """Its nodes with a public address, by SSH."""
        return describe_pool_access(outputs)

    @classmethod
    def get_placement(cls, outputs: Mapping[str, Any]) -> Placement | None:
        """Region, node pool, and the fabric of each node."""
        return describe_pool_placement(outputs)

    @classmethod
    def is_off(cls, outputs: Mapping[str, Any]) -> bool:
        """One of the nodes that have no state of their own is stopped."""
        return has_stopped_nodes(outputs)

    @classmethod
    def should_stay_off(cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
        """As `gpuform expire` has left it."""
        return stays_idle(old_outputs, declared)

    @classmethod
    def get_creation_time(cls, outputs: Mapping[str, Any]) -> float | None:
        """When its oldest node was made."""
        times = (unix_time(node.created_at) for node in parse_stored_nodes(outputs) or ())
        return min((each for each in times if each is not None), default=None)

    @classmethod
    def get_planned_fields(cls, declared: Mapping[str, Any]) -> Collection[str]:
        """What its nodes show, and gpu_type: another GPU is another server_type_id."""
        return list_planned_fields(declared) | {"gpu_type"}

    @classmethod
    def describe_replacement(cls, names: Collection[str], declared: Mapping[str, Any]) -> str:
        """Because of an image or a type: a rollout spares the pool."""
        if declared.get("rollout") is not None or not {*names} <= {*ROLLOUT_FIELDS}:
            return ""
        return "all its nodes go at once: with a `rollout` they are replaced some at a time"

    @classmethod
    def find_planned_changes(
        cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Iterable[FieldChange]:
        """What differs of the nodes, each one by itself."""
        return find_pool_changes(old_outputs, declared)

    @classmethod
    def decide_repairs(
        cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Decision:
        """Broken nodes are deleted and made anew."""
        return decide_pool_repairs(old_outputs, declared)

    @classmethod
    def find_deletion_guard(cls, old_outputs: Mapping[str, Any]) -> Guard | None:
        """A locked node is deleted only with permission."""
        return find_deletion_guard(old_outputs)

    @classmethod
    def find_change_guard(
        cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Guard | None:
        """A locked node is deleted or stopped only with permission."""
        return find_change_guard(old_outputs, declared)

    def _completed(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[Problem]]:
        return offers.add_server_type(self._settings or Settings(), context, values)


def _all(nodes: PoolNodes, because: str) -> NodeEviction:
    live = (node for node in nodes.all if not is_terminating(node.state))
    return NodeEviction({node.gpu_node_name: because for node in live})


def _not_ready(nodes: Sequence[NodeOutputs], declared: DeclaredPool | None) -> str | None:
    """Which nodes are not in a state that is declared; None when all are."""

    def is_right(node: NodeOutputs) -> bool:
        if declared is None or not declared.has_node(node.gpu_node_name):
            return node.state in NODE_AT_REST
        return node.state == declared.get_declared_node(node.gpu_node_name).state

    told = [f"{each.gpu_node_name} is {each.state}" for each in nodes if not is_right(each)]
    return ", ".join(told) or None


def _observed(nodes: Sequence[NodeOutputs], declared: DeclaredPool) -> dict[str, Any]:
    """What the platform says of the declaration: how many nodes, and each one's own settings."""
    live = [node for node in nodes if not is_terminating(node.state)]
    if declared.count is not None:
        return {"count": len(live)}
    own = {
        declared.get_key(node.gpu_node_name): {
            "gpu_node_name": node.gpu_node_name,
            "ip_address": node.policy_ip,
            "nat_enabled": node.policy_use_nat,
            "lock_enabled": node.lock_enabled,
            "state": get_power_state(node.state),
        }
        for node in live
    }
    return {"nodes": own}


def _with_interrupted(
    observed: dict[str, Any],
    declared: DeclaredPool,
    known: Mapping[str, Any],
    remade: Sequence[str],
) -> dict[str, Any]:
    """Return the observed inputs with the nodes that an interrupted repair has deleted.

    A refresh keeps them declared, so that a run from the state alone creates them again.

    Args:
        observed: the `count` or the `nodes` that the platform shows.
        declared: the pool as the state has it.
        known: the inputs of the state.
        remade: the names of nodes that are not there and whose repair has not ended.
    """
    if declared.count is not None:
        most = max(declared.count, observed["count"])
        return {"count": min(most, observed["count"] + len(remade))}
    keys = {declared.get_key(name) for name in remade} - observed["nodes"].keys()
    kept = {key: own for key, own in (known.get("nodes") or {}).items() if key in keys}
    return {"nodes": {**observed["nodes"], **kept}}


def _importable(named: Sequence[wire.GpuNode], prefix: str) -> dict[str, Any]:
    """What a program would declare of these nodes. Which public IP one has is not told."""
    first = named[0]
    own = {node.gpu_node_name.removeprefix(f"{prefix}-"): _own(node) for node in named}
    alike = all(each == own[key] for key in list(own)[:1] for each in own.values())
    many: dict[str, Any] = {"nodes": own}
    if alike and all(re.fullmatch(r"[0-9]{3}", key) for key in own):
        many = {"count": len(own), **_own(first)}
    return {
        "node_pool_id": first.node_pool_id,
        "cluster_fabric_name": first.cluster_fabric_name,
        "gpu_node_name_prefix": prefix,
        **many,
        "image_id": first.image_id,
        "region_id": first.region_id,
        "vpc_id": first.vpc_id,
        "subnet_id": first.network_id,
        "init_script": first.init_script.get_secret_value(),
    }


def _own(node: wire.GpuNode) -> dict[str, Any]:
    """What a program would declare of a node where it is not as usual."""
    own: dict[str, Any] = {"lock_enabled": True} if node.lock_enabled else {}
    return own | ({"state": "STOPPED"} if get_power_state(node.state) == "STOPPED" else {})

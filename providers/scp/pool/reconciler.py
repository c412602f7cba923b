"""Reconcile the nodes of one pool with the declaration, look by look, until nothing is left to do.

Each look lists the nodes, plans with them, and sends what can be done now. So the place where an
earlier run was cut off does not matter. `NodePoolOperations` calls this module.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from gpuform.providers.context import PollResult, ProviderContext, wait_until_done
from gpuform.providers.errors import GpuformError, NotReady
from gpuform.providers.operations import Observed, Settings
from gpuform.providers.records import Target
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.nodes.draining import NodeDrainer, find_interruptions
from gpuform.providers.scp.nodes.ledger import NodeLedger
from gpuform.providers.scp.nodes.moving import describe_empty_fabric, find_fabric
from gpuform.providers.scp.nodes.planning import (
    DeclaredPool,
    PoolPlan,
    find_differences,
    find_replacement,
    is_terminating,
    parse_stored_nodes,
    plan_pool,
)
from gpuform.providers.scp.nodes.repairs import NodeInspection, PoolRepairs
from gpuform.providers.scp.nodes.steps import NodeSteps
from gpuform.providers.scp.pool.creating import (
    POLL_INTERVAL_S,
    PoolCreator,
    build_pool_id,
    refuse_replaced_nodes,
)
from gpuform.providers.scp.pool.nodes import PoolNodes
from gpuform.providers.scp.pool.rollout import Rollout, RolloutLimits
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.schemas.policies.repair import NodeFault
from gpuform.schemas.scp.inputs import NodePoolInputs
from gpuform.schemas.scp.outputs import (
    FAILED_NODE_STATES,
    GPUS_PER_SERVER,
    STABLE_NODE_STATES,
    NodeOutputs,
    NodePoolOutputs,
)
from gpuform.schemas.values import RemovalCount

ObservedPool = Observed[NodePoolOutputs]

_MAX_DRAIN_ATTEMPTS = 5
"""How often nodes to drain are chosen again because the pool has changed meanwhile."""


def build_target(node_pool_id: str, name_prefix: str) -> Target:
    """Build the key under which a pool's creates are recorded."""
    return Target("scp", "NodePool", name_prefix, node_pool_id)


class PoolReconciler:
    """Reconciler of one pool during one call; no job runs on the nodes that it removes."""

    def __init__(
        self,
        client: ScpClient,
        settings: Settings,
        context: ProviderContext,
        inputs: NodePoolInputs,
        id_: str = "",
    ) -> None:
        stored, pool_id = context.stored_properties, build_pool_id(inputs)
        label = f"pool {inputs.gpu_node_name_prefix}"
        self._inspection = NodeInspection(context, settings, label, inputs.dump_declared())
        self._repairs = PoolRepairs(
            context, self._inspection, id_ or pool_id, inputs.dump_declared()
        )
        self.drainer = NodeDrainer.for_pool(context, id_ or pool_id, inputs.dump_declared())
        self._client = client
        self._context = context
        self._inputs = inputs
        self._drained_ids = set[str]()
        self._removed_ids = set[str]()
        self._replaced_ids = set[str]()
        self._declared = DeclaredPool.from_inputs(inputs.dump_declared())
        limits = RolloutLimits(
            inputs.rollout, self._repairs.max_parallel, self._repairs.unrepaired_reasons
        )
        self._rollout = Rollout(context, limits, self.drainer, self._repairs.is_due)
        target = self._record_target = build_target(
            inputs.node_pool_id, inputs.gpu_node_name_prefix
        )
        node_ids = stored.get("node_ids") or ()
        self._ledger = NodeLedger(context, target, pool_id, node_ids, lambda: client.clock_ahead)
        self.nodes = PoolNodes(client, context, self._ledger, stored, [inputs.cluster_fabric_name])
        for declared_node in self._declared.nodes.values():
            self.nodes.expect_public_ip(declared_node.name, declared_node.public_ip_address_id)
        self._steps = NodeSteps(client, self.nodes)
        self._creator = PoolCreator(
            client, context, inputs, self._declared, self._ledger, self.nodes
        )
        # What the plan has seen: a node that fails later is not replaced by the same run.
        stored_nodes = parse_stored_nodes(stored) or ()
        self._states_before = {node.id: node.state for node in stored_nodes}
        self._zones_before = {node.id: node.zone for node in stored_nodes}
        self._had_nodes = bool(self._ledger.ids)

    def create_first_nodes(self) -> None:
        """Create the first nodes, unless an earlier attempt has created some.

        Raises:
            NameTaken: the recorded nodes are those of a pool that this run replaces.
            UnknownOutcome: nobody knows whether nodes were created.
            GpuformError: no node was created, as by a call that only searches.
        """
        if self._ledger.ids or self._ledger.uncertain_names:
            self.nodes.refresh()
        # Nodes of an interrupted create are adopted, not created a second time.
        if self._ledger.ids and not self._context.progress.is_search_only:
            refuse_replaced_nodes(self._context, self._record_target)
            self._context.on_progress("found nodes that an earlier attempt created")
        elif not self._ledger.ids:
            self._ledger.refuse_while_uncertain()
            self._context.refuse_creation(self._record_target)
            self._creator.create_first_nodes(plan_pool(self._declared, []).create)

    def reconcile(self) -> ObservedPool:
        """Reconcile until all nodes are as declared, and return the observed pool.

        Afterwards the records of repairs that people requested by name are deleted.

        Raises:
            NotReady: the pool is not as declared, or any other error has come; `last` is the
                observed pool, or None if all nodes are gone.
            Cancelled: the run was interrupted; `last` is as above.
        """
        label = f"pool {self._inputs.gpu_node_name_prefix}"
        interval = self._client.get_poll_schedule(POLL_INTERVAL_S)
        try:
            # A rollout may take many times as long as one update.
            with self._context.extend_deadline(self._rollout.get_timeout(self.plan_changes())):
                wait_until_done(self._context, self._poll, label=label, interval=interval)
        except NotReady as error:
            if self._is_gone:
                raise NotReady(error.reason) from None
            raise type(error)(error.reason, last=self._observe(error.reason)) from None
        except GpuformError as error:
            raise NotReady(str(error), last=self._observe(str(error))) from None
        self._repairs.forget_requests()
        return self._observe(None)

    def plan_changes(self) -> PoolPlan:
        """List the pool's nodes, and plan the next changes."""
        self.nodes.refresh()
        return self._plan_observed_nodes()

    def drain_planned_nodes(self, plan: PoolPlan) -> PoolPlan:
        """Drain the nodes to be removed by a plan, and return a plan to remove the drained nodes.

        Draining takes time and chooses nodes, so nodes are listed and planned again. Of
        replacements that are rolled out the plan has only those that may begin now. Nothing is
        drained without a declared scheduler, or if it cannot be asked in a run with `--allow
        evict-jobs`.

        Raises:
            UnplannedRemoval: the plan of the run shows fewer nodes.
            GpuformError: nodes must not be removed, or others go on changing the pool.
        """
        plan = self._plan_step(plan)
        for _ in range(_MAX_DRAIN_ATTEMPTS):
            self._require_planned(plan)
            eviction = self.drainer.build_eviction(plan, self._declared.fabric)
            evicted_ids = self._get_ids(
                [*eviction.reason_by_node, *(node.gpu_node_name for node in plan.delete)]
            )
            if evicted_ids <= self._drained_ids:
                return plan
            drained_names = self.drainer.drain_nodes(eviction, self.nodes.all)
            if drained_names is None:  # the scheduler reports no jobs
                self._drained_ids |= evicted_ids
                return plan
            self._drained_ids |= self._get_ids(drained_names)
            # Draining takes time, and chooses nodes: the nodes are listed and planned again.
            plan = self._plan_step(self.plan_changes())
        raise GpuformError("the nodes of the pool keep changing: run the command again")

    def predict_removed_nodes(self) -> RemovedNodes:
        """Predict which nodes an update would remove, stop or move now.

        Nodes that SCP does not show now have no name: as many as would be too many if SCP showed
        them again. The jobs are unknown if no declared scheduler reports them, which is reported as
        a skipped check.

        Raises:
            GpuformError: a declared name does not fit the nodes.
        """
        plan = self.plan_changes()
        eviction = self.drainer.build_eviction(plan, self._declared.fabric)
        removed_nodes = self._rollout.sort_removed_nodes(
            self.drainer.predict_removed_nodes(
                eviction, self.nodes.all, [node.gpu_node_name for node in plan.delete]
            )
        )
        surplus = self.nodes.count_absent_nodes() - len(plan.create)
        return removed_nodes.add_unnamed_nodes(surplus, "deleted", GPUS_PER_SERVER)

    def _require_planned(self, plan: PoolPlan) -> None:
        """Raise UnplannedRemoval if this call removes more nodes than the plan of its run shows.

        Nodes that the call has deleted before count, too, and repairs do not.
        """
        removed_ids, replaced_ids = self._add_removals(plan)
        interrupted_count = len(list(find_interruptions(plan.keep, self._declared.fabric)))
        self._context.require_planned_removal(
            f"pool {self._inputs.gpu_node_name_prefix}",
            RemovalCount(
                len(removed_ids | replaced_ids) + interrupted_count,
                len(removed_ids) * GPUS_PER_SERVER,
            ),
        )

    def _add_removals(self, plan: PoolPlan) -> tuple[set[str], set[str]]:
        """Return the ids of removed and of replaced nodes: of earlier deletions, and of `plan`."""
        return self._removed_ids | {node.id for node in plan.delete}, self._replaced_ids | {
            replacement.node.id for replacement in plan.replace if not replacement.is_repair
        }

    def _plan_step(self, plan: PoolPlan) -> PoolPlan:
        """Return the plan with only the replacements allowed to begin now.

        As `Rollout.plan_step` this may uncordon nodes, sleep, and raise GpuformError.
        """
        uncertain_reasons = dict.fromkeys(
            self._ledger.uncertain_names, "the result of its create is unknown"
        )
        refusals = {**uncertain_reasons, **self._creator.refusals, **self._steps.refusals}
        return self._rollout.plan_step(plan, self.nodes.all, refusals)

    def _get_ids(self, names: Collection[str]) -> set[str]:
        """Return the ids of the pool's nodes named in `names`."""
        return {node.id for node in self.nodes.all if node.gpu_node_name in names}

    @property
    def _is_gone(self) -> bool:
        """Return True if the pool had nodes, and somebody else has deleted all of the nodes."""
        is_empty = not self._ledger.ids and not self._ledger.uncertain_names
        return self._had_nodes and is_empty and not self._steps.has_deleted

    def _plan_observed_nodes(self) -> PoolPlan:
        """Plan with the observed nodes, without replacing nodes created by this call.

        Nodes that have failed since the plan are spared, too, unless their repair is due.

        Raises:
            GpuformError: a node with an unknown zone in the state is in another zone than declared.
        """
        recreated_ids = self._repairs.node_ids
        spared_ids = {
            node.id
            for node in self.nodes.all
            if node.id not in self._states_before
            or (
                node.state in FAILED_NODE_STATES
                and self._states_before[node.id] not in FAILED_NODE_STATES
            )
        }
        declared = replace(
            self._declared, drained_names=self.drainer.chosen_names, recreated_ids=recreated_ids
        )
        plan = plan_pool(declared, self.nodes.all, spared_ids - recreated_ids)
        _refuse_unplanned_zones(plan, self._zones_before)
        return plan

    def _poll(self) -> PollResult[None]:
        """List and drain nodes, send all requests possible now, and return the progress.

        Raises:
            NotReady: somebody else has deleted all nodes.
            GpuformError: nodes must not be drained, or the platform does not answer.
        """
        plan = self.plan_changes()
        self._had_nodes = self._had_nodes or bool(self._ledger.ids)
        if self._is_gone:
            raise NotReady(
                f"pool {self._inputs.gpu_node_name_prefix}: none of its nodes exists any longer"
            )
        # First drained, then deleted, then changed, then created: jobs end before their node does.
        plan = self.drain_planned_nodes(plan)
        self._removed_ids, self._replaced_ids = self._add_removals(plan)
        has_sent = self._steps.delete_nodes(plan.deleted_nodes)
        has_sent |= self._steps.send_next_steps(
            plan.keep, self._declared.fabric, self._find_target_fabric(plan)
        )
        self._creator.create_missing_nodes(plan.create)
        problems, progress = self._find_problems(plan), self._describe_progress(plan)
        if has_sent or self._has_pending_changes(plan):
            return PollResult(None, progress)
        if problems:
            return PollResult(None, progress, failure="; ".join(problems))
        return PollResult(None, progress, is_done=True)

    def _find_target_fabric(self, plan: PoolPlan) -> str | None:
        """Return the id of the target fabric; None if no node has to move.

        Raises:
            GpuformError: the fabric is declared by its name alone, and does not exist.
        """
        fabric = self._declared.fabric
        if all(fabric.contains(node) for node, _ in plan.keep):
            return None
        if fabric.id is not None:
            return fabric.id
        target_fabric = find_fabric(self._client, self._inputs.node_pool_id, fabric.name or "")
        if target_fabric is None:
            raise GpuformError(f"cluster_fabric_name: {describe_empty_fabric(fabric.name or '')}")
        return target_fabric.id

    def _has_pending_changes(self, plan: PoolPlan) -> bool:
        """Return True while nodes change, wait for a turn of the rollout, or may appear late.

        Refused requests, and creates with an unknown outcome, are not waited for.
        """
        refused_names = (
            self._creator.refusals.keys()
            | self._steps.refusals.keys()
            | self._ledger.uncertain_names
        )
        # Nothing changes on the platform while replacements wait or nodes join, but the work is not
        # done.
        if plan.waiting or self._rollout.is_joining or self._ledger.may_miss_nodes:
            return True
        if any(declared_node.name not in refused_names for declared_node in plan.create):
            return True
        if any(node.gpu_node_name not in refused_names for node in plan.deleted_nodes):
            return True
        if any(is_terminating(node.state) for node in self.nodes.all):
            return True
        return any(
            node.state not in STABLE_NODE_STATES | FAILED_NODE_STATES
            or (
                declared_node.name not in refused_names
                and any(find_differences(node, declared_node, self._declared.fabric))
            )
            for node, declared_node in plan.keep
        )

    def _find_problems(self, plan: PoolPlan) -> list[str]:
        """Return why nodes do not become as declared in this run, grouped by reason."""
        uncertain_reason = "the result of its create is unknown; another run looks for it"
        reasons_by_name = dict.fromkeys(self._ledger.uncertain_names, uncertain_reason)
        reasons_by_name |= {**self._creator.refusals, **self._steps.refusals}
        for node, declared_node in plan.keep:
            pending_replacement = find_replacement(node, declared_node)
            if node.state in FAILED_NODE_STATES:
                reasons_by_name[node.gpu_node_name] = self._describe_broken_node(node)
            elif pending_replacement:
                before, after = pending_replacement.before, pending_replacement.after
                reason = f"its {pending_replacement.field} is {before} and not {after}"
                reasons_by_name[node.gpu_node_name] = f"{reason}; another run recreates it"
        names_by_reason: dict[str, list[str]] = {}
        for name, reason in sorted(reasons_by_name.items()):
            names_by_reason.setdefault(reason, []).append(name)
        return [f"{', '.join(names)}: {reason}" for reason, names in names_by_reason.items()]

    def _describe_broken_node(self, node: NodeOutputs) -> str:
        """Describe the state of a failed node, and whether another run recreates the node."""
        reason = f"its state is {node.state}"
        unrepaired_reasons = self._repairs.unrepaired_reasons
        if node.gpu_node_name in unrepaired_reasons:
            return f"{reason}; not repaired: {unrepaired_reasons[node.gpu_node_name]}"
        return f"{reason}; another run recreates it"

    def _describe_progress(self, plan: PoolPlan) -> str:
        """Count the nodes by state, the nodes to create and the nodes to replace, in words."""
        states = Counter(node.state or "no state" for node in self.nodes.all)
        phrases = [f"{number} {state}" for state, number in sorted(states.items())]
        # Created nodes that no list shows yet are not missing.
        unlisted_count = len(self._ledger.ids) - len(self.nodes.nodes_by_id)
        missing_count = len(plan.create) - max(0, unlisted_count)
        if missing_count > 0:
            phrases.append(f"{missing_count} to create")
        if plan.waiting:
            phrases.append(f"{len(plan.waiting)} to replace")
        return ", ".join(phrases) or "no node yet"

    def _observe(self, reason: str | None) -> ObservedPool:
        """Build the observed pool from the last refresh, with faults; `reason` None means ready.

        Asks scheduler and Lens as `NodeInspection.find_faults`.
        """
        inspected = self._inspection.find_faults(self.nodes.all)
        return Observed(
            {}, build_pool_outputs(inspected, self._ledger, self._declared.get_key, reason)
        )


def _refuse_unplanned_zones(plan: PoolPlan, zones_before: Mapping[str, str | None]) -> None:
    """Raise `GpuformError` if a plan replaces nodes for a zone unknown to the state.

    Nodes of API 1.2 have no zone in the state (`zones_before`, by id): the plan that a person has
    seen could not show their replacement.
    """
    replacements = [
        replacement
        for replacement in (*plan.replace, *plan.waiting)
        if replacement.field == "zone" and not zones_before.get(replacement.node.id)
    ]
    if replacements:
        nodes = ", ".join(f"{item.name} is in {item.before}" for item in replacements)
        raise GpuformError(
            f"zone: {nodes}, and the plan did not know this",
            hint="declare this zone; otherwise the next plan shows how the nodes are replaced",
        )


def build_pool_outputs(
    inspected: tuple[Sequence[NodeOutputs], list[NodeFault]],
    ledger: NodeLedger,
    key_of: Callable[[str], str],
    reason: str | None,
) -> NodePoolOutputs:
    """Build the outputs of a pool from nodes and faults.

    `inspected` has both; `reason` says why the pool is not ready, None if it is. The fabric's id is
    that of most nodes, and `node_ids` includes absent nodes.
    """
    nodes, faults = inspected
    # During a move nodes are in two fabrics: the larger part counts.
    fabrics = Counter(node.cluster_fabric_id for node in nodes if node.cluster_fabric_id)
    nodes_by_key = {key_of(node.gpu_node_name): node for node in nodes}
    return NodePoolOutputs(
        ready=reason is None,
        not_ready_reason=reason,
        gpu_nodes=nodes_by_key,
        node_ids=sorted(ledger.ids),
        cluster_fabric_id=next((id_ for id_, _ in fabrics.most_common(1)), None),
        faults=faults,
    )

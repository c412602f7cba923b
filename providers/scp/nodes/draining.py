"""Drain nodes that are deleted, recreated, stopped or moved: wait until their jobs have ended.

SCP's API knows no scheduler: the stack declares who gives the nodes their jobs, if anybody does.
The platform removes exactly the nodes that a request names. `PoolReconciler`, node pools and GPU
nodes call this module, which calls `providers.draining`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from gpuform.providers.context import ProviderContext
from gpuform.providers.draining import (
    DrainOperation,
    DrainTarget,
    NodeEviction,
    Scheduler,
    Worker,
    find_name_problems,
    undo_drain_or_fail,
)
from gpuform.providers.errors import GpuformError
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Drain, Drains
from gpuform.providers.scp.nodes.planning import (
    DeclaredNode,
    PoolPlan,
    TargetFabric,
    find_differences,
    is_terminating,
)
from gpuform.providers.slurm.scheduler import create_declared_scheduler
from gpuform.schemas.policies.drain import PoolDrainInputs, RemovedNodes
from gpuform.schemas.scp.outputs import FAILED_NODE_STATES, GPUS_PER_SERVER, NodeOutputs

KeptNode = tuple[NodeOutputs, DeclaredNode]


def find_interruptions(
    kept_nodes: Sequence[KeptNode], fabric: TargetFabric
) -> Iterator[tuple[str, str]]:
    """Yield name and action of each kept node which the declaration stops or moves.

    Jobs end then. The action is "stopped" or "moved".
    """
    for node, declared_node in kept_nodes:
        changes = {
            difference.field: difference.after
            for difference in find_differences(node, declared_node, fabric)
        }
        if changes.get("state") == "STOPPED":
            yield node.gpu_node_name, "stopped"
        elif {"cluster_fabric_id", "cluster_fabric_name"} & changes.keys():
            yield node.gpu_node_name, "moved"


class NodeDrainer:
    """Drainer of the nodes of one resource, a pool or a single node.

    `label` is for people, as `pool train`; `declared` are the canonical inputs.
    """

    def __init__(
        self, context: ProviderContext, id_: str, label: str, declared: Mapping[str, Any]
    ) -> None:
        self._context = context
        self._id = id_
        self._label = label
        self._declared = declared

    @cached_property
    def _drain_inputs(self) -> PoolDrainInputs:
        """Return the declared `drain`, or the defaults."""
        return PoolDrainInputs.model_validate(self._declared.get("drain") or {})

    @classmethod
    def for_pool(
        cls, context: ProviderContext, id_: str, declared: Mapping[str, Any]
    ) -> "NodeDrainer":
        """Create the drainer of a pool from canonical inputs."""
        return cls(context, id_, f"pool {declared.get('gpu_node_name_prefix') or id_}", declared)

    @property
    def earlier_drain(self) -> Drain | None:
        """Return the record of a drain begun by this run or an earlier one, or None."""
        return Drains.from_intents(self._context.intents).find(self._id)

    @property
    def chosen_names(self) -> Sequence[str]:
        """Return the names of nodes chosen by a recorded drain for removal, if any."""
        return self.earlier_drain.chosen if self.earlier_drain else ()

    def build_eviction(self, plan: PoolPlan, fabric: TargetFabric) -> NodeEviction:
        """Return the eviction of the nodes to be deleted, replaced, stopped or moved by a plan.

        For a pool with a `count` the deleted nodes are not named: the drain chooses as many, by
        their jobs or by `drain.nodes`.
        """
        reasons = {replacement.name: "replaced" for replacement in plan.replace}
        reasons |= find_interruptions(plan.keep, fabric)
        # A pool with a count does not say which nodes are removed: the idle ones are chosen.
        if self._declared.get("count") is not None:
            return NodeEviction(reasons, len(plan.delete), self._drain_inputs.nodes or ())
        return NodeEviction({**reasons, **{node.gpu_node_name: "deleted" for node in plan.delete}})

    def drain_nodes(
        self, eviction: NodeEviction, nodes: Sequence[NodeOutputs]
    ) -> Sequence[str] | None:
        """Choose the nodes to remove, cordon them, and wait until no job runs there.

        The drain is recorded until `uncordon_nodes`, with the coming request to the platform. A run
        with `--allow evict-jobs` ends jobs, and removes nodes with unknown jobs, too.

        Returns:
            The names of the nodes that may be removed now: none for an empty eviction, which does
            nothing. None if no scheduler is declared, or if it cannot be asked and the run may end
            jobs: then nothing is drained or recorded.

        Raises:
            GpuformError: a declared name is wrong, or the nodes must not be removed. The cordon is
                undone, or a warning names nodes that stay cordoned; after an earlier request to
                the platform it stays.
            Cancelled: the run was interrupted; as above.
        """
        if not eviction:
            return ()
        # Wrong names are refused before a scheduler cordons anything.
        self._refuse_wrong_names(eviction, nodes)
        if not self._drain_inputs.has_scheduler:
            return None
        operation = self._create_drain_operation(eviction, nodes)
        drain = operation.drain_for_request(eviction)
        return None if drain is None else drain.chosen

    def observe_workers(self, nodes: Sequence[NodeOutputs]) -> Sequence[Worker] | None:
        """Return the nodes with the jobs on each, as listed by the scheduler now.

        None if no scheduler is declared, or if it cannot be asked and the run may end jobs.

        Raises:
            GpuformError: the scheduler cannot be asked, and the run may not end jobs.
        """
        if not self._drain_inputs.has_scheduler:
            return None
        return self._create_drain_operation(NodeEviction(), nodes).observe_workers()

    def predict_removed_nodes(
        self,
        eviction: NodeEviction,
        nodes: Sequence[NodeOutputs],
        deleted_names: Sequence[str] = (),
    ) -> RemovedNodes:
        """Return which nodes an update would remove now, with their jobs, for a plan.

        The jobs are unknown, with a skipped check, if no scheduler is declared or the scheduler
        does not report them. Without a declared scheduler the deleted nodes are `deleted_names`.

        Raises:
            GpuformError: a declared name is wrong.
        """
        if not eviction:
            return RemovedNodes(nodes=())
        self._refuse_wrong_names(eviction, nodes)
        if not self._drain_inputs.has_scheduler:
            self._context.on_skipped_check(
                f"the jobs on nodes of {self._label} whose GPUs are removed: no scheduler is "
                "declared (drain.kubernetes or drain.slurm)"
            )
            reasons = {**eviction.reason_by_node, **dict.fromkeys(deleted_names, "deleted")}
            target = DrainTarget(self._id, self._label, _nodes_to_workers(nodes))
            return target.predict_without_scheduler(NodeEviction(reasons))
        return self._create_drain_operation(eviction, nodes).predict_removed_nodes(eviction)

    def uncordon_nodes(self, nodes: Sequence[NodeOutputs]) -> None:
        """Uncordon the nodes of the recorded drain, also under the names of deleted nodes.

        A node that comes back under such a name takes jobs again. Does nothing without a record, or
        while one of `nodes`, the existing ones, is being deleted.

        Raises:
            GpuformError: nodes may still be cordoned.
        """
        drain = self.earlier_drain
        # A scheduler must not start jobs on a node that is still being deleted.
        if drain is None or any(is_terminating(node.state) for node in nodes):
            return
        undo_drain_or_fail(self._context, drain, self._create_scheduler)

    def uncordon_leftovers(self, nodes: Sequence[NodeOutputs]) -> None:
        """Uncordon nodes after an interrupted run, as `uncordon_nodes`; not in a preview.

        An error is only a warning: a read that fails for this would hide the nodes.
        """
        if self._context.preview:
            return
        try:
            self.uncordon_nodes(nodes)
        except GpuformError as error:
            self._context.on_warning(str(error))

    def _refuse_wrong_names(self, eviction: NodeEviction, nodes: Sequence[NodeOutputs]) -> None:
        """Raise GpuformError if names requested for removal do not fit the nodes or the count."""
        messages = [
            str(problem)
            for problem in find_name_problems(
                _nodes_to_workers(nodes), eviction.count, eviction.requested_names
            )
        ]
        if messages:
            raise GpuformError(f"{self._label}: {'; '.join(messages)}")

    def _create_drain_operation(
        self, eviction: NodeEviction, nodes: Sequence[NodeOutputs]
    ) -> DrainOperation:
        """Return the drain of these nodes; locked ones only if named, needed or permitted."""
        # A locked node is chosen only by its name, or when there are too few others.
        named_nodes = {*eviction.requested_names, *eviction.reason_by_node}
        removable_nodes = [
            node for node in nodes if not node.lock_enabled or node.gpu_node_name in named_nodes
        ]
        needs_locked_nodes = len(removable_nodes) < eviction.count + len(eviction.reason_by_node)
        if Permission.UNLOCK in self._context.run.permissions or needs_locked_nodes:
            # The permission is required before a locked node is deleted.
            removable_nodes = list(nodes)
        target = DrainTarget(self._id, self._label, _nodes_to_workers(removable_nodes))
        return DrainOperation(self._context, target, self._create_scheduler, self._drain_inputs)

    def _create_scheduler(self) -> Scheduler:
        """Create the scheduler of the drain inputs; no request is sent.

        Raises GpuformError without a declared scheduler, for a wrong kubeconfig, or if the run may
        not ask the scheduler.
        """
        return create_declared_scheduler(self._drain_inputs, self._label)


def _nodes_to_workers(nodes: Sequence[NodeOutputs]) -> list[Worker]:
    """Convert nodes to workers, the oldest first, without nodes under deletion."""
    live_nodes = [node for node in nodes if not is_terminating(node.state)]
    live_nodes.sort(key=lambda node: (node.created_at or "", node.gpu_node_name))
    return [
        Worker(
            node.gpu_node_name,
            aliases=(node.id,),
            addresses=tuple(filter(None, (node.policy_ip, node.policy_nat))),
            is_failed=node.state in FAILED_NODE_STATES,
            gpus=GPUS_PER_SERVER,
        )
        for node in live_nodes
    ]

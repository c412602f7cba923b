"""Remove nodes from a cluster, or all nodes with it, when no job runs on them.

The operations of a cluster (`cluster`) and its repairs (`repairing`) create a `NodeRemoval`; it
drains nodes with `gpuform.providers.draining`.

Together's update request names no nodes; the platform removes those that are cordoned (document
003, "Targeted Scale-down"). So nodes are cordoned in Kubernetes, which every cluster has. Where
Slurm gives the nodes their jobs, Slurm is asked as well.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.providers.context import ProviderContext, build_unplanned_removal_error
from gpuform.providers.draining import (
    DrainOperation,
    DrainTarget,
    NodeEviction,
    Scheduler,
    SlurmOnKubernetes,
    Worker,
    finish_drain,
    undo_drain,
)
from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.records import Drain, Drains
from gpuform.providers.slurm.scheduler import create_draining_scheduler
from gpuform.providers.together.cluster_view import (
    count_nodes,
    get_gpus_per_node,
    list_live_workers,
    list_standard_workers,
)
from gpuform.providers.together.repairs import is_under_repair
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.policies.drain import (
    UNCHOSEN,
    RemovedNodes,
    SlurmInputs,
)
from gpuform.schemas.together import wire
from gpuform.schemas.together.cluster_parts import ClusterDrainInputs
from gpuform.schemas.together.outputs import FAILED_NODE_PHASES, ClusterStatus
from gpuform.schemas.values import RemovalCount


@dataclass(frozen=True)
class ClusterNodeRemoval:
    """The removal of nodes from one cluster during one operation.

    `kube_config` is the cluster's own, as YAML, or None while there is none. `drain_inputs` are the
    declared `drain`. `max_gpus` is up to how many GPUs automatic scaling may grow the cluster; None
    if the platform adds none.
    """

    context: ProviderContext
    cluster: wire.Cluster
    kube_config: str | None
    drain_inputs: ClusterDrainInputs
    max_gpus: int | None = None

    @property
    def earlier_drain(self) -> Drain | None:
        """Return the record of an earlier run's drain for a removal or repair, or None."""
        return self._drains.find(self.cluster.cluster_id)

    @property
    def is_under_way(self) -> bool:
        """Return True if the platform still removes or repairs nodes drained by an earlier run.

        False without a record of a drain, or if the earlier run never sent its request.
        """
        drain = self.earlier_drain
        if drain is None or not drain.asked:
            return False
        # a node under repair stays cordoned until its repair ends
        if self._is_under_repair(drain):
            return True
        wanted_nodes = count_nodes(self.cluster, count_standard_gpus(self.cluster))
        # the accepted request lowers the platform's count first, and the nodes disappear later
        is_accepted = wanted_nodes < len(drain.present)
        return is_accepted and wanted_nodes < len(self._standard_workers)

    def count_removed_nodes(self, num_gpus: int | None) -> int:
        """Return how many standard nodes an update to `num_gpus` standard GPUs removes.

        Nodes that the platform is removing already do not count. 0 for None.
        """
        if num_gpus is None:
            return 0
        gpus_per_node = get_gpus_per_node(self.cluster)
        running_gpus = gpus_per_node * len(self._standard_workers)
        # nodes that already disappear are not removed a second time
        remaining_gpus = min(running_gpus, count_standard_gpus(self.cluster))
        return max(0, remaining_gpus - num_gpus) // gpus_per_node

    def _count_declined_nodes(self, num_gpus: int | None) -> int:
        """Return as `count_removed_nodes`, with nodes that the platform has yet to start."""
        if num_gpus is None:
            return 0
        declined_gpus = max(0, count_standard_gpus(self.cluster) - num_gpus)
        return max(self.count_removed_nodes(num_gpus), count_nodes(self.cluster, declined_gpus))

    def predict_removed_nodes(
        self, num_gpus: int | None, repaired_nodes: Sequence[str] = ()
    ) -> RemovedNodes:
        """Return the nodes to be removed or repaired by an update now, for a plan.

        `num_gpus` are the new standard GPUs, or None if the update does not change them. The jobs
        are unknown if no scheduler reports them: `context.on_skipped_check` has the reason.

        Raises:
            InvalidNodeNames: declared names do not fit the nodes of the cluster.
        """
        count = self.count_removed_nodes(num_gpus)
        evictions = [(self._create_drain(), self._build_partial_eviction(count))] if count else []
        if repair_eviction := self.build_repair_eviction(repaired_nodes):
            evictions.append((self.create_repair_drain(), repair_eviction))
        parts = [drain.predict_removed_nodes(eviction) for drain, eviction in evictions]
        # one part with unknown jobs makes those of all nodes unknown
        first = min(parts, key=lambda part: part.has_known_jobs, default=RemovedNodes(nodes=()))
        nodes = tuple(node for part in parts for node in part.nodes)
        removed_nodes = first.model_copy(update={"nodes": nodes})
        missing_count = self._count_declined_nodes(num_gpus) - count
        gpus_per_node = get_gpus_per_node(self.cluster)
        return removed_nodes.add_unnamed_nodes(missing_count, UNCHOSEN, gpus_per_node)

    def build_repair_eviction(self, node_names: Sequence[str]) -> NodeEviction:
        """Return the eviction of the existing nodes among `node_names`, for a repair."""
        present_names = {_to_worker(node).name for node in self._standard_workers}
        return NodeEviction(
            {node_name: "repaired" for node_name in node_names if node_name in present_names}
        )

    def create_repair_drain(self) -> DrainOperation:
        """Return the drain operation for standard workers, to be chosen by name with each call."""
        return self._create_drain(self._standard_workers)

    def predict_all_removed_nodes(self, reason: str) -> RemovedNodes:
        """Return all nodes with their jobs, for a plan to delete the cluster.

        Automatic scaling may add nodes until the deletion, up to its declared maximum. Nodes that
        the cluster is to have and does not show yet have no name. The jobs are unknown without a
        kubeconfig, or if no scheduler reports them: `context.on_skipped_check` then has the reason.
        """
        live_workers = list_live_workers(self.cluster)
        eviction = NodeEviction({_to_worker(node).name: reason for node in live_workers})
        removed_nodes = (
            self._create_drain(live_workers).predict_removed_nodes(eviction)
            if self.kube_config and live_workers
            else self._build_target(live_workers).predict_without_scheduler(eviction)
        )
        missing_count = self._count_all_nodes() - len(live_workers)
        all_nodes = removed_nodes.add_unnamed_nodes(
            missing_count, reason, get_gpus_per_node(self.cluster)
        )
        return all_nodes.model_copy(update={"max_gpus": self.max_gpus})

    def _count_all_nodes(self) -> int:
        """Return how many nodes the cluster has, with those that the platform has yet to start."""
        return max(
            count_nodes(self.cluster, self.cluster.num_gpus), len(list_live_workers(self.cluster))
        )

    def send_update(self, request: Callable[[], None], num_gpus: int | None) -> None:
        """Drain the nodes to be removed by an update, then call `request` to send the update.

        `num_gpus` are the new standard GPUs, or None if the update does not change them. If no node
        is removed, a drain of an earlier run whose request was never sent is undone first. If the
        scheduler cannot be asked, a run with `--allow evict-jobs` sends the request without a
        drain.

        Raises:
            GpuformError: a job keeps a node, or the request fails. After a refusal the drain is
                undone, or a warning names nodes that stay cordoned; after a lost answer the record
                stays.
        """
        count = self.count_removed_nodes(num_gpus)
        self._require_planned(self._count_declined_nodes(num_gpus))
        if not count:
            self._undo_unsent_drain()
            request()
            return
        with self._create_drain().drain_during(self._build_partial_eviction(count)):
            request()

    def _require_planned(self, count: int) -> None:
        """Raise UnplannedRemoval if the plan of this run removes fewer nodes than `count`."""
        removal = RemovalCount(count, count * get_gpus_per_node(self.cluster))
        self.context.require_planned_removal(self._label, removal)

    def require_drained(self, num_gpus: int, drained_count: int) -> None:
        """Raise UnplannedRemoval if an update to `num_gpus` removes more nodes than were drained.

        Draining and waiting for capacity take hours, in which somebody may enlarge the cluster.
        """
        count = self.count_removed_nodes(num_gpus)
        if count > drained_count:
            raise build_unplanned_removal_error(
                self._label,
                RemovalCount(count),
                f"gpuform has drained {RemovalCount(drained_count)}",
                "meanwhile",
            )

    def send_deletion(self, request: Callable[[], None]) -> None:
        """Drain all nodes, then call `request` to delete the cluster.

        Without a kubeconfig or nodes the deletion is sent at once. If the scheduler cannot be
        asked, a run with `--allow evict-jobs` sends the request without a drain.

        Raises:
            GpuformError: a job keeps a node, or the request fails. After a refusal the drain is
                undone, or a warning names nodes that stay cordoned; after a lost answer the record
                stays.
        """
        self._require_planned(self._count_all_nodes())
        eviction = self._build_full_eviction("deleted")
        if not eviction:
            request()
            return
        with self._create_drain(list_live_workers(self.cluster)).drain_during(eviction):
            request()

    def resume_earlier_drain(self, request: Callable[[FieldChange], None], num_gpus: int) -> None:
        """Undo an earlier run's unsent removal; request again the GPUs which the cluster lacks.

        Called when the declaration changes nothing. `request` is only called if the platform keeps
        fewer than `num_gpus` standard GPUs: nodes whose removal was requested are no longer
        declared as removed.
        """
        self._undo_unsent_drain()
        current_gpus = count_standard_gpus(self.cluster)
        if current_gpus < num_gpus:
            request(FieldChange("num_gpus", Action.UPDATE, current_gpus, num_gpus))

    def finish_earlier_drain(self) -> None:
        """Uncordon the nodes left by an earlier run's removal or repair, and delete its record.

        Does nothing without a record, while the platform still removes or repairs nodes, or if the
        cluster is being deleted. If the platform has kept none of the nodes, only the record is
        deleted. If the scheduler cannot be asked, the record stays, and a warning comes before the
        error.

        Raises:
            GpuformError: other nodes were removed than the chosen ones, or nodes stay cordoned.
        """
        drain = self.earlier_drain
        # a deletion in progress removes every node: there is nothing to uncordon
        is_deleting = self.cluster.status == ClusterStatus.DELETING
        if drain is None or is_deleting or self.is_under_way:
            return
        finish_drain(
            self.context,
            drain,
            self.connect_to_scheduler,
            [node.host_name for node in list_live_workers(self.cluster)],
        )

    def _is_under_repair(self, drain: Drain) -> bool:
        """Return True if a drained node is under repair: until that ends no job may start there."""
        return any(
            _to_worker(node).name in drain.chosen and is_under_repair(node)
            for node in self.cluster.gpu_worker_nodes
        )

    def connect_to_scheduler(self) -> Scheduler:
        """Return the scheduler of the nodes' jobs: Kubernetes, or both for a cluster of type SLURM.

        Raises:
            GpuformError: the cluster has no kubeconfig yet, or the declared access to Slurm is
                unusable.
        """
        if not self.kube_config:
            raise GpuformError(
                f"{self._label} has no kubeconfig, so gpuform cannot look for its jobs",
                hint="wait until its control plane runs",
            )
        kubernetes = KubernetesScheduler(
            get_kubernetes_client(self.kube_config, self.cluster.cluster_name)
        )
        if self.cluster.cluster_type != "SLURM":
            return kubernetes
        inputs = self.drain_inputs.slurm or SlurmInputs()
        slurm = create_draining_scheduler(
            inputs, kubeconfig=self.kube_config, cluster=self.cluster.cluster_name
        )
        slurm_names = {
            node.host_name: node.slurm_worker_hostname
            for node in self.cluster.gpu_worker_nodes
            if node.slurm_worker_hostname
        }
        # Slurm's nodes are pods of the Kubernetes nodes: both may have jobs, and names may differ
        return SlurmOnKubernetes(kubernetes, slurm, inputs.namespace, slurm_names)

    @property
    def _label(self) -> str:
        """Return `cluster` and the name, else the id, for messages."""
        return f"cluster {self.cluster.cluster_name or self.cluster.cluster_id}"

    @property
    def _drains(self) -> Drains:
        """Return the records of drains beside the run's intents."""
        return Drains.from_intents(self.context.intents)

    @property
    def _standard_workers(self) -> Sequence[wire.GpuWorkerNode]:
        """Return the cluster's live workers without preemptible ones."""
        return list_standard_workers(self.cluster)

    def _build_partial_eviction(self, count: int) -> NodeEviction:
        """Build the eviction of `count` nodes: those in `drain.nodes`, else the least busy ones."""
        return NodeEviction(count=count, requested_names=self.drain_inputs.nodes or ())

    def _build_full_eviction(self, reason: str) -> NodeEviction:
        """Return the eviction of all nodes; empty while there is no control plane to run jobs."""
        live_workers = list_live_workers(self.cluster) if self.kube_config else ()
        return NodeEviction({_to_worker(node).name: reason for node in live_workers})

    def _create_drain(self, all_nodes: Sequence[wire.GpuWorkerNode] = ()) -> DrainOperation:
        """Create the drain of `all_nodes`, or if empty, of standard workers.

        Together itself then chooses the nodes to remove, among those that are cordoned.
        """
        return DrainOperation(
            self.context,
            self._build_target(all_nodes),
            self.connect_to_scheduler,
            self.drain_inputs,
        )

    def _build_target(self, all_nodes: Sequence[wire.GpuWorkerNode]) -> DrainTarget:
        """Return the target of a drain of `all_nodes`, or if empty, of standard workers."""
        gpus_per_node = get_gpus_per_node(self.cluster)
        return DrainTarget(
            id=self.cluster.cluster_id,
            label=self._label,
            workers=[
                _to_worker(node, gpus_per_node) for node in all_nodes or self._standard_workers
            ],
            # Together picks the nodes of a smaller cluster itself, among those that are cordoned
            removes_cordoned=not all_nodes,
        )

    def _undo_unsent_drain(self) -> None:
        """Uncordon the nodes of an earlier run's drain whose request was never sent, or warn."""
        drain = self.earlier_drain
        if drain is not None and not drain.asked:
            undo_drain(self.context, drain, self.connect_to_scheduler)


def count_standard_gpus(cluster: wire.Cluster) -> int:
    """Return how many standard GPUs the platform is to keep running, without preemptible ones."""
    live_count = len(list_live_workers(cluster))
    preemptible_gpus = cluster.allocated_preemptible_gpus
    # num_gpus may include preemptible GPUs or not: a comparison with the nodes shows it
    running_gpus = get_gpus_per_node(cluster) * live_count
    includes_preemptible = preemptible_gpus and cluster.num_gpus == running_gpus
    return cluster.num_gpus - (preemptible_gpus if includes_preemptible else 0)


def parse_drain_inputs(inputs: Mapping[str, Any]) -> ClusterDrainInputs:
    """Return the declared `drain` of a cluster's inputs, or defaults."""
    return ClusterDrainInputs.model_validate(inputs.get("drain") or {})


def get_slurm_inputs(inputs: Mapping[str, Any]) -> SlurmInputs:
    """Return how the cluster's Slurm is reached: as declared, or as Together sets it up."""
    return parse_drain_inputs(inputs).slurm or SlurmInputs()


def _to_worker(node: wire.GpuWorkerNode, gpus: int | None = None) -> Worker:
    """Convert a node with `gpus` to a worker of a scheduler, with all other names."""
    last_transition = max(
        node.phase_transitions, key=lambda transition: transition.transition_time, default=None
    )
    aliases = (node.node_id, node.slurm_worker_hostname or "", node.instance_id or "")
    return Worker(
        node.host_name or node.node_id,
        aliases=tuple(filter(None, aliases)),
        addresses=tuple(filter(None, (node.public_ipv4,))),
        is_failed=last_transition is not None and last_transition.phase in FAILED_NODE_PHASES,
        gpus=gpus,
    )

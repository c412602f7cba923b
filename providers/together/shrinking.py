"""Nodes of a cluster that go, alone or with it: no job runs on them when Together is asked.

Its update request names no nodes; it takes those that are cordoned (Together reference, 'Targeted
Scale-down'). So nodes are cordoned in Kubernetes, which every cluster has. Where Slurm gives them
their jobs, it is asked too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.providers.context import ProviderContext
from gpuform.providers.draining import (
    DrainedObject,
    Draining,
    NodeEviction,
    Scheduler,
    SlurmOnKubernetes,
    Worker,
    conclude,
    undo,
)
from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.client import client_by
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.records import Drain, Drains
from gpuform.providers.slurm import slurm_scheduler
from gpuform.providers.together.cluster_view import (
    GPUS_PER_NODE,
    list_live_workers,
    list_standard_workers,
)
from gpuform.providers.together.repairs import is_under_repair
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.schemas.slurm import SlurmInputs
from gpuform.schemas.together import wire
from gpuform.schemas.together.cluster_parts import ClusterDrainInputs
from gpuform.schemas.together.statuses import FAILED_NODE_PHASES, ClusterStatus


@dataclass(frozen=True)
class Shrinking:
    """What takes nodes away from one cluster. `kube_config` is the cluster's own, as YAML."""

    call: ProviderContext
    cluster: wire.Cluster
    kube_config: str | None
    wanted: ClusterDrainInputs

    @property
    def earlier(self) -> Drain | None:
        """A removal that an earlier run began."""
        return self._drains.find(self.cluster.cluster_id)

    @property
    def is_under_way(self) -> bool:
        """Whether the platform has taken the request of an earlier run, and nodes are to go yet."""
        drain = self.earlier
        if drain is None or not drain.asked:
            return False
        if self._repaired(drain):
            return True
        wanted = standard_gpus(self.cluster)
        was_taken = wanted < GPUS_PER_NODE * len(drain.present)
        return was_taken and wanted < GPUS_PER_NODE * len(self._standard)

    def going(self, num_gpus: int) -> int:
        """How many standard nodes go when there are to be `num_gpus` standard GPUs."""
        running = GPUS_PER_NODE * len(self._standard)
        return max(0, min(running, standard_gpus(self.cluster)) - num_gpus) // GPUS_PER_NODE

    def leaving(self, num_gpus: int, repaired: Sequence[str] = ()) -> RemovedNodes | None:
        """The nodes that would go now or are `repaired`, for a plan.

        None where there are none, or nobody tells the jobs on them.
        """
        count = self.going(num_gpus)
        going = self._draining().leaving(self._fewer(count)) if count else None
        if not repaired:
            return going
        taking = self.repairing(repaired)
        found = self.draining_for_repair().leaving(taking) if taking else None
        if going is None or found is None:
            return going or found
        return going.model_copy(update={"nodes": (*going.nodes, *found.nodes)})

    def repairing(self, names: Sequence[str]) -> NodeEviction:
        """What is taken of these nodes for their repair: those of them that are there."""
        there = {_worker(node).name for node in self._standard}
        return NodeEviction({name: "repaired" for name in names if name in there})

    def draining_for_repair(self) -> Draining:
        """The taking of nodes that are named one by one."""
        return self._draining(self._standard)

    def all_leaving(self, because: str) -> RemovedNodes | None:
        """All nodes, for a plan that takes the cluster; None where no job can run."""
        taking = self._all(because)
        return self._draining(list_live_workers(self.cluster)).leaving(taking) if taking else None

    def send(self, request: Callable[[], None], num_gpus: int | None) -> None:
        """Sends an update; `num_gpus` are its standard GPUs, None where it does not change them.

        Raises GpuformError; after a refusal all is as it was. After a lost answer the record stays.
        """
        count = 0 if num_gpus is None else self.going(num_gpus)
        if not count:
            self._settle_unasked()
            request()
            return
        with self._draining().taken(self._fewer(count)):
            request()

    def send_deletion(self, request: Callable[[], None]) -> None:
        """Sends the cluster's deletion, when no job runs on any of its nodes.

        Raises GpuformError; after a refusal all is as it was.
        """
        taking = self._all("deleted")
        if not taking:
            request()
            return
        with self._draining(list_live_workers(self.cluster)).taken(taking):
            request()

    def resume(self, request: Callable[[FieldChange], None], num_gpus: int) -> None:
        """Ends what an earlier run began, when nothing is to change any more.

        What was asked for and is no longer wanted grows back.
        """
        self._settle_unasked()
        now = standard_gpus(self.cluster)
        if now < num_gpus:
            request(FieldChange("num_gpus", Action.UPDATE, now, num_gpus))

    def conclude(self) -> None:
        """Uncordons what is left of a removal, unless the platform is still at it.

        Raises GpuformError when other nodes went than asked, or nodes stay cordoned.
        """
        drain = self.earlier
        is_ending = self.cluster.status == ClusterStatus.DELETING
        if drain is None or is_ending or self.is_under_way:
            return
        conclude(
            self.call,
            drain,
            self.scheduler,
            [node.host_name for node in list_live_workers(self.cluster)],
        )

    def _repaired(self, drain: Drain) -> bool:
        """Whether a repair of what was drained goes on: until it ends, nobody is to run there."""
        return any(
            _worker(node).name in drain.chosen and is_under_repair(node)
            for node in self.cluster.gpu_worker_nodes
        )

    def scheduler(self) -> Scheduler:
        """Who gives the nodes their jobs. Raises GpuformError when nobody can be asked."""
        if not self.kube_config:
            raise GpuformError(
                f"{self._what} has no kubeconfig, so that its jobs cannot be looked for",
                hint="wait until its control plane runs",
            )
        kubernetes = KubernetesScheduler(client_by(self.kube_config, self.cluster.cluster_name))
        if self.cluster.cluster_type != "SLURM":
            return kubernetes
        inputs = self.wanted.slurm or SlurmInputs()
        slurm = slurm_scheduler(
            inputs, kubeconfig=self.kube_config, cluster=self.cluster.cluster_name
        )
        names = {
            node.host_name: node.slurm_worker_hostname
            for node in self.cluster.gpu_worker_nodes
            if node.slurm_worker_hostname
        }
        return SlurmOnKubernetes(kubernetes, slurm, inputs.namespace, names)

    @property
    def _what(self) -> str:
        return f"cluster {self.cluster.cluster_name or self.cluster.cluster_id}"

    @property
    def _drains(self) -> Drains:
        return Drains.beside(self.call.intents)

    @property
    def _standard(self) -> Sequence[wire.GpuWorkerNode]:
        return list_standard_workers(self.cluster)

    def _fewer(self, count: int) -> NodeEviction:
        return NodeEviction(count=count, named=self.wanted.nodes or ())

    def _all(self, because: str) -> NodeEviction:
        """All nodes; none where the control plane has not run yet, which runs the jobs."""
        live = list_live_workers(self.cluster) if self.kube_config else ()
        return NodeEviction({_worker(node).name: because for node in live})

    def _draining(self, all_nodes: Sequence[wire.GpuWorkerNode] = ()) -> Draining:
        subject = DrainedObject(
            id=self.cluster.cluster_id,
            what=self._what,
            workers=[_worker(node) for node in all_nodes or self._standard],
            takes_cordoned=not all_nodes,
        )
        return Draining(self.call, subject, self.scheduler, self.wanted)

    def _settle_unasked(self) -> None:
        """Undoes what an earlier run began and never asked for."""
        drain = self.earlier
        if drain is not None and not drain.asked:
            undo(self.call, drain, self.scheduler)


def standard_gpus(cluster: wire.Cluster) -> int:
    """The GPUs that the platform is to keep running, without preemptible ones."""
    live = len(list_live_workers(cluster))
    extra = cluster.allocated_preemptible_gpus
    counts_them = extra and cluster.num_gpus == GPUS_PER_NODE * live
    return cluster.num_gpus - (extra if counts_them else 0)


def drain_of(values: Mapping[str, Any]) -> ClusterDrainInputs:
    """What canonical inputs declare of it, or nothing."""
    return ClusterDrainInputs.model_validate(values.get("drain") or {})


def slurm_of(values: Mapping[str, Any]) -> SlurmInputs:
    """How canonical inputs say that Slurm is asked, or as it is right for Together."""
    return drain_of(values).slurm or SlurmInputs()


def _worker(node: wire.GpuWorkerNode) -> Worker:
    last = max(node.phase_transitions, key=lambda each: each.transition_time, default=None)
    aliases = (node.node_id, node.slurm_worker_hostname or "", node.instance_id or "")
    return Worker(
        node.host_name or node.node_id,
        aliases=tuple(filter(None, aliases)),
        addresses=tuple(filter(None, (node.public_ipv4,))),
        is_failed=last is not None and last.phase in FAILED_NODE_PHASES,
    )

"""Combine the two schedulers of Slurm on Kubernetes (Slinky), each of which has its own node names.

Platforms that know both pass a `SlurmOnKubernetes` to `DrainOperation` as the one `Scheduler`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from gpuform.providers.draining.schedulers import ScheduledNode, Scheduler
from gpuform.providers.errors import GpuformError


class SlurmOnKubernetes:
    """Kubernetes and Slurm as one `Scheduler`, with the node names of Kubernetes.

    A cordon of both keeps either from starting jobs. The cordon begins in Slurm and is undone there
    last, because people submit their jobs to Slurm. Pods in `namespace` are Slurm's own, no jobs.
    `slurm_names` has Slurm's name of each node.
    """

    name: ClassVar[str] = "Slurm on Kubernetes"

    def __init__(
        self,
        kubernetes: Scheduler,
        slurm: Scheduler,
        namespace: str,
        slurm_names: Mapping[str, str],
    ) -> None:
        self._kubernetes = kubernetes
        self._slurm = slurm
        self._namespace = namespace
        self._slurm_names = slurm_names
        self._names_in_slurm: set[str] | None = None
        self._names_ever_in_slurm: set[str] = set()

    def list_nodes(self) -> Sequence[ScheduledNode]:
        """Return every node of Kubernetes, with the jobs of both schedulers.

        A node that has never joined Slurm has no Slurm jobs. Jobs count as incomplete where Slurm
        lists no node at all, or no longer lists this one.

        Raises:
            GpuformError: a node may be one that Slurm lists under a name that nobody knows.
        """
        slurm_nodes = {node.name: node for node in self._slurm.list_nodes()}
        self._names_in_slurm = set(slurm_nodes)
        self._names_ever_in_slurm |= self._names_in_slurm
        kubernetes_nodes = self._kubernetes.list_nodes()
        self._reject_unmatched_nodes([node.name for node in kubernetes_nodes])

        def merge_node(node: ScheduledNode) -> ScheduledNode:
            # Slurm's own pods run on each of its nodes, and would keep every node busy for ever.
            jobs = tuple(job for job in node.jobs if not job.id.startswith(f"{self._namespace}/"))
            slurm_name = self._slurm_names.get(node.name, node.name)
            slurm_node = slurm_nodes.get(slurm_name)
            if slurm_node is None:
                reason_if_lost = (
                    "Slurm no longer shows it" if slurm_name in self._names_ever_in_slurm else ""
                )
                reason = reason_if_lost if slurm_nodes else "Slurm shows no nodes"
                return replace(
                    node, jobs=jobs, incomplete_jobs_reason=node.incomplete_jobs_reason or reason
                )
            return replace(
                node,
                is_cordoned=node.is_cordoned or slurm_node.is_cordoned,
                is_failed=node.is_failed or slurm_node.is_failed,
                owner_label=node.owner_label or slurm_node.owner_label,
                jobs=(*slurm_node.jobs, *jobs),
                incomplete_jobs_reason=node.incomplete_jobs_reason
                or slurm_node.incomplete_jobs_reason,
            )

        return [merge_node(node) for node in kubernetes_nodes]

    def cordon(self, node_names: Collection[str], owner_label: str) -> None:
        """Drain nodes in Slurm, then cordon the nodes in Kubernetes.

        Nodes that Slurm did not show in its last list are cordoned in Kubernetes alone.
        """
        self._slurm.cordon(self._to_slurm_names(node_names), owner_label)
        self._kubernetes.cordon(node_names, owner_label)

    def uncordon(self, node_names: Collection[str], owner_label: str) -> None:
        """Uncordon nodes in Kubernetes, then resume the nodes in Slurm.

        Slurm's nodes are resumed even if Kubernetes refuses.
        """
        _run_all_steps(
            lambda: self._kubernetes.uncordon(node_names, owner_label),
            lambda: self._slurm.uncordon(self._to_slurm_names(node_names), owner_label),
        )

    def evict(self, node_names: Collection[str]) -> None:
        """End the Slurm jobs on nodes, and evict the pods of nodes without Slurm jobs."""
        self._slurm.evict(self._to_slurm_names(node_names))
        # Slurm's worker is itself a pod on the node: evicting it first would kill the Slurm job in
        # it.
        busy = {node.name for node in self._slurm.list_nodes() if node.jobs}
        idle = [
            node_name
            for node_name in node_names
            if self._slurm_names.get(node_name, node_name) not in busy
        ]
        if idle:
            self._kubernetes.evict(idle)

    def _reject_unmatched_nodes(self, node_names: Sequence[str]) -> None:
        """Raise GpuformError if a node is missing in Slurm while Slurm has an unknown node.

        The two may be one machine under two names, whose jobs nobody could then see.
        """
        names_in_slurm = self._names_in_slurm or set()
        names_by_slurm_name = {self._slurm_names.get(name, name): name for name in node_names}
        missing = sorted(
            name
            for slurm_name, name in names_by_slurm_name.items()
            if slurm_name not in names_in_slurm
        )
        unmatched_names = sorted(names_in_slurm - set(names_by_slurm_name))
        # A missing node and an unknown one may be one machine under two names.
        if missing and unmatched_names:
            raise GpuformError(
                f"Slurm has no node for {', '.join(missing)}, but has nodes that are not workers "
                f"of the cluster: {', '.join(unmatched_names)}. gpuform does not know which of "
                "them are the same machines, so it cannot look for jobs there",
                hint="delete the removed nodes from Slurm, or remove the workers on the "
                "platform's own pages",
            )

    def _to_slurm_names(self, node_names: Collection[str]) -> list[str]:
        """Return Slurm's names of nodes, without nodes missing from Slurm's last list.

        Before the first list, the names of all these nodes.
        """
        slurm_names = [self._slurm_names.get(name, name) for name in node_names]
        return [
            name
            for name in slurm_names
            if self._names_in_slurm is None or name in self._names_in_slurm
        ]


def _run_all_steps(*steps: Callable[[], None]) -> None:
    """Run every step, then raise the first error, if any."""
    errors = []
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)
    if errors:
        raise errors[0]

"""Slurm on Kubernetes (Slinky): nodes that two schedulers know, each under a name of its own."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from gpuform.providers.draining.schedulers import ScheduledNode, Scheduler
from gpuform.providers.errors import GpuformError


class SlurmOnKubernetes:
    """Both as one; see `Scheduler`. Names are those of Kubernetes.

    `names` has Slurm's name for each. Nodes are cordoned in both, so that neither gives them jobs;
    Slurm comes first and comes back last, for its jobs are those that people run. The pods of
    Slurm itself, in its `namespace`, are no jobs.
    """

    name: ClassVar[str] = "Slurm on Kubernetes"

    def __init__(
        self, kubernetes: Scheduler, slurm: Scheduler, namespace: str, names: Mapping[str, str]
    ) -> None:
        self._kubernetes = kubernetes
        self._slurm = slurm
        self._namespace = namespace
        self._names = names
        self._known: set[str] | None = None
        self._joined: set[str] = set()

    def nodes(self) -> Sequence[ScheduledNode]:
        """Every node of Kubernetes, with the jobs of both.

        A node that has not joined Slurm yet has no jobs of it. The jobs are in doubt where Slurm
        shows no node at all, and of a node that it no longer shows. Raises GpuformError where a
        node could be one that Slurm has under another name.
        """
        known = {node.name: node for node in self._slurm.nodes()}
        self._known = set(known)
        self._joined |= self._known
        workers = self._kubernetes.nodes()
        self._refuse_strangers([node.name for node in workers])

        def merged(node: ScheduledNode) -> ScheduledNode:
            jobs = tuple(job for job in node.jobs if not job.id.startswith(f"{self._namespace}/"))
            name = self._names.get(node.name, node.name)
            other = known.get(name)
            if other is None:
                lost = "Slurm no longer shows it" if name in self._joined else ""
                doubt = lost if known else "Slurm shows no node at all"
                return replace(node, jobs=jobs, doubt=node.doubt or doubt)
            return replace(
                node,
                is_cordoned=node.is_cordoned or other.is_cordoned,
                is_failed=node.is_failed or other.is_failed,
                mark=node.mark or other.mark,
                jobs=(*other.jobs, *jobs),
                doubt=node.doubt or other.doubt,
            )

        return [merged(node) for node in workers]

    def cordon(self, names: Collection[str], mark: str) -> None:
        """Drains in Slurm, and cordons in Kubernetes."""
        self._slurm.cordon(self._in_slurm(names), mark)
        self._kubernetes.cordon(names, mark)

    def uncordon(self, names: Collection[str], mark: str) -> None:
        """Ends both; what one of them refuses does not keep the other from it."""
        _each(
            lambda: self._kubernetes.uncordon(names, mark),
            lambda: self._slurm.uncordon(self._in_slurm(names), mark),
        )

    def evict(self, names: Collection[str]) -> None:
        """Ends the jobs of Slurm; what runs beside them on a node once it has none, for Slurm's
        own pod there ends with it.
        """
        self._slurm.evict(self._in_slurm(names))
        busy = {node.name for node in self._slurm.nodes() if node.jobs}
        idle = [name for name in names if self._names.get(name, name) not in busy]
        if idle:
            self._kubernetes.evict(idle)

    def _refuse_strangers(self, workers: Sequence[str]) -> None:
        known = self._known or set()
        ours = {self._names.get(name, name): name for name in workers}
        missing = sorted(name for slurm_name, name in ours.items() if slurm_name not in known)
        strangers = sorted(known - set(ours))
        if missing and strangers:
            raise GpuformError(
                f"Slurm has no node for {', '.join(missing)}, but nodes that are no workers of the "
                f"cluster: {', '.join(strangers)}. Which of them are the same cannot be told, nor "
                "which jobs run there",
                hint="delete nodes from Slurm that are gone, or remove the workers on the "
                "platform's own pages",
            )

    def _in_slurm(self, names: Collection[str]) -> list[str]:
        """Their names there, as far as it is known that it has them."""
        found = [self._names.get(name, name) for name in names]
        return [name for name in found if self._known is None or name in self._known]


def _each(*steps: Callable[[], None]) -> None:
    """Does all; raises the first error afterwards."""
    errors = []
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)
    if errors:
        raise errors[0]

"""Slurm, as what has to agree before nodes are taken away: asked by its own commands."""

from collections.abc import Collection, Sequence
from typing import ClassVar

from gpuform.providers.schedulers import ScheduledNode
from gpuform.providers.slurm.commands import Commands
from gpuform.schemas.slurm import SlurmInputs


class SlurmScheduler:
    """The Slurm of one cluster; see `Scheduler`. Names of nodes are NodeNames of Slurm.

    Use `slurm_scheduler` to make one.
    """

    name: ClassVar[str] = "Slurm"

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def nodes(self) -> Sequence[ScheduledNode]:
        """Every node with its jobs; a COMPLETING job still runs on the nodes that it has."""
        raise NotImplementedError

    def cordon(self, names: Collection[str], mark: str) -> None:
        """Drains nodes with `mark` in the reason; those that are drained keep their reason."""
        raise NotImplementedError

    def uncordon(self, names: Collection[str], mark: str) -> None:
        """Ends the drain of those whose reason is still `mark`."""
        raise NotImplementedError

    def evict(self, names: Collection[str]) -> None:
        """Requeues the jobs on nodes, and cancels those that cannot be requeued."""
        raise NotImplementedError


def slurm_scheduler(inputs: SlurmInputs, *, kubeconfig: str | None = None) -> SlurmScheduler:
    """The Slurm that `inputs` tell; `kubeconfig` is the cluster's own, needed for `via: exec`."""
    raise NotImplementedError

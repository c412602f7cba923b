"""What runs jobs on the nodes of a cluster: asked before any of them is taken away.

One implementation for each scheduler; what is decided and waited for between the calls is the same
for all of them.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from gpuform.schemas.policies.drain import RunningJob


@dataclass(frozen=True)
class ScheduledNode:
    """A node as its scheduler sees it now."""

    name: str
    is_cordoned: bool = False
    """It takes no new jobs: cordoned in Kubernetes, drained or draining in Slurm."""
    is_failed: bool = False
    """The scheduler cannot use it."""
    mark: str | None = None
    """What `cordon` wrote on it, if gpuform cordoned it."""
    since: float | None = None
    """When it joined, in unix seconds, if the scheduler knows."""
    jobs: tuple[RunningJob, ...] = ()
    provider_id: str = ""
    """Which machine of which cloud it is, if the scheduler knows: `scp://kr-west1/NODE_ID`."""
    addresses: tuple[str, ...] = ()
    """Its addresses and host names, if the scheduler knows them."""
    doubt: str = ""
    """Why `jobs` may not be all that runs on it; empty where the answer is complete."""


class Scheduler(Protocol):
    """The scheduler of one cluster.

    Synchronous and safe for many threads; names of nodes are the scheduler's own. Every method
    raises GpuformError when the scheduler cannot be asked or refuses; nothing is guessed.
    """

    name: ClassVar[str]
    """As its users call it: Kubernetes, Slurm."""

    def nodes(self) -> Sequence[ScheduledNode]:
        """Every worker, with the jobs that run on it now: one look, few requests."""

    def cordon(self, names: Collection[str], mark: str) -> None:
        """Lets nodes take no new jobs, and writes `mark` on each; jobs that run go on.

        What somebody else cordoned keeps its mark. Repeating it changes nothing.
        """

    def uncordon(self, names: Collection[str], mark: str) -> None:
        """Lets nodes take jobs again: those alone that still bear `mark`. Gone ones are skipped."""

    def evict(self, names: Collection[str]) -> None:
        """Asks the jobs on nodes to end, as far as their disruption budgets allow it now.

        Returns at once; `nodes` tells what still runs, and it may be called again.
        """

"""Define what draining asks of a scheduler: list nodes with their jobs, cordon, evict.

Kubernetes, Slurm and Slurm on Kubernetes implement `Scheduler`; `drain_operation` calls it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from gpuform.schemas.policies.drain import RunningJob


@dataclass(frozen=True)
class ScheduledNode:
    """A node as its scheduler reports it at one moment."""

    name: str
    is_cordoned: bool = False
    """True if the node takes no new jobs: cordoned in Kubernetes, drained or draining in Slurm."""
    is_failed: bool = False
    """True if the scheduler cannot use the node."""
    owner_label: str | None = None
    """What `Scheduler.cordon` wrote on the node; None if gpuform did not cordon it."""
    joined_at: float | None = None
    """When the node joined, in unix seconds; None if the scheduler does not report it."""
    jobs: tuple[RunningJob, ...] = ()
    provider_id: str = ""
    """The machine and its cloud, as in `scp://kr-west1/NODE_ID`; empty if the scheduler has none.
    """
    addresses: tuple[str, ...] = ()
    """IP addresses and host names of the node, as far as the scheduler reports them."""
    incomplete_jobs_reason: str = ""
    """Why more than `jobs` may run on the node; empty if the list is complete."""


class Scheduler(Protocol):
    """The scheduler of one cluster.

    Implementations are synchronous and safe for many threads. Nodes have the scheduler's own names.
    Every method raises GpuformError if the scheduler cannot be reached, refuses or answers
    unreadably.
    """

    name: ClassVar[str]
    """The name that users know, as Kubernetes or Slurm. For messages."""

    def list_nodes(self) -> Sequence[ScheduledNode]:
        """Return every worker node with the jobs which run there now, with few requests."""

    def cordon(self, node_names: Collection[str], owner_label: str) -> None:
        """Stop nodes from taking new jobs and write `owner_label` on each; running jobs continue.

        Nodes that somebody else has cordoned keep their label. Repeating the call changes nothing.
        """

    def uncordon(self, node_names: Collection[str], owner_label: str) -> None:
        """Allow nodes which still have `owner_label` to take jobs; skip missing nodes."""

    def evict(self, node_names: Collection[str]) -> None:
        """Ask the jobs on nodes to end, as far as disruption budgets allow now.

        Returns at once, and may be called again: `list_nodes` shows which jobs still run.
        """

"""Define what draining asks of a scheduler, and ask without being held up in an interruption.

Kubernetes, Slurm and Slurm on Kubernetes implement `Scheduler`; `NodeChooser` and `DrainOperation`
call it. Draining and certifying use `call_interruptibly` around each request to a scheduler, which
may never answer. Platforms that know both pass a `SlurmOnKubernetes` to `DrainOperation` as the one
`Scheduler`.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Protocol, TypeVar

from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import Cancelled, GpuformError
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


T = TypeVar("T")

ANSWER_GRACE_S: Final = 1.0
"""Seconds that a request may still take after the run was interrupted."""

UNDO_GRACE_S: Final = 3.0
"""Seconds for a request that undoes something, and so is sent after the interruption."""

_CHECK_INTERVAL_S: Final = 0.05


def call_interruptibly(
    context: ProviderContext, request: Callable[[], T], *, grace_s: float | None = None
) -> T:
    """Return the result of `request`, or raise the error of `request`, unless interrupted.

    Args:
        context: has the cancellation of the run.
        request: the blocking call. A thread of its own runs it.
        grace_s: seconds that `request` may still take after an interruption; None:
            `ANSWER_GRACE_S`.

    Raises:
        Cancelled: the grace period has passed. The thread continues, and its answer is dropped.
    """
    grace_s = ANSWER_GRACE_S if grace_s is None else grace_s
    answers: list[T] = []
    errors: list[BaseException] = []

    def store_outcome() -> None:
        try:
            answers.append(request())
        except BaseException as error:  # noqa: BLE001 - it is raised by who asked
            errors.append(error)

    # The copied context has the run's clock, progress and cancellation for the thread.
    thread = threading.Thread(target=copy_context().run, args=(store_outcome,), daemon=True)
    thread.start()
    deadline: float | None = None
    while thread.is_alive():
        # Python cannot end a thread: a scheduler that never answers must not hold up the end of a
        # run.
        thread.join(_CHECK_INTERVAL_S)
        if context.cancelled.is_set() and deadline is None:
            deadline = time.monotonic() + grace_s
        # Measured by this machine: the clock of an emulated run does not move while a thread
        # blocks.
        if deadline is not None and time.monotonic() >= deadline and thread.is_alive():
            raise Cancelled("interrupted: no answer in time")
    if errors:
        raise errors[0]
    return answers[0]


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

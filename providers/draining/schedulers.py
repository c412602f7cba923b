"""Define what draining asks of a scheduler, and choose which nodes of an object to remove.

Kubernetes, Slurm and Slurm on Kubernetes implement `Scheduler`; `drain_operation` calls it, and
chooses among the workers that `DrainTarget.match_workers` matches to the nodes of a scheduler.
Draining and certifying use `call_interruptibly` around each request to a scheduler, which may never
answer. Platforms that know both pass a `SlurmOnKubernetes` to `DrainOperation` as the one
`Scheduler`.
"""

import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Protocol, TypeVar

from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import Cancelled, GpuformError
from gpuform.schemas.models import Problem
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


NAMED_NODES_PATH: Final = "drain.nodes"

_MAX_NAMES_SHOWN: Final = 20


@dataclass(frozen=True)
class Worker:
    """A node that could be removed, under its platform's name.

    `aliases` are further names that a user or the scheduler may have for the node. `is_failed` is
    the platform's report. `scheduled_node` is None if the scheduler does not know the node, or if
    `match_ambiguity` says why several of its nodes could be this one.
    """

    name: str
    aliases: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    is_failed: bool = False
    scheduled_node: ScheduledNode | None = None
    match_ambiguity: str = ""

    @property
    def jobs(self) -> tuple[RunningJob, ...]:
        """Return the jobs on the node; empty if the scheduler does not know the node."""
        return self.scheduled_node.jobs if self.scheduled_node else ()

    @property
    def is_cordoned(self) -> bool:
        """Return True if the scheduler gives the node no new jobs."""
        return self.scheduled_node is not None and self.scheduled_node.is_cordoned

    def has_name(self, name: str) -> bool:
        """Return True if `name` is the worker's name or one of its aliases."""
        return name == self.name or name in self.aliases


@dataclass(frozen=True)
class NodeRemoval:
    """A node to remove, and why this one: `named`, `failed`, `cordoned`, `idle` or `newest`."""

    worker: Worker
    reason: str


def choose_removals(
    workers: Sequence[Worker], count: int, requested_names: Sequence[str] = ()
) -> list[NodeRemoval]:
    """Return the `count` nodes to remove: the requested ones, else those that are missed least.

    Failed nodes come first, then cordoned, idle and the newest ones; among equals nodes without
    jobs first, then the newest. A node without a join time counts as newer the later it stands in
    `workers`.

    Args:
        workers: all nodes of the object.
        count: how many nodes to remove.
        requested_names: names that passed `find_name_problems`; empty: gpuform chooses.
    """
    if requested_names:
        chosen = [worker for name in requested_names for worker in workers if worker.has_name(name)]
        return [NodeRemoval(worker, "named") for worker in chosen]
    # Reversed after the sort: among equal join times the later worker comes first.
    newest = sorted(workers, key=_get_join_time)[::-1]
    ranked = sorted(
        newest,
        key=lambda worker: (
            _REASONS_BY_PRIORITY.index(_get_removal_reason(worker)),
            bool(worker.jobs),
        ),
    )
    return [NodeRemoval(worker, _get_removal_reason(worker)) for worker in ranked[:count]]


def find_name_problems(
    present: Sequence[Worker], count: int, requested_names: Sequence[str]
) -> Iterator[Problem]:
    """Yield the problems of the declared names of nodes to remove; none without names."""
    known_names = ", ".join(worker.name for worker in present[:_MAX_NAMES_SHOWN])
    known_names += ", ..." if len(present) > _MAX_NAMES_SHOWN else ""
    previous_workers: list[Worker | None] = []
    for position, name in enumerate(requested_names):
        worker = next((candidate for candidate in present if candidate.has_name(name)), None)
        if worker is None:
            yield Problem(
                f"{NAMED_NODES_PATH}[{position}]",
                f"node {name} not found; the nodes are {known_names}",
            )
        elif worker in previous_workers:
            yield Problem(f"{NAMED_NODES_PATH}[{position}]", f"{name} is listed twice")
        previous_workers.append(worker)
    # Naming some nodes and leaving the others to gpuform would be ambiguous.
    if requested_names and len(requested_names) != count:
        nodes = "node is removed" if count == 1 else "nodes are removed"
        yield Problem(
            NAMED_NODES_PATH,
            f"names {len(requested_names)}, but {count} {nodes}: name exactly as many, or none "
            "to let gpuform choose",
        )


_REASONS_BY_PRIORITY: Final = ("failed", "cordoned", "idle", "newest")


def _get_removal_reason(worker: Worker) -> str:
    """Return why a node is removed first.

    One of `failed`, `cordoned`, `idle`, and `newest` for a node with jobs.
    """
    if worker.is_failed or (worker.scheduled_node and worker.scheduled_node.is_failed):
        return "failed"
    if worker.is_cordoned:
        return "cordoned"
    return "newest" if worker.jobs else "idle"


def _get_join_time(worker: Worker) -> float:
    """Return when the node joined its scheduler, in unix seconds; 0 if unknown."""
    since = worker.scheduled_node.joined_at if worker.scheduled_node else None
    return since or 0.0


_LOCAL_ADDRESS: Final = re.compile(r"|localhost(\..*)?|127\..*|0\.0\.0\.0|::1?")


def match_nodes(workers: Sequence[Worker], nodes: Sequence[ScheduledNode]) -> list[Worker]:
    """Match each worker with a node of the scheduler, and return the workers.

    A worker and a node are the same machine if they share a name, an address, or an id in the
    node's provider id. Upper and lower case are the same, and addresses of localhost do not count.
    A worker that matches several nodes, or whose node matches another worker too, gets a
    `match_ambiguity` and no node.
    """
    keys_by_node = {node.name: _get_node_keys(node) for node in nodes}
    by_name = {node.name: node for node in nodes}
    candidates = [
        [
            name
            for name, node_keys in keys_by_node.items()
            if not node_keys.isdisjoint(_get_worker_keys(worker))
        ]
        for worker in workers
    ]
    workers_by_node: dict[str, list[str]] = {}
    for worker, names in zip(workers, candidates, strict=True):
        for name in names:
            workers_by_node.setdefault(name, []).append(worker.name)
    return [
        _match_worker(worker, names, by_name, workers_by_node)
        for worker, names in zip(workers, candidates, strict=True)
    ]


def _match_worker(
    worker: Worker,
    names: Sequence[str],
    nodes_by_name: dict[str, ScheduledNode],
    workers_by_node: dict[str, list[str]],
) -> Worker:
    """Return the worker with the matching node, or without one and with the reason of the doubt.

    `names` are the nodes that share a key with the worker. There is a node only if exactly one
    shares a key, and no other worker does; without any, both node and reason are empty.
    """
    # Two nodes have a key of the worker: draining the wrong one would hurt its jobs.
    if len(names) > 1:
        return replace(
            worker, scheduled_node=None, match_ambiguity=f"it may be {' or '.join(sorted(names))}"
        )
    if not names:
        return replace(worker, scheduled_node=None, match_ambiguity="")
    (name,) = names
    # Two workers have a key of the node: its jobs may be those of either.
    if len(workers_by_node[name]) > 1:
        others = [other for other in workers_by_node[name] if other != worker.name] or [worker.name]
        return replace(
            worker,
            scheduled_node=None,
            match_ambiguity=f"{name} may be {', '.join(others)}, too",
        )
    return replace(worker, scheduled_node=nodes_by_name[name], match_ambiguity="")


def _get_worker_keys(worker: Worker) -> set[str]:
    """Return the names, aliases and addresses of a worker, in lower case for comparisons."""
    return _normalize_keys((worker.name, *worker.aliases, *worker.addresses))


def _get_node_keys(node: ScheduledNode) -> set[str]:
    """Return the keys of a node, with the parts of a provider id (`aws:///zone/i-0123`)."""
    return _normalize_keys((node.name, *node.provider_id.split("/"), *node.addresses))


def _normalize_keys(keys: Sequence[str]) -> set[str]:
    """Return the keys in lower case, as Kubernetes writes names, without localhost's."""
    return {name for key in keys if not _LOCAL_ADDRESS.fullmatch(name := key.strip().lower())}

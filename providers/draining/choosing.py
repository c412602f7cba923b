"""List the nodes of an object with their jobs, and choose which of them to remove.

`DrainOperation` asks its `NodeChooser`. Workers are the platform's nodes; `match_nodes` matches
them to the nodes that a scheduler lists.
"""

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from gpuform.providers.context import ProviderContext
from gpuform.providers.draining.schedulers import ScheduledNode, Scheduler, call_interruptibly
from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence import REMOVE_NODE, Observation, require_evidence
from gpuform.providers.permissions import Permission
from gpuform.providers.records import compute_digest
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.drain import UNCHOSEN, RemovedNode, RemovedNodes, RunningJob

NAMED_NODES_PATH: Final = "drain.nodes"

MAX_SHOWN: Final = 10
"""The most jobs, or nodes with unknown jobs, that a message lists."""

_MAX_NAMES_SHOWN: Final = 20

UNKNOWN_NODE_HINT: Final = (
    "declare the scheduler of these nodes, with a kubeconfig that may list all nodes and "
    f"pods; if the nodes have no scheduler, --allow {Permission.EVICT_JOBS} removes them "
    "without asking one"
)


@dataclass(frozen=True)
class Worker:
    """A node that could be removed, under its platform's name.

    `aliases` are further names that a user or the scheduler may have for the node. `is_failed` is
    the platform's report. `gpus` is how many GPUs are removed with the node, None if unknown.
    `scheduled_node` is None if the scheduler does not know the node, or if
    `match_ambiguity` says why several of its nodes could be this one.
    """

    name: str
    aliases: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    is_failed: bool = False
    gpus: int | None = None
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

    def to_removed_node(self) -> RemovedNode:
        """Return the node in the form in which plans list removed nodes."""
        worker = self.worker
        return RemovedNode(
            name=worker.name, because=self.reason, gpus=worker.gpus, jobs=worker.jobs
        )


class InvalidNodeNames(GpuformError):
    """The declared names of nodes to remove do not fit the nodes of the object."""


@dataclass(frozen=True)
class NodeEviction:
    """The nodes that a lifecycle removes: those in `reason_by_node`, and `count` others.

    `reason_by_node` has what happens to each node, as `deleted`, by the platform's node name. The
    others are the `requested_names`, or if there are none, the nodes that are missed least.
    """

    reason_by_node: Mapping[str, str] = field(default_factory=dict)
    count: int = 0
    requested_names: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.reason_by_node) or self.count > 0


@dataclass(frozen=True)
class DrainTarget:
    """The object whose nodes are removed, as a cluster, a pool or one node.

    `label` is its name for messages, as `cluster train`. `removes_cordoned` is True if the platform
    itself picks the nodes to remove, from the cordoned ones.
    """

    id: str
    label: str
    workers: Sequence[Worker]
    removes_cordoned: bool = False

    @property
    def owner_label(self) -> str:
        """Return the label which a cordon writes on nodes, identical for each attempt."""
        return f"gpuform-scale-down-{compute_digest(self.id)[:12]}"

    def match_workers(self, nodes: Iterable[ScheduledNode]) -> list[Worker]:
        """Return the object's workers, each with the matching node among `nodes`."""
        return match_nodes(self.workers, [*nodes])

    def predict_without_scheduler(self, eviction: NodeEviction) -> RemovedNodes:
        """Return the nodes of an eviction without their jobs, as no scheduler reports any.

        A node that only the scheduler's answer would choose has no name.
        """
        nodes = [
            NodeRemoval(worker, eviction.reason_by_node[worker.name]).to_removed_node()
            for worker in self.workers
            if worker.name in eviction.reason_by_node
        ]
        others = [worker for worker in self.workers if worker.name not in eviction.reason_by_node]
        named_workers = [
            worker
            for name in eviction.requested_names
            for worker in others
            if eviction.count and worker.has_name(name)
        ]
        nodes += [NodeRemoval(worker, "named").to_removed_node() for worker in named_workers]
        gpus = max((worker.gpus for worker in others if worker.gpus is not None), default=None)
        unchosen_count = max(0, eviction.count - len(named_workers))
        unchosen_node = RemovedNode(name="", because=UNCHOSEN, gpus=gpus)
        return RemovedNodes(nodes=(*nodes, *[unchosen_node] * unchosen_count))


class NodeChooser:
    """The choice of nodes of one object to remove, by the jobs that its scheduler reports.

    `find_scheduler` returns the scheduler of the nodes, or raises GpuformError. `may_end_jobs`: the
    run may remove nodes whose jobs are unknown.
    """

    def __init__(
        self,
        context: ProviderContext,
        target: DrainTarget,
        find_scheduler: Callable[[], Scheduler],
        *,
        may_end_jobs: bool,
    ) -> None:
        self._context = context
        self._target = target
        self._find_scheduler = find_scheduler
        self._may_end_jobs = may_end_jobs
        self._listed_at = 0.0
        self._names_ever_scheduled: set[str] = set()

    @cached_property
    def scheduler(self) -> Scheduler:
        """Return the scheduler of the nodes, looked up on first use.

        Raises GpuformError without one.
        """
        return self._find_scheduler()

    def list_workers(self) -> list[Worker]:
        """Return the workers, each with the matching node of a new list by the scheduler.

        Remembers the time of the request, and which workers the scheduler has ever listed.
        """
        # Taken before the request: the answer may be as old as the question.
        self._listed_at = time.monotonic()
        workers = self._target.match_workers(
            call_interruptibly(self._context, self.scheduler.list_nodes)
        )
        self._names_ever_scheduled |= {worker.name for worker in workers if worker.scheduled_node}
        return workers

    def choose_nodes(self, workers: Sequence[Worker], eviction: NodeEviction) -> list[NodeRemoval]:
        """Return the nodes to remove.

        First come `count` nodes chosen by priority, then the nodes of `reason_by_node`. Names in
        `reason_by_node` that are not workers are ignored.

        Raises:
            InvalidNodeNames: the requested names do not fit the nodes.
            GpuformError: the scheduler knows too few nodes.
        """
        named_removals = [
            NodeRemoval(worker, eviction.reason_by_node[worker.name])
            for worker in workers
            if worker.name in eviction.reason_by_node
        ]
        if not eviction.count:
            return named_removals
        others = [worker for worker in workers if worker.name not in eviction.reason_by_node]
        return [
            *self._choose_by_priority(others, eviction.count, eviction.requested_names),
            *named_removals,
        ]

    def require_known_jobs(
        self, workers: Sequence[Worker], removals: Sequence[NodeRemoval]
    ) -> None:
        """Raise NotEnoughEvidence unless the scheduler reports the jobs of each node to remove.

        A run with `--allow evict-jobs` gets a warning instead, and removes unknown nodes as they
        are.
        """
        observation = self.observe_jobs(workers, [removal.worker.name for removal in removals])
        if not observation.missing:
            return
        if self._may_end_jobs:
            self._context.on_warning(
                f"{self._target.label}: {'; '.join(observation.missing)}: removed anyway, "
                f"because of --allow {Permission.EVICT_JOBS}"
            )
            return
        require_evidence(REMOVE_NODE, self._target.label, observation, hint=UNKNOWN_NODE_HINT)

    def observe_jobs(self, workers: Sequence[Worker], names: Collection[str]) -> Observation:
        """Return which facts about the jobs of the named nodes the scheduler does not report.

        A node that the platform calls failed may never have joined its scheduler. Nothing is
        missing for such a node if the scheduler lists every other node of the object and has never
        listed this one.
        """
        # A scheduler that misses other nodes, too, may have another reason than the node's failure.
        others = [worker for worker in workers if not worker.is_failed]
        is_complete = bool(others) and all(worker.scheduled_node for worker in others)
        gaps = [
            _describe_gap(worker)
            for worker in workers
            if worker.name in names
            if worker.scheduled_node is not None
            or worker.match_ambiguity
            or worker.name in self._names_ever_scheduled
            or not (worker.is_failed and is_complete)
        ]
        unknown = [gap for gap in gaps if gap]
        more_text = [f"and {len(unknown) - MAX_SHOWN} more"] if len(unknown) > MAX_SHOWN else []
        age = time.monotonic() - self._listed_at
        return Observation(self.scheduler.name, (*unknown[:MAX_SHOWN], *more_text), age)

    def _choose_by_priority(
        self, workers: Sequence[Worker], count: int, requested_names: Sequence[str]
    ) -> list[NodeRemoval]:
        """Return `count` workers to remove: the requested ones, else as `choose_removals` chooses.

        Nodes with unknown jobs are chosen only if they are requested, or if too few nodes have
        known jobs. If the platform itself picks among the cordoned nodes, only nodes that the
        scheduler knows can be chosen.

        Raises:
            InvalidNodeNames: a requested name is not the name of a node that can be chosen, or
                their number does not fit.
            GpuformError: fewer than `count` nodes can be chosen.
        """
        # A platform that picks nodes by itself knows our choice only from cordons.
        eligible = (
            [worker for worker in workers if worker.scheduled_node]
            if self._target.removes_cordoned
            else workers
        )
        name_problems = [
            str(problem) for problem in find_name_problems(eligible, count, requested_names)
        ]
        if name_problems:
            raise InvalidNodeNames(f"{self._target.label}: {'; '.join(name_problems)}")
        if len(eligible) < count:
            missing = ", ".join(worker.name for worker in workers if not worker.scheduled_node)
            raise GpuformError(
                f"cannot remove {count} nodes: {self.scheduler.name} shows only "
                f"{len(eligible)} nodes, and not {missing}",
                hint="wait until the nodes have joined, or remove the nodes on the platform's "
                "own pages",
            )
        # A node whose jobs nobody reports does not count as idle.
        with_known_jobs = [
            worker
            for worker in eligible
            if not _describe_gap(worker) or (worker.is_failed and not worker.match_ambiguity)
        ]
        return choose_removals(
            with_known_jobs if len(with_known_jobs) >= count and not requested_names else eligible,
            count,
            requested_names,
        )

    def warn_of_other_cordoned(
        self,
        workers: Sequence[Worker],
        removals: Sequence[NodeRemoval],
        warn: Callable[[str], None],
    ) -> None:
        """Pass `warn` a warning of foreign cordoned nodes, which the platform could remove instead.

        Only for a platform that picks the nodes to remove from the cordoned ones.
        """
        removed_names = {removal.worker.name for removal in removals}
        others = [
            worker.name
            for worker in workers
            if worker.is_cordoned
            and worker.name not in removed_names
            and worker.scheduled_node is not None
            and worker.scheduled_node.owner_label != self._target.owner_label
        ]
        if others and self._target.removes_cordoned:
            warn(
                f"{', '.join(others)} of {self._target.label} is cordoned, too: the platform "
                f"could remove it instead of {', '.join(sorted(removed_names))}; uncordon it to "
                "be sure"
            )


def _describe_gap(worker: Worker) -> str:
    """Return which fact about a node's jobs is missing; empty if the scheduler reports all jobs."""
    if worker.scheduled_node is not None:
        doubt = worker.scheduled_node.incomplete_jobs_reason
        return f"the jobs on {worker.name} are unknown: {doubt}" if doubt else ""
    if worker.match_ambiguity:
        return f"the node of {worker.name} is unknown: {worker.match_ambiguity}"
    return f"no node has the name, an id or an address of {worker.name}"


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

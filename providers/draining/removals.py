"""Choose which nodes of an object to remove, and find their nodes in the scheduler.

`DrainTarget.match_workers` matches workers to the nodes that a scheduler lists; `drain_operation`
chooses among the matched workers. Pure functions.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gpuform.providers.draining.schedulers import ScheduledNode
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.drain import RunningJob

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

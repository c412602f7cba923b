"""Find the scheduler's node for each node of a platform, by names, ids and addresses.

`DrainTarget.match_workers` calls it with the nodes that a scheduler lists. Pure functions.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gpuform.providers.draining.removals import Worker
from gpuform.providers.draining.schedulers import ScheduledNode

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

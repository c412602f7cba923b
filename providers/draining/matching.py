"""Find which node of a scheduler is which node of a platform.

`DrainedObject` calls it with what a scheduler shows. Pure: nobody is asked.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gpuform.providers.draining.schedulers import ScheduledNode
from gpuform.providers.draining.victims import Worker

_LOCAL: Final = re.compile(r"|localhost(\..*)?|127\..*|0\.0\.0\.0|::1?")


def match_nodes(workers: Sequence[Worker], nodes: Sequence[ScheduledNode]) -> list[Worker]:
    """Return the workers, each with the one node of the scheduler that is the same machine.

    A worker and a node are the same when they share a name, an id in the node's provider id, or an
    address. A worker that shares one with several nodes, or whose node shares one with another
    worker, gets a `doubt` and no node.
    """
    keys = {node.name: _keys_of_node(node) for node in nodes}
    by_name = {node.name: node for node in nodes}
    candidates = [
        [name for name, node_keys in keys.items() if not node_keys.isdisjoint(_keys_of(worker))]
        for worker in workers
    ]
    owners: dict[str, list[str]] = {}
    for worker, names in zip(workers, candidates, strict=True):
        for name in names:
            owners.setdefault(name, []).append(worker.name)
    return [
        _matched(worker, names, by_name, owners)
        for worker, names in zip(workers, candidates, strict=True)
    ]


def _matched(
    worker: Worker,
    names: Sequence[str],
    by_name: dict[str, ScheduledNode],
    owners: dict[str, list[str]],
) -> Worker:
    if len(names) > 1:
        return replace(worker, scheduled=None, doubt=f"it may be {' or '.join(sorted(names))}")
    if not names:
        return replace(worker, scheduled=None, doubt="")
    (name,) = names
    if len(owners[name]) > 1:
        others = [other for other in owners[name] if other != worker.name] or [worker.name]
        return replace(worker, scheduled=None, doubt=f"{name} may be {', '.join(others)} as well")
    return replace(worker, scheduled=by_name[name], doubt="")


def _keys_of(worker: Worker) -> set[str]:
    return _normalized((worker.name, *worker.aliases, *worker.addresses))


def _keys_of_node(node: ScheduledNode) -> set[str]:
    """A provider id ends with the cloud's own: `aws:///eu-west-1a/i-0123`."""
    return _normalized((node.name, *node.provider_id.split("/"), *node.addresses))


def _normalized(keys: Sequence[str]) -> set[str]:
    """Kubernetes writes host names in lower case; every machine has the local ones."""
    return {name for key in keys if not _LOCAL.fullmatch(name := key.strip().lower())}

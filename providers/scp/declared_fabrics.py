"""Record which fabrics the running program declares, so that a move does not empty one of them.

Resources know nothing of each other: `FabricOperations` records each fabric that it checks, and
`nodes.moving` asks. An engine's run has its own record; Pulumi's host, which serves one run, has
one for its process.
"""

import threading
from weakref import WeakKeyDictionary

from gpuform.providers.context import ProviderContext
from gpuform.providers.records import Intents

FabricKey = tuple[str, str]
"""Vendor pool and name of a fabric."""

_fabrics_by_run: WeakKeyDictionary[Intents, set[FabricKey]] = WeakKeyDictionary()
_fabrics_of_process: set[FabricKey] = set()
_lock = threading.Lock()


def record_declared_fabric(context: ProviderContext, node_pool_id: str, name: str) -> None:
    """Record a fabric, by vendor pool and name, as declared by the running program."""
    with _lock:
        _get_declared_fabrics(context).add((node_pool_id, name))


def is_fabric_declared(context: ProviderContext, node_pool_id: str, name: str) -> bool:
    """Return True if the running program has declared this fabric so far."""
    with _lock:
        return (node_pool_id, name) in _get_declared_fabrics(context)


def _get_declared_fabrics(context: ProviderContext) -> set[FabricKey]:
    """Return the set of fabrics declared so far in this run, to read or to extend under `_lock`."""
    # Pulumi's host serves one run and gives no answers to store: its process is the run.
    is_only_run = context.urn is None or context.is_pulumi_host
    return (
        _fabrics_of_process if is_only_run else _fabrics_by_run.setdefault(context.intents, set())
    )

"""Which fabrics the running program declares: what a move must not empty.

Resources know nothing of each other; a fabric that is checked says here that it is declared. An
engine's run has its own record; Pulumi's host, which serves one run, has one for its process.
"""

import threading
from weakref import WeakKeyDictionary

from gpuform.providers.context import ProviderContext
from gpuform.providers.records import Intents

Name = tuple[str, str]
"""Vendor pool and name of a fabric."""

_of_runs: WeakKeyDictionary[Intents, set[Name]] = WeakKeyDictionary()
_of_process: set[Name] = set()
_lock = threading.Lock()


def note(call: ProviderContext, node_pool_id: str, name: str) -> None:
    """The program declares this fabric."""
    with _lock:
        _names(call).add((node_pool_id, name))


def is_declared(call: ProviderContext, node_pool_id: str, name: str) -> bool:
    """Whether the program has declared this fabric so far."""
    with _lock:
        return (node_pool_id, name) in _names(call)


def _names(call: ProviderContext) -> set[Name]:
    is_one_run = call.urn is None or call.stores_answers
    return _of_process if is_one_run else _of_runs.setdefault(call.intents, set())

"""One platform at a time: lifecycles and clients, as Pulumi resources. `Provider` is an account.

Modules that start a process call `collect_less_garbage` before they import others, because half of
the garbage collector's looks come with the imports.
"""

import atexit
import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuform.providers.resource import Provider

__all__ = ["Provider"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, because a state file needs only the lifecycles."""
    if name != "Provider":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gpuform.providers.resource import Provider  # noqa: PLC0415 - as above

    return Provider


COLLECTION_THRESHOLDS = (100_000, 20, 50)
"""Thresholds of Python's garbage collector, whose own are (700, 10, 10).

A program of thousands of resources makes millions of objects that live as long as the run.
Examining them again and again takes half of the time of a run, and the imports of a command alone
make 200,000.
"""


def collect_less_garbage() -> None:
    """Make Python's garbage collector run less often, and not at the end of this process."""
    gc.set_threshold(*COLLECTION_THRESHOLDS)
    # That look takes a quarter of the time of a short command.
    atexit.register(gc.freeze)

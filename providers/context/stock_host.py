"""Adapt Pulumi's own host of dynamic providers, which `pulumi up` starts.

The host does not pass on the resource of a call, progress or interruptions, and prints errors with
their frames. `get_current_context` and lifecycles call this module, which finds the missing facts
in the host's process. A host of another shape keeps its own behaviour.
"""

import logging
import re
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cache
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from gpuform.providers.errors import GpuformError
from gpuform.schemas.safe_text import escape_invisible_lines

if TYPE_CHECKING:
    from gpuform.providers.engine_log import EngineLog

HOST_MODULE = "pulumi.dynamic.__main__"
THREADS = 256
"""Threads of the host's pool: waits are cheap, and `--parallel` of the engine limits the calls."""
_ADDRESS: Final = re.compile(r"[\w.\[\]:-]+:\d+")


@dataclass(frozen=True)
class StockHost:
    """The host of this process: its cancellation, and the log of the engine above it."""

    log: "EngineLog | None"
    cancelled: threading.Event = field(default_factory=threading.Event)


@cache
def find_host() -> StockHost | None:
    """Return the stock host of Pulumi, with its interruption and log; None in any other process.

    The engine passes its address as the first argument; without one there is no log.
    """
    if not _is_stock_host():
        return None
    address = sys.argv[1] if len(sys.argv) > 1 else ""
    if not _ADDRESS.fullmatch(address):
        return StockHost(None)
    from gpuform.providers.engine_log import EngineLog  # noqa: PLC0415 - only there

    return StockHost(EngineLog(address))


def adapt_to_stock_host() -> None:
    """Widen the host's thread pool, and report errors and interruptions as gpuform's plugin does.

    The host serves 4 calls at a time: 64 creates of one minute each would take 16 minutes. The pool
    is found on the stack of the running thread; if there is none, the host keeps its pool. Also
    adds a log handler for gpuform's messages if there is none. Outside of the stock host nothing
    changes.
    """
    host = find_host()
    if host is None:
        return
    pool: Any = find_thread_pool(sys._getframe())  # noqa: SLF001 - the one way to the caller's frames
    if pool is not None and getattr(pool, "_max_workers", THREADS) < THREADS:
        pool._max_workers = THREADS  # noqa: SLF001 - there is no public way to widen a pool
    _shadow_names(sys.modules["__main__"], host)
    log = logging.getLogger("gpuform")
    if not log.handlers:
        # What is printed belongs to no resource: with the engine's log only what has none is.
        log.addHandler(logging.StreamHandler())
        log.setLevel(logging.INFO if host.log is None else logging.WARNING)


def find_request_urn() -> str | None:
    """Return the URN of the resource handled by the host, from the request on the thread's stack.

    None outside of the stock host, or without a request.
    """
    if not _is_stock_host():
        return None
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the one way to the caller's frames
    while frame is not None:
        urn = getattr(frame.f_locals.get("request"), "urn", None)
        if isinstance(urn, str) and urn:
            return urn
        frame = frame.f_back
    return None


def _is_stock_host() -> bool:
    """Return True if this process is Pulumi's host of dynamic providers."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", None) == HOST_MODULE


def find_thread_pool(frame: FrameType | None) -> Executor | None:
    """Return the thread pool whose worker runs this frame, or None."""
    while frame is not None:
        reference: Callable[[], Executor | None] | None = frame.f_locals.get("executor_reference")
        if frame.f_code.co_name == "_worker" and reference is not None:
            return reference()
        frame = frame.f_back
    return None


def _shadow_names(module: ModuleType, host: StockHost) -> None:
    """Replace `traceback` and `empty_pb2` in the host's module by gpuform's stand-ins.

    A name that has another meaning in the host's version keeps that meaning.
    """
    names = vars(module)
    # A host that has something else under this name is another version, and keeps its behaviour.
    if names.get("traceback") is traceback:
        names["traceback"] = _Traceback()
    messages = names.get("empty_pb2")
    if isinstance(messages, ModuleType):
        names["empty_pb2"] = _EmptyMessages(messages, host.cancelled)


class _Traceback:
    """A stand-in for `traceback` in the host: shows only the text of gpuform's errors."""

    def format_exc(self, *arguments: Any, **options: Any) -> str:
        """Return gpuform's own error as a message without frames; any other with a traceback."""
        error = sys.exc_info()[1]
        if isinstance(error, GpuformError):
            return escape_invisible_lines(str(error))
        return traceback.format_exc(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)


class _EmptyMessages:
    """A stand-in for `empty_pb2` in the host: the answer to `Cancel` sets `cancelled`.

    The host itself ignores an interruption: it would wait for the end of the create.
    """

    def __init__(self, messages: ModuleType, cancelled: threading.Event) -> None:
        self._messages, self._cancelled = messages, cancelled

    def Empty(self) -> Any:  # noqa: N802 - the message's name
        """Return an empty message; set the interruption if the host's `Cancel` asks for one."""
        caller = sys._getframe(1).f_code.co_name  # noqa: SLF001 - who asks is in no argument
        if caller == "Cancel":
            self._cancelled.set()
        return self._messages.Empty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._messages, name)

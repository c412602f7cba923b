"""Pulumi's own dynamic provider host, where `pulumi up` runs our lifecycles."""

import logging
import sys
from collections.abc import Callable
from concurrent.futures import Executor
from types import FrameType
from typing import Any

HOST_MODULE = "pulumi.dynamic.__main__"
THREADS = 256
"""Waiting is cheap, requests are limited per platform: the engine's `--parallel` decides."""


def adapt_to_stock_host() -> None:
    """Lets many calls run at a time in that host, and shows warnings; elsewhere does nothing.

    The host serves 4 calls at a time, so that 64 creates of a minute would take 16. The pool is
    found on the stack of the thread that it runs; where that fails the host stays as it is.
    """
    if not _is_that_host():
        return
    pool: Any = pool_of(sys._getframe())  # noqa: SLF001 - the one way to the caller's frames
    if pool is not None and getattr(pool, "_max_workers", THREADS) < THREADS:
        pool._max_workers = THREADS  # noqa: SLF001 - there is no public way to widen a pool
    log = logging.getLogger("gpuform")
    if not log.handlers:
        log.addHandler(logging.StreamHandler())
        log.setLevel(logging.INFO)


def urn_of_call() -> str | None:
    """The URN of the resource that the host is called for, which it does not pass on.

    It is in the request, found on the stack of the thread; None elsewhere.
    """
    if not _is_that_host():
        return None
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the one way to the caller's frames
    while frame is not None:
        urn = getattr(frame.f_locals.get("request"), "urn", None)
        if isinstance(urn, str) and urn:
            return urn
        frame = frame.f_back
    return None


def _is_that_host() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", None) == HOST_MODULE


def pool_of(frame: FrameType | None) -> Executor | None:
    """The thread pool whose worker runs this frame, if any."""
    while frame is not None:
        reference: Callable[[], Executor | None] | None = frame.f_locals.get("executor_reference")
        if frame.f_code.co_name == "_worker" and reference is not None:
            return reference()
        frame = frame.f_back
    return None

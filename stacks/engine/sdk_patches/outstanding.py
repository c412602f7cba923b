"""Lets a program of n resources end without a cost of n squared.

The SDK's `wait_for_rpcs` (pulumi/runtime/stack.py) waits for every outstanding output, and begins
again with all that are left each time one of them completes. Nothing is done in between, so one
wait until all are complete, or one has failed, comes to the same.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pulumi.runtime import stack

_NAME = "asyncio"


class _Asyncio:
    """The asyncio module, but for the one name that tells a wait when to return."""

    FIRST_COMPLETED = asyncio.FIRST_EXCEPTION

    def __getattr__(self, name: str) -> object:
        return getattr(asyncio, name)


@contextmanager
def one_wait() -> Iterator[None]:
    """For the length of a program; an SDK that is written in another way is left as it is."""
    if getattr(stack, _NAME, None) is not asyncio:
        yield
        return
    setattr(stack, _NAME, _Asyncio())
    try:
        yield
    finally:
        setattr(stack, _NAME, asyncio)

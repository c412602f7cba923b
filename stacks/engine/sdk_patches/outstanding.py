"""Lets a program of n resources end without a cost of n squared.

The SDK's `wait_for_rpcs` (pulumi/runtime/stack.py) waits for every outstanding output, and begins
again with all that are left each time one of them completes. Nothing is done in between, so one
wait until all are complete, or one has failed, comes to the same.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pulumi.runtime import stack

from gpuform.stacks.engine.sdk_patches.patch import Patch, uses

_NAME = "asyncio"


class _Asyncio:
    """The asyncio module, but for the one name that tells a wait when to return."""

    FIRST_COMPLETED = asyncio.FIRST_EXCEPTION

    def __getattr__(self, name: str) -> object:
        return getattr(asyncio, name)


@contextmanager
def wait_once() -> Iterator[None]:
    """For the length of a program."""
    setattr(stack, _NAME, _Asyncio())
    try:
        yield
    finally:
        setattr(stack, _NAME, asyncio)


def _knows_sdk() -> bool:
    waits = getattr(stack, "wait_for_rpcs", None)
    return getattr(stack, _NAME, None) is asyncio and uses(waits, _NAME, "FIRST_COMPLETED")


ONE_WAIT = Patch(
    name="one wait for all outputs",
    spares="a wait for every outstanding output, begun again each time one of them completes",
    gain="5000 creates that take time: 244 s become 15.6 s",
    upstream="https://github.com/pulumi/pulumi/pull/15744",
    knows_sdk=_knows_sdk,
    applied=wait_once,
)

"""Works out the types of a resource class once, not for each of its resources.

To read the answer about a resource, the SDK's `resolve_outputs` (pulumi/runtime/rpc.py) asks
`resource_types` (pulumi/_types.py) for the types of its properties; that makes a new class and
evaluates every annotation each time, which for a class of forty outputs is a quarter of the cost.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from pulumi import _types

_NAME = "resource_types"


@contextmanager
def remembered() -> Iterator[None]:
    """For the length of a program; an SDK that is written in another way is left as it is."""
    original = getattr(_types, _NAME, None)
    if original is None:
        yield
        return
    known = cache(original)

    def resource_types(resource_cls: type) -> dict[str, Any]:
        return dict(known(resource_cls))  # a dictionary of the caller's own, as from the SDK

    setattr(_types, _NAME, resource_types)
    try:
        yield
    finally:
        setattr(_types, _NAME, original)

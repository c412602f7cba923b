"""Lets a program have any number of dynamic resources.

The SDK's `serialize_provider` (pulumi/dynamic/dynamic.py) wraps a method of Python's pickler at
each call and never unwraps it: after some 900 calls in a process, pickling a provider that is
defined in the program ends in a RecursionError, and each call costs more than the one before.
"""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from pulumi.dynamic import dynamic

from gpuform.stacks.engine.sdk_patches.patch import Patch, uses

_NAME = "serialize_provider"
_WRAPPED = ("_batch_setitems", "save_dict")


@contextmanager
def unwrap_pickler() -> Iterator[None]:
    """For the length of a program."""
    serialize = dynamic.serialize_provider
    pickler: Any = getattr(pickle, "_Pickler")  # noqa: B009 - typeshed does not know it
    methods = {name: getattr(pickler, name) for name in _WRAPPED}

    def restore() -> None:
        for name, method in methods.items():
            setattr(pickler, name, method)

    @wraps(serialize)
    def serialize_once(provider: object) -> object:
        try:
            return serialize(provider)
        finally:
            restore()

    setattr(dynamic, _NAME, serialize_once)
    try:
        yield
    finally:
        setattr(dynamic, _NAME, serialize)
        restore()


def _knows_sdk() -> bool:
    pickler = getattr(pickle, "_Pickler", None)
    is_as_known = uses(getattr(dynamic, _NAME, None), "Pickler", *_WRAPPED)
    return is_as_known and all(hasattr(pickler, name) for name in _WRAPPED)


UNWRAPPED_PICKLER = Patch(
    name="a pickler that is unwrapped again",
    spares="one more wrapper of Python's pickler for every provider that is pickled",
    gain="any number of such providers; without it some 900 end in a RecursionError",
    upstream="https://github.com/pulumi/pulumi/issues/17803",
    knows_sdk=_knows_sdk,
    applied=unwrap_pickler,
)

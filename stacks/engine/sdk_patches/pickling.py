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

_NAME = "serialize_provider"
_WRAPPED = ("_batch_setitems", "save_dict")


@contextmanager
def unwrapped() -> Iterator[None]:
    """For the length of a program; an SDK that is written in another way is left as it is."""
    serialize = getattr(dynamic, _NAME, None)
    pickler: Any = getattr(pickle, "_Pickler", None)
    if serialize is None or not all(hasattr(pickler, name) for name in _WRAPPED):
        yield
        return
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

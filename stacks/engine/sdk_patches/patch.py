"""One thing that the SDK does in another way while a program runs."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from inspect import unwrap
from types import FunctionType


@dataclass(frozen=True, slots=True)
class Patch:
    """What it spares and gains, in words, and the page of Pulumi's where it is talked of, if any.

    `knows_sdk` changes nothing. `applied` is for an SDK that it knows, and puts back what was
    there.
    """

    name: str
    spares: str
    gain: str
    upstream: str
    knows_sdk: Callable[[], bool]
    applied: Callable[[], AbstractContextManager[None]]


def uses(function: object, *names: str) -> bool:
    """Whether the code of a function of the SDK has all of these global or attribute names."""
    if not isinstance(function, FunctionType):
        return False
    return set(names) <= set(unwrap(function).__code__.co_names)

"""Plain property values: what is not known yet, and when two values are the same."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final, final

SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
"""The key by which Pulumi marks an object that stands for another value."""
SECRET: Final = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a public mark of the protocol
"""The mark of a secret."""


@final
class Unknown:
    """The type of ``UNKNOWN``, the value that is not known before another resource is made."""

    def __repr__(self) -> str:
        return "[unknown]"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()


def count_of(value: Any) -> int | None:
    """A count as the wire may have it; None while it is UNKNOWN, 0 for what is no number."""
    if value is UNKNOWN:
        return None
    return int(value) if isinstance(value, int | float) and isfinite(value) else 0


def contains_unknown(value: Any) -> bool:
    """Whether ``value`` is UNKNOWN, or holds it at any depth."""
    if isinstance(value, Mapping):
        return any(contains_unknown(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(contains_unknown(item) for item in value)
    return value is UNKNOWN


def same(left: Any, right: Any, *, unordered: bool = False) -> bool:
    """Equality of plain values: 16 is 16.0, but True is not 1; None in an object is absent."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return all(same(left.get(name), right.get(name)) for name in {*left, *right})
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        if len(left) != len(right):
            return False
        if unordered:
            return _same_items(left, right)
        return all(same(one, other) for one, other in zip(left, right, strict=True))
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def _same_items(left: Sequence[Any], right: Sequence[Any]) -> bool:
    rest = list(right)
    for one in left:
        index = next((at for at, other in enumerate(rest) if same(one, other)), None)
        if index is None:
            return False
        del rest[index]
    return True

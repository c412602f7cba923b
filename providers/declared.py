"""Single facts of declared values, which may be UNKNOWN while planning."""

from collections.abc import Mapping
from typing import Any

from gpuform.schemas.values import UNKNOWN

_LARGEST = 1e15

EXPIRES = "expires"
"""The tag that says when something ends, on platforms that have nothing else for it."""


def text_of(values: Mapping[str, Any], *names: str) -> str:
    """The first of these fields that is a text; empty when none is, or it is not known yet."""
    for name in names:
        value = values.get(name)
        if value is UNKNOWN:
            return ""
        if isinstance(value, str) and value:
            return value
    return ""


def number_of(values: Mapping[str, Any], name: str) -> float | None:
    """A number, 0 when it is not declared; None while it is UNKNOWN, or beyond all bounds."""
    value = values.get(name)
    if value is UNKNOWN:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return value if abs(value) < _LARGEST else None


def names_in(values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The keys of an object in the declaration, such as its tags."""
    value = values.get(name)
    return tuple(sorted(map(str, value))) if isinstance(value, Mapping) else ()


def not_known(values: Mapping[str, Any], **fields: str) -> tuple[str, ...]:
    """The names, as given, of those fields that are UNKNOWN: `region="region_id"`."""
    return tuple(told for told, name in fields.items() if values.get(name) is UNKNOWN)


def placed(seen: Mapping[str, Any]) -> dict[str, Any]:
    """Where a search for capacity has put an object, by the inputs' names; old states tell none."""
    found = {name: seen.get(f"placed_{name}") for name in ("region", "gpu_type")}
    return {name: value for name, value in found.items() if isinstance(value, str)}

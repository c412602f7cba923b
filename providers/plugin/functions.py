"""The functions of the package: what programs can ask a platform, as `gpuform:<platform>:<name>`.

An answer that is one object is that object; a list is the property `items` of one.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from gpuform.providers.actions import Settings, looking_up
from gpuform.providers.catalog import lookup, lookup_names
from gpuform.providers.errors import GpuformError
from gpuform.providers.forms import PACKAGE
from gpuform.providers.platforms import platforms
from gpuform.providers.properties import Properties
from gpuform.schemas.reasons import nearest

ITEMS = "items"


def tokens() -> list[str]:
    """The tokens of all functions."""
    return [f"{PACKAGE}:{platform}:{name}" for platform in platforms() for name in _names(platform)]


def _names(platform: str) -> list[str]:
    return [name for name in lookup_names(platform) if inspect.isfunction(lookup(platform, name))]


def answer(token: str, arguments: Mapping[str, Any], settings: Settings) -> Properties:
    """What the platform says. Raises GpuformError, also for unknown names."""
    package, _, rest = token.partition(":")
    platform, _, name = rest.partition(":")
    if package != PACKAGE or platform not in platforms() or name not in _names(platform):
        near = nearest(token, tuple(tokens()))
        meant = f"did you mean {near}?" if near else f"it has {', '.join(tokens())}"
        raise GpuformError(f"gpuform has no function {token}: {meant}")
    function = lookup(platform, name)
    given = {key: value for key, value in arguments.items() if value is not None}
    try:
        bound = inspect.signature(function).bind_partial(**_typed(function, given))
        bound.apply_defaults()
        inspect.signature(function).bind(*bound.args, **bound.kwargs)
    except TypeError as error:
        raise GpuformError(f"{token}: {error}") from None
    with looking_up(settings):
        found = function(*bound.args, **bound.kwargs)
    dumped = _plain(found)
    return dumped if isinstance(dumped, dict) else {ITEMS: dumped}


def _typed(function: Any, given: Mapping[str, Any]) -> Properties:
    """Whole numbers as such: the wire has doubles alone."""
    parameters = inspect.signature(function).parameters
    return {
        key: int(value)
        if isinstance(value, float)
        and value.is_integer()
        and key in parameters
        and parameters[key].annotation in (int, "int", int | None)
        else value
        for key, value in given.items()
    }


def _plain(found: Any) -> Any:
    if isinstance(found, BaseModel):
        return found.model_dump(mode="json", exclude_none=True)
    if isinstance(found, Sequence) and not isinstance(found, str):
        return [_plain(each) for each in found]
    return found

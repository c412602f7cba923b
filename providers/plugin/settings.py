"""Read the settings of one provider of a stack, and map the package's tokens to lifecycles and
look-up functions.

Under Pulumi every provider, the default one and each explicit one, is a process of its own. What
its inputs say wins over the environment, so that one stack can use several accounts; what they
leave open is the environment's, then the stack's configuration's.

An answer that is one object is that object; a list is the property `items` of one.
"""

import inspect
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel

from gpuform.providers.catalog import lifecycle_class, lookup, lookup_names
from gpuform.providers.errors import GpuformError, UnsupportedKind
from gpuform.providers.forms import FORM_CONFIG, PACKAGE
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.operations import Settings, looking_up
from gpuform.providers.platform import all_settings, platforms
from gpuform.providers.properties import Properties
from gpuform.schemas.checking import find_nearest_name
from gpuform.schemas.models import Problem
from gpuform.schemas.values import UNKNOWN

_OTHERS: Final = frozenset(
    {
        FORM_CONFIG.partition(":")[2],  # for programs: the default provider gets it as well
        # Pulumi's own:
        *("version", "pluginDownloadURL", "pluginChecksums", "parameterization", "__internal"),
    }
)


def secret_inputs() -> frozenset[str]:
    """The inputs of a provider that are secret."""
    return frozenset(each.name for each in all_settings() if each.secret)


def problems(inputs: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with a provider's inputs, which are plain and may be UNKNOWN."""
    keys = _keys()
    for name, value in inputs.items():
        if name in _OTHERS:
            continue
        if name not in keys:
            near = find_nearest_name(name, tuple(keys))
            meant = f"did you mean {near}?" if near else f"there is {', '.join(keys)}"
            yield Problem(name, f"is no setting of gpuform: {meant}")
        elif value is not None and value is not UNKNOWN and not isinstance(value, str):
            yield Problem(name, "must be a text")


def settings_of(inputs: Mapping[str, Any], config: Mapping[str, str]) -> Settings:
    """The settings by a provider's plain inputs, and by a configuration under full keys.

    While one of the inputs is UNKNOWN nothing is configured: no other account may stand in.
    """
    keys = _keys()
    if any(inputs.get(name) is UNKNOWN for name in keys):
        return Settings(environ={})
    given = {
        keys[name]: value
        for name, value in inputs.items()
        if name in keys and isinstance(value, str) and value
    }
    return Settings(config=lambda key: given.get(key) or config.get(key), given=given)


def stack_config() -> dict[str, str]:
    """The stack's configuration under full keys, which Pulumi passes to every plugin."""
    try:
        found = json.loads(os.environ.get("PULUMI_CONFIG") or "{}")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(key): str(value) for key, value in found.items()}


def _keys() -> dict[str, str]:
    """The inputs, and their keys in a stack's configuration."""
    return {each.name: each.config for each in all_settings()}


def lifecycle_of(type_: str) -> type[Lifecycle[Any, Any]]:
    """The lifecycle of a type, imported now. Raises UnsupportedKind, naming what there is."""
    package, _, rest = type_.partition(":")
    platform, _, kind = rest.partition(":")
    if package != PACKAGE or not kind:
        raise UnsupportedKind(
            f"{type_} is no resource of gpuform: one is {PACKAGE}:<platform>:<Kind>, on "
            f"{', '.join(platforms())}"
        )
    return lifecycle_class(platform, kind)


ITEMS = "items"


def tokens() -> list[str]:
    """The tokens of all functions."""
    return [f"{PACKAGE}:{platform}:{name}" for platform in platforms() for name in _names(platform)]


def _names(platform: str) -> list[str]:
    return [name for name in lookup_names(platform) if inspect.isfunction(lookup(platform, name))]


def call_function(token: str, arguments: Mapping[str, Any], settings: Settings) -> Properties:
    """What the platform says. Raises GpuformError, also for unknown names."""
    package, _, rest = token.partition(":")
    platform, _, name = rest.partition(":")
    if package != PACKAGE or platform not in platforms() or name not in _names(platform):
        near = find_nearest_name(token, tuple(tokens()))
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

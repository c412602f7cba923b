"""Read a provider's settings, and map tokens to lifecycles and look-up functions.

`servicer` and the provider host of gpuform's engine call this module. Under Pulumi every provider,
the default one and each explicit one, is a process of its own. A provider's inputs override the
environment, so that one stack can use several accounts; after the environment comes the stack's
configuration.
"""

import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel

from gpuform.providers.catalog import list_lookups, load_lifecycle_class, load_lookup
from gpuform.providers.context import read_run_context
from gpuform.providers.errors import GpuformError, UnsupportedKind
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.lifecycle.traits import Properties
from gpuform.providers.operations import Settings, use_lookup_settings
from gpuform.providers.platform import FORM_CONFIG, PACKAGE, list_settings, platforms
from gpuform.schemas.checking import suggest_name
from gpuform.schemas.models import Problem
from gpuform.schemas.values import UNKNOWN, convert_leaves

_OTHER_INPUTS: Final = frozenset(
    {
        FORM_CONFIG.partition(":")[2],  # read by programs, and sent to the default provider as well
        # Pulumi's own:
        *("version", "pluginDownloadURL", "pluginChecksums", "parameterization", "__internal"),
    }
)


def list_secret_inputs() -> frozenset[str]:
    """Return the names of the provider's secret inputs."""
    return frozenset(setting.name for setting in list_settings() if setting.secret)


def find_input_problems(inputs: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each unknown setting in a provider's inputs, and each non-string value.

    Pulumi's own inputs, None and UNKNOWN give no problem.
    """
    config_keys = _map_inputs_to_config_keys()
    for name, value in inputs.items():
        if name in _OTHER_INPUTS:
            continue
        if name not in config_keys:
            listed = f"the settings are {', '.join(config_keys)}"
            suggestion = suggest_name(name, config_keys, listed)
            yield Problem(name, f"is not a setting of gpuform: {suggestion}")
        elif value is not None and value is not UNKNOWN and not isinstance(value, str):
            yield Problem(name, "must be a string")


def create_settings(inputs: Mapping[str, Any], config: Mapping[str, str]) -> Settings:
    """Return the settings from a provider's plain inputs, completed from the stack's configuration.

    With an UNKNOWN input the settings are empty, so that no other account is used in its place.

    Args:
        inputs: The provider's inputs by name.
        config: The stack's configuration under full keys.
    """
    config_keys = _map_inputs_to_config_keys()
    # An unknown key must not fall back to another account's key.
    if any(inputs.get(name) is UNKNOWN for name in config_keys):
        return Settings(environ={})
    values_by_key = {
        config_keys[name]: value
        for name, value in inputs.items()
        if name in config_keys and isinstance(value, str) and value
    }
    return Settings(
        config=lambda key: values_by_key.get(key) or config.get(key), given=values_by_key
    )


def read_stack_config() -> dict[str, str]:
    """Return the stack's configuration under full keys, from the variable PULUMI_CONFIG.

    Returns an empty dict if the variable is missing or is not a JSON object.
    """
    try:
        config = json.loads(read_run_context().environ.get("PULUMI_CONFIG") or "{}")
    except ValueError:
        return {}
    if not isinstance(config, dict):
        return {}
    return {str(key): str(value) for key, value in config.items()}


def _map_inputs_to_config_keys() -> dict[str, str]:
    """Return the configuration key of each input of the provider, by the input's name."""
    return {setting.name: setting.config for setting in list_settings()}


def get_lifecycle_by_token(token: str) -> type[Lifecycle[Any, Any]]:
    """Return the lifecycle class of a resource type such as `gpuform:together:Cluster`.

    Raises:
        UnsupportedKind: the token names no resource of gpuform; the message lists the valid ones.
    """
    package, _, rest = token.partition(":")
    platform, _, kind = rest.partition(":")
    if package != PACKAGE or not kind:
        raise UnsupportedKind(
            f"{token} is not a resource of gpuform: use {PACKAGE}:<platform>:<Kind> with one of "
            f"the platforms {', '.join(platforms())}"
        )
    return load_lifecycle_class(platform, kind)


ITEMS = "items"


def list_function_tokens() -> list[str]:
    """Return Pulumi's tokens of all look-up functions: `gpuform:PLATFORM:NAME`."""
    return [
        f"{PACKAGE}:{platform}:{name}"
        for platform in platforms()
        for name in _list_function_names(platform)
    ]


def _list_function_names(platform: str) -> list[str]:
    """Return the names of a platform's look-ups that are functions."""
    return [
        name for name in list_lookups(platform) if inspect.isfunction(load_lookup(platform, name))
    ]


def call_function(token: str, arguments: Mapping[str, Any], settings: Settings) -> Properties:
    """Call a look-up function, and return the platform's answer as properties; a list as `items`.

    An argument of None counts as left out.

    Raises:
        GpuformError: the token or an argument is unknown, an argument is missing, or the platform
            refuses.
    """
    package, _, rest = token.partition(":")
    platform, _, name = rest.partition(":")
    if (
        package != PACKAGE
        or platform not in platforms()
        or name not in _list_function_names(platform)
    ):
        tokens = list_function_tokens()
        suggestion = suggest_name(token, tokens, f"the functions are {', '.join(tokens)}")
        raise GpuformError(f"gpuform has no function {token}: {suggestion}")
    function = load_lookup(platform, name)
    # A null means that the program leaves the parameter out: the function's default holds.
    passed_arguments = {key: value for key, value in arguments.items() if value is not None}
    try:
        bound_arguments = inspect.signature(function).bind_partial(
            **_convert_integers(function, passed_arguments)
        )
        bound_arguments.apply_defaults()
        # `bind_partial` does not report missing arguments: bind all of them.
        inspect.signature(function).bind(*bound_arguments.args, **bound_arguments.kwargs)
    except TypeError as error:
        raise GpuformError(f"{token}: {error}") from None
    with use_lookup_settings(settings):
        result = function(*bound_arguments.args, **bound_arguments.kwargs)
    plain_result = convert_leaves(
        result,
        lambda leaf: (
            leaf.model_dump(mode="json", exclude_none=True) if isinstance(leaf, BaseModel) else leaf
        ),
    )
    return plain_result if isinstance(plain_result, dict) else {ITEMS: plain_result}


def _convert_integers(function: Any, arguments: Mapping[str, Any]) -> Properties:
    """Return the arguments, with 2.0 as 2 where the function's parameter is an int."""
    # Protobuf's Struct transports every number as a double.
    parameters = inspect.signature(function).parameters
    return {
        key: int(value)
        if isinstance(value, float)
        and value.is_integer()
        and key in parameters
        and parameters[key].annotation in (int, "int", int | None)
        else value
        for key, value in arguments.items()
    }

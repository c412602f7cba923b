"""The settings of one provider of a stack: accounts and addresses of the platforms.

Under Pulumi every provider, the default one and each explicit one, is a process of its own. What
its inputs say wins over the environment, so that one stack can use several accounts; what they
leave open is the environment's, then the stack's configuration's.
"""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuform.providers.actions import Settings
from gpuform.providers.forms import FORM_CONFIG
from gpuform.providers.platforms import all_settings
from gpuform.schemas.models import Problem
from gpuform.schemas.reasons import nearest
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
            near = nearest(name, tuple(keys))
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

"""What one provider of a stack is configured with: accounts and addresses.

Under Pulumi every provider, the default one and each explicit one, is a process of its own. Its
inputs have the settings of all platforms under one name each, `togetherApiKey` for what is
`together:apiKey` in a stack's configuration. They win over the environment, so that one stack can
use several accounts; what they leave open is the environment's, then the configuration's.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gpuform.providers.actions import Settings
from gpuform.providers.plugin.wire import Secret, revealed
from gpuform.providers.properties import Properties
from gpuform.schemas.models import Problem
from gpuform.schemas.reasons import nearest
from gpuform.schemas.values import UNKNOWN


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a platform, with the environment variable that says the same."""

    description: str
    variable: str = ""
    secret: bool = False


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        "together:apiKey": Setting("The API key of Together", "TOGETHER_API_KEY", secret=True),
        "scp:accessKey": Setting("The access key of Samsung SCP", "SCP_TF_ACCESS_KEY", secret=True),
        "scp:secretKey": Setting("The secret key of Samsung SCP", "SCP_TF_SECRET_KEY", secret=True),
        "scp:authToken": Setting(
            "The token of Samsung SCP, in place of keys", "SCP_TF_AUTH_TOKEN", secret=True
        ),
        "scp:accountId": Setting("The account of Samsung SCP", "SCP_TF_ACCOUNT_ID"),
        "scp:defaultRegion": Setting(
            "The region of resources of Samsung SCP that name none", "SCP_TF_DEFAULT_REGION"
        ),
        "scp:environment": Setting("The environment of Samsung SCP that is addressed"),
        "tensorone:apiKey": Setting("The API key of TensorOne", "TENSORONE_API_KEY", secret=True),
        "aios:registryUrl": Setting("The address of the AIOS registry", "AIOS_REGISTRY_URL"),
        "aios:parserUrl": Setting("The address of the AIOS parser", "AIOS_PARSER_URL"),
        "lens:url": Setting("The address of Lens", "LENS_URL"),
        "lens:token": Setting("The token that Lens wants, if any", "LENS_TOKEN", secret=True),
    }
)
"""By full configuration key."""

ENGINE_KEYS = frozenset(
    {"version", "pluginDownloadURL", "pluginChecksums", "parameterization", "__internal"}
)
"""The inputs of a provider that are the engine's own."""


def input_name(key: str) -> str:
    """The provider's input for a setting: `togetherApiKey` for `together:apiKey`."""
    platform, _, name = key.partition(":")
    return platform + name[:1].upper() + name[1:]


KEYS: Mapping[str, str] = MappingProxyType({input_name(key): key for key in SETTINGS})
"""Full configuration key by the provider's input."""


def check_inputs(inputs: Mapping[str, Any]) -> tuple[Properties, list[Problem]]:
    """A provider's inputs with the secret ones marked, and what is wrong with them."""
    problems = [
        problem
        for name, value in revealed(inputs).items()
        if name not in ENGINE_KEYS and (problem := _problem(name, value))
    ]
    secret = {input_name(key) for key, setting in SETTINGS.items() if setting.secret}
    checked = {
        name: Secret(revealed(value)) if name in secret and value is not None else value
        for name, value in inputs.items()
    }
    return checked, problems


def _problem(name: str, value: Any) -> Problem | None:
    if name not in KEYS:
        near = nearest(name, tuple(KEYS))
        meant = f"did you mean {near}?" if near else f"there is {', '.join(KEYS)}"
        return Problem(name, f"is no setting of gpuform: {meant}")
    if value is None or value is UNKNOWN or isinstance(value, str):
        return None
    return Problem(name, "must be a text")


def settings_of(inputs: Mapping[str, Any], config: Mapping[str, str]) -> Settings:
    """The settings by a provider's inputs, where they are known, and by a configuration."""
    given = {
        KEYS[name]: value
        for name, value in revealed(inputs).items()
        if name in KEYS and isinstance(value, str) and value
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

"""Convert property maps between the form of Pulumi's hosts and gpuform's own.

Hosts pass unwrapped values, every number as a double, Pulumi's own unknowns, and `__provider`.
"""

from collections.abc import Mapping
from typing import Any

from pulumi.output import Unknown as PulumiUnknown

from gpuform.providers.forms import PROVIDER_KEY
from gpuform.schemas.values import UNKNOWN

Properties = dict[str, Any]
"""A property map: unwrapped values by name."""


def to_properties(properties: Mapping[str, Any]) -> Properties:
    """Return a property map without `__provider` and with gpuform's own unknowns."""
    return {key: _to_own_value(value) for key, value in properties.items() if key != PROVIDER_KEY}


def _to_own_value(value: Any) -> Any:
    """Return a value with gpuform's UNKNOWN in place of Pulumi's, at any depth."""
    if isinstance(value, str | float):  # most are, and what follows takes longer to ask
        return value
    if isinstance(value, PulumiUnknown):
        return UNKNOWN
    if isinstance(value, Mapping):
        return {key: _to_own_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_own_value(item) for item in value]
    return value


def to_pulumi(value: Any) -> Any:
    """Return a value with Pulumi's unknowns at every depth, as the hosts accept."""
    if value is UNKNOWN:
        return PulumiUnknown()  # type: ignore[no-untyped-call] # as the SDK has it
    if isinstance(value, Mapping):
        return {key: to_pulumi(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_pulumi(item) for item in value]
    return value

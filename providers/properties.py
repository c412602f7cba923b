"""Property maps as Pulumi's hosts pass them, and as gpuform has them.

Hosts pass plain values, every number a double, Pulumi's own unknowns, and `__provider`.
"""

from collections.abc import Mapping
from typing import Any

from pulumi.output import Unknown as PulumiUnknown

from gpuform.providers.forms import PROVIDER_KEY
from gpuform.schemas.values import UNKNOWN

Properties = dict[str, Any]
"""A property map: plain values by name."""


def plain(properties: Mapping[str, Any]) -> Properties:
    """A property map without `__provider`, in gpuform's own unknowns."""
    return {key: _value(value) for key, value in properties.items() if key != PROVIDER_KEY}


def _value(value: Any) -> Any:
    if isinstance(value, str | float):  # most are, and what follows takes longer to ask
        return value
    if isinstance(value, PulumiUnknown):
        return UNKNOWN
    if isinstance(value, Mapping):
        return {key: _value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    return value


def to_pulumi(value: Any) -> Any:
    """A value as the hosts take it: with Pulumi's unknowns, at every depth."""
    if value is UNKNOWN:
        return PulumiUnknown()  # type: ignore[no-untyped-call] # as the SDK has it
    if isinstance(value, Mapping):
        return {key: to_pulumi(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_pulumi(item) for item in value]
    return value

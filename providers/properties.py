"""Convert property maps between Pulumi's hosts and gpuform, and read single declared facts.

Hosts pass unwrapped values, every number as a double, Pulumi's own unknowns, and `__provider`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pulumi.output import Unknown as PulumiUnknown

from gpuform.providers.platform import PROVIDER_KEY
from gpuform.schemas.values import UNKNOWN, convert_leaves

Properties = dict[str, Any]
"""A property map: unwrapped values by name."""


def to_properties(properties: Mapping[str, Any]) -> Properties:
    """Return a property map without `__provider` and with gpuform's own unknowns."""
    return {
        key: convert_leaves(
            value, lambda leaf: UNKNOWN if isinstance(leaf, PulumiUnknown) else leaf
        )
        for key, value in properties.items()
        if key != PROVIDER_KEY
    }


def to_pulumi(value: Any) -> Any:
    """Return a value with Pulumi's unknowns at every depth, as the hosts accept."""
    # The SDK's class has no types.
    create_unknown: Callable[[], Any] = PulumiUnknown
    return convert_leaves(value, lambda leaf: create_unknown() if leaf is UNKNOWN else leaf)


_LARGEST = 1e15

EXPIRES = "expires"
"""The tag with the end of an object, on platforms without a field for it."""


def find_text(values: Mapping[str, Any], *names: str) -> str:
    """Return the first text that is not empty among these declared fields, else "".

    Empty, too, if a field before that text is UNKNOWN.
    """
    for name in names:
        value = values.get(name)
        if value is UNKNOWN:
            return ""
        if isinstance(value, str) and value:
            return value
    return ""


def find_number(values: Mapping[str, Any], name: str) -> float | None:
    """Return a declared number; 0 if absent or no number, None if UNKNOWN or absurdly large."""
    value = values.get(name)
    if value is UNKNOWN:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return value if abs(value) < _LARGEST else None


def list_member_names(values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the sorted keys of an object in the declaration, such as its tags."""
    value = values.get(name)
    return tuple(sorted(map(str, value))) if isinstance(value, Mapping) else ()


def list_unknown_fields(values: Mapping[str, Any], **fields: str) -> tuple[str, ...]:
    """Return the labels of the declared fields that are UNKNOWN: `region="region_id"`.

    Each keyword is a label, and its value the name of the field.
    """
    return tuple(label for label, name in fields.items() if values.get(name) is UNKNOWN)


def extract_placement(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the region and type in which an object was created after a search for capacity.

    By input names; empty for outputs of older versions.
    """
    placement = {name: outputs.get(f"placed_{name}") for name in ("region", "gpu_type")}
    return {name: value for name, value in placement.items() if isinstance(value, str)}

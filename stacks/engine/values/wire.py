"""Properties that a program or a language host sends, and those that a topology declares."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from gpuform.providers import values
from gpuform.stacks.engine.errors import EngineError

if TYPE_CHECKING:
    from google.protobuf.struct_pb2 import Struct


_SENSELESS: Final = "Upgrade gpuform, or use the Pulumi CLI for this program."


def from_struct(struct: "Struct") -> values.PropertyMap:
    """The properties that a protobuf Struct carries, by name; EngineError names a senseless one."""
    try:
        return values.from_struct(struct)
    except ValueError as error:
        raise EngineError(str(error), hint=_SENSELESS) from error


def from_plain(value: Any) -> values.PropertyValue:
    """What a plain value is once it has been on the wire. Raises EngineError for a senseless one.

    Numbers are doubles, objects have their keys in order, and some texts and objects stand for
    other values.
    """
    if isinstance(value, str):
        return values.UNKNOWN if values.is_unknown_text(value) else value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, list | tuple):
        return [from_plain(item) for item in value]
    if isinstance(value, Mapping):
        fields = {key: from_plain(value[key]) for key in sorted(value)}
        if values.SIGNATURE not in fields:
            return fields
        try:
            return values.from_special(fields)
        except ValueError as error:
            raise EngineError(str(error), hint=_SENSELESS) from error
    raise TypeError(f"a {type(value).__name__} is no property value")

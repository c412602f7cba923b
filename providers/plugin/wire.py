"""Property maps on Pulumi's wire: protobuf Structs, in which marked objects stand for more.

What arrives becomes plain values, with UNKNOWN for what is not known yet and `Secret` around what
is secret; what is sent is marked again. The marks are those of Pulumi's property model.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from google.protobuf.struct_pb2 import ListValue, Struct, Value

from gpuform.providers.errors import GpuformError
from gpuform.providers.properties import Properties
from gpuform.schemas.values import UNKNOWN

SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
SECRET: Final = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - Pulumi's mark, no secret
REFERENCE: Final = "5cf8f73096256a8f31e491e813e4eb8e"
OUTPUT: Final = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
UNKNOWN_TEXT: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"

_UNKNOWN_TEXTS: Final = frozenset(
    {
        UNKNOWN_TEXT,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",  # a boolean
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",  # a number
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",  # a list
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",  # an object
        "030794c1-ac77-496b-92df-f27374a8bd58",  # an asset
        "e48ece36-62e2-4504-bad9-02848725956a",  # an archive
    }
)


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that is shown nowhere."""

    value: Any

    def __repr__(self) -> str:
        return "[secret]"


def from_struct(struct: Struct) -> Properties:
    """The properties of a Struct, by name; GpuformError for a kind of value no resource takes."""
    # A protobuf map has no order of its own, and each process would show another one.
    return {name: _from_value(value) for name, value in sorted(struct.fields.items())}


def _from_value(value: Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return UNKNOWN if value.string_value in _UNKNOWN_TEXTS else value.string_value
    if kind == "number_value":
        return value.number_value
    if kind == "bool_value":
        return value.bool_value
    if kind == "list_value":
        return [_from_value(item) for item in value.list_value.values]
    if kind != "struct_value":
        return None
    fields = from_struct(value.struct_value)
    return _marked_object(fields) if SIGNATURE in fields else fields


def _marked_object(fields: Properties) -> Any:
    mark = fields[SIGNATURE]
    if mark == SECRET:
        return Secret(revealed(fields.get("value")))
    if mark == OUTPUT:
        inner = fields.get("value", UNKNOWN)
        return Secret(revealed(inner)) if fields.get("secret") is True else inner
    if mark == REFERENCE:  # a resource means its id, a component its URN
        return fields.get("id", fields.get("urn")) or UNKNOWN
    raise GpuformError("a file is no value of a gpuform resource: give its text")


def to_struct(properties: Mapping[str, Any]) -> Struct:
    """The properties as a Struct; those at the top that are None are absent."""
    struct = Struct()
    for name, value in properties.items():
        if value is not None:
            _set(struct.fields[name], value)
    return struct


def _set(target: Value, value: Any) -> None:
    if value is UNKNOWN:
        target.string_value = UNKNOWN_TEXT
    elif isinstance(value, str):
        target.string_value = value
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int | float):
        target.number_value = value
    elif isinstance(value, Secret):
        _set(target, {SIGNATURE: SECRET, "value": value.value})
    elif isinstance(value, Mapping):
        target.struct_value.CopyFrom(Struct())
        for name, item in value.items():
            _set(target.struct_value.fields[name], item)
    elif isinstance(value, Iterable):
        target.list_value.CopyFrom(ListValue())
        for item in value:
            _set(target.list_value.values.add(), item)
    else:
        target.null_value = 0  # type: ignore[assignment]  # the stub wants the enum's own type


def revealed(value: Any) -> Any:
    """The value without `Secret` at any depth: what a lifecycle gets."""
    if isinstance(value, Secret):
        return revealed(value.value)
    if isinstance(value, Mapping):
        return {name: revealed(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [revealed(item) for item in value]
    return value


def secret_values(properties: Mapping[str, Any]) -> Iterator[Any]:
    """Every value that is marked as secret, at any depth."""
    for value in properties.values():
        yield from _secrets_in(value)


def _secrets_in(value: Any) -> Iterator[Any]:
    if isinstance(value, Secret):
        yield value.value
    elif isinstance(value, Mapping):
        yield from secret_values(value)
    elif isinstance(value, list | tuple):
        yield from chain.from_iterable(map(_secrets_in, value))


def marked(
    answer: Mapping[str, Any], given: Mapping[str, Any], names: Collection[str] = ()
) -> Properties:
    """An answer with its secrets: the properties `names`, and what is secret in `given`.

    As Pulumi does for providers that know no secrets, two objects are compared name by name, and
    any other value that is given with a secret in it is one as a whole.
    """
    made: Properties = {}
    for name, value in answer.items():
        other = given.get(name)
        if value is not None and (name in names or _holds_secret(value)):
            made[name] = Secret(revealed(value))
        elif isinstance(value, Mapping) and isinstance(other, Mapping):
            made[name] = marked(value, other)
        elif value is not None and _holds_secret(other):
            made[name] = Secret(value)
        else:
            made[name] = value
    return made


def _holds_secret(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_secret, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_secret, value))
    return isinstance(value, Secret)

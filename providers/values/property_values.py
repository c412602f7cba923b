"""Property values with their marks, and their form on Pulumi's wire.

The engine's monitor and the provider plugin decode what they are sent into these values and encode
their answers; the engine's codec of states builds on the same signatures. Numbers are floats
everywhere, as on the wire.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from gpuform.providers.values.redaction import texts_in
from gpuform.schemas.safe_text import MASK
from gpuform.schemas.values import SECRET_SIGNATURE, SIGNATURE_KEY

if TYPE_CHECKING:
    from google.protobuf.struct_pb2 import Struct, Value

REFERENCE: Final = "5cf8f73096256a8f31e491e813e4eb8e"
OUTPUT: Final = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
ASSET: Final = "c44067f5952c0a294b673a41bacd8c17"
ARCHIVE: Final = "0def7320c3a5731c473e5ecbe6d01bc7"
BYTES: Final = "803fd3297a5875dc03ca845dda5d2a98"

UNKNOWN_TEXT: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""The string that stands for an unknown value, on the wire and in the state."""

# Go also has one sentinel for each type; all of them mean the same to this engine.
_UNKNOWN_TEXTS: Final = frozenset(
    {
        UNKNOWN_TEXT,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "030794c1-ac77-496b-92df-f27374a8bd58",
        "e48ece36-62e2-4504-bad9-02848725956a",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
    }
)


@final
class Unknown:
    """The type of `UNKNOWN`: a value that only a real update can tell. There is one instance."""

    __slots__ = ()
    _only: "Unknown | None" = None

    def __new__(cls) -> "Unknown":
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "[unknown]"

    def __reduce__(self) -> tuple[type["Unknown"], tuple[()]]:
        return (Unknown, ())


UNKNOWN: Final = Unknown()


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A value that is never shown nor stored in the clear.

    `ciphertext` is the text that the value had in the state it was read from, so that an
    unchanged secret is written back unchanged; it is not part of the value.
    """

    value: "PropertyValue"
    ciphertext: str | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return MASK


@dataclass(frozen=True, slots=True)
class ResourceReference:
    """A resource used as a value. `id` is None for a component, `UNKNOWN` before creation."""

    urn: str
    id: str | Unknown | None = None
    package_version: str = ""


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as a value: exactly one of `text`, `path` and `uri` is set."""

    text: str | None = None
    path: str | None = None
    uri: str | None = None
    hash: str = ""


@dataclass(frozen=True, slots=True)
class Archive:
    """Files as a value: exactly one of `assets` (name to asset), `path` and `uri` is set."""

    assets: "dict[str, Asset | Archive] | None" = None
    path: str | None = None
    uri: str | None = None
    hash: str = ""


PropertyValue: TypeAlias = (
    "bool | float | str | bytes | list[PropertyValue] | dict[str, PropertyValue]"
    " | Secret | Unknown | ResourceReference | Asset | Archive | None"
)
"""bytes is text that is not UTF-8, which Pulumi calls a byte string."""

PropertyMap: TypeAlias = dict[str, PropertyValue]


def contains_unknown(value: PropertyValue) -> bool:
    if isinstance(value, dict):
        return any(map(contains_unknown, value.values()))
    if isinstance(value, list):
        return any(map(contains_unknown, value))
    if isinstance(value, Secret):
        return contains_unknown(value.value)
    return value is UNKNOWN or (isinstance(value, ResourceReference) and value.id is UNKNOWN)


def without_unknowns(properties: PropertyMap) -> PropertyMap:
    """The properties without what is unknown: all that a provider is told in a real run."""

    def known(value: PropertyValue) -> PropertyValue:
        if isinstance(value, dict):
            return without_unknowns(value)
        if isinstance(value, list):
            return [known(item) for item in value if unwrap(item) is not UNKNOWN]
        return Secret(known(value.value)) if isinstance(value, Secret) else value

    return {key: known(v) for key, v in properties.items() if unwrap(v) is not UNKNOWN}


def contains_secret(value: PropertyValue) -> bool:
    if isinstance(value, dict):
        return any(map(contains_secret, value.values()))
    if isinstance(value, list):
        return any(map(contains_secret, value))
    return isinstance(value, Secret)


def secrets_in(value: PropertyValue) -> Iterator[Secret]:
    """The outermost secrets at any depth."""
    if isinstance(value, Secret):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from secrets_in(item)


def equal(a: PropertyValue, b: PropertyValue) -> bool:
    """Whether two values are the same to Pulumi: unlike in Python, true is not 1."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(item, b[key]) for key, item in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, Secret) and isinstance(b, Secret):
        return equal(a.value, b.value)
    if isinstance(a, Asset | Archive) and isinstance(b, Asset | Archive):
        return _is_same_file(a, b)
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def _is_same_file(a: Asset | Archive, b: Asset | Archive) -> bool:
    """Return whether two files have the same content, or where one has no hash, the same place."""
    if type(a) is not type(b) or (a.hash and b.hash):
        return type(a) is type(b) and a.hash == b.hash
    if isinstance(a, Archive) and isinstance(b, Archive) and a.assets and b.assets:
        return a.assets.keys() == b.assets.keys() and all(
            _is_same_file(member, b.assets[name]) for name, member in a.assets.items()
        )
    return replace(a, hash="") == replace(b, hash="")


def unwrap(value: PropertyValue) -> PropertyValue:
    """The value without a secret around it; secrets deeper inside stay."""
    while isinstance(value, Secret):
        value = value.value
    return value


def unwrap_secrets(value: PropertyValue) -> PropertyValue:
    """The value without secrets at any depth: what a provider gets. The argument is kept."""
    if isinstance(value, Secret):
        return unwrap_secrets(value.value)
    if isinstance(value, dict):
        return {key: unwrap_secrets(item) for key, item in value.items()}
    if isinstance(value, list):
        return [unwrap_secrets(item) for item in value]
    return value


def secret_texts(value: PropertyValue) -> Iterator[str]:
    """Every text that is secret in a value, and every number as it is written."""
    if isinstance(value, Secret):
        plain = unwrap_secrets(value.value)
        yield from texts_in(plain)
        yield from _numbers_in(plain)
    elif isinstance(value, dict):
        for item in value.values():
            yield from secret_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from secret_texts(item)


def _numbers_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _numbers_in(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield f"{value:.15g}"


def mark_echoed_secrets(outs: PropertyMap, ins: PropertyMap) -> PropertyMap:
    """A provider's plain answer with the secrets of the inputs marked again, as Pulumi does.

    For a key of both: two objects are compared key by key; otherwise any secret in the input,
    also inside a list, makes the whole value of the answer secret.
    """
    marked = dict(outs)
    for key in outs.keys() & ins.keys():
        out, given = outs[key], ins[key]
        if isinstance(out, dict) and isinstance(given, dict):
            marked[key] = mark_echoed_secrets(out, given)
        elif contains_secret(given):
            marked[key] = make_secret(out)
    return marked


def mark_renamed_secrets(
    outs: PropertyMap, ins: PropertyMap, input_names: Iterable[str]
) -> PropertyMap:
    """Return an answer with its undeclared inputs marked, if it lacks a secret input.

    The canonical form of a declaration may have the secret under another name: `scale_down` is
    `drain` there.
    """
    if not any(contains_secret(ins[key]) for key in ins.keys() - outs.keys()):
        return outs
    renamed = {*input_names} - ins.keys()
    return {key: make_secret(out) if key in renamed else out for key, out in outs.items()}


def mark_secret_outputs(
    outs: PropertyMap, ins: PropertyMap, additional: Iterable[str]
) -> PropertyMap:
    """Outputs with the secret ones marked, after a step: those named in `additional` (but for
    `id`, which Pulumi never makes secret) and those whose input of the same name is a secret.
    """
    names = {key for key, value in ins.items() if isinstance(value, Secret)}
    names.update(name for name in additional if name != "id")
    return {key: make_secret(out) if key in names else out for key, out in outs.items()}


def make_secret(value: PropertyValue) -> Secret:
    """The value as one secret: secrets inside it need no mark of their own any more."""
    return value if isinstance(value, Secret) else Secret(unwrap_secrets(value))


def keep_ciphertexts(new: PropertyValue, old: PropertyValue) -> PropertyValue:
    """`new` with the secrets of `old` where they are equal, so that the state stays quiet."""
    if isinstance(new, Secret):
        return old if isinstance(old, Secret) and equal(old, new) else new
    if isinstance(new, dict) and isinstance(old, dict):
        return {key: keep_ciphertexts(item, old.get(key)) for key, item in new.items()}
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [keep_ciphertexts(*pair) for pair in zip(new, old, strict=True)]
    return new


# --- signature objects: what both the wire and the state write as an object ----------------------


def changed_keys(olds: PropertyMap, news: PropertyMap) -> list[str]:
    """Top-level properties whose plain values differ; secrets compare by what they hide."""
    return sorted(
        key
        for key in olds.keys() | news.keys()
        if not (
            key in olds
            and key in news
            and equal(unwrap_secrets(olds[key]), unwrap_secrets(news[key]))
        )
    )


def from_special(fields: Mapping[str, Any]) -> PropertyValue:
    """The value of an object that carries a signature, its parts already decoded.

    Raises ValueError when the signature or the parts are not Pulumi's. Dependencies of output
    values are dropped: the engine takes them from the registration.
    """
    kind = fields[SIGNATURE_KEY]
    if kind == SECRET_SIGNATURE and "value" in fields:
        return make_secret(fields["value"])
    if kind == OUTPUT:
        inner: PropertyValue = fields.get("value", UNKNOWN)
        return make_secret(inner) if fields.get("secret") is True else inner
    if kind == REFERENCE and isinstance(fields.get("urn"), str):
        identity = unwrap(fields.get("id"))
        if identity == "":
            identity = UNKNOWN
        if identity is None or isinstance(identity, str | Unknown):
            return ResourceReference(fields["urn"], identity, fields.get("packageVersion", ""))
    if kind == BYTES and isinstance(fields.get("value"), str):
        try:
            return base64.b64decode(fields["value"], validate=True)
        except binascii.Error as error:
            raise ValueError("a byte string that is not base64") from error
    if kind in (ASSET, ARCHIVE):
        return _file(fields)
    raise ValueError(f"an object with the unrecognised signature {kind!r}")


HASH_OF_NOTHING: Final = hashlib.sha256(b"").hexdigest()
"""An asset that has this hash and no contents has an empty text, which the CLI leaves out."""


def _file(fields: Mapping[str, Any]) -> Asset | Archive:
    name = "asset" if fields[SIGNATURE_KEY] == ASSET else "archive"
    contents = ("text" if name == "asset" else "assets", "path", "uri")
    given = {key: fields[key] for key in contents if fields.get(key) is not None}
    if not given and name == "asset" and fields.get("hash") == HASH_OF_NOTHING:
        given = {"text": ""}
    if len(given) != 1:
        raise ValueError(f"an {name} with {len(given)} contents instead of one")
    made = Asset if name == "asset" else Archive
    return made(**given, hash=fields.get("hash", ""))


def to_special(value: bytes | ResourceReference | Asset | Archive) -> dict[str, PropertyValue]:
    """The object, signature included, that stands for the value on the wire and in the state."""
    if isinstance(value, bytes):
        return {SIGNATURE_KEY: BYTES, "value": base64.b64encode(value).decode()}
    if isinstance(value, ResourceReference):
        made: dict[str, PropertyValue] = {SIGNATURE_KEY: REFERENCE, "urn": value.urn}
        if value.id is not None:
            made["id"] = "" if isinstance(value.id, Unknown) else value.id
        if value.package_version:
            made["packageVersion"] = value.package_version
        return made
    made = {SIGNATURE_KEY: ASSET if isinstance(value, Asset) else ARCHIVE}
    if value.hash:
        made["hash"] = value.hash
    contents = value.text if isinstance(value, Asset) else value.assets
    parts = {"text" if isinstance(value, Asset) else "assets": contents}
    parts |= {"path": value.path, "uri": value.uri}
    made.update({key: part for key, part in parts.items() if part is not None})  # type: ignore[misc]  # dict is invariant
    return made


def is_unknown_text(text: str) -> bool:
    """Whether the string is one of the sentinels that stand for an unknown value."""
    return text in _UNKNOWN_TEXTS


# --- the wire ------------------------------------------------------------------------------------


def from_struct(struct: "Struct") -> PropertyMap:
    """The properties that a protobuf Struct carries, by name; ValueError names a senseless one."""
    made: PropertyMap = {}
    # A protobuf map has no order of its own, and each process would show another one.
    for key, value in sorted(struct.fields.items()):
        try:
            made[key] = from_value(value)
        except ValueError as error:
            raise ValueError(f"property {key!r}: {error}") from error
    return made


def from_value(value: "Value") -> PropertyValue:
    """The property value that a protobuf Value carries; one that says nothing is None.

    Raises ValueError for an object with a signature that has no meaning.
    """
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        text = value.string_value
        return UNKNOWN if text in _UNKNOWN_TEXTS else text
    if kind == "number_value":
        return value.number_value
    if kind == "struct_value":
        items = sorted(value.struct_value.fields.items())
        fields = {key: from_value(item) for key, item in items}
        return from_special(fields) if SIGNATURE_KEY in fields else fields
    if kind == "list_value":
        return [from_value(item) for item in value.list_value.values]
    return value.bool_value if kind == "bool_value" else None


def to_struct(properties: PropertyMap) -> "Struct":
    """The properties as a protobuf Struct, with secrets and unknowns in Pulumi's encoding."""
    from google.protobuf.struct_pb2 import Struct  # noqa: PLC0415 - only the monitor needs it

    struct = Struct()
    _fill(struct, properties)
    return struct


def _fill(struct: "Struct", properties: Mapping[str, PropertyValue]) -> None:
    fields = struct.fields
    for key, item in properties.items():
        _set(fields[key], item)


def _set(target: "Value", value: PropertyValue) -> None:
    if isinstance(value, str):
        target.string_value = value
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int | float):
        target.number_value = value
    elif value is None:
        target.null_value = 0  # type: ignore[assignment]  # the stub wants the enum's own type
    elif isinstance(value, dict):
        target.struct_value.SetInParent()
        _fill(target.struct_value, value)
    elif isinstance(value, list):
        target.list_value.SetInParent()
        for item in value:
            _set(target.list_value.values.add(), item)
    elif isinstance(value, Unknown):
        target.string_value = UNKNOWN_TEXT
    elif isinstance(value, Secret):
        _fill(target.struct_value, {SIGNATURE_KEY: SECRET_SIGNATURE, "value": value.value})
    else:
        _fill(target.struct_value, to_special(value))

"""Define property values with their marks, and convert them to and from Pulumi's wire.

The engine's monitor and the provider plugin decode requests to these values and encode their
answers; the engine's codec of states builds on the same signatures. Numbers are floats everywhere,
as on the wire.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gpuform.providers.values.redaction import collect_texts
from gpuform.schemas.safe_text import MASK
from gpuform.schemas.values import (
    SECRET_SIGNATURE,
    SIGNATURE_KEY,
    UNKNOWN,
    Unknown,
    convert_leaves,
    iterate_leaves,
)

if TYPE_CHECKING:
    from google.protobuf.struct_pb2 import Struct, Value

# Pulumi's own signatures, the same in all of its SDKs and in states.
REFERENCE: Final = "5cf8f73096256a8f31e491e813e4eb8e"
OUTPUT: Final = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
ASSET: Final = "c44067f5952c0a294b673a41bacd8c17"
ARCHIVE: Final = "0def7320c3a5731c473e5ecbe6d01bc7"
BYTES: Final = "803fd3297a5875dc03ca845dda5d2a98"

UNKNOWN_TEXT: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""The string for an unknown value, on the wire and in the state."""

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


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A value that is neither shown nor stored in the clear.

    `ciphertext` is the encrypted text in the state that the value was read from, so that an
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
"""A value of a property. bytes is text that is not UTF-8, which Pulumi calls a byte string."""

PropertyMap: TypeAlias = dict[str, PropertyValue]


def contains_unknown(value: PropertyValue) -> bool:
    """Return True if an unknown value, or a reference with an unknown id, is in the value.

    At any depth, also inside secrets.
    """
    return any(
        contains_unknown(leaf.value)
        if isinstance(leaf, Secret)
        else leaf is UNKNOWN or (isinstance(leaf, ResourceReference) and leaf.id is UNKNOWN)
        for leaf in iterate_leaves(value)
    )


def drop_unknowns(properties: PropertyMap) -> PropertyMap:
    """Return the properties without unknown values, as a provider gets them in an update.

    At any depth: unknown items of lists and unknown secrets are left out, too.
    """

    def drop_unknown_items(value: PropertyValue) -> PropertyValue:
        if isinstance(value, dict):
            return drop_unknowns(value)
        if isinstance(value, list):
            return [drop_unknown_items(item) for item in value if unwrap(item) is not UNKNOWN]
        return Secret(drop_unknown_items(value.value)) if isinstance(value, Secret) else value

    return {key: drop_unknown_items(v) for key, v in properties.items() if unwrap(v) is not UNKNOWN}


def contains_secret(value: PropertyValue) -> bool:
    """Return True if a secret is in the property value at any depth."""
    return any(isinstance(leaf, Secret) for leaf in iterate_leaves(value))


def find_secrets(value: PropertyValue) -> Iterator[Secret]:
    """Yield the secrets in a property value at any depth, but no secrets inside secrets."""
    return (leaf for leaf in iterate_leaves(value) if isinstance(leaf, Secret))


def are_equal(a: PropertyValue, b: PropertyValue) -> bool:
    """Return True if Pulumi takes two values for equal; unlike in Python, true is not 1.

    A secret equals only a secret with an equal value. Files are equal if their hashes are, whatever
    their sources.
    """
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(are_equal(item, b[key]) for key, item in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(are_equal, a, b))
    if isinstance(a, Secret) and isinstance(b, Secret):
        return are_equal(a.value, b.value)
    if isinstance(a, Asset | Archive) and isinstance(b, Asset | Archive):
        return _is_same_file(a, b)
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def _is_same_file(a: Asset | Archive, b: Asset | Archive) -> bool:
    """Return True if two files have the same hash or, if one lacks a hash, the same source."""
    # With both hashes known, the contents decide, wherever they come from.
    if type(a) is not type(b) or (a.hash and b.hash):
        return type(a) is type(b) and a.hash == b.hash
    if isinstance(a, Archive) and isinstance(b, Archive) and a.assets and b.assets:
        return a.assets.keys() == b.assets.keys() and all(
            _is_same_file(member, b.assets[name]) for name, member in a.assets.items()
        )
    return replace(a, hash="") == replace(b, hash="")


def unwrap(value: PropertyValue) -> PropertyValue:
    """Return the value without a secret around it; secrets deeper inside stay."""
    while isinstance(value, Secret):
        value = value.value
    return value


def unwrap_secrets(value: Any) -> Any:
    """Return a copy of the value without secrets at any depth, as a provider gets it."""
    return convert_leaves(
        value, lambda leaf: unwrap_secrets(leaf.value) if isinstance(leaf, Secret) else leaf
    )


def collect_secret_texts(value: PropertyValue) -> Iterator[str]:
    """Yield every text and every number inside the secrets of a value."""
    for secret in find_secrets(value):
        unwrapped = unwrap_secrets(secret.value)
        yield from collect_texts(unwrapped)
        for leaf in iterate_leaves(unwrapped):
            if isinstance(leaf, int | float) and not isinstance(leaf, bool):
                # As messages show a double: 16, not 16.0.
                yield f"{leaf:.15g}"


def mark_echoed_secrets(outs: PropertyMap, ins: PropertyMap) -> PropertyMap:
    """Return a provider's outputs with the secrets of the inputs marked, as Pulumi does.

    For a key of both: two objects are compared key by key; otherwise any secret in the input, also
    inside a list, makes the whole output secret.
    """
    marked = dict(outs)
    for key in outs.keys() & ins.keys():
        out, input_value = outs[key], ins[key]
        if isinstance(out, dict) and isinstance(input_value, dict):
            marked[key] = mark_echoed_secrets(out, input_value)
        elif contains_secret(input_value):
            marked[key] = make_secret(out)
    return marked


def mark_renamed_secrets(
    outs: PropertyMap, ins: PropertyMap, input_names: Iterable[str]
) -> PropertyMap:
    """Return the outputs with renamed inputs marked as secret, if a secret was renamed.

    A declaration may write a secret under another name than the outputs have: `scale_down` is
    `drain` there. Where a declared secret input has no output of its name, every output is marked
    that has the name of an input (`input_names`) which was not declared. Otherwise the outputs are
    returned unchanged.
    """
    if not any(contains_secret(ins[key]) for key in ins.keys() - outs.keys()):
        return outs
    renamed = {*input_names} - ins.keys()
    return {key: make_secret(out) if key in renamed else out for key, out in outs.items()}


def mark_secret_outputs(
    outs: PropertyMap, ins: PropertyMap, additional: Iterable[str]
) -> PropertyMap:
    """Return the outputs of a create, read or update with the secret ones marked.

    Secret are the names in `additional` (except `id`, which Pulumi never makes secret) and outputs
    whose input of the same name is a secret.
    """
    names = {key for key, value in ins.items() if isinstance(value, Secret)}
    names.update(name for name in additional if name != "id")
    return {key: make_secret(out) if key in names else out for key, out in outs.items()}


def make_secret(value: PropertyValue) -> Secret:
    """Return the value as one secret; secrets inside it lose their own marks."""
    return value if isinstance(value, Secret) else Secret(unwrap_secrets(value))


def keep_ciphertexts(new: PropertyValue, old: PropertyValue) -> PropertyValue:
    """Return `new` with each secret equal to one in `old` replaced by the old secret object.

    The old object has the encrypted text of the state, so an unchanged secret leaves the state
    unchanged. Compared are values of the same key or position; lists of different lengths stay new.
    """
    if isinstance(new, Secret):
        # Encrypted again, an equal secret would have another text in the state.
        return old if isinstance(old, Secret) and are_equal(old, new) else new
    if isinstance(new, dict) and isinstance(old, dict):
        return {key: keep_ciphertexts(item, old.get(key)) for key, item in new.items()}
    # Items are compared by position, which a longer or shorter list does not allow.
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [keep_ciphertexts(*pair) for pair in zip(new, old, strict=True)]
    return new


# --- signature objects: what both the wire and the state write as an object ----------------------


def find_changed_keys(olds: PropertyMap, news: PropertyMap) -> list[str]:
    """Return the top-level properties whose unwrapped values differ, sorted."""
    return sorted(
        key
        for key in olds.keys() | news.keys()
        if not (
            key in olds
            and key in news
            and are_equal(unwrap_secrets(olds[key]), unwrap_secrets(news[key]))
        )
    )


def from_special(fields: Mapping[str, Any]) -> PropertyValue:
    """Return the value that an object with Pulumi's signature key means.

    A secret, an output value (UNKNOWN without a value), a resource reference, a byte string, an
    asset or an archive. Its parts are decoded already. Dependencies of output values are dropped:
    the engine takes them from the registration.

    Raises:
        ValueError: the signature or the parts are not Pulumi's.
    """
    kind = fields[SIGNATURE_KEY]
    if kind == SECRET_SIGNATURE and "value" in fields:
        return make_secret(fields["value"])
    if kind == OUTPUT:
        # An output value without `value` is not known yet.
        inner: PropertyValue = fields.get("value", UNKNOWN)
        return make_secret(inner) if fields.get("secret") is True else inner
    if kind == REFERENCE and isinstance(fields.get("urn"), str):
        identity = unwrap(fields.get("id"))
        # The wire has an empty id for a resource that is not created yet.
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
        return _build_file(fields)
    raise ValueError(f"an object with the unrecognised signature {kind!r}")


HASH_OF_NOTHING: Final = hashlib.sha256(b"").hexdigest()
"""The hash of an empty text, which the CLI leaves out of an asset."""


def _build_file(fields: Mapping[str, Any]) -> Asset | Archive:
    """Return the asset or archive of an object with Pulumi's signature.

    Raises ValueError unless the object has exactly one of text (or assets), path and uri.
    """
    name = "asset" if fields[SIGNATURE_KEY] == ASSET else "archive"
    contents = ("text" if name == "asset" else "assets", "path", "uri")
    contents_given = {key: fields[key] for key in contents if fields.get(key) is not None}
    # The CLI leaves an empty text out: only its hash is there.
    if not contents_given and name == "asset" and fields.get("hash") == HASH_OF_NOTHING:
        contents_given = {"text": ""}
    if len(contents_given) != 1:
        raise ValueError(f"an {name} with {len(contents_given)} contents instead of one")
    file_class = Asset if name == "asset" else Archive
    return file_class(**contents_given, hash=fields.get("hash", ""))


def to_special(value: bytes | ResourceReference | Asset | Archive) -> dict[str, PropertyValue]:
    """Return the object, with its signature, for the value on the wire and in the state."""
    if isinstance(value, bytes):
        return {SIGNATURE_KEY: BYTES, "value": base64.b64encode(value).decode()}
    if isinstance(value, ResourceReference):
        fields: dict[str, PropertyValue] = {SIGNATURE_KEY: REFERENCE, "urn": value.urn}
        if value.id is not None:
            # Pulumi writes an empty id for a resource that does not exist yet.
            fields["id"] = "" if isinstance(value.id, Unknown) else value.id
        if value.package_version:
            fields["packageVersion"] = value.package_version
        return fields
    fields = {SIGNATURE_KEY: ASSET if isinstance(value, Asset) else ARCHIVE}
    if value.hash:
        fields["hash"] = value.hash
    contents = value.text if isinstance(value, Asset) else value.assets
    parts = {"text" if isinstance(value, Asset) else "assets": contents}
    parts |= {"path": value.path, "uri": value.uri}
    fields.update({key: part for key, part in parts.items() if part is not None})  # type: ignore[misc]  # dict is invariant
    return fields


def is_unknown_text(text: str) -> bool:
    """Return True if the string is one of the sentinels for an unknown value."""
    return text in _UNKNOWN_TEXTS


# --- the wire ------------------------------------------------------------------------------------


def from_struct(struct: "Struct") -> PropertyMap:
    """Return the properties of a protobuf Struct. Raises ValueError that names an invalid one."""
    properties: PropertyMap = {}
    # A protobuf map has no order of its own, and each process would show another one.
    for key, value in sorted(struct.fields.items()):
        try:
            properties[key] = from_value(value)
        except ValueError as error:
            raise ValueError(f"property {key!r}: {error}") from error
    return properties


def from_value(value: "Value") -> PropertyValue:
    """Return the property value of a protobuf Value; None for an empty one.

    Raises:
        ValueError: an object has an unknown signature.
    """
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        string = value.string_value
        return UNKNOWN if string in _UNKNOWN_TEXTS else string
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
    """Return the properties as a protobuf Struct, secrets and unknowns in Pulumi's encoding."""
    from google.protobuf.struct_pb2 import Struct  # noqa: PLC0415 - only the monitor needs it

    struct = Struct()
    _fill_struct(struct, properties)
    return struct


def _fill_struct(struct: "Struct", properties: Mapping[str, PropertyValue]) -> None:
    """Write properties into a protobuf Struct, in Pulumi's encoding."""
    fields = struct.fields
    for key, item in properties.items():
        _set_value(fields[key], item)


def _set_value(target: "Value", value: PropertyValue) -> None:
    """Write a property value into a protobuf Value, in Pulumi's encoding."""
    if isinstance(value, str):
        target.string_value = value
    # Before the numbers, because Python's bool is an int.
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int | float):
        target.number_value = value
    elif value is None:
        target.null_value = 0  # type: ignore[assignment]  # the stub wants the enum's own type
    elif isinstance(value, dict):
        # Without this call, an empty object would leave the value unset.
        target.struct_value.SetInParent()
        _fill_struct(target.struct_value, value)
    elif isinstance(value, list):
        # As for objects: an empty list would leave the value unset.
        target.list_value.SetInParent()
        for item in value:
            _set_value(target.list_value.values.add(), item)
    elif isinstance(value, Unknown):
        target.string_value = UNKNOWN_TEXT
    elif isinstance(value, Secret):
        _fill_struct(target.struct_value, {SIGNATURE_KEY: SECRET_SIGNATURE, "value": value.value})
    else:
        _fill_struct(target.struct_value, to_special(value))

"""Convert property values to and from the JSON of Pulumi's state, as Go's encoding/json does.

Only the state and its exports use this form; programs and providers speak the wire form of
`values`. Callers that encode or decode secrets pass the stack's crypter.
"""

import json
import math
import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from gpuform.providers import values
from gpuform.providers.values import (
    HASH_OF_NOTHING,
    SECRET_SIGNATURE,
    SIGNATURE_KEY,
    UNKNOWN,
    UNKNOWN_TEXT,
    Archive,
    Asset,
    PropertyMap,
    PropertyValue,
    ResourceReference,
    Secret,
    Unknown,
    from_special,
    is_unknown_text,
    make_secret,
    to_special,
)
from gpuform.schemas.errors import EngineError
from gpuform.schemas.safe_text import MASK

if TYPE_CHECKING:
    from google.protobuf.struct_pb2 import Struct

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

DEEPEST = 100
"""How deep values may be nested: values of programs are far from this depth."""

NOT_A_NUMBER = "8ad145fe-0d11-4827-bfd7-1abcbf086f5c"
"""The signature of NaN and the infinities in the state; JSON has no form for these numbers."""


class Crypter(Protocol):
    """The encryption of one stack's secrets."""

    def encrypt(self, plaintext: str, previous: str | None = None) -> str:
        """Return the ciphertext of the plaintext: `previous` where that is still valid."""

    def decrypt(self, ciphertext: str) -> str:
        """Return the plaintext. Raises EngineError if the ciphertext is not this stack's."""


class MaskingCrypter:
    """A crypter that encrypts and decrypts every value to the mask."""

    def encrypt(self, plaintext: str, previous: str | None = None) -> str:
        """Return the mask in place of a secret's ciphertext."""
        del plaintext, previous
        return MASK

    def decrypt(self, ciphertext: str) -> str:
        """Return the mask as a JSON text, the form of a plaintext, whatever the ciphertext is."""
        del ciphertext
        return f'"{MASK}"'


def dump(document: Json) -> bytes:
    """Encode one line of UTF-8 JSON with as few escapes as the Pulumi CLI writes.

    Half a surrogate pair becomes U+FFFD, as in Go. Raises ValueError for NaN and infinity.
    """
    encoded = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # The only characters that Go escapes once its HTML escaping is off.
    if "\u2028" in encoded or "\u2029" in encoded:
        encoded = encoded.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    try:
        return encoded.encode()
    except UnicodeEncodeError:
        # Half a surrogate pair, in place of which Go stores U+FFFD too.
        return encoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def load(document: str | bytes) -> Any:
    """Parse a JSON document. Raises ValueError for invalid JSON and duplicate keys."""
    try:
        return json.loads(
            document, parse_constant=_reject_constant, object_pairs_hook=_reject_duplicate_keys
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dictionary. Raises ValueError for a repeated key."""
    document = dict(pairs)
    if len(document) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the key {twice!r} twice")
    return document


def _reject_constant(name: str) -> None:
    """Raise ValueError for `NaN`, `Infinity` and `-Infinity`, which are not JSON."""
    raise ValueError(f"{name} is not JSON")


def encode_map(
    properties: Mapping[str, PropertyValue], crypter: Crypter | None, *, show_secrets: bool = False
) -> dict[str, Json]:
    """Encode properties. With `show_secrets`, secrets are in plain text: for exports only."""
    return {key: encode(item, crypter, show_secrets) for key, item in properties.items()}


def encode(value: PropertyValue, crypter: Crypter | None, show_secrets: bool = False) -> Json:
    """Encode one value; with `show_secrets`, secrets in plain text.

    Raises EngineError for a secret without a crypter.
    """
    if isinstance(value, dict):
        return encode_map(value, crypter, show_secrets=show_secrets)
    if isinstance(value, list):
        return [encode(item, crypter, show_secrets) for item in value]
    if isinstance(value, Secret):
        return _encode_secret(value, crypter, show_secrets)
    if isinstance(value, bytes | ResourceReference | Asset | Archive):
        fields = to_special(value)
        if fields.get("text") == "" and fields.get("hash") == HASH_OF_NOTHING:
            # The CLI omits an empty text in the state; on the wire the SDKs require the field.
            del fields["text"]
        return encode_map(fields, crypter, show_secrets=show_secrets)
    if isinstance(value, Unknown):
        return UNKNOWN_TEXT
    return encode_number(value) if isinstance(value, float) or type(value) is int else value


def _encode_secret(secret: Secret, crypter: Crypter | None, show_secrets: bool) -> Json:
    """Encode a secret as ciphertext, or in plain text with `show_secrets`.

    Raises EngineError without a crypter.
    """
    # A secret of the state encrypts the JSON text of the value; secrets inside of it are plain.
    plaintext = dump(encode(make_secret(secret.value).value, None)).decode()
    if show_secrets:
        return {SIGNATURE_KEY: SECRET_SIGNATURE, "plaintext": plaintext}
    if crypter is None:
        raise EngineError(
            "the state has a secret value, but no secrets provider",
            hint="Create the stack with `gpuform stack init`, which sets up a passphrase.",
        )
    return {
        SIGNATURE_KEY: SECRET_SIGNATURE,
        "ciphertext": crypter.encrypt(plaintext, secret.ciphertext),
    }


def encode_number(value: float) -> Json:
    """Encode a double as Go does: integers up to 1e21, with the fewest digits.

    NaN and infinity become an object with a signature.
    """
    value = float(value)
    if not math.isfinite(value):
        return {SIGNATURE_KEY: NOT_A_NUMBER, "value": struct.pack(">d", value).hex()}
    if not value.is_integer() or abs(value) >= 1e21 or (value == 0 and math.copysign(1, value) < 0):
        return value
    # Go writes the shortest digits of the double, filled up with zeros: 12345678901234567890
    # becomes 12345678901234567000.
    return int(value) if abs(value) < 2**53 else int(Decimal(repr(value)))


def decode_map(document: Any, crypter: Crypter | None, depth: int = 0) -> PropertyMap:
    """Decode the properties of a JSON object. Raises TypeError for another kind."""
    if not isinstance(document, dict):
        raise TypeError("properties that are not an object")
    return {key: decode(item, crypter, depth + 1) for key, item in document.items()}


def decode(value: Any, crypter: Crypter | None, depth: int = 0) -> PropertyValue:
    """Decode a value of parsed JSON (see `load`), nested in `depth` others.

    Raises:
        ValueError: Pulumi does not know the form.
        EngineError: there is a secret, and the crypter is None or the wrong one.
    """
    if isinstance(value, list):
        return [decode(item, crypter, depth + 1) for item in _check_depth(value, depth)]
    if isinstance(value, dict):
        if SIGNATURE_KEY in _check_depth(value, depth):
            return _decode_special(value, crypter, depth)
        return decode_map(value, crypter, depth)
    if isinstance(value, str):
        return UNKNOWN if is_unknown_text(value) else value
    # All numbers are doubles for Go, so that providers get 1.0 from either engine.
    decoded: PropertyValue = float(value) if type(value) is int else value
    if isinstance(decoded, float) and not math.isfinite(decoded):
        raise ValueError("a number that is too large")
    return decoded


_Container = TypeVar("_Container", list[Any], dict[str, Any])


def _check_depth(value: _Container, depth: int) -> _Container:
    """Return the value. Raises ValueError for a depth of more than DEEPEST."""
    if depth > DEEPEST:
        raise ValueError(f"a value that is nested deeper than {DEEPEST}")
    return value


def _decode_special(
    fields: Mapping[str, Any], crypter: Crypter | None, depth: int
) -> PropertyValue:
    """Decode an object with a signature: a secret, NaN or infinity, or a special value."""
    if fields[SIGNATURE_KEY] == SECRET_SIGNATURE:
        return _decode_secret(fields, crypter, depth)
    if fields[SIGNATURE_KEY] == NOT_A_NUMBER:
        try:
            return float(struct.unpack(">d", bytes.fromhex(fields["value"]))[0])
        except (KeyError, TypeError, struct.error) as error:
            raise ValueError("a number that is not a valid double") from error
    return from_special({key: decode(item, crypter, depth + 1) for key, item in fields.items()})


def _decode_secret(fields: Mapping[str, Any], crypter: Crypter | None, depth: int) -> Secret:
    """Decode a secret; a decrypted secret keeps the ciphertext for the next save.

    A secret in plain text, as in exports, needs no crypter. Raises EngineError for another one
    without a crypter.
    """
    ciphertext, plaintext = fields.get("ciphertext"), fields.get("plaintext")
    # An export with `--show-secrets`: the next save encrypts the value.
    if isinstance(plaintext, str) and plaintext:
        return make_secret(decode(load(plaintext), _PlainCrypter(), depth + 1))
    if not isinstance(ciphertext, str):
        raise ValueError("a secret without ciphertext")  # noqa: TRY004 - bad data, not a bad call
    if crypter is None:
        raise EngineError(
            "the state has a secret value, but no secrets provider to decrypt it",
            hint="Restore the checkpoint from its .bak file or from .pulumi/backups.",
        )
    inner = make_secret(decode(load(crypter.decrypt(ciphertext)), _PlainCrypter(), depth + 1))
    return Secret(inner.value, None if isinstance(crypter, _PlainCrypter) else ciphertext)


class _PlainCrypter:
    """Passes secrets within a secret through: the CLI encrypts only the outermost."""

    def encrypt(self, plaintext: str, previous: str | None = None) -> str:
        """Return the plaintext unchanged: nothing inside of a secret is encrypted again."""
        del previous
        return plaintext

    def decrypt(self, ciphertext: str) -> str:
        """Return the text unchanged: it was never encrypted."""
        return ciphertext


_INVALID_HINT: Final = "Upgrade gpuform, or use the Pulumi CLI for this program."


def from_struct(struct: "Struct") -> values.PropertyMap:
    """Decode the properties of a protobuf Struct. Raises EngineError for an invalid one."""
    try:
        return values.from_struct(struct)
    except ValueError as error:
        raise EngineError(str(error), hint=_INVALID_HINT) from error


def from_plain(value: Any) -> values.PropertyValue:
    """Convert a plain value to the form received over Pulumi's wire.

    Numbers are doubles and objects have sorted keys. Pulumi's text for an unknown value becomes
    UNKNOWN, an object with a signature its special value.

    Raises:
        EngineError: a special value is invalid.
        TypeError: the value has a type that properties cannot have.
    """
    if isinstance(value, str):
        return values.UNKNOWN if values.is_unknown_text(value) else value
    # Tested before numbers: Python's booleans are integers too.
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, list | tuple):
        return [from_plain(item) for item in value]
    if isinstance(value, Mapping):
        fields = {key: from_plain(value[key]) for key in sorted(value)}
        if values.SIGNATURE_KEY not in fields:
            return fields
        try:
            return values.from_special(fields)
        except ValueError as error:
            raise EngineError(str(error), hint=_INVALID_HINT) from error
    raise TypeError(f"a {type(value).__name__} is not a valid property value")

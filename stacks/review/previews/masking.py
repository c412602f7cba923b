"""Decode resources of a Pulumi document with every secret masked.

A value is masked if Pulumi marks it as secret, if it is masked already, or if gpuform's schema
says that it is secret. Nothing of the document runs: the pickled provider is not unpickled.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.values import (
    SECRET_SIGNATURE,
    SIGNATURE_KEY,
    PropertyMap,
    Secret,
    contains_secret,
)
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.safe_text import MASK
from gpuform.schemas.values import convert_leaves, is_secret_object
from gpuform.stacks.engine.state import ResourceState, decode_resource
from gpuform.stacks.resource_rules import find_kind

_RESOURCE_FIELDS: Final = (
    *("urn", "type", "custom", "id", "protect", "retainOnDelete", "initErrors"),
    "additionalSecretOutputs",
)
"""The fields of a resource that a review needs, beside its properties."""

_MASKED_SECRET: Final = {SIGNATURE_KEY: SECRET_SIGNATURE, "ciphertext": MASK}


class _MaskingCrypter:
    """Encrypt and decrypt every value to the mask."""

    def encrypt(self, plaintext: str, previous: str | None = None) -> str:
        """Return the mask, whatever the plaintext is."""
        del plaintext, previous
        return MASK

    def decrypt(self, ciphertext: str) -> str:
        """Return the mask as a JSON text, whatever the ciphertext is."""
        del ciphertext
        # A decrypted value is JSON.
        return f'"{MASK}"'


def decode_masked_resource(document: Mapping[str, Any]) -> ResourceState:
    """Decode a resource without its secrets. Raises StateError for another format than Pulumi's.

    Only the properties and `_RESOURCE_FIELDS` are decoded; other fields are dropped.
    """
    values = {name: _mask_secrets(document.get(name) or {}) for name in ("inputs", "outputs")}
    plain = {name: document[name] for name in _RESOURCE_FIELDS if name in document}
    resource = decode_resource({**plain, **values}, _MaskingCrypter())
    # gpuform's schema knows secrets that the document may not mark.
    secret = {*resource.additional_secret_outputs, *_list_secret_names(resource.type)}
    resource.inputs = _replace_secrets(resource.inputs, secret)
    resource.outputs = _replace_secrets(resource.outputs, secret)
    return resource


def list_secret_properties(properties: PropertyMap) -> set[str]:
    """Return the names of secret properties, and of properties with a secret inside."""
    return {name for name, value in properties.items() if contains_secret(value)}


def _mask_secrets(value: Any) -> Any:
    """Replace every secret and every mask in a JSON value, at any depth, by a masked secret."""
    # A document that is masked already has lost the marks of its secrets.
    return convert_leaves(
        value,
        lambda leaf: _MASKED_SECRET if isinstance(leaf, dict) or leaf == MASK else leaf,
        is_secret_object,
    )


def _list_secret_names(type_: str) -> set[str]:
    """Return the properties of a gpuform type that hold secrets; empty for other types."""
    kind = find_kind(type_)
    if kind is None:
        return set()
    lifecycle = load_lifecycle_class(*kind)
    rules = get_field_rules(lifecycle.inputs)
    return {*lifecycle.list_secret_names(), *(name for name in rules if rules[name].holds_secret)}


def _replace_secrets(properties: PropertyMap, secret: set[str]) -> PropertyMap:
    """Return the properties, with a masked secret for each name in `secret`."""
    return {name: Secret(MASK) if name in secret else value for name, value in properties.items()}

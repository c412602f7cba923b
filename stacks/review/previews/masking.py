"""Resources of a document of Pulumi's, without a single secret in them.

Whatever is marked as one, masked already, or one by gpuform's own schema, becomes a secret without
a value. Nothing of the document is run: a resource's pickled provider is not even looked at.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.safe_text import MASK
from gpuform.stacks.engine.state import ResourceState, decode_resource
from gpuform.stacks.engine.values import (
    SECRET_SIGNATURE,
    SIGNATURE_KEY,
    PropertyMap,
    Secret,
    contains_secret,
)
from gpuform.stacks.resource_rules import kind_of

_READ: Final = (
    *("urn", "type", "custom", "id", "protect", "retainOnDelete", "initErrors"),
    "additionalSecretOutputs",
)
"""What a review asks of a resource, beside its properties."""

_MARKED: Final = {SIGNATURE_KEY: SECRET_SIGNATURE, "ciphertext": MASK}


class _Hidden:
    """Every ciphertext is the mask's."""

    def encrypt(self, plaintext: str, previous: str | None = None) -> str:
        del plaintext, previous
        return MASK

    def decrypt(self, ciphertext: str) -> str:
        del ciphertext
        return f'"{MASK}"'


def masked_resource(document: Mapping[str, Any]) -> ResourceState:
    """The entry of a resource. Raises StateError for what is not Pulumi's format."""
    values = {name: _masked(document.get(name) or {}) for name in ("inputs", "outputs")}
    plain = {name: document[name] for name in _READ if name in document}
    resource = decode_resource({**plain, **values}, _Hidden())
    secret = {*resource.additional_secret_outputs, *_secret_names(resource.type)}
    resource.inputs = _hidden(resource.inputs, secret)
    resource.outputs = _hidden(resource.outputs, secret)
    return resource


def secrets_of(properties: PropertyMap) -> set[str]:
    """The properties that are secret, or have a secret part."""
    return {name for name, value in properties.items() if contains_secret(value)}


def _masked(value: Any) -> Any:
    if value == MASK:
        return _MARKED
    if isinstance(value, dict):
        is_secret = value.get(SIGNATURE_KEY) == SECRET_SIGNATURE
        return _MARKED if is_secret else {key: _masked(item) for key, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list) else value


def _secret_names(type_: str) -> set[str]:
    kind = kind_of(type_)
    if kind is None:
        return set()
    lifecycle = load_lifecycle_class(*kind)
    rules = get_field_rules(lifecycle.inputs)
    return {*lifecycle.list_secret_names(), *(name for name in rules if rules[name].holds_secret)}


def _hidden(properties: PropertyMap, secret: set[str]) -> PropertyMap:
    return {name: Secret(MASK) if name in secret else value for name, value in properties.items()}

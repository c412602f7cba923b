"""Compute the digests that bind a saved plan, and index registrations for rules.

`deployment.options` builds the basis of plans from the digests; the monitor compares declarations
and asks rules. Differences that a run or a refresh without changes leaves behind do not count:
times, positions in the program, the order of names, and outputs that nobody declared. Where a
program uses such an output, its registration differs. A provider that is defined in the program is
pickled with its code. Pickled sets have another order in each process, and the code names its
folder; neither is a change of the provider.
"""

import base64
import binascii
import json
import pickletools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache
from typing import Any, Final

from gpuform.providers import values
from gpuform.providers.platform import PROVIDER_KEY
from gpuform.providers.values import PropertyMap, PropertyValue, Secret
from gpuform.schemas.errors import EngineError
from gpuform.schemas.models import Problem
from gpuform.stacks.engine import value_json
from gpuform.stacks.engine.registration import Alias, Read, Registration
from gpuform.stacks.engine.state import ResourceState, Snapshot
from gpuform.stacks.engine.urn import is_provider
from gpuform.stacks.engine.value_json import Json

# Opcodes that only number or frame the parts of a pickle, differently in each process.
_MEMO = frozenset(
    {"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET", "FRAME"}
)


@cache
def normalize_pickle(text: str) -> str:
    """Return a text equal for equal pickles; `text` itself if not a base64 pickle.

    The result lists the opcodes of the pickle with their arguments, sorted. It leaves out opcodes
    whose argument is the path of a source file, and those that only number the parts.
    """
    try:
        parts = [
            f"{code.name} {argument!r}"
            for code, argument, _ in pickletools.genops(base64.b64decode(text, validate=True))
            if code.name not in _MEMO
            and not (isinstance(argument, str) and argument.endswith(".py"))
        ]
    except (binascii.Error, ValueError):
        return text
    return "\n".join(sorted(parts))


Digest = Callable[[bytes], str]
"""A keyed digest (`SecretsManager.compute_digest`): values cannot be tried without the key."""

UNKNOWN_MARK: Final = "?"
"""Prefix of the digest of a value that contains something unknown."""

INPUTS: Final = "inputs."
"""Prefix of the name of a registration's part that is an input."""

EXPORTS: Final = "exports"
"""Name of the part of the stack's registration that holds the names of the program's exports."""

_VOLATILE_FIELDS = frozenset(
    {"urn", "created", "modified", "source_position", "stack_trace", "hide_diff", "number"}
)
_UNDIGESTED_FIELDS = frozenset({*_VOLATILE_FIELDS, "type", "name", "custom", "inputs"})


def compute_digest(digest: Digest, *parts: Json) -> str:
    """Return the digest of JSON values, independent of the order of keys."""
    return digest(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode())


def compute_state_digests(snapshot: Snapshot, digest: Digest) -> dict[str, str]:
    """Return one digest for each URN in the state, over all entries and pending operations."""
    digests_by_urn: dict[str, list[str]] = {}
    entries = [("", resource) for resource in snapshot.resources]
    entries += [(pending.type, pending.resource) for pending in snapshot.pending_operations]
    for kind, entry in entries:
        entry_digest = compute_digest(digest, "state", kind, _to_comparable_entry(entry))
        digests_by_urn.setdefault(entry.urn, []).append(entry_digest)
    return {
        urn: parts[0] if len(parts) == 1 else compute_digest(digest, "state", urn, *sorted(parts))
        for urn, parts in digests_by_urn.items()
    }


def compute_config_digests(
    config: Mapping[str, str], secret_keys: Collection[str], digest: Digest
) -> dict[str, str]:
    """Return one digest for each configuration value, by full key.

    A value that becomes secret gets another digest.
    """
    return {
        key: compute_digest(digest, "config", key, value, key in secret_keys)
        for key, value in config.items()
    }


def compute_program_digests(
    declarations: Iterable[Registration | Read], digest: Digest
) -> dict[str, dict[str, str]]:
    """Return the digests of the parts of each registration, by URN."""
    return {
        declaration.urn: compute_registration_digests(declaration, digest)
        for declaration in declarations
    }


def compute_registration_digests(
    declaration: Registration | Read, digest: Digest
) -> dict[str, str]:
    """Return one digest for each input and each given option of a registration.

    Type, name, positions in the program and `hide_diff` have none. The digest of an unknown value
    begins with UNKNOWN_MARK.
    """
    parts: dict[str, Any] = {INPUTS + key: value for key, value in declaration.inputs.items()}
    for field in fields(declaration):
        value = _to_comparable_option(getattr(declaration, field.name))
        if field.name not in _UNDIGESTED_FIELDS and value not in (None, "", [], {}):
            parts[field.name] = value
    return _compute_digests(declaration.urn, parts, digest)


def compute_export_digest(names: Iterable[str], digest: Digest) -> dict[str, str]:
    """Return the digest of the names of a program's exports, without the values."""
    return {EXPORTS: compute_digest(digest, "program", EXPORTS, *sorted(names))}


def _compute_digests(urn: str, parts: Mapping[str, Any], digest: Digest) -> dict[str, str]:
    """Compute a digest of each part by name; digests of unknown parts begin with UNKNOWN_MARK."""
    return {
        name: (UNKNOWN_MARK if values.contains_unknown(value) or _is_unknown_id(value) else "")
        + compute_digest(
            digest, "program", urn, name, _to_comparable_json(value, name.removeprefix(INPUTS))
        )
        for name, value in sorted(parts.items())
    }


def _is_unknown_id(value: PropertyValue) -> bool:
    """Return True for the text of an unknown id."""
    return isinstance(value, str) and values.is_unknown_text(value)


def _to_comparable_option(value: Any) -> Any:
    """Return the option without empty parts, as plain data."""
    if isinstance(value, list | tuple):
        return [asdict(item) if isinstance(item, Alias) else item for item in value]
    if isinstance(value, Mapping):
        return {key: item for key, item in value.items() if item != []}
    return value


def _to_comparable_entry(state: ResourceState) -> dict[str, Json]:
    """Return the fields of a state entry to be digested, without volatile and empty fields.

    Of the outputs, only those with the name of an input are included; of providers and external
    objects, none. The inputs of a provider are left out: the configuration has its own digests.
    """
    comparable: dict[str, Json] = {}
    for field in fields(state):
        value = getattr(state, field.name)
        if field.name in _VOLATILE_FIELDS or (is_provider(state.type) and field.name == "inputs"):
            # A provider's inputs are the configuration, which has its own digests.
            continue
        if field.name == "outputs":
            value = _select_echoed_outputs(state)
        elif isinstance(value, list):
            value = sorted(value)
        elif field.name == "property_dependencies":
            value = {key: sorted(urns) for key, urns in value.items() if urns}
        if value:
            comparable[field.name] = _to_comparable_json(value)
    return comparable


def _select_echoed_outputs(state: ResourceState) -> PropertyMap:
    """Return the outputs named like an input: the last observed values of the inputs.

    The result is empty for a provider and for an object that is only read.
    """
    if state.external or is_provider(state.type):
        return {}
    shared = {key: item for key, item in state.outputs.items() if key in state.inputs}
    return {key: values.unwrap_secrets(item) for key, item in shared.items()}


def _to_comparable_json(value: PropertyValue, name: str = "") -> Json:
    """Return the value as JSON for digests: secrets in plain text, pickles normalized.

    A secret gets another JSON than the same value without the mark.
    """
    if name == PROVIDER_KEY and isinstance(value, str):
        return normalize_pickle(value)
    if isinstance(value, Secret):
        inner = _to_comparable_json(values.unwrap_secrets(value), name)
        return {values.SIGNATURE_KEY: values.SECRET_SIGNATURE, "value": inner}
    if isinstance(value, dict):
        return {key: _to_comparable_json(item, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_comparable_json(item) for item in value]
    return value_json.encode(value, None)


_Values = tuple[str, ...]


class RegistrationIndex:
    """The registrations of a run so far, with checked inputs, indexed for rules."""

    def __init__(self) -> None:
        self._by_urn: dict[str, Registration] = {}
        self._by_type: dict[str, list[Registration]] = defaultdict(list)
        self._by_inputs: dict[tuple[str, _Values], dict[_Values, list[Registration]]] = {}

    def add(self, registration: Registration) -> None:
        """Add a resource's registration to all indexes."""
        self._by_urn[registration.urn] = registration
        self._by_type[registration.type].append(registration)
        for (type_, names), index in self._by_inputs.items():
            if type_ == registration.type:
                _add_to_index(index, registration, names)

    def get(self, urn: str) -> Registration | None:
        """Return the registration of a resource by URN, or None."""
        return self._by_urn.get(urn)

    def list_of_type(self, type_: str) -> Sequence[Registration]:
        """Return the registrations of a resource type."""
        return self._by_type.get(type_, ())

    def find_with_inputs(self, type_: str, inputs: Mapping[str, object]) -> Sequence[Registration]:
        """Return the registrations of a type with the values of `inputs`.

        Empty if one of the values is unknown or is not text.
        """
        key = (type_, tuple(inputs))
        if key not in self._by_inputs:
            self._by_inputs[key] = {}
            for registration in self.list_of_type(type_):
                _add_to_index(self._by_inputs[key], registration, key[1])
        values = _select_values(inputs, key[1])
        return self._by_inputs[key].get(values, ()) if values else ()


Rule = Callable[[Registration, RegistrationIndex], Iterable[Problem]]
"""Yield the problems of a registration, given all registrations so far, itself included.

A value may be unknown in a preview.
"""


DeletionRule = Callable[[ResourceState, Sequence[ResourceState]], Iterable[EngineError]]
"""Yield the errors that forbid a deletion, given the entry and the entries that stay."""


def _add_to_index(
    index: dict[_Values, list[Registration]], registration: Registration, names: _Values
) -> None:
    """Add the registration to the index by the values of `names`, if all are known strings."""
    values = _select_values(registration.inputs, names)
    if values:
        index.setdefault(values, []).append(registration)


def _select_values(inputs: Mapping[str, object], names: _Values) -> _Values:
    """Return the inputs `names`; an empty tuple if one is missing or is not a known string."""
    values = [inputs.get(name) for name in names]
    texts = tuple(value for value in values if isinstance(value, str))
    return texts if len(texts) == len(names) else ()

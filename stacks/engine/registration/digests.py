"""Compute the digests of a saved plan's registrations, and apply the rules over several resources.

What a run or a refresh that changes nothing leaves otherwise does not count: times, places in the
program, the order in which things are named, and outputs that nobody declared. Where a program uses
such an output, it asks for something else.

A provider that is defined in the program is pickled with its code. Sets come out in another order
in each process, and the code names the folder that it is in; neither is a change of the provider.
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

from gpuform.providers.forms import PROVIDER_KEY
from gpuform.schemas.models import Problem
from gpuform.stacks.engine import values
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.registration.registration import Alias, Read, Registration
from gpuform.stacks.engine.state import ResourceState, Snapshot
from gpuform.stacks.engine.urn import is_provider
from gpuform.stacks.engine.values import Json, PropertyMap, PropertyValue, Secret, value_json

_MEMO = frozenset(
    {"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET", "FRAME"}
)


@cache
def contents(text: str) -> str:
    """The parts of a pickle in base64, sorted; the text itself when it is none."""
    try:
        parts = [
            f"{code.name} {argument!r}"
            for code, argument, _ in pickletools.genops(base64.b64decode(text, validate=True))
            if code.name not in _MEMO and not _is_place(argument)
        ]
    except (binascii.Error, ValueError):
        return text
    return "\n".join(sorted(parts))


def _is_place(argument: object) -> bool:
    return isinstance(argument, str) and argument.endswith(".py")


Digest = Callable[[bytes], str]
"""A keyed digest (`PassphraseCrypter.digest`): whoever lacks the key cannot try values."""

UNKNOWN_MARK: Final = "?"
"""What the digest of a value begins with that holds something unknown."""

INPUTS: Final = "inputs."
"""What the name of a registration's part begins with when it is an input."""

EXPORTS: Final = "exports"
"""The part of the stack's registration that is the names of what the program exports."""

_PASSING = frozenset({"urn", "created", "modified", "source_position", "stack_trace", "hide_diff"})
_ABOUT = frozenset({*_PASSING, "type", "name", "custom", "inputs"})


def digest_of(digest: Digest, *parts: Json) -> str:
    """The digest of JSON values, whatever the order of their keys."""
    return digest(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode())


def state_digests(snapshot: Snapshot, digest: Digest) -> dict[str, str]:
    """One for each URN in the state, over all its entries and pending operations."""
    found: dict[str, list[str]] = {}
    entries = [("", resource) for resource in snapshot.resources]
    entries += [(pending.type, pending.resource) for pending in snapshot.pending_operations]
    for kind, entry in entries:
        text = digest_of(digest, "state", kind, _entry(entry))
        found.setdefault(entry.urn, []).append(text)
    return {
        urn: parts[0] if len(parts) == 1 else digest_of(digest, "state", urn, *sorted(parts))
        for urn, parts in found.items()
    }


def config_digests(
    config: Mapping[str, str], secret_keys: Collection[str], digest: Digest
) -> dict[str, str]:
    """One for each configuration value, by its full key."""
    return {
        key: digest_of(digest, "config", key, value, key in secret_keys)
        for key, value in config.items()
    }


def program_digests(
    declared: Iterable[Registration | Read], digest: Digest
) -> dict[str, dict[str, str]]:
    """The digests of each registration's parts, by URN."""
    return {each.urn: registration_digests(each, digest) for each in declared}


def registration_digests(declared: Registration | Read, digest: Digest) -> dict[str, str]:
    """One for each input and for each option that is given."""
    parts: dict[str, Any] = {INPUTS + key: value for key, value in declared.inputs.items()}
    for each in fields(declared):
        value = _option(getattr(declared, each.name))
        if each.name not in _ABOUT and value not in (None, "", [], {}):
            parts[each.name] = value
    return _digests(declared.urn, parts, digest)


def export_digest(names: Iterable[str], digest: Digest) -> dict[str, str]:
    """That of the names of a program's exports; their values are not declared."""
    return {EXPORTS: digest_of(digest, "program", EXPORTS, *sorted(names))}


def _digests(urn: str, parts: Mapping[str, Any], digest: Digest) -> dict[str, str]:
    return {
        name: (UNKNOWN_MARK if values.contains_unknown(value) or _is_unknown(value) else "")
        + digest_of(digest, "program", urn, name, _plain(value, name.removeprefix(INPUTS)))
        for name, value in sorted(parts.items())
    }


def _is_unknown(value: PropertyValue) -> bool:
    """Whether it is the id of what is read and not made yet."""
    return isinstance(value, str) and values.is_unknown_text(value)


def _option(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [asdict(item) if isinstance(item, Alias) else item for item in value]
    if isinstance(value, Mapping):
        return {key: item for key, item in value.items() if item != []}
    return value


def _entry(state: ResourceState) -> dict[str, Json]:
    """What an entry says, without what passes and what is empty."""
    made: dict[str, Json] = {}
    for each in fields(state):
        value = getattr(state, each.name)
        if each.name in _PASSING or (is_provider(state.type) and each.name == "inputs"):
            continue  # a provider's inputs are the configuration, which has digests of its own
        if each.name == "outputs":
            value = _echoes(state)
        elif isinstance(value, list):
            value = sorted(value)
        elif each.name == "property_dependencies":
            value = {key: sorted(urns) for key, urns in value.items() if urns}
        if value:
            made[each.name] = _plain(value)
    return made


def _echoes(state: ResourceState) -> PropertyMap:
    """The outputs that are the last seen values of inputs."""
    if state.external or is_provider(state.type):
        return {}
    shared = {key: item for key, item in state.outputs.items() if key in state.inputs}
    return {key: values.unwrap_secrets(item) for key, item in shared.items()}


def _plain(value: PropertyValue, name: str = "") -> Json:
    if name == PROVIDER_KEY and isinstance(value, str):
        return contents(value)
    if isinstance(value, Secret):
        inner = _plain(values.unwrap_secrets(value), name)
        return {values.SIGNATURE_KEY: values.SECRET_SIGNATURE, "value": inner}
    if isinstance(value, dict):
        return {key: _plain(item, key) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value_json.encode(value, None)


_Values = tuple[str, ...]


class Registered:
    """The registrations so far, with inputs as checked, to look up."""

    def __init__(self) -> None:
        self._by_urn: dict[str, Registration] = {}
        self._by_type: dict[str, list[Registration]] = defaultdict(list)
        self._alike: dict[tuple[str, _Values], dict[_Values, list[Registration]]] = {}

    def add(self, registration: Registration) -> None:
        """Adds the latest."""
        self._by_urn[registration.urn] = registration
        self._by_type[registration.type].append(registration)
        for (type_, names), index in self._alike.items():
            if type_ == registration.type:
                _file(index, registration, names)

    def get(self, urn: str) -> Registration | None:
        """The one with a URN."""
        return self._by_urn.get(urn)

    def of_type(self, type_: str) -> Sequence[Registration]:
        """Those of a type."""
        return self._by_type.get(type_, ())

    def with_texts(self, type_: str, texts: Mapping[str, object]) -> Sequence[Registration]:
        """Those of a type that have these inputs; none where one of them is no known text."""
        key = (type_, tuple(texts))
        if key not in self._alike:
            self._alike[key] = {}
            for each in self.of_type(type_):
                _file(self._alike[key], each, key[1])
        values = _texts(texts, key[1])
        return self._alike[key].get(values, ()) if values else ()


Rule = Callable[[Registration, Registered], Iterable[Problem]]
"""Given a registration and those so far, itself included: what is wrong with it.

A value may be unknown while planning.
"""


DeletionRule = Callable[[ResourceState, Sequence[ResourceState]], Iterable[EngineError]]
"""Given an entry whose object is to be deleted, and those that stay as they are: what forbids it.
"""


def _file(
    index: dict[_Values, list[Registration]], registration: Registration, names: _Values
) -> None:
    values = _texts(registration.inputs, names)
    if values:
        index.setdefault(values, []).append(registration)


def _texts(inputs: Mapping[str, object], names: _Values) -> _Values:
    """The values of these names; none unless all of them are known texts."""
    values = [inputs.get(name) for name in names]
    texts = tuple(value for value in values if isinstance(value, str))
    return texts if len(texts) == len(names) else ()

"""Hold one entry of the checkpoint, Pulumi's ResourceV3, as data and convert it to and from JSON.

`checkpoint` and `journal` encode and decode entries with this module; values go through
`values.value_json`.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from gpuform.providers.values import PropertyMap, PropertyValue
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine import value_json
from gpuform.stacks.engine.value_json import Crypter, Json


class StateError(EngineError):
    """A checkpoint that cannot be read."""

    help_page = "guides/state-for-a-team"


class UnknownFormat(StateError):
    """A checkpoint of a version or with features that this engine does not read."""


@dataclass(slots=True)
class ResourceState:
    """One entry of the checkpoint: Pulumi's ResourceV3, its names in snake_case.

    `custom_timeouts` are in seconds under create, update, delete and read. `stack_trace` holds
    source positions, empty where the SDK knows none. Times are RFC 3339 texts, kept as read.

    `number` is the entry's number in `Entries`, which no file has; a copy by `replace()` keeps the
    number until `Entries` gives the copy another one.
    """

    urn: str
    custom: bool
    type: str
    delete: bool = False
    id: str = ""
    inputs: PropertyMap = field(default_factory=dict)
    outputs: PropertyMap = field(default_factory=dict)
    parent: str = ""
    protect: bool = False
    taint: bool = False
    external: bool = False
    dependencies: list[str] = field(default_factory=list)
    init_errors: list[str] = field(default_factory=list)
    provider: str = ""
    property_dependencies: dict[str, list[str]] = field(default_factory=dict)
    pending_replacement: bool = False
    additional_secret_outputs: list[str] = field(default_factory=list)
    custom_timeouts: dict[str, float] = field(default_factory=dict)
    import_id: str = ""
    retain_on_delete: bool = False
    deleted_with: str = ""
    replace_with: list[str] = field(default_factory=list)
    created: str = ""
    modified: str = ""
    source_position: str = ""
    stack_trace: list[str] = field(default_factory=list)
    ignore_changes: list[str] = field(default_factory=list)
    hide_diff: list[str] = field(default_factory=list)
    replace_on_changes: list[str] = field(default_factory=list)
    replacement_trigger: PropertyValue = None
    refresh_before_update: bool = False
    view_of: str = ""
    resource_hooks: dict[str, list[str]] = field(default_factory=dict)
    extension_ref: str = ""
    snippet_id: str = ""
    number: int | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(slots=True)
class PendingOperation:
    """An unfinished operation of a provider: creating, updating, deleting, reading or importing."""

    resource: ResourceState
    type: str


# The fields of ResourceV3 that are stored as they are, by kind: JSON name, attribute.
_TEXTS = {
    "id": "id",
    "parent": "parent",
    "provider": "provider",
    "importID": "import_id",
    "deletedWith": "deleted_with",
    "created": "created",
    "modified": "modified",
    "sourcePosition": "source_position",
    "viewOf": "view_of",
    "extensionRef": "extension_ref",
    "snippetID": "snippet_id",
}
_FLAGS = {
    "delete": "delete",
    "protect": "protect",
    "taint": "taint",
    "external": "external",
    "pendingReplacement": "pending_replacement",
    "retainOnDelete": "retain_on_delete",
    "refreshBeforeUpdate": "refresh_before_update",
}
_LISTS = {
    "dependencies": "dependencies",
    "initErrors": "init_errors",
    "additionalSecretOutputs": "additional_secret_outputs",
    "replaceWith": "replace_with",
    "ignoreChanges": "ignore_changes",
    "hideDiff": "hide_diff",
    "replaceOnChanges": "replace_on_changes",
}
_LISTS_BY_NAME = {
    "propertyDependencies": "property_dependencies",
    "resourceHooks": "resource_hooks",
}
_AS_IS: dict[type, dict[str, str]] = {
    str: _TEXTS,
    bool: _FLAGS,
    list: _LISTS,
    dict: _LISTS_BY_NAME,
}
_SHARED = frozenset({"parent", "provider", "sourcePosition"})
_NAMES = [pair for table in _AS_IS.values() for pair in table.items()]

FIELDS = frozenset(
    {"urn", "custom", "type", "inputs", "outputs", "aliases", "customTimeouts", "stackTrace"}
    | {"replacementTrigger", *(name for name, _ in _NAMES)}
)
"""Every field of an entry that this engine knows, or that Pulumi itself no longer writes."""


def encode_resource(
    state: ResourceState, crypter: Crypter | None, *, show_secrets: bool = False
) -> bytes:
    """Encode an entry as one line of JSON without empty and zero fields, as the Pulumi CLI does.

    `crypter` encrypts the secrets. None is for entries without secrets, or for `show_secrets`.

    Raises:
        EngineError: the entry has a secret, and there is neither a crypter nor `show_secrets`.
    """
    return value_json.dump(_resource_to_json(state, crypter, show_secrets))


def encode_operation(
    operation: PendingOperation, crypter: Crypter | None, *, show_secrets: bool = False
) -> bytes:
    """Encode a pending operation as one line of JSON.

    Raises:
        EngineError: a value is secret, there is no crypter, and `show_secrets` is not set.
    """
    resource = _resource_to_json(operation.resource, crypter, show_secrets)
    return value_json.dump({"resource": resource, "type": operation.type})


def _resource_to_json(
    state: ResourceState, crypter: Crypter | None, show_secrets: bool
) -> dict[str, Json]:
    """Return the entry as JSON. Raises EngineError for a secret without a crypter."""
    encoded: dict[str, Json] = {"urn": state.urn, "custom": state.custom, "type": state.type}
    if state.inputs:
        encoded["inputs"] = value_json.encode_map(state.inputs, crypter, show_secrets=show_secrets)
    if state.outputs:
        encoded["outputs"] = value_json.encode_map(
            state.outputs, crypter, show_secrets=show_secrets
        )
    for name, attribute in _NAMES:
        value = getattr(state, attribute)
        if value:
            encoded[name] = value
    timeouts: dict[str, Json] = {
        key: value_json.encode_number(s) for key, s in state.custom_timeouts.items() if s
    }
    if timeouts:
        encoded["customTimeouts"] = timeouts
    if state.stack_trace:
        encoded["stackTrace"] = [{"sourcePosition": at} if at else {} for at in state.stack_trace]
    if state.replacement_trigger is not None:
        encoded["replacementTrigger"] = value_json.encode(
            state.replacement_trigger, crypter, show_secrets
        )
    return encoded


def decode_operation(
    document: Any, crypter: Crypter | None, label: str = "an operation"
) -> PendingOperation:
    """Decode a pending operation from parsed JSON.

    Args:
        document: the parsed JSON.
        crypter: decrypts the secrets.
        label: names the operation in errors.

    Raises:
        StateError: `document` is not Pulumi's format.
        EngineError: there is a secret, and the crypter is None or the wrong one.
    """
    type_ = document.get("type") if isinstance(document, dict) else None
    if type_ not in _OPERATIONS:
        raise StateError(f"{label} is not a pending operation: its type is {type_!r}")
    return PendingOperation(decode_resource(document.get("resource"), crypter, label), type_)


_OPERATIONS = ("creating", "updating", "deleting", "reading", "importing")


def decode_resource(
    document: Any, crypter: Crypter | None, label: str = "an entry of the state"
) -> ResourceState:
    """Decode an entry from parsed JSON (`value_json.load`).

    Fields that Pulumi does not know are dropped.

    Args:
        document: the parsed JSON.
        crypter: decrypts the secrets; None where there are none.
        label: names the entry in errors as long as its URN is unknown.

    Raises:
        StateError: `document` is not Pulumi's format.
        EngineError: there is a secret, and the crypter is None or the wrong one.
    """
    if not isinstance(document, dict):
        raise StateError(f"{label} is not an object")
    urn, type_ = document.get("urn"), document.get("type")
    if not isinstance(urn, str) or not isinstance(type_, str) or not urn or not type_:
        raise StateError(f"{label} has no urn or no type (urn {urn!r})")
    # Thousands of entries share few types: interned, each text exists once in memory.
    state = ResourceState(urn, document.get("custom") is True, sys.intern(type_))
    try:
        for kind, table in _AS_IS.items():
            for name, attribute in table.items():
                if document.get(name) is not None:
                    setattr(state, attribute, _check_kind(name, document[name], kind))
        _decode_values(state, document, crypter)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise StateError(f"the state of {urn} is malformed: {error}") from error
    return state


def _check_kind(name: str, value: Any, kind: type) -> Any:
    """Return the value if of the type `kind`, also the texts inside. Raises TypeError."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}")
    if isinstance(value, list):
        return _check_texts(name, value)
    if isinstance(value, dict):
        return {key: _check_texts(name, items or []) for key, items in value.items()}
    # Many entries have the same type, provider and source position: one string object for all.
    return sys.intern(value) if isinstance(value, str) and name in _SHARED else value


def _check_texts(name: str, items: list[Any]) -> list[str]:
    """Return the items. Raises TypeError if one is not text."""
    if not all(isinstance(item, str) for item in items):
        raise TypeError(f"{name} contains a value that is not text")
    return items


def _decode_values(
    state: ResourceState, document: Mapping[str, Any], crypter: Crypter | None
) -> None:
    """Decode inputs, outputs and other values of the entry into `state`."""
    state.inputs = value_json.decode_map(document.get("inputs", {}), crypter)
    state.outputs = value_json.decode_map(document.get("outputs", {}), crypter)
    timeouts = document.get("customTimeouts") or {}
    state.custom_timeouts = {
        key: _parse_seconds(seconds) for key, seconds in timeouts.items() if seconds
    }
    trace = document.get("stackTrace") or []
    state.stack_trace = [sys.intern(frame.get("sourcePosition", "")) for frame in trace]
    state.replacement_trigger = value_json.decode(document.get("replacementTrigger"), crypter)


def _parse_seconds(value: Any) -> float:
    """Return a timeout in seconds. Raises ValueError if the value is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ValueError("a timeout is not a number of seconds")
    return float(value)


def find_required_features(state: ResourceState) -> set[str]:
    """Return the version 4 features required by an entry, without byte strings in values."""
    field_of_feature = {
        "refreshBeforeUpdate": state.refresh_before_update,
        "views": state.view_of,
        "hooks": state.resource_hooks,
        "taint": state.taint,
        "replaceWith": state.replace_with,
        "extensionParameterization": state.extension_ref,
        "snippets-prototype": state.snippet_id,
    }
    return {name for name, needed in field_of_feature.items() if needed}

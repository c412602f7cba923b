"""Define what the conformance suite has to know of a kind of resource: test data only.

A new platform has a module like `together_kinds.py` (see `catalogue`); every contract then holds
for its resources, under all hosts, or the suite fails.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.lifecycle import Lifecycle
from gpuform.schemas.models import WireModel

Inputs = Mapping[str, Any]


@dataclass(frozen=True)
class Request:
    """A request of a client, as the emulator logs it; `path` without the platform's prefix.

    In the path and in the body's values `{id}` stands for the object's id, `{part}` for the first
    object that it is made of, `{parts}` for all of them.
    """

    method: str
    path: str
    body: Any = None

    def of(self, id_: str, parts: Sequence[str] = ()) -> "Request":
        values = {"{id}": id_, "{part}": next(iter(parts), ""), "{parts}": list(parts)}
        return Request(self.method, _substitute(self.path, values), _substitute(self.body, values))

    @property
    def pattern(self) -> str:
        """A regular expression for the path, of whatever object."""
        return f"^{re.sub(r'{[a-z]+}', '[^/]+', self.path)}$"


@dataclass(frozen=True)
class Change:
    """A changed declaration; `sends` is what the platform must get for an in-place change."""

    inputs: Inputs
    field: str
    sends: Request | None = None


@dataclass(frozen=True)
class Answers:
    """Answers of one form: the paths that give them, the key of the list if they are lists."""

    path: str
    model: type[WireModel]
    key: str = ""


@dataclass(frozen=True)
class Room:
    """One part of the emulator, as seen from outside.

    - `prefix`: what its paths begin with
    - `headers`: those of a request that is accepted, by its method and URL
    - `gone`: what the platform itself answers about an object that there is not
    - `empty`: its lists without objects; `lists`: a regular expression for their paths
    """

    prefix: str
    headers: Callable[[str, str], Mapping[str, str]]
    gone: Any
    empty: Any
    lists: str


Objects = Sequence[Mapping[str, Any]]


def to_single_objects(objects: Objects) -> list[dict[str, Any]]:
    """Return each of the emulator's objects as one object of the kind, made of itself."""
    return [{**item, "parts": [item["id"]]} for item in objects]


@dataclass(frozen=True, eq=False)
class Described:
    """One kind of resource, with data that its emulated platform accepts."""

    platform: str
    kind: str
    good: Inputs
    bad: Sequence[tuple[Inputs, str]]
    listed_as: str
    own: str
    key_variable: str
    key_config: str
    key: str
    wire: type[WireModel]
    meant: frozenset[str]
    paths: str
    found_at: str = ""
    name_field: str = ""
    pending: str = ""
    failed: str = ""
    in_place: Change = Change({}, "")
    replacing: Change = Change({}, "")
    create: Request | None = None
    behind: Request = Request("", "")
    drift: Mapping[str, Any] = field(default_factory=dict)
    drift_is_repaired: bool = True
    delete_behind: Request = Request("", "")
    leaving: frozenset[str] = frozenset({"deleting"})
    key_is_secret: bool = True
    tells_age: bool = True
    names_are_unique: bool = False
    is_entry: bool = False
    ids_come_again: bool = False
    answers: Sequence[Answers] = ()
    secret: frozenset[str] = frozenset()
    secret_inputs: frozenset[str] = frozenset()
    shortage: Mapping[str, Any] = field(default_factory=dict)
    own_fields: Sequence[str] = ()
    objects: Callable[[Objects], list[dict[str, Any]]] = to_single_objects
    control: str = ""
    needs: Sequence[Request] = ()
    needed_as: str = ""
    untold: str = ""
    room: str = ""
    unlike: frozenset[str] = frozenset()

    @property
    def lifecycle(self) -> type[Lifecycle[Any, Any]]:
        return load_lifecycle_class(self.platform, self.kind)

    @property
    def name(self) -> str:
        """Return the object's name."""
        return str(self.good[self.name_field])

    def numbered(self, number: int) -> Inputs:
        """Return `good` for another object."""
        names = {name: f"{self.good[name]}-{number}" for name in self.own_fields}
        return {**self.good, self.name_field: f"{self.name}-{number}", **names}

    def unmasked(self, body: Any) -> Any:
        """Return a body as it is sent, not masked as in the emulator's log."""
        if not isinstance(body, Mapping):
            return body
        hidden = {name for name in self.secret_inputs if body.get(name) == "[secret]"}
        return {**body, **{name: self.good[name] for name in hidden}}

    def placed(self, values: Mapping[str, str]) -> "Described":
        """Return the description with these values for the placeholders in its declarations."""
        changed = {name: _substitute(getattr(self, name), values) for name in _PLACED}
        return replace(self, **changed)

    def __str__(self) -> str:
        return f"{self.platform}-{self.kind}"


_PLACED = (
    *("good", "in_place", "replacing", "bad", "create", "behind", "delete_behind", "key"),
    *("drift", "own", "paths"),
)


def doubles(value: Any) -> Any:
    """Return values as Pulumi's wire has them: every number a double."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return float(value)
    if isinstance(value, Mapping):
        return {key: doubles(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [doubles(item) for item in value]
    return value


def _substitute(value: Any, values: Mapping[str, Any]) -> Any:
    """Return a value with its placeholders replaced at every depth."""
    if is_dataclass(value):
        parts = {
            field.name: _substitute(getattr(value, field.name), values) for field in fields(value)
        }
        return replace(value, **parts)  # type: ignore[type-var]
    if isinstance(value, Mapping):
        return {key: _substitute(item, values) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_substitute(item, values) for item in value)
    if not isinstance(value, str):
        return value
    if value in values:
        return values[value]
    for name, replacement in values.items():
        value = value.replace(name, replacement) if isinstance(replacement, str) else value
    return value

"""What the conformance suite has to know of one kind of resource: test data, nothing else.

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
        return Request(self.method, _with(self.path, values), _with(self.body, values))

    @property
    def pattern(self) -> str:
        """A regular expression for the path, of whatever object."""
        return f"^{re.sub(r'{[a-z]+}', '[^/]+', self.path)}$"


@dataclass(frozen=True)
class Change:
    """A changed declaration. `sends` is what the platform must get for an in-place change."""

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


def one_by_one(found: Objects) -> list[dict[str, Any]]:
    """Each of the emulator's objects is one of the kind's, made of itself."""
    return [{**each, "parts": [each["id"]]} for each in found]


@dataclass(frozen=True, eq=False)
class Described:
    """One kind of resource, with data that its emulated platform accepts.

    - `good`: a declaration; `name_field` is the input that names the object
    - `in_place`, `replacing`: changed declarations, and the one field that decides; without one
      nothing replaces it
    - `bad`: declarations that check refuses, with the property path
    - `create`: what the platform must get for `good`; None for what is bound, not made
    - `listed_as`: where the emulator's `/_emulator/objects` has it; `objects` makes those of this
      kind of the emulator's (id, name, status, and the ids that it is made of)
    - `behind`: what somebody else does past gpuform, and the drift that it makes
    - `delete_behind`: the same for a deletion
    - `pending`: a status of an object that is not ready yet; `failed`: one that will not be;
      `leaving`: those of one that is being deleted; empty where there is none
    - `secret`: the outputs of the platform that hold a secret; `secret_inputs`: what is declared in
      confidence
    - `own`: a regular expression for the requests about one object; `paths`: for all requests;
      `found_at`: for those in which a create looks for its name, where that is not its own path
    - `wire`: what the platform's answers are read into; `answers`: the forms of them, where there
      are several; `meant`: those of their texts, as `Model.field`, that decide what a lifecycle
      does
    - `unlike`: values of answers that have the name of an input, and are something else
    - `key_variable`, `key_config`, `key`: where the key comes from, and which one it is; that is
      the address of a platform without keys, which is in the logs of libraries (`key_is_secret`)
    - `tells_age`: whether the platform says when an object was made
    - `names_are_unique`: whether it refuses a second object of a name, or the name is the id;
      `ids_come_again`: whether an object made anew has the id of the one before
    - `is_entry`: whether it is an entry of another object: creates go one after another, and the
      answer of each shows it
    - `shortage`: the answer to a create when nothing is free
    - `own_fields`: the inputs that have to differ between two objects
    - `control`: the emulator's control over one object, which can remove it; without one all are
      removed
    - `needs`: what has to be there before, made by somebody else; ids of what `needed_as` lists
      stand for `{NAME}` in all declarations
    - `untold`: what an import has behind an id: a required input that the platform does not tell
    - `room`: the part of the emulator that serves the objects, where it is not the platform's own

    In `key`, `{url}` is the emulator's address.
    """

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
    objects: Callable[[Objects], list[dict[str, Any]]] = one_by_one
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
        """The object's name."""
        return str(self.good[self.name_field])

    def numbered(self, number: int) -> Inputs:
        """`good` for another object."""
        names = {name: f"{self.good[name]}-{number}" for name in self.own_fields}
        return {**self.good, self.name_field: f"{self.name}-{number}", **names}

    def unmasked(self, body: Any) -> Any:
        """A body as it is sent, not as the emulator logs it."""
        if not isinstance(body, Mapping):
            return body
        hidden = {name for name in self.secret_inputs if body.get(name) == "[secret]"}
        return {**body, **{name: self.good[name] for name in hidden}}

    def placed(self, values: Mapping[str, str]) -> "Described":
        """With these values for the placeholders in its declarations."""
        changed = {name: _with(getattr(self, name), values) for name in _PLACED}
        return replace(self, **changed)

    def __str__(self) -> str:
        return f"{self.platform}-{self.kind}"


_PLACED = (
    *("good", "in_place", "replacing", "bad", "create", "behind", "delete_behind", "key"),
    *("drift", "own", "paths"),
)


def doubles(value: Any) -> Any:
    """Values as Pulumi's wire has them: every number a double."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return float(value)
    if isinstance(value, Mapping):
        return {key: doubles(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [doubles(item) for item in value]
    return value


def _with(value: Any, values: Mapping[str, Any]) -> Any:
    """A value with what the placeholders stand for, at every depth."""
    if is_dataclass(value):
        parts = {each.name: _with(getattr(value, each.name), values) for each in fields(value)}
        return replace(value, **parts)  # type: ignore[type-var]
    if isinstance(value, Mapping):
        return {key: _with(item, values) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_with(item, values) for item in value)
    if not isinstance(value, str):
        return value
    if value in values:
        return values[value]
    for name, text in values.items():
        value = value.replace(name, text) if isinstance(text, str) else value
    return value

"""What the conformance suite has to know of one kind of resource: test data, nothing else.

A new platform adds a module like `together_kinds.py` and its line to `KINDS`; every contract then
holds for its resources, under both hosts, or the suite fails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuform.providers.catalog import lifecycle_class
from gpuform.providers.lifecycle import Lifecycle
from gpuform.schemas.models import WireModel

Inputs = Mapping[str, Any]


@dataclass(frozen=True)
class Request:
    """A request of a client, as the emulator logs it; `path` without the platform's prefix.

    `{id}` in the path stands for the object's id, also in the body's values.
    """

    method: str
    path: str
    body: Any = None

    def of(self, id_: str) -> "Request":
        return Request(self.method, self.path.replace("{id}", id_), _with_id(self.body, id_))


@dataclass(frozen=True)
class Change:
    """A changed declaration. `sends` is what the platform must get for an in-place change."""

    inputs: Inputs
    field: str
    sends: Request | None = None


@dataclass(frozen=True, eq=False)
class Described:
    """One kind of resource, with data that its emulated platform accepts.

    - `good`: a declaration; `name_field` is the input that names the object
    - `in_place`, `replacing`: changed declarations, and the one field that decides
    - `bad`: declarations that check refuses, with the property path
    - `create`: what the platform must get for `good`
    - `listed_as`: where the emulator's `/_emulator/objects` has it
    - `behind`: what somebody else does past gpuform, and the drift that it makes
    - `delete_behind`: the same for a deletion
    - `pending`: a status of an object that is not ready yet; `failed`: one that will not be
    - `secret`: the outputs that hold a secret
    - `own`: a regular expression for the requests about one object
    - `wire`: what the platform's answers are read into; `meant`: those of its texts, as
      `Model.field`, that decide what a lifecycle does
    - `key_variable`, `key_config`: where the key comes from
    - `tells_age`: whether the platform says when an object was made
    """

    platform: str
    kind: str
    good: Inputs
    name_field: str
    in_place: Change
    replacing: Change
    bad: Sequence[tuple[Inputs, str]]
    create: Request
    listed_as: str
    behind: Request
    drift: Mapping[str, Any]
    drift_is_repaired: bool
    delete_behind: Request
    pending: str
    failed: str
    own: str
    tells_age: bool
    key_variable: str
    key_config: str
    wire: type[WireModel]
    meant: frozenset[str]
    secret: frozenset[str] = field(default_factory=frozenset)

    @property
    def lifecycle(self) -> type[Lifecycle[Any, Any]]:
        return lifecycle_class(self.platform, self.kind)

    @property
    def name(self) -> str:
        """The object's name."""
        return str(self.good[self.name_field])

    def __str__(self) -> str:
        return f"{self.platform}-{self.kind}"


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


def _with_id(value: Any, id_: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_id(item, id_) for key, item in value.items()}
    return value.replace("{id}", id_) if isinstance(value, str) else value

"""Describe to the conformance suite what differs between the kinds of resources: test data only.

A platform has a module like `together_kinds.py` (see `catalogue`). Every contract then holds for
its kinds, under all hosts, or the suite fails.
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
    """A client's request as the emulator logs it; `path` is without the platform's prefix.

    In the path and in the values of the body, `{id}` stands for the object's id, `{part}` for its
    first part and `{parts}` for all of its parts.
    """

    method: str
    path: str
    body: Any = None

    def fill_ids(self, id_: str, parts: Sequence[str] = ()) -> "Request":
        """Return the request for the object `id_` with `parts`."""
        values = {"{id}": id_, "{part}": next(iter(parts), ""), "{parts}": list(parts)}
        return Request(self.method, _substitute(self.path, values), _substitute(self.body, values))

    @property
    def pattern(self) -> str:
        """Return a regular expression for the path with any id."""
        return f"^{re.sub(r'{[a-z]+}', '[^/]+', self.path)}$"


@dataclass(frozen=True)
class Change:
    """A changed declaration.

    `inputs` differ in `field`; `sends` is the request of an update in place.
    """

    inputs: Inputs
    field: str
    sends: Request | None = None


@dataclass(frozen=True)
class AnswerForm:
    """The form of answers from matching paths; `key` is the name of the list in a list's answer."""

    path: str
    model: type[WireModel]
    key: str = ""


@dataclass(frozen=True)
class PlatformApi:
    """The emulated API of one platform, or of the Kubernetes of its clusters.

    - `prefix`: the first part of its paths
    - `headers`: the headers of an accepted request, by method and URL
    - `not_found_answer`: the platform's own answer about a missing object
    - `empty_list_answer`: the platform's list without objects
    - `list_paths`: a regular expression for the paths of lists
    """

    prefix: str
    headers: Callable[[str, str], Mapping[str, str]]
    not_found_answer: Any
    empty_list_answer: Any
    list_paths: str


Objects = Sequence[Mapping[str, Any]]


def to_single_objects(objects: Objects) -> list[dict[str, Any]]:
    """Return each of the emulator's objects as an object of one part."""
    return [{**item, "parts": [item["id"]]} for item in objects]


@dataclass(frozen=True, eq=False)
class KindDescription:
    """One kind of resource, with data that its emulated platform accepts.

    - `valid_inputs`, `invalid_inputs`: a declaration, and refused ones with the path of the problem
    - `in_place`, `replacing`: changes that update the object, and that replace it
    - `create`, `outside_update`, `outside_delete`: requests for the object, `outside_` ones by
      others; `outside_drift` is the drift after the update
    - `listed_as`, `control_path`: where the emulator's controls list, change and delete the objects
    - `object_path`, `request_paths`, `list_path`: regular expressions for the paths of an object,
      of all requests, and of the list (empty: the path of the create)
    - `pending_status`, `failed_status`, `deleting_statuses`: the platform's words
    - `key`, `key_variable`, `key_config`: the credential and its names in environment and
      configuration
    - `wire`, `answer_forms`: the model of an answer, and the forms of answers with other models
    - `unplanted_fields`: fields of the models whose texts must stay as they are
    - `secret_outputs`, `secret_inputs`: names of secret properties
    - `unrelated_values`: values of an answer with the name of an input and another meaning
    - `capacity_fault`: the fault that makes the platform run out of capacity
    - `requirements`: requests for the objects that must exist first, `requirements_listed_as` their
      list
    - `convert_objects`: turns the emulator's objects into objects of the kind
    - `unique_fields`: further inputs that must differ between two objects
    - `import_suffix`: what follows the id in an import: inputs that the platform does not report
    - `api`: the name of the API with the objects, if it is not `platform`
    """

    platform: str
    kind: str
    valid_inputs: Inputs
    invalid_inputs: Sequence[tuple[Inputs, str]]
    listed_as: str
    object_path: str
    key_variable: str
    key_config: str
    key: str
    wire: type[WireModel]
    unplanted_fields: frozenset[str]
    request_paths: str
    list_path: str = ""
    name_field: str = ""
    pending_status: str = ""
    failed_status: str = ""
    in_place: Change = Change({}, "")
    replacing: Change = Change({}, "")
    create: Request | None = None
    outside_update: Request = Request("", "")
    outside_drift: Mapping[str, Any] = field(default_factory=dict)
    drift_is_repaired: bool = True
    outside_delete: Request = Request("", "")
    deleting_statuses: frozenset[str] = frozenset({"deleting"})
    key_is_secret: bool = True
    reports_creation_time: bool = True
    names_are_unique: bool = False
    is_entry: bool = False
    reuses_ids: bool = False
    answer_forms: Sequence[AnswerForm] = ()
    secret_outputs: frozenset[str] = frozenset()
    secret_inputs: frozenset[str] = frozenset()
    capacity_fault: Mapping[str, Any] = field(default_factory=dict)
    unique_fields: Sequence[str] = ()
    convert_objects: Callable[[Objects], list[dict[str, Any]]] = to_single_objects
    control_path: str = ""
    requirements: Sequence[Request] = ()
    requirements_listed_as: str = ""
    import_suffix: str = ""
    api: str = ""
    unrelated_values: frozenset[str] = frozenset()

    @property
    def lifecycle(self) -> type[Lifecycle[Any, Any]]:
        return load_lifecycle_class(self.platform, self.kind)

    @property
    def name(self) -> str:
        """Return the object's name in `valid_inputs`."""
        return str(self.valid_inputs[self.name_field])

    def build_numbered_inputs(self, number: int) -> Inputs:
        """Return valid inputs for another object, named after `number`."""
        names = {name: f"{self.valid_inputs[name]}-{number}" for name in self.unique_fields}
        return {**self.valid_inputs, self.name_field: f"{self.name}-{number}", **names}

    def restore_secrets(self, body: Any) -> Any:
        """Return `body` with the secrets in place of the log's masks."""
        if not isinstance(body, Mapping):
            return body
        hidden = {name for name in self.secret_inputs if body.get(name) == "[secret]"}
        return {**body, **{name: self.valid_inputs[name] for name in hidden}}

    def fill_placeholders(self, values: Mapping[str, str]) -> "KindDescription":
        """Return the description with `values` in place of the placeholders."""
        changed = {
            name: _substitute(getattr(self, name), values) for name in _FIELDS_WITH_PLACEHOLDERS
        }
        return replace(self, **changed)

    def __str__(self) -> str:
        return f"{self.platform}-{self.kind}"


_FIELDS_WITH_PLACEHOLDERS = (
    *("valid_inputs", "in_place", "replacing", "invalid_inputs", "create", "outside_update"),
    *("outside_delete", "key", "outside_drift", "object_path", "request_paths"),
)


def convert_integers_to_doubles(value: Any) -> Any:
    """Return `value` with a double for every number, as on Pulumi's wire."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return float(value)
    if isinstance(value, Mapping):
        return {key: convert_integers_to_doubles(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [convert_integers_to_doubles(item) for item in value]
    return value


def _substitute(value: Any, values: Mapping[str, Any]) -> Any:
    """Return `value` with replaced placeholders at every depth."""
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

"""Convert property maps, detailed diffs and failures to and from Pulumi's wire.

A failure carries what exists already, for Pulumi to keep.

A lifecycle knows neither resources nor files as values: a resource is its id, a file is refused.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import provider_pb2, status_pb2

from gpuform.providers import values
from gpuform.providers.errors import GpuformError
from gpuform.providers.properties import Properties
from gpuform.providers.values import ResourceReference, Secret
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.values import UNKNOWN


def from_struct(struct: Struct) -> Properties:
    """The properties of a Struct: plain, with UNKNOWN, and `Secret` around what is secret.

    Raises GpuformError for a kind of value that no resource takes.
    """
    try:
        return {name: _taken(value) for name, value in values.from_struct(struct).items()}
    except ValueError as error:
        raise GpuformError(str(error)) from None


def _taken(value: Any) -> Any:
    if isinstance(value, values.Unknown):
        return UNKNOWN
    if isinstance(value, Secret):
        return Secret(_taken(value.value))
    if isinstance(value, ResourceReference):  # a component has no id
        return value.urn if value.id is None else _taken(value.id)
    if isinstance(value, dict):
        return {name: _taken(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_taken(item) for item in value]
    if value is None or isinstance(value, str | bool | float):
        return value
    raise GpuformError("a file is no value of a gpuform resource: give its text")


def to_struct(properties: Mapping[str, Any]) -> Struct:
    """The properties as a Struct; those at the top that are None are absent."""
    return values.to_struct(
        {name: _given(value) for name, value in properties.items() if value is not None}
    )


def _given(value: Any) -> Any:
    if value is UNKNOWN:
        return values.UNKNOWN
    if isinstance(value, Secret):
        return Secret(_given(value.value))
    if isinstance(value, Mapping):
        return {name: _given(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_given(item) for item in value]
    return value if isinstance(value, str | bool | int | float) else None


def marked(
    answer: Mapping[str, Any],
    given: Mapping[str, Any],
    names: Collection[str] = (),
    input_names: Collection[str] = (),
) -> Properties:
    """An answer with its secrets: the properties `names`, and what is secret in `given`.

    `input_names` are the resource's inputs: an answer may have a secret of `given` under one that
    `given` lacks.
    """
    there = {name: value for name, value in answer.items() if value is not None}
    named = values.mark_secret_outputs(there, {}, names)
    renamed = values.mark_renamed_secrets(named, dict(given), input_names)
    return {**answer, **values.mark_echoed_secrets(renamed, dict(given))}


def revealed(properties: Mapping[str, Any]) -> Properties:
    """The properties without `Secret` at any depth: what a lifecycle gets."""
    return {name: values.unwrap_secrets(value) for name, value in properties.items()}


_TYPE = "type.googleapis.com/pulumirpc.ErrorResourceInitFailed"
_UNKNOWN = 2
"""gRPC's number of the code UNKNOWN, which Pulumi's engine takes for a provider's own errors."""


@dataclass(frozen=True, slots=True)
class Status(grpc.Status):  # type: ignore[misc]  # grpc ships no types
    """The status of a call that failed: the user is shown `details` as it is."""

    details: str
    trailing_metadata: tuple[tuple[str, bytes], ...] = ()
    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN


class PartialFailure(Exception):
    """Raised once there is an id, so that the object gets into the state with the reasons."""

    def __init__(
        self, id_: str, properties: Struct, inputs: Struct, reasons: Sequence[str]
    ) -> None:
        super().__init__("; ".join(reasons))
        self._detail = provider_pb2.ErrorResourceInitFailed(
            id=id_, properties=properties, inputs=inputs, reasons=reasons
        )

    @property
    def status(self) -> Status:
        """The status of the call, its details where Pulumi's engine looks for them."""
        packed = AnyMessage(type_url=_TYPE, value=self._detail.SerializeToString())
        status = status_pb2.Status(code=_UNKNOWN, message=str(self), details=[packed])
        return Status(str(self), (("grpc-status-details-bin", status.SerializeToString()),))


_KINDS = {
    (Action.ADD, False): provider_pb2.PropertyDiff.ADD,
    (Action.ADD, True): provider_pb2.PropertyDiff.ADD_REPLACE,
    (Action.UPDATE, False): provider_pb2.PropertyDiff.UPDATE,
    (Action.UPDATE, True): provider_pb2.PropertyDiff.UPDATE_REPLACE,
    (Action.DELETE, False): provider_pb2.PropertyDiff.DELETE,
    (Action.DELETE, True): provider_pb2.PropertyDiff.DELETE_REPLACE,
}
_KEYED = re.compile(r'\["')


def detailed(
    found: Iterable[FieldChange], olds: Mapping[str, Any], news: Mapping[str, Any]
) -> dict[str, provider_pb2.PropertyDiff]:
    """Each changed path with the kind of its change, compared with the last outputs.

    gpuform names an item of a list by its key, which Pulumi would take for one of an object: such
    a change is told of the whole list.
    """
    made: dict[str, provider_pb2.PropertyDiff] = {}
    for change in found:
        if change.action is Action.KEEP:
            continue
        path, action = change.path, Action(change.action)
        keyed = _KEYED.search(path)
        if keyed:
            path = path[: keyed.start()]
            action = _action(path, olds, news)
        before = made.get(path)
        replaces = change.replaces or (before is not None and _replaces(before))
        made[path] = provider_pb2.PropertyDiff(kind=_KINDS[action, replaces])
    return made


def _action(path: str, olds: Mapping[str, Any], news: Mapping[str, Any]) -> Action:
    root = top_level(path)
    if root not in olds:
        return Action.ADD
    return Action.UPDATE if root in news else Action.DELETE


def _replaces(diff: provider_pb2.PropertyDiff) -> bool:
    return any(kind == diff.kind for (_, replaces), kind in _KINDS.items() if replaces)


def top_level(path: str) -> str:
    """The property that a path begins with."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]

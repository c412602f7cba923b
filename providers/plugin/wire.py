"""Convert property maps, detailed diffs and failures to and from Pulumi's wire format.

`servicer` calls this module with the messages of the protocol. A lifecycle knows neither resources
nor files as values: a reference to a resource becomes the resource's id, a file is refused.
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
from gpuform.providers.lifecycle.traits import Properties
from gpuform.providers.values import ResourceReference, Secret
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.values import Unknown, convert_leaves


def from_struct(struct: Struct) -> Properties:
    """Return a Struct's properties as plain values, UNKNOWN and `Secret`.

    A reference to a resource becomes the resource's id.

    Raises:
        GpuformError: a value is of a kind that no resource accepts, such as a file.
    """
    try:
        return {name: _from_wire_value(value) for name, value in values.from_struct(struct).items()}
    except ValueError as error:
        raise GpuformError(str(error)) from None


def _from_wire_value(value: Any) -> Any:
    """Return a value of Pulumi's protocol as a plain value, UNKNOWN or `Secret`, at any depth.

    A reference to a resource becomes its id, to a component its URN. Raises GpuformError for a
    file.
    """

    def convert_leaf(leaf: Any) -> Any:
        if isinstance(leaf, Secret):
            return Secret(_from_wire_value(leaf.value))
        if isinstance(leaf, ResourceReference):  # a component has no id
            return leaf.urn if leaf.id is None else leaf.id
        if leaf is None or isinstance(leaf, str | bool | float | Unknown):
            return leaf
        raise GpuformError("a file is not a valid property value: pass the file's text")

    return convert_leaves(value, convert_leaf)


def to_struct(properties: Mapping[str, Any]) -> Struct:
    """Return the properties as a Struct, without top-level properties of value None."""
    return values.to_struct(
        {name: _to_wire_value(value) for name, value in properties.items() if value is not None}
    )


def _to_wire_value(value: Any) -> Any:
    """Return a plain value, UNKNOWN or `Secret` as a value of Pulumi's protocol, at any depth.

    A value of any other type becomes None.
    """
    if isinstance(value, Secret):
        return Secret(_to_wire_value(value.value))
    if isinstance(value, Mapping):
        return {name: _to_wire_value(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_to_wire_value(item) for item in value]
    return value if isinstance(value, str | bool | int | float | Unknown) else None


def mark_secrets(
    answer: Mapping[str, Any],
    inputs: Mapping[str, Any],
    names: Collection[str] = (),
    input_names: Collection[str] = (),
) -> Properties:
    """Return an answer to Pulumi's engine with secret values wrapped in `Secret`.

    Args:
        answer: The properties to return to Pulumi.
        inputs: The properties that Pulumi sent; a value that is secret here is secret in the
            answer.
        names: Names of properties that are always secret.
        input_names: All inputs of the resource. An answer may repeat a secret of `inputs` under the
            name of an input that `inputs` lacks.
    """
    present_values = {name: value for name, value in answer.items() if value is not None}
    marked_by_name = values.mark_secret_outputs(present_values, {}, names)
    marked_by_rename = values.mark_renamed_secrets(marked_by_name, dict(inputs), input_names)
    return {**answer, **values.mark_echoed_secrets(marked_by_rename, dict(inputs))}


def unwrap_all_secrets(properties: Mapping[str, Any]) -> Properties:
    """Return the properties without `Secret` at any depth, as plain values for lifecycles."""
    return {name: values.unwrap_secrets(value) for name, value in properties.items()}


_INIT_FAILED_TYPE = "type.googleapis.com/pulumirpc.ErrorResourceInitFailed"
_GRPC_UNKNOWN = 2
"""gRPC's number of the code UNKNOWN, with which Pulumi's engine expects a provider's own errors."""


@dataclass(frozen=True, slots=True)
class CallStatus(grpc.Status):  # type: ignore[misc]  # grpc ships no types
    """Status of a call that failed. Pulumi shows `details` to the user unchanged."""

    details: str
    trailing_metadata: tuple[tuple[str, bytes], ...] = ()
    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN


class PartialFailure(Exception):
    """An object was created or updated and is not ready: Pulumi records its id with the reasons."""

    def __init__(
        self, id_: str, properties: Struct, inputs: Struct, reasons: Sequence[str]
    ) -> None:
        super().__init__("; ".join(reasons))
        self._detail = provider_pb2.ErrorResourceInitFailed(
            id=id_, properties=properties, inputs=inputs, reasons=reasons
        )

    @property
    def status(self) -> CallStatus:
        """The status of the call, with the details in metadata for Pulumi's engine."""
        packed = AnyMessage(type_url=_INIT_FAILED_TYPE, value=self._detail.SerializeToString())
        status = status_pb2.Status(code=_GRPC_UNKNOWN, message=str(self), details=[packed])
        return CallStatus(str(self), (("grpc-status-details-bin", status.SerializeToString()),))


_DIFF_KINDS = {
    (Action.ADD, False): provider_pb2.PropertyDiff.ADD,
    (Action.ADD, True): provider_pb2.PropertyDiff.ADD_REPLACE,
    (Action.UPDATE, False): provider_pb2.PropertyDiff.UPDATE,
    (Action.UPDATE, True): provider_pb2.PropertyDiff.UPDATE_REPLACE,
    (Action.DELETE, False): provider_pb2.PropertyDiff.DELETE,
    (Action.DELETE, True): provider_pb2.PropertyDiff.DELETE_REPLACE,
}
_LIST_ITEM_KEY = re.compile(r'\["')


def build_detailed_diff(
    changes: Iterable[FieldChange], olds: Mapping[str, Any], news: Mapping[str, Any]
) -> dict[str, provider_pb2.PropertyDiff]:
    """Return the kind of change of each changed path, for Pulumi's display.

    Unchanged paths are left out. A change of a list item with a key is reported as a change of the
    list. A path is replaced if any of its changes replaces.
    """
    diffs: dict[str, provider_pb2.PropertyDiff] = {}
    for change in changes:
        if change.action is Action.KEEP:
            continue
        path, action = change.path, Action(change.action)
        key_match = _LIST_ITEM_KEY.search(path)
        # Pulumi would read the key of a list's item as the key of an object: report the list.
        if key_match:
            path = path[: key_match.start()]
            action = _get_action(path, olds, news)
        earlier_diff = diffs.get(path)
        replaces = change.replaces or (earlier_diff is not None and _is_replacement(earlier_diff))
        diffs[path] = provider_pb2.PropertyDiff(kind=_DIFF_KINDS[action, replaces])
    return diffs


def _get_action(path: str, olds: Mapping[str, Any], news: Mapping[str, Any]) -> Action:
    """Return how the top-level property of a path changes: ADD, UPDATE or DELETE."""
    name = get_top_level_property(path)
    if name not in olds:
        return Action.ADD
    return Action.UPDATE if name in news else Action.DELETE


def _is_replacement(diff: provider_pb2.PropertyDiff) -> bool:
    """Return True if Pulumi shows this kind of difference as a replacement."""
    return any(kind == diff.kind for (_, replaces), kind in _DIFF_KINDS.items() if replaces)


def get_top_level_property(path: str) -> str:
    """Return the name of the top-level property at the start of a path."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]

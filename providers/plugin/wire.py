"""Property maps as lifecycles get and give them, from and for Pulumi's wire.

A lifecycle knows neither resources nor files as values: a resource is its id, a file is refused.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from google.protobuf.struct_pb2 import Struct

from gpuform.providers import values
from gpuform.providers.errors import GpuformError
from gpuform.providers.properties import Properties
from gpuform.providers.values import ResourceReference, Secret
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

"""Plant a text of its own in every string that a platform's answer can have."""

import base64
import re
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin

from conformance.kind_descriptions import KindDescription
from pydantic import BaseModel, SecretStr

KUBE = "planted-in-the-kubeconfig"
UNKNOWN = "planted-in-what-no-model-has"
WRONG = "planted-in-a-wrong-type"
ENCODED = base64.b64encode(f"apiVersion: v1\ntoken: {KUBE}\n".encode()).decode()


def build_planted_text(field_path: str) -> str:
    """Return the text planted in a field, `Model.field`."""
    return f"planted-in-{field_path}-here"


def plant_answer(description: KindDescription, path: str, value: Any) -> Any:
    """Return an answer with a planted text in each string of its model, except declared ones."""
    return alter_objects(
        description,
        path,
        value,
        lambda model, item: plant_object(model, item, description.unplanted_fields),
    )


def alter_objects(
    description: KindDescription,
    path: str,
    value: Any,
    change: Callable[[type[BaseModel], dict[str, Any]], dict[str, Any]],
) -> Any:
    """Return an answer with changes in every object."""
    if not isinstance(value, dict):
        return value
    for form in description.answer_forms:
        if re.search(form.path, path) and (not form.key or form.key in value):
            if not form.key:
                return change(form.model, value)
            return {**value, form.key: [change(form.model, item) for item in value[form.key]]}
    if description.answer_forms:
        return value
    listed = [key for key, items in value.items() if isinstance(items, list)]
    if len(value) == 1 and listed:
        (key,) = listed
        return {key: [alter_objects(description, path, item, change) for item in value[key]]}
    return change(description.wire, value)


def list_text_fields(model: type[BaseModel]) -> Iterator[str]:
    """Return every `Model.field` below a model whose value is a text."""
    for name, field in model.model_fields.items():
        kind, nested = _get_text_type(field.annotation)
        if kind is str:
            yield f"{model.__name__}.{name}"
        if nested is not None:
            yield from list_text_fields(nested)


def plant_object(
    model: type[BaseModel], values: dict[str, Any], excluded_fields: frozenset[str]
) -> dict[str, Any]:
    """Return an object with a planted text in each string of the model, except `meant_fields`."""
    planted_values = {**values, "planted_key": UNKNOWN, "planted_object": {"token": UNKNOWN}}
    for name, field in model.model_fields.items():
        field_path, key = f"{model.__name__}.{name}", get_wire_name(model, name)
        kind, nested = _get_text_type(field.annotation)
        is_list = _is_list(field.annotation)
        if _is_map(field.annotation):
            if field_path not in excluded_fields:
                planted_text = ENCODED if kind is SecretStr else build_planted_text(field_path)
                planted_values[key] = dict.fromkeys(values.get(key) or ["planted"], planted_text)
        elif kind is SecretStr:
            planted_values[key] = ENCODED
        elif kind is str and field_path not in excluded_fields:
            planted_values[key] = (
                [build_planted_text(field_path)] if is_list else build_planted_text(field_path)
            )
        elif nested is not None and is_list:
            items = values.get(key) or ([] if _is_counted(nested) else [{}])
            planted_values[key] = [plant_object(nested, item, excluded_fields) for item in items]
        elif nested is not None:
            planted_values[key] = plant_object(nested, values.get(key) or {}, excluded_fields)
    return planted_values


def get_wire_name(model: type[BaseModel], name: str) -> str:
    """Return the platform's name of a field."""
    return model.model_fields[name].alias or name


def _is_list(annotation: Any) -> bool:
    """Return True if a field is a list, or absent."""
    return tuple in {get_origin(annotation), *map(get_origin, get_args(annotation))}


def _is_map(annotation: Any) -> bool:
    """Return True if a field is an object of texts under any names."""
    return get_origin(annotation) is dict or any(map(_is_map, get_args(annotation)))


def _is_counted(model: type[BaseModel]) -> bool:
    """Return True if another item would have a meaning: a node, or an object with an id."""
    required = any(field.is_required() for field in model.model_fields.values())
    return required or "num_gpus" in model.model_fields


def _get_text_type(annotation: Any) -> tuple[type | None, type[BaseModel] | None]:
    """Return whether a field is a text, and the model of the value or items."""
    inside = get_args(annotation)
    for inner in inside[1:] if get_origin(annotation) is dict else inside:
        inner_type = _get_text_type(inner)
        if inner_type != (None, None):
            return inner_type
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return None, annotation
    return (annotation, None) if annotation in (str, SecretStr) else (None, None)

"""Plants a text of its own in every string that a platform's answer can have."""

import base64
import re
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin

from conformance.described import Described
from pydantic import BaseModel, SecretStr

KUBE = "planted-in-the-kubeconfig"
UNKNOWN = "planted-in-what-no-model-has"
WRONG = "planted-in-a-wrong-type"
ENCODED = base64.b64encode(f"apiVersion: v1\ntoken: {KUBE}\n".encode()).decode()


def mark(place: str) -> str:
    """The text planted in a field, `Model.field`."""
    return f"planted-in-{place}-here"


def planted(described: Described, path: str, value: Any) -> Any:
    """An answer, with a text in each string of its model but those that are meant."""
    return altered(
        described,
        path,
        value,
        lambda model, each: planted_object(model, each, described.meant),
    )


def altered(
    described: Described,
    path: str,
    value: Any,
    change: Callable[[type[BaseModel], dict[str, Any]], dict[str, Any]],
) -> Any:
    """An answer with every object in it changed."""
    if not isinstance(value, dict):
        return value
    for form in described.answers:
        if re.search(form.path, path) and (not form.key or form.key in value):
            if not form.key:
                return change(form.model, value)
            return {**value, form.key: [change(form.model, each) for each in value[form.key]]}
    if described.answers:
        return value
    listed = [key for key, items in value.items() if isinstance(items, list)]
    if len(value) == 1 and listed:
        (key,) = listed
        return {key: [altered(described, path, each, change) for each in value[key]]}
    return change(described.wire, value)


def strings(model: type[BaseModel]) -> Iterator[str]:
    """Every `Model.field` below a model whose value is a text."""
    for name, field in model.model_fields.items():
        kind, nested = _kind(field.annotation)
        if kind is str:
            yield f"{model.__name__}.{name}"
        if nested is not None:
            yield from strings(nested)


def planted_object(
    model: type[BaseModel], given: dict[str, Any], meant: frozenset[str]
) -> dict[str, Any]:
    """An object with a text in each string of the model but those that are meant."""
    found = {**given, "planted_key": UNKNOWN, "planted_object": {"token": UNKNOWN}}
    for name, field in model.model_fields.items():
        place, key = f"{model.__name__}.{name}", sent_name(model, name)
        kind, nested = _kind(field.annotation)
        is_list = _is_list(field.annotation)
        if _is_map(field.annotation):
            if place not in meant:
                text = ENCODED if kind is SecretStr else mark(place)
                found[key] = dict.fromkeys(given.get(key) or ["planted"], text)
        elif kind is SecretStr:
            found[key] = ENCODED
        elif kind is str and place not in meant:
            found[key] = [mark(place)] if is_list else mark(place)
        elif nested is not None and is_list:
            items = given.get(key) or ([] if _is_counted(nested) else [{}])
            found[key] = [planted_object(nested, item, meant) for item in items]
        elif nested is not None:
            found[key] = planted_object(nested, given.get(key) or {}, meant)
    return found


def sent_name(model: type[BaseModel], name: str) -> str:
    """What the platform calls a field."""
    return model.model_fields[name].alias or name


def _is_list(annotation: Any) -> bool:
    """Whether a field is a list, or absent."""
    return tuple in {get_origin(annotation), *map(get_origin, get_args(annotation))}


def _is_map(annotation: Any) -> bool:
    """Whether a field is an object of texts under any names."""
    return get_origin(annotation) is dict or any(map(_is_map, get_args(annotation)))


def _is_counted(model: type[BaseModel]) -> bool:
    """Whether one more of them would mean something: a node, or what has an id."""
    required = any(field.is_required() for field in model.model_fields.values())
    return required or "num_gpus" in model.model_fields


def _kind(annotation: Any) -> tuple[type | None, type[BaseModel] | None]:
    """Whether a field is a text, and the model of its value or items."""
    inside = get_args(annotation)
    for inner in inside[1:] if get_origin(annotation) is dict else inside:
        found = _kind(inner)
        if found != (None, None):
            return found
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return None, annotation
    return (annotation, None) if annotation in (str, SecretStr) else (None, None)

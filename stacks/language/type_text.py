"""The type of a field in words, and its examples as YAML."""

import json
import re
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from gpuform.schemas.rules import FieldRules, get_field_rules
from gpuform.stacks.document.nodes import parse_plain_scalar

_WORDS: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
}
_PLAIN: Final = re.compile(r"[A-Za-z][\w./@+-]*( [\w./@+-]+)*")


def type_text(model: type[BaseModel], name: str, *, of_model: str) -> str:
    """The type of a field: `whole number, from 8, multiple of 8`, `list of text`.

    `of_model` is what the field's objects are called.
    """
    return _of(_properties(model)[name], get_field_rules(model)[name], of_model)


@cache  # the schema of a model has all of its fields
def _properties(model: type[BaseModel]) -> dict[str, Any]:
    found: dict[str, Any] = model.model_json_schema()["properties"]
    return found


def yaml_text(value: Any) -> str:
    """A value as it can be written in a YAML file, in one line."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and parse_plain_scalar(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _of(schema: dict[str, Any], rules: FieldRules, of_model: str) -> str:
    parts = [part for part in schema.get("anyOf", ()) if part.get("type") != "null"]
    if parts:
        return " or ".join(_of(part, rules, of_model) for part in parts)
    if "$ref" in schema:
        return of_model
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_of(schema['items'], rules, of_model)}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"map of {_of(inner, rules, of_model)}" if isinstance(inner, dict) else "map"
    return ", ".join([_WORDS.get(str(kind), "any value"), *_limits(schema)])


def _limits(schema: dict[str, Any]) -> list[str]:
    least, most = schema.get("minimum"), schema.get("maximum")
    found = []
    if least is not None and most is not None:
        found.append(f"{least} to {most}")
    elif least is not None:
        found.append(f"from {least}")
    if "exclusiveMinimum" in schema:
        found.append(f"more than {schema['exclusiveMinimum']}")
    if "multipleOf" in schema:
        found.append(f"multiple of {schema['multipleOf']}")
    if "maxLength" in schema:
        found.append(f"at most {schema['maxLength']} characters")
    return found

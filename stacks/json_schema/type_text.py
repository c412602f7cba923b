"""Describe the types of fields in words, and write examples as YAML.

The documentation, the language server and the schemas use these texts.
"""

import json
import re
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from gpuform.schemas.rules import FieldRules, get_field_rules
from gpuform.stacks.document.nodes import parse_plain_scalar

_TYPE_WORDS: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
}
_PLAIN: Final = re.compile(r"[A-Za-z][\w./@+-]*( [\w./@+-]+)*")


def describe_type(model: type[BaseModel], name: str, *, model_label: str) -> str:
    """Return the type of a field: `whole number, from 8, multiple of 8`, `list of text`.

    `model_label` is the word for objects of a nested model.
    """
    return _describe_schema(_get_properties(model)[name], get_field_rules(model)[name], model_label)


@cache  # the schema of a model has all of its fields
def _get_properties(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of each field of a model, by name."""
    properties: dict[str, Any] = model.model_json_schema()["properties"]
    return properties


def render_yaml_value(value: Any) -> str:
    """Return a value as written in a YAML file, in one line."""
    # A plain text such as `no` would be another type in YAML.
    if isinstance(value, str) and _PLAIN.fullmatch(value) and parse_plain_scalar(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _describe_schema(schema: dict[str, Any], rules: FieldRules, model_label: str) -> str:
    """Describe the type in a field's JSON Schema in words; null is left out.

    `model_label` is the word for objects of a nested model.
    """
    parts = [part for part in schema.get("anyOf", ()) if part.get("type") != "null"]
    if parts:
        return " or ".join(_describe_schema(part, rules, model_label) for part in parts)
    if "$ref" in schema:
        return model_label
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_describe_schema(schema['items'], rules, model_label)}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return (
            f"map of {_describe_schema(inner, rules, model_label)}"
            if isinstance(inner, dict)
            else "map"
        )
    return ", ".join([_TYPE_WORDS.get(str(kind), "any value"), *_describe_limits(schema)])


def _describe_limits(schema: dict[str, Any]) -> list[str]:
    """Return the limits in a JSON Schema in words: `1 to 8`, `multiple of 8`. Empty without limits.

    A maximum without a minimum is left out.
    """
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    limits = []
    if minimum is not None and maximum is not None:
        limits.append(f"{minimum} to {maximum}")
    elif minimum is not None:
        limits.append(f"from {minimum}")
    if "exclusiveMinimum" in schema:
        limits.append(f"more than {schema['exclusiveMinimum']}")
    if "multipleOf" in schema:
        limits.append(f"multiple of {schema['multipleOf']}")
    if "maxLength" in schema:
        limits.append(f"at most {schema['maxLength']} characters")
    return limits

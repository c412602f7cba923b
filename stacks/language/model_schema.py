"""The JSON Schema of a model, opened: for null, which undoes a default, and for expressions.

Types of one value stand side by side (`"type": ["integer", "string"]`, where the pattern holds for
strings alone), so that an editor's message is about the value that was meant.
"""

from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gpuform.schemas.models import InputModel
from gpuform.schemas.rules import (
    FieldRules,
    append_change_effect,
    get_field_rules,
    inherit_all_rules,
)
from gpuform.schemas.topology import SECTIONS, get_reference_fields

Schema = dict[str, Any]

_EXPRESSION: Final = r"\{\{"
_NULL: Final = {"type": "null"}
_MEANT: Final = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
_OF_FIELDS: Final = ("title", "description", "default", "examples")


def model_schema(model: type[InputModel], *, expressions: bool = True) -> Schema:
    """The schema of an object of the model, of which nothing is required: defaults may have it.

    A field that holds the id of a resource has its short name, too. With `expressions`, each value
    may be one.
    """
    found = _Opening(expressions).of(model, FieldRules())
    found.pop("required", None)
    return {**found, "properties": {**found["properties"], **_references(model)}}


@dataclass(frozen=True, slots=True)
class _Opening:
    expressions: bool

    def of(self, model: type[BaseModel], outer: FieldRules) -> Schema:
        found = model.model_json_schema()
        properties = {}
        for name, own in get_field_rules(model).items():
            rules = inherit_all_rules(own, outer)
            value = self.value(found["properties"][name], rules)
            properties[name] = {**_or_null(value), **_told(model.model_fields[name], rules)}
        required = {"required": found["required"]} if "required" in found else {}
        return {
            "type": "object",
            "description": (model.__doc__ or "").strip().partition("\n")[0],
            **required,
            "properties": properties,
            "additionalProperties": False,
        }

    def value(self, schema: Schema, rules: FieldRules) -> Schema:
        """The schema of a value alone, which null is not."""
        parts = [part for part in schema.get("anyOf", ()) if part != _NULL]
        if len(parts) > 1:  # a text among them may be an expression
            return {"type": [part["type"] for part in parts]}
        if parts:
            return self.value(parts[0], rules)
        if "$ref" in schema and rules.nested:
            return self.or_expression(self.of(rules.nested, rules))
        found = {key: value for key, value in schema.items() if key not in _OF_FIELDS}
        if "const" in found:
            found["enum"] = [found.pop("const")]
        if found.get("type") == "array":
            found["items"] = self.value(found["items"], rules)
        elif isinstance(found.get("additionalProperties"), dict):
            found["additionalProperties"] = self.value(found["additionalProperties"], rules)
        return self.or_expression(found)

    def or_expression(self, schema: Schema) -> Schema:
        """A text may be one anyway, and so may what has no type."""
        kind = schema.get("type")
        if not self.expressions:
            return schema
        if "enum" in schema or "pattern" in schema:
            return {"anyOf": [schema, {"type": "string", "pattern": _EXPRESSION}]}
        if kind not in _MEANT:
            return schema
        return {**schema, "type": [kind, "string"], **_expression_else(_MEANT[kind])}


def _told(field: FieldInfo, rules: FieldRules) -> Schema:
    """What an editor shows of a field."""
    found: Schema = {"description": append_change_effect(field.description or "", rules)}
    if field.examples:
        found["examples"] = field.examples
    if rules.default is not None:
        found["default"] = rules.default.value
    return found


def _or_null(schema: Schema) -> Schema:
    if "anyOf" in schema:
        return {"anyOf": [*schema["anyOf"], _NULL]}
    if "enum" in schema:
        return {"anyOf": [schema, _NULL]}
    if "type" not in schema:
        return schema
    kind = schema["type"]
    return {**schema, "type": [*(kind if isinstance(kind, list) else [kind]), "null"]}


def _expression_else(meant: str) -> Schema:
    """What a text has to be; `patternErrorMessage` is known to editors alone."""
    message = f'write {meant}, or an expression: "{{{{ ... }}}}"'
    return {"pattern": _EXPRESSION, "patternErrorMessage": message}


def _references(model: type[InputModel]) -> Schema:
    """The fields that hold ids of resources, under the names that take the resources."""
    sections = {kind: section for section, kind in SECTIONS.items()}
    found = {}
    for short, name in get_reference_fields(model).items():
        kind = get_field_rules(model)[name].reference_kind
        found[short] = {
            "type": ["string", "null"],
            "description": f"A {kind} of this stack, instead of its id in {name}.",
            "examples": [f"{{{{ {sections[kind]}.NAME }}}}"],
        }
    return found

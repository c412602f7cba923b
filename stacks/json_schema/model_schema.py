"""Build the JSON Schema of a model, extended by null and by expressions.

Null undoes a default of the file.

Types of one value stand in one list (`"type": ["integer", "string"]`; the pattern then applies to
strings only), so that an editor's message is about the value that the user meant.
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
_TYPE_LABELS: Final = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
_FIELD_KEYWORDS: Final = ("title", "description", "default", "examples")


def build_model_schema(model: type[InputModel], *, expressions: bool = True) -> Schema:
    """Return the schema of an object of the model, without required fields.

    The file's defaults may have the required ones.

    A field that holds the id of a resource also appears under its short name. With `expressions`,
    each value may be an expression.
    """
    schema = _SchemaBuilder(expressions).build_object(model, FieldRules())
    # The file's `defaults` may hold required fields.
    schema.pop("required", None)
    return {**schema, "properties": {**schema["properties"], **_build_reference_fields(model)}}


@dataclass(frozen=True, slots=True)
class _SchemaBuilder:
    expressions: bool

    def build_object(self, model: type[BaseModel], outer_rules: FieldRules) -> Schema:
        """Build the schema of an object of a model, with null allowed in each field.

        Fields inherit `outer_rules`, the rules of the field that contains the object.
        """
        json_schema = model.model_json_schema()
        properties = {}
        for name, field_rules in get_field_rules(model).items():
            rules = inherit_all_rules(field_rules, outer_rules)
            value = self.build_value(json_schema["properties"][name], rules)
            properties[name] = {
                **_allow_null(value),
                **_build_annotations(model.model_fields[name], rules),
            }
        required = {"required": json_schema["required"]} if "required" in json_schema else {}
        return {
            "type": "object",
            "description": (model.__doc__ or "").strip().partition("\n")[0],
            **required,
            "properties": properties,
            "additionalProperties": False,
        }

    def build_value(self, schema: Schema, rules: FieldRules) -> Schema:
        """Return the schema of a value without null."""
        parts = [part for part in schema.get("anyOf", ()) if part != _NULL]
        if len(parts) > 1:  # a text among them may be an expression
            return {"type": [part["type"] for part in parts]}
        if parts:
            return self.build_value(parts[0], rules)
        if "$ref" in schema and rules.nested:
            return self.allow_expression(self.build_object(rules.nested, rules))
        value_schema = {key: value for key, value in schema.items() if key not in _FIELD_KEYWORDS}
        # An enum of one value takes an expression beside it; a const does not.
        if "const" in value_schema:
            value_schema["enum"] = [value_schema.pop("const")]
        if value_schema.get("type") == "array":
            value_schema["items"] = self.build_value(value_schema["items"], rules)
        elif isinstance(value_schema.get("additionalProperties"), dict):
            value_schema["additionalProperties"] = self.build_value(
                value_schema["additionalProperties"], rules
            )
        return self.allow_expression(value_schema)

    def allow_expression(self, schema: Schema) -> Schema:
        """Return the schema extended by expressions, where a text is not allowed anyway."""
        kind = schema.get("type")
        if not self.expressions:
            return schema
        if "enum" in schema or "pattern" in schema:
            return {"anyOf": [schema, {"type": "string", "pattern": _EXPRESSION}]}
        # A text may be an expression without any change of the schema.
        if kind not in _TYPE_LABELS:
            return schema
        return {**schema, "type": [kind, "string"], **_build_expression_pattern(_TYPE_LABELS[kind])}


def _build_annotations(field: FieldInfo, rules: FieldRules) -> Schema:
    """Return the description, the examples and the default of a field, for editors."""
    annotations: Schema = {"description": append_change_effect(field.description or "", rules)}
    if field.examples:
        annotations["examples"] = field.examples
    if rules.default is not None:
        annotations["default"] = rules.default.value
    return annotations


def _allow_null(schema: Schema) -> Schema:
    """Return the schema with null allowed; a schema of any type allows it already."""
    if "anyOf" in schema:
        return {"anyOf": [*schema["anyOf"], _NULL]}
    if "enum" in schema:
        # A further type does not extend an enum: null needs an alternative of its own.
        return {"anyOf": [schema, _NULL]}
    if "type" not in schema:
        return schema
    kind = schema["type"]
    return {**schema, "type": [*(kind if isinstance(kind, list) else [kind]), "null"]}


def _build_expression_pattern(type_label: str) -> Schema:
    """Return the pattern of a text in place of a typed value, with an error message for editors."""
    message = f'write {type_label}, or an expression: "{{{{ ... }}}}"'
    return {"pattern": _EXPRESSION, "patternErrorMessage": message}


def _build_reference_fields(model: type[InputModel]) -> Schema:
    """Return the fields for ids of resources, under the short names for resources."""
    sections = {kind: section for section, kind in SECTIONS.items()}
    fields = {}
    for short, name in get_reference_fields(model).items():
        kind = get_field_rules(model)[name].reference_kind
        fields[short] = {
            "type": ["string", "null"],
            "description": f"A {kind} of this stack, instead of its id in {name}.",
            "examples": [f"{{{{ {sections[kind]}.NAME }}}}"],
        }
    return fields

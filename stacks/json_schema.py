"""Write the JSON Schemas of topologies, gpuform's other files, plans and node inventories.

Draft 7, which editors support best. An entry's platform selects its properties by `if` and `then`,
so that messages and completions are about this platform alone. Of an entry, only `platform` is
required: the file's `defaults` may have the rest. `gpuform validate` reports missing values and
rules over several fields.

Models are extended by null, which undoes a default of the file, and by expressions. Types of one
value stand in one list (`"type": ["integer", "string"]`; the pattern then applies to strings only),
so that an editor's message is about the value that the user meant.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gpuform.providers.catalog import list_platforms_with, load_lifecycle_class
from gpuform.schemas.cases_file import CasesInputs
from gpuform.schemas.gates import GatesInputs
from gpuform.schemas.models import InputModel
from gpuform.schemas.notify import NotifyInputs
from gpuform.schemas.plan import FORMAT_VERSION, Plan
from gpuform.schemas.resource_facts import NodeInventory, NodeRecord
from gpuform.schemas.rules import (
    FieldRules,
    append_change_effect,
    get_field_rules,
    inherit_all_rules,
)
from gpuform.schemas.stacks_plan import StacksInputs
from gpuform.schemas.topology import (
    NAME_PATTERN,
    SECTIONS,
    EntryInputs,
    ModuleInputs,
    TopologyInputs,
    get_reference_fields,
)
from gpuform.stacks.pricing import get_price_book_model

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
_FILE_MODELS: Final[Mapping[str, tuple[type[InputModel], str]]] = {
    "gates": (GatesInputs, "gpuform gates"),
    "notify": (NotifyInputs, "gpuform notifications"),
    "stacks": (StacksInputs, "gpuform stacks"),
    "tests": (CasesInputs, "gpuform test cases"),
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
        """Return the JSON Schema of a value, without null."""
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


_ENTRY_FIELDS: Final = tuple(name for name in EntryInputs.model_fields if name != "platform")
_SECTIONS_WITH_NAMES: Final = ("config", "inputs", "stack_references", "outputs")
_NAME_SCHEMA: Final = {
    "pattern": f"^{NAME_PATTERN}$",
    "patternErrorMessage": "a name has letters, digits, _ . -",
}

_MODULE_REFERENCE: Final = {"$ref": "#/definitions/module"}
_INCLUDE_SCHEMA: Final[dict[str, Any]] = {
    "type": ["array", "object", "null"],
    "items": {"if": {"type": "object"}, "then": _MODULE_REFERENCE, "else": {"type": "string"}},
    "if": {"type": "object"},
    "then": _MODULE_REFERENCE,
}
"""A list of paths and modules, or one module.

With `if`, an editor's message is about the form in use, not about both forms.
"""


def build_topology_schema() -> dict[str, Any]:
    """Return the JSON Schema of a topology file."""
    file = build_model_schema(TopologyInputs, expressions=False)
    entry = build_model_schema(EntryInputs)["properties"]
    entry["options"] = _exclude_expression(entry["options"])
    definitions = {f"entry.{name}": entry[name] for name in _ENTRY_FIELDS}
    sections, defaults = {}, {}
    for section, kind in SECTIONS.items():
        platforms = list_platforms_with(kind)
        sections[section] = _build_section_schema(section, kind, platforms)
        defaults[section] = _build_defaults_schema(section, platforms)
        definitions[section] = _build_entry_schema(
            section, platforms, entry["platform"]["description"]
        )
        for platform in platforms:
            inputs_schema = build_model_schema(load_lifecycle_class(platform, kind).inputs)
            definitions[f"{section}.{platform}"] = _build_platform_entry_schema(
                platform, inputs_schema
            )
            definitions[f"defaults.{section}.{platform}"] = _build_default_schema(
                section, platform, inputs_schema
            )
    properties = file["properties"]
    for name in _SECTIONS_WITH_NAMES:
        properties[name]["propertyNames"] = _NAME_SCHEMA
    definitions["module"] = _build_module_schema(entry)
    properties["include"] |= _INCLUDE_SCHEMA
    properties["defaults"] |= {"properties": defaults, "additionalProperties": False}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "gpuform topology",
        "description": "GPU clusters and related resources.",
        "type": "object",
        "properties": {**properties, **sections},
        # YAML anchors need a place that the topology ignores.
        "patternProperties": {"^x-": {"description": "Ignored: a place for anchors."}},
        "additionalProperties": False,
        "definitions": definitions,
    }


def render_topology_schema() -> str:
    """Return the schema of a topology file as the text of a file."""
    return json.dumps(build_topology_schema(), indent=2, ensure_ascii=False) + "\n"


def _build_module_schema(entry: Schema) -> Schema:
    """Return the JSON Schema of a module in `include`."""
    module_schema = build_model_schema(ModuleInputs, expressions=False)
    properties = module_schema["properties"]
    for name in ("file", "name"):
        # Null has no meaning here: a module needs its file and its name.
        properties[name]["type"] = "string"
    properties["name"] |= _NAME_SCHEMA
    properties["with"]["propertyNames"] = _NAME_SCHEMA
    # `for_each` and `when` of a module may be expressions, as those of entries.
    entry_fields = {name: {**entry[name], **properties[name]} for name in ("for_each", "when")}
    return {
        **module_schema,
        "required": ["file", "name"],
        "properties": {**properties, **entry_fields},
    }


def _build_section_schema(section: str, kind: str, platforms: list[str]) -> Schema:
    """Build the schema of a topology section with entries by name; null is allowed."""
    return {
        "type": ["object", "null"],
        "description": f"{kind} resources by name, on {' or '.join(platforms)}.",
        "propertyNames": _NAME_SCHEMA,
        "additionalProperties": _build_reference(section),
    }


def _build_defaults_schema(section: str, platforms: list[str]) -> Schema:
    """Build the schema of a section's defaults by platform; null is allowed."""
    return {
        "type": ["object", "null"],
        "description": f"Defaults of the entries of {section}.",
        "properties": {
            platform: _build_reference(f"defaults.{section}.{platform}") for platform in platforms
        },
        "additionalProperties": False,
    }


def _build_entry_schema(section: str, platforms: list[str], description: str) -> Schema:
    """Return the schema of an entry on any platform.

    Without a known platform, the properties stay unchecked.
    """
    return {
        "type": "object",
        "required": ["platform"],
        "properties": {
            "platform": {"type": "string", "enum": platforms, "description": description},
            **_build_entry_references(),
        },
        "allOf": [
            {
                # Without `required`, the condition would also hold for an entry that has no
                # platform.
                "if": {"properties": {"platform": {"const": platform}}, "required": ["platform"]},
                "then": _build_reference(f"{section}.{platform}"),
            }
            for platform in platforms
        ],
    }


def _build_platform_entry_schema(platform: str, model: Schema) -> Schema:
    """Return the model's schema with the fixed `platform` and the common fields of entries."""
    entry_fields = {"platform": {"const": platform}, **_build_entry_references()}
    return {**model, "properties": {**entry_fields, **model["properties"]}}


def _build_default_schema(section: str, platform: str, model: Schema) -> Schema:
    """Return the schema of an entry's defaults: properties and options."""
    properties_path = f"{section}.{platform}/properties"
    return {
        "type": ["object", "null"],
        "description": model["description"],
        "properties": {
            "options": _build_reference("entry.options"),
            **{name: _build_reference(f"{properties_path}/{name}") for name in model["properties"]},
        },
        "additionalProperties": False,
    }


def _exclude_expression(open_schema: Schema) -> Schema:
    """Return the schema of an object without the alternative of an expression."""
    # Options are merged one by one with the defaults, which an expression as a whole would prevent.
    object_schema = {
        key: value for key, value in open_schema.items() if not key.startswith("pattern")
    }
    return {**object_schema, "type": ["object", "null"]}


def _build_entry_references() -> Schema:
    """Return references to the schemas of the common fields of entries, by field."""
    return {name: _build_reference(f"entry.{name}") for name in _ENTRY_FIELDS}


def _build_reference(definition: str) -> Schema:
    """Return a JSON Schema reference to a definition in the same file."""
    return {"$ref": f"#/definitions/{definition}"}


def render_file_schema(kind: str) -> str:
    """Render the schema of another file than a topology: `prices`, or a kind in `_FILE_MODELS`.

    Null is not offered.
    """
    # The model of the price book depends on the installed platforms.
    model, title = _FILE_MODELS.get(kind) or (get_price_book_model(), "gpuform price book")
    schema = _remove_optional_marks(model.model_json_schema())
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps({**schema, **head}, indent=2) + "\n"


def _remove_optional_marks(value: Any) -> Any:
    """Return the schema without defaults and null, the marks of optional fields."""
    if isinstance(value, list):
        return [_remove_optional_marks(item) for item in value]
    if not isinstance(value, dict):
        return value
    simplified = {
        key: _remove_optional_marks(item) for key, item in value.items() if key != "default"
    }
    choices = [choice for choice in simplified.get("anyOf", ()) if choice != _NULL]
    # Pydantic writes an optional field as a choice between its type and null.
    if "anyOf" in simplified and len(choices) == 1:
        del simplified["anyOf"]
        simplified = {**choices[0], **simplified}
    return simplified


def build_plan_schema() -> dict[str, Any]:
    """Return the schema of a plan in this release's format."""
    schema = Plan.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "gpuform plan"
    schema["properties"]["format_version"]["const"] = FORMAT_VERSION
    # Pydantic counts a field with a default as optional; every plan has this one.
    schema["required"] = ["format_version", *schema["required"]]
    return schema


def render_plan_schema() -> str:
    """Return the schema of a plan as the text of a file."""
    return json.dumps(build_plan_schema(), indent=2) + "\n"


def build_inventory_schema() -> dict[str, Any]:
    """Return the schema of an inventory of nodes in this release's format."""
    schema = NodeInventory.model_json_schema(mode="serialization")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "gpuform node inventory"
    # Every inventory has every field, also those with a default.
    schema["required"] = list(NodeInventory.model_fields)
    schema["$defs"]["NodeRecord"]["required"] = list(NodeRecord.model_fields)
    return schema


def render_inventory_schema() -> str:
    """Return the schema of an inventory of nodes as the text of a file."""
    return json.dumps(build_inventory_schema(), indent=2) + "\n"

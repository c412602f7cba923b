"""List the keys and values that a place of a topology accepts, and describe types of fields.

`topology_text` completes and describes words with this module; the models of the schemas are the
source. The pages of the documentation describe fields in the same words.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from gpuform.providers.catalog import has_kind, list_platforms_with, load_lifecycle_class
from gpuform.schemas.models import InputModel
from gpuform.schemas.rules import FieldRules, describe_change_effect, get_field_rules
from gpuform.schemas.topology import (
    SECTIONS,
    ConfigInputs,
    EntryInputs,
    ModuleInputs,
    OptionsInputs,
    TopologyInputs,
    get_reference_fields,
)
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
    schema = _build_schema(model)["properties"][name]
    return _describe_schema(schema, get_field_rules(model)[name], model_label)


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
        if not isinstance(inner, dict):
            return "map"
        return f"map of {_describe_schema(inner, rules, model_label)}"
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


_SECTION_DESCRIPTION: Final = "The {kind} resources, by name. Available on {platforms}."


@dataclass(frozen=True, slots=True)
class Word:
    """A key of a topology, with its type and its description in Markdown."""

    name: str
    type: str
    description: str
    is_required: bool = False


def find_words(path: Sequence[str], platform: str | None) -> dict[str, Word]:
    """Return the keys of the mapping at a path; empty where users choose the names.

    `platform` is the platform of the entry around the path, None if it is unknown.
    """
    if not path:
        return {**_build_field_words(TopologyInputs), **_build_section_words()}
    section, *rest = path
    if section in ("config", "inputs") and len(rest) == 1:
        return _build_field_words(ConfigInputs)
    if section == "include":
        return _build_field_words(ModuleInputs)
    if section not in SECTIONS or not rest:
        return {}
    return _find_entry_words(section, rest[1:], platform)


def list_values(path: Sequence[str], platform: str | None) -> list[str]:
    """Return the allowed values of the key at the end of a path, to complete a value; or empty."""
    *outer_path, name = path
    if len(path) == 3 and path[0] in SECTIONS and name == "platform":
        return list(list_platforms_with(SECTIONS[path[0]]))
    model = _find_model(outer_path, platform, name)
    if model is None:
        return []
    schema = _build_schema(model)
    return list(_list_choices(schema["properties"].get(name, {}), schema))


def find_outputs(section: str, platform: str | None) -> dict[str, Word]:
    """Return the outputs of a resource by name; only `id` and `urn` if the platform is unknown."""
    kind = SECTIONS[section]
    outputs = {
        # Every resource has these outputs, whatever its kind.
        "id": Word("id", "text", "The platform's id for the object."),
        "urn": Word("urn", "text", "The URN of the resource."),
    }
    if platform is None or not has_kind(platform, kind):
        return outputs
    lifecycle = load_lifecycle_class(platform, kind)
    described_fields = {
        **_build_field_words(lifecycle.inputs),
        **_build_field_words(lifecycle.outputs),
    }
    for name in lifecycle.list_property_names():
        outputs[name] = described_fields.get(name, Word(name, "", ""))
    return outputs


def _find_entry_words(section: str, rest: Sequence[str], platform: str | None) -> dict[str, Word]:
    """Return the words below an entry, where `rest` are the keys inside of the entry."""
    model = _find_inputs_model(section, platform)
    if not rest:
        # Without a known platform only the fields of every entry can be offered.
        entry_words = _build_field_words(EntryInputs)
        if model is None:
            return entry_words
        references = {
            name: Word(name, "resource", f"The resource itself, instead of the id in `{field}`.")
            for name, field in get_reference_fields(model).items()
        }
        return {**_build_field_words(model), **references, **entry_words}
    nested = _find_nested_model(model, rest)
    return {} if nested is None else _build_field_words(nested)


def _find_inputs_model(section: str, platform: str | None) -> type[InputModel] | None:
    """Return the model of a resource's inputs, or None if the platform is unknown."""
    kind = SECTIONS[section]
    if platform is None or not has_kind(platform, kind):
        return None
    return load_lifecycle_class(platform, kind).inputs


def _find_nested_model(
    model: type[BaseModel] | None, path: Sequence[str]
) -> type[BaseModel] | None:
    """Return the model of the mapping at a path inside an entry of `model`, or None."""
    if list(path[:1]) == ["options"]:
        model, path = OptionsInputs, path[1:]
    for name in path:
        rules = get_field_rules(model).get(name) if model is not None else None
        model = rules.nested if rules is not None else None
    return model


def _find_model(path: Sequence[str], platform: str | None, name: str) -> type[BaseModel] | None:
    """Return the model with the field `name` of the mapping at a path, or None."""
    if not path:
        return TopologyInputs
    if path[0] in ("config", "inputs"):
        return ConfigInputs
    if path[0] not in SECTIONS or len(path) < 2:
        return None
    entry_model = _find_inputs_model(path[0], platform) or EntryInputs
    model = _find_nested_model(entry_model, path[2:])
    return model if model is not None and name in model.model_fields else None


@cache
def _build_section_words() -> dict[str, Word]:
    """Build the words for the sections of resources, described with the platforms of each."""
    return {
        section: Word(
            section,
            f"map of {kind}",
            _SECTION_DESCRIPTION.format(kind=kind, platforms=", ".join(list_platforms_with(kind))),
        )
        for section, kind in SECTIONS.items()
    }


@cache
def _build_field_words(model: type[BaseModel]) -> dict[str, Word]:
    rules = get_field_rules(model)
    is_input = issubclass(model, InputModel)
    words = {}
    for name, field in model.model_fields.items():
        if name not in rules:
            continue
        parts = [field.description or ""]
        if is_input and (rules[name].immutable or rules[name].replace_if):
            parts.append(f"On change: {describe_change_effect(rules[name])}.")
        if rules[name].secret:
            parts.append("The value is secret.")
        if field.examples:
            parts.append(f"Example: `{render_yaml_value(field.examples[0])}`")
        description = "\n\n".join(filter(None, parts))
        type_name = describe_type(model, name, model_label="object")
        words[name] = Word(name, type_name, description, is_required=field.is_required())
    return words


@cache
def _build_schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _list_choices(
    schema: Mapping[str, Any], root_schema: Mapping[str, Any], visited_names: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield the enumerated values of a schema, with references, alternatives and items."""
    name = str(schema.get("$ref", "")).rsplit("/", 1)[-1]
    if name in visited_names:  # JSON holds JSON
        return
    if name:
        schema, visited_names = root_schema["$defs"][name], (*visited_names, name)
    for value in schema.get("enum", ()):
        yield render_yaml_value(value)
    if "const" in schema:
        yield render_yaml_value(schema["const"])
    if schema.get("type") == "boolean":
        yield from ("true", "false")
    for inner_schema in (*schema.get("anyOf", ()), schema.get("items") or {}):
        if inner_schema and isinstance(inner_schema, Mapping):
            yield from _list_choices(inner_schema, root_schema, visited_names)

"""What can be written at a place of a topology, and what it means."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from gpuform.providers.catalog import has_kind, list_platforms_with, load_lifecycle_class
from gpuform.schemas.models import InputModel
from gpuform.schemas.rules import describe_change_effect, get_field_rules
from gpuform.schemas.topology import (
    SECTIONS,
    ConfigInputs,
    EntryInputs,
    ModuleInputs,
    OptionsInputs,
    TopologyInputs,
    get_reference_fields,
)
from gpuform.stacks.language.type_text import type_text, yaml_text

_SECTION_TEXT: Final = "The {kind} resources, by names of your choice. On {platforms}."


@dataclass(frozen=True, slots=True)
class Word:
    """A key that can be written, with what it means in Markdown."""

    name: str
    type: str
    text: str
    is_required: bool = False


def words_at(path: Sequence[str], platform: str | None) -> dict[str, Word]:
    """The keys that can be written in the mapping at a path; none where names are one's own.

    `platform` is that of the entry that the path is in.
    """
    if not path:
        return {**_fields(TopologyInputs), **_sections()}
    section, *rest = path
    if section in ("config", "inputs") and len(rest) == 1:
        return _fields(ConfigInputs)
    if section == "include":
        return _fields(ModuleInputs)
    if section not in SECTIONS or not rest:
        return {}
    return _inside(section, rest[1:], platform)


def values_of(path: Sequence[str], platform: str | None) -> list[str]:
    """The values that the key at the end of a path can have, where they can be listed."""
    *outer, name = path
    if len(path) == 3 and path[0] in SECTIONS and name == "platform":
        return list(list_platforms_with(SECTIONS[path[0]]))
    model = _model_at(outer, platform, name)
    if model is None:
        return []
    return list(_choices(_schema(model)["properties"].get(name, {}), _schema(model)))


def outputs_of(section: str, platform: str | None) -> dict[str, Word]:
    """What a resource gives out, as expressions ask it."""
    kind = SECTIONS[section]
    found = {
        "id": Word("id", "text", "The platform's id of the object."),
        "urn": Word("urn", "text", "Pulumi's name of the resource."),
    }
    if platform is None or not has_kind(platform, kind):
        return found
    lifecycle = load_lifecycle_class(platform, kind)
    known = {**_fields(lifecycle.inputs), **_fields(lifecycle.outputs)}
    for name in lifecycle.list_property_names():
        found[name] = known.get(name, Word(name, "", ""))
    return found


def _inside(section: str, rest: Sequence[str], platform: str | None) -> dict[str, Word]:
    kind = SECTIONS[section]
    model: type[InputModel] | None = None
    if platform is not None and has_kind(platform, kind):
        model = load_lifecycle_class(platform, kind).inputs
    if not rest:
        own = _fields(EntryInputs)
        if model is None:
            return own
        references = {
            name: Word(name, "resource", f"The resource itself, in the place of `{field}`.")
            for name, field in get_reference_fields(model).items()
        }
        return {**_fields(model), **references, **own}
    if rest[0] == "options":
        model, rest = OptionsInputs, rest[1:]
    return _nested(model, rest)


def _nested(model: type[BaseModel] | None, rest: Sequence[str]) -> dict[str, Word]:
    for name in rest:
        rules = get_field_rules(model).get(name) if model is not None else None
        model = rules.nested if rules is not None else None
    return {} if model is None else _fields(model)


def _model_at(path: Sequence[str], platform: str | None, name: str) -> type[BaseModel] | None:
    """The model that has the field `name` of the mapping at a path."""
    if not path:
        return TopologyInputs
    if path[0] in ("config", "inputs"):
        return ConfigInputs
    if path[0] not in SECTIONS or len(path) < 2:
        return None
    kind, rest = SECTIONS[path[0]], list(path[2:])
    model: type[BaseModel] | None = EntryInputs
    if rest[:1] == ["options"]:
        model, rest = OptionsInputs, rest[1:]
    elif platform is not None and has_kind(platform, kind):
        model = load_lifecycle_class(platform, kind).inputs
    for step in rest:
        rules = get_field_rules(model).get(step) if model is not None else None
        model = rules.nested if rules is not None else None
    return model if model is not None and name in model.model_fields else None


@cache
def _sections() -> dict[str, Word]:
    return {
        section: Word(
            section,
            f"map of {kind}",
            _SECTION_TEXT.format(kind=kind, platforms=", ".join(list_platforms_with(kind))),
        )
        for section, kind in SECTIONS.items()
    }


@cache
def _fields(model: type[BaseModel]) -> dict[str, Word]:
    rules = get_field_rules(model)
    is_input = issubclass(model, InputModel)
    found = {}
    for name, field in model.model_fields.items():
        if name not in rules:
            continue
        parts = [field.description or ""]
        if is_input and (rules[name].immutable or rules[name].replace_if):
            parts.append(f"A change: {describe_change_effect(rules[name])}.")
        if rules[name].secret:
            parts.append("It is secret.")
        if field.examples:
            parts.append(f"Example: `{yaml_text(field.examples[0])}`")
        text = "\n\n".join(filter(None, parts))
        kind = type_text(model, name, of_model="object")
        found[name] = Word(name, kind, text, is_required=field.is_required())
    return found


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _choices(
    schema: Mapping[str, Any], whole: Mapping[str, Any], seen: tuple[str, ...] = ()
) -> Iterator[str]:
    name = str(schema.get("$ref", "")).rsplit("/", 1)[-1]
    if name in seen:  # JSON holds JSON
        return
    if name:
        schema, seen = whole["$defs"][name], (*seen, name)
    for value in schema.get("enum", ()):
        yield yaml_text(value)
    if "const" in schema:
        yield yaml_text(schema["const"])
    if schema.get("type") == "boolean":
        yield from ("true", "false")
    for each in (*schema.get("anyOf", ()), schema.get("items") or {}):
        if each and isinstance(each, Mapping):
            yield from _choices(each, whole, seen)

"""Write the JSON Schema of topology files and project files, for editors.

Draft 7, which they know best. An entry's platform chooses its properties by if and then, so that
messages and completions are about that platform alone. Of an entry, `platform` alone is required:
the file's `defaults` may have the rest. What is missing, and rules over several fields, are
`gpuform validate`'s to tell.
"""

import json
from typing import Any, Final

from gpuform.providers.catalog import list_platforms_with, load_lifecycle_class
from gpuform.schemas.cases_file import CasesInputs
from gpuform.schemas.gates import GatesInputs
from gpuform.schemas.models import InputModel
from gpuform.schemas.stacks_plan import StacksInputs
from gpuform.schemas.topology import (
    NAME_PATTERN,
    SECTIONS,
    EntryInputs,
    ModuleInputs,
    TopologyInputs,
)
from gpuform.stacks.language.model_schema import Schema, model_schema
from gpuform.stacks.pricing.price_book import get_price_book_model

_OWN: Final = tuple(name for name in EntryInputs.model_fields if name != "platform")
_NAMED: Final = ("config", "inputs", "stack_references", "outputs")
_NAMES: Final = {
    "pattern": f"^{NAME_PATTERN}$",
    "patternErrorMessage": "a name has letters, digits, _ . -",
}

_MODULE: Final = {"$ref": "#/definitions/module"}
_INCLUDE: Final[dict[str, Any]] = {
    "type": ["array", "object", "null"],
    "items": {"if": {"type": "object"}, "then": _MODULE, "else": {"type": "string"}},
    "if": {"type": "object"},
    "then": _MODULE,
}
"""A list of paths and modules, or one module: each is told what is wrong with it as what it is."""


def topology_schema() -> dict[str, Any]:
    """The schema of a topology file."""
    file = model_schema(TopologyInputs, expressions=False)
    entry = model_schema(EntryInputs)["properties"]
    entry["options"] = _written_out(entry["options"])
    definitions = {f"entry.{name}": entry[name] for name in _OWN}
    sections, defaults = {}, {}
    for section, kind in SECTIONS.items():
        platforms = list_platforms_with(kind)
        sections[section] = _section(section, kind, platforms)
        defaults[section] = _defaults(section, platforms)
        definitions[section] = _entry(section, platforms, entry["platform"]["description"])
        for platform in platforms:
            found = model_schema(load_lifecycle_class(platform, kind).inputs)
            definitions[f"{section}.{platform}"] = _entry_on(platform, found)
            definitions[f"defaults.{section}.{platform}"] = _default(section, platform, found)
    properties = file["properties"]
    for name in _NAMED:
        properties[name]["propertyNames"] = _NAMES
    definitions["module"] = _module(entry)
    properties["include"] |= _INCLUDE
    properties["defaults"] |= {"properties": defaults, "additionalProperties": False}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "gpuform topology",
        "description": "GPU clusters and what belongs to them.",
        "type": "object",
        "properties": {**properties, **sections},
        "patternProperties": {"^x-": {"description": "Ignored: a place for anchors."}},
        "additionalProperties": False,
        "definitions": definitions,
    }


def schema_text() -> str:
    """The schema as it is written."""
    return json.dumps(topology_schema(), indent=2, ensure_ascii=False) + "\n"


def _module(entry: Schema) -> Schema:
    """A module in `include`."""
    found = model_schema(ModuleInputs, expressions=False)
    properties = found["properties"]
    for name in ("file", "name"):
        properties[name]["type"] = "string"
    properties["name"] |= _NAMES
    properties["with"]["propertyNames"] = _NAMES
    own = {name: {**entry[name], **properties[name]} for name in ("for_each", "when")}
    return {**found, "required": ["file", "name"], "properties": {**properties, **own}}


def _section(section: str, kind: str, platforms: list[str]) -> Schema:
    return {
        "type": ["object", "null"],
        "description": f"{kind} resources by name, on {' or '.join(platforms)}.",
        "propertyNames": _NAMES,
        "additionalProperties": _to(section),
    }


def _defaults(section: str, platforms: list[str]) -> Schema:
    return {
        "type": ["object", "null"],
        "description": f"Defaults of the entries of {section}.",
        "properties": {each: _to(f"defaults.{section}.{each}") for each in platforms},
        "additionalProperties": False,
    }


def _entry(section: str, platforms: list[str], description: str) -> Schema:
    """An entry of any platform: without one that is known, its properties are not checked."""
    return {
        "type": "object",
        "required": ["platform"],
        "properties": {
            "platform": {"type": "string", "enum": platforms, "description": description},
            **_own(),
        },
        "allOf": [
            {
                "if": {"properties": {"platform": {"const": each}}, "required": ["platform"]},
                "then": _to(f"{section}.{each}"),
            }
            for each in platforms
        ],
    }


def _entry_on(platform: str, model: Schema) -> Schema:
    own = {"platform": {"const": platform}, **_own()}
    return {**model, "properties": {**own, **model["properties"]}}


def _default(section: str, platform: str, model: Schema) -> Schema:
    """The same properties as an entry's, and its options."""
    place = f"{section}.{platform}/properties"
    return {
        "type": ["object", "null"],
        "description": model["description"],
        "properties": {
            "options": _to("entry.options"),
            **{name: _to(f"{place}/{name}") for name in model["properties"]},
        },
        "additionalProperties": False,
    }


def _written_out(opened: Schema) -> Schema:
    """The schema of an object that is no expression itself."""
    kept = {key: value for key, value in opened.items() if not key.startswith("pattern")}
    return {**kept, "type": ["object", "null"]}


def _own() -> Schema:
    return {name: _to(f"entry.{name}") for name in _OWN}


def _to(definition: str) -> Schema:
    return {"$ref": f"#/definitions/{definition}"}


_NULL = {"type": "null"}


def prices_schema_text() -> str:
    """The schema of `prices.yaml` as the text of a file."""
    return _text(get_price_book_model(), "gpuform price book")


def gates_schema_text() -> str:
    """The schema of `gates.yaml` as the text of a file."""
    return _text(GatesInputs, "gpuform gates")


def stacks_schema_text() -> str:
    """The schema of `stacks.yaml` as the text of a file."""
    return _text(StacksInputs, "gpuform stacks")


def cases_schema_text() -> str:
    """The schema of `tests/*.yaml` as the text of a file."""
    return _text(CasesInputs, "gpuform test cases")


def _text(model: type[InputModel], title: str) -> str:
    schema = _plain(model.model_json_schema())
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps({**schema, **head}, indent=2) + "\n"


def _plain(value: Any) -> Any:
    """Without what only says that a field may be left out."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _plain(item) for key, item in value.items() if key != "default"}
    choices = [each for each in found.get("anyOf", ()) if each != _NULL]
    if "anyOf" in found and len(choices) == 1:
        del found["anyOf"]
        found = {**choices[0], **found}
    return found

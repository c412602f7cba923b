"""Check Kubernetes objects by the CustomResourceDefinitions in this folder.

Tests call `find_schema_problems` with objects that gpuform writes, and with those of the emulator.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

_FOLDER = Path(__file__).parent


def find_schema_problems(kubernetes_object: Mapping[str, Any]) -> list[str]:
    """Return the problems of an object by its definition; [] for a valid object.

    Unknown fields are problems, as with `kubectl --validate=strict`: the API would drop them.
    """
    schema = find_schema(str(kubernetes_object["apiVersion"]), str(kubernetes_object["kind"]))
    validator = jsonschema.Draft202012Validator(schema)
    return [
        f"{'.'.join(map(str, problem.absolute_path))}: {problem.message}"
        for problem in validator.iter_errors(dict(kubernetes_object))
    ]


def list_rule_messages(api_version: str, kind: str) -> list[str]:
    """Return the messages of all rules in CEL of a kind, in the order of the definition."""
    return [
        " ".join(rule["message"].split()) for rule in _iterate_rules(find_schema(api_version, kind))
    ]


@cache
def find_schema(api_version: str, kind: str) -> dict[str, Any]:
    """Return the strict JSON schema of a kind. Raises KeyError if no file defines it."""
    group, _, version = api_version.partition("/")
    for path in sorted(_FOLDER.glob("*.yaml")):
        text = path.read_text()
        if f"kind: {kind}" not in text:  # large files are slow to parse
            continue
        spec = yaml.safe_load(text)["spec"]
        if (spec["group"], spec["names"]["kind"]) != (group, kind):
            continue
        for defined_version in spec["versions"]:
            if defined_version["name"] == version:
                return _reject_unknown_fields(defined_version["schema"]["openAPIV3Schema"])
    raise KeyError(f"{api_version} {kind}")


def _reject_unknown_fields(schema: Any) -> Any:
    """Return a schema whose objects have no other fields than the defined ones."""
    if isinstance(schema, list):
        return [_reject_unknown_fields(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {name: _reject_unknown_fields(part) for name, part in schema.items()}
    # `properties` may itself be the name of a field: a schema of an object has a type as text.
    if strict.get("type") == "object" and isinstance(strict.get("properties"), dict):
        strict.setdefault("additionalProperties", False)
    return strict


def _iterate_rules(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the rules in CEL of a schema and its parts."""
    parts = schema.values() if isinstance(schema, dict) else schema
    if isinstance(schema, dict):
        yield from schema.get("x-kubernetes-validations", ())
    for part in parts if isinstance(schema, dict | list) else ():
        yield from _iterate_rules(part)

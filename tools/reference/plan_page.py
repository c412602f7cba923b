"""Render the page of the plan's JSON, from the plan's own schema."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gpuform.schemas.plan import PlanAction, PlanReason
from gpuform.stacks.json_schema import build_plan_schema
from tools.reference.markdown import (
    escape_prose,
    join_as_code,
    render_page,
    render_table,
    to_anchor,
)

Schema = Mapping[str, Any]

PLAN: Final = Path(__file__).with_name("plan_example.json").read_text(encoding="utf-8")
"""A plan of a real run: a volume that grows, with prices and a gate."""

_LEAD: Final = """\
This page lists every field of a plan as JSON, with its meaning and possible values. You need the
page when a program of yours reads plans.
"""
_WHERE: Final = """\
## Where plans appear

* `gpuform preview --save-plan FILE` writes a plan. So do `refresh`, `destroy` and `drift`.
* `gpuform review FILE --format json` writes [a review](#the-json-of-a-review), which contains
  each plan completely.
* A gate in Python receives the plan as an object with the same names
  ([gates](prices-and-gates.md#gatesyaml)).

`gpuform schema --of plan` prints the JSON Schema. `format_version` increases when a program
that reads the old format would misread the new one.

A plan never contains a secret: secret values appear as `[secret]`.
"""
ACTIONS: Final[Mapping[PlanAction, str]] = {
    PlanAction.SAME: "Nothing changes.",
    PlanAction.CREATE: "gpuform creates the resource.",
    PlanAction.UPDATE: "gpuform changes the resource in place.",
    PlanAction.REPLACE: "gpuform deletes the resource and creates it again.",
    PlanAction.DELETE: "gpuform deletes the resource.",
    PlanAction.IMPORT: "An existing object becomes a resource of the stack.",
    PlanAction.READ: "gpuform only reads the resource.",
    PlanAction.REFRESH: "gpuform writes the values that the platform reports into the state.",
}
REASONS: Final[Mapping[PlanReason, str]] = {
    PlanReason.NEW: "The program declares it, and the state does not have it.",
    PlanReason.IMPORTED: "The program declares the id of an existing object.",
    PlanReason.CHANGED: "Some of its inputs changed.",
    PlanReason.UNCHANGED: "Nothing changed.",
    PlanReason.FIELD_FORCES_REPLACEMENT: "A field changed that cannot be changed in place.",
    PlanReason.DEPENDENCY_REPLACED: "A dependency of the resource is replaced.",
    PlanReason.REPLACEMENT_REQUESTED: "You requested the replacement, such as by `--replace`.",
    PlanReason.NOT_READY: "The resource was not ready when last observed: gpuform waits again.",
    PlanReason.NOT_IN_PROGRAM: "The program no longer declares the resource.",
    PlanReason.REPLACED_EARLIER: "An earlier run has replaced the object, but not deleted it.",
    PlanReason.DESTROYED: "The operation is a `destroy`.",
    PlanReason.DRIFT: "Somebody changed the resource outside of the stack.",
    PlanReason.GONE: "The platform reports that the object no longer exists.",
    PlanReason.READ_BY_PROGRAM: "The program reads the resource.",
    PlanReason.EXPIRED: "The resource has expired.",
}
REVIEW: Final = (
    ("format_version", "Version of this format."),
    ("digest", "The digest of the plan for `--digest`; empty for several files."),
    ("failed", "Whether any of the previews has failed."),
    ("counts", "Number of resources, by action."),
    (
        "gpus_removed",
        "Removed GPUs: `count`, and `exact`, which is false when the number of some is unknown.",
    ),
    ("gpus_added", "Added GPUs, in the same format."),
    ("unchecked", "Number of checks that were impossible."),
    (
        "dangers",
        "Gates over all stacks that the change removes or weakens, in the form of `dangers` below.",
    ),
    ("rehearsal", "The rehearsal of all stacks together; null without one."),
    ("stacks", "Each stack, as below."),
)
"""The fields of a review's document."""
REVIEWED: Final = (
    ("project", "Name of the project."),
    ("stack", "Name of the stack."),
    ("operation", "The planned operation."),
    ("errors", "Errors of the preview."),
    ("counts", "As above, of this stack."),
    ("gpus_removed", "As above, of this stack."),
    ("gpus_added", "As above, of this stack."),
    (
        "dangers",
        "Dangerous changes: `urn`, `action`, `risk`, `text`, `forced_by`, `gpus_removed`.",
    ),
    ("stopped_by", "Names of the gates that block the plan."),
    ("command", "The command that applies the plan; empty when nothing would change."),
    ("plan", "The plan, as on this page."),
)
"""The fields of a stack in a review's document."""


def render_plan_page() -> str:
    """Return the page of a plan's JSON, as Markdown."""
    return render_page("A plan as JSON", _LEAD, _render_parts(build_plan_schema()))


def _render_parts(schema: Schema) -> Iterator[str]:
    """Yield the parts of the page about the JSON of plans and reviews."""
    yield _WHERE
    yield "## The plan"
    yield _render_fields(schema)
    for name, part in schema["$defs"].items():
        description = part.get("description", "").splitlines()[0]
        yield f"### {_split_words(name)}\n\n{escape_prose(description)}"
        # An enumeration has no properties, but a list of values.
        if "properties" in part:
            yield _render_fields(part)
        else:
            yield _render_values(name, part["enum"])
    yield "## An example\n\nThe stack's volume grows from 5 to 8 TiB."
    yield f"```json\n{PLAN.strip()}\n```"
    yield "## The JSON of a review"
    yield render_table(("field", "meaning"), [(f"`{name}`", meaning) for name, meaning in REVIEW])
    yield "Each entry of `stacks` has:"
    yield render_table(("field", "meaning"), [(f"`{name}`", meaning) for name, meaning in REVIEWED])


def _render_fields(schema: Schema) -> str:
    """Return a table of the properties of an object in the JSON schema."""
    needed = schema.get("required", ())
    rows = [
        (
            f"`{name}`",
            _format_type(field),
            escape_prose(field.get("description", "")),
            "always" if name in needed else _format_default(field.get("default", [])),
        )
        for name, field in schema["properties"].items()
    ]
    return render_table(("field", "type", "meaning", "default"), rows)


def _render_values(name: str, values: list[str]) -> str:
    """Return a table of an enumeration's values, or a sentence if they have no known meanings.

    Only the actions and reasons of a plan have meanings.
    """
    meanings = {
        "PlanAction": _map_meanings(ACTIONS),
        "PlanReason": _map_meanings(REASONS),
    }.get(name)
    if meanings is None:
        return f"One of {join_as_code(values)}."
    return render_table(("value", "means"), [(f"`{value}`", meanings[value]) for value in values])


def _map_meanings(
    meanings: Mapping[PlanAction, str] | Mapping[PlanReason, str],
) -> dict[str, str]:
    """Return the meanings by the value as text instead of the member of the enumeration."""
    return {str(value): meaning for value, meaning in meanings.items()}


def _format_type(schema: Schema) -> str:
    """Return the words for a JSON schema's type, with links to the types of the page.

    A schema without a type is `any value`.
    """
    choices = [_format_type(choice) for choice in schema.get("anyOf", ())]
    if choices:
        return " or ".join(choices)
    if "$ref" in schema:
        words = _split_words(schema["$ref"].rpartition("/")[2])
        return f"[{words}]({to_anchor(words)})"
    if "const" in schema or "enum" in schema:
        return join_as_code(schema.get("enum") or [schema["const"]])
    match schema.get("type"):
        case "array":
            return f"list of {_format_type(schema.get('items', {}))}"
        case "object":
            inside = schema.get("additionalProperties")
            return f"object of {_format_type(inside if isinstance(inside, dict) else {})}"
        case str() as kind:
            return _WORDS[kind]
    return "any value"


_WORDS: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
}


def _format_default(value: Any) -> str:
    """Return the words for a field's default: `none` for an empty list or object."""
    match value:
        case None:
            return "`null`"
        case "":
            return "empty"
        case [] | {}:
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
    return f"`{value}`"


def _split_words(name: str) -> str:
    """Return `PropertyChange` as `Property change`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).capitalize()

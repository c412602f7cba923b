"""The page of the plan's JSON, from the plan's own schema."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuform.schemas.plan import PlanAction, PlanReason
from gpuform.stacks.language.plan_schema import plan_schema
from gpuform.stacks.reference.markdown import link_to, listed, page, plain, table
from gpuform.stacks.reference.plan_example import PLAN

Schema = Mapping[str, Any]

_LEAD: Final = """\
This page has every field of a plan as JSON: what it means, and which values it can have. You need
it when a program of yours reads plans.
"""
_WHERE: Final = """\
## Where you meet it

* `gpuform preview --save-plan FILE` writes a plan. So do `refresh`, `destroy` and `drift`.
* `gpuform review FILE --format json` writes [a review](#the-json-of-a-review), which holds each
  plan whole.
* A gate in Python is given the plan as an object with the same names
  ([gates](prices-and-gates.md#gatesyaml)).

`gpuform schema --of plan` prints the JSON Schema. `format_version` grows when a reader of the old
form would misread the new one.

A plan never holds a secret: secret values stand as `[secret]`.
"""
ACTIONS: Final[Mapping[PlanAction, str]] = {
    PlanAction.SAME: "Nothing changes.",
    PlanAction.CREATE: "It is made.",
    PlanAction.UPDATE: "It is changed in place.",
    PlanAction.REPLACE: "It is deleted and made anew.",
    PlanAction.DELETE: "It is deleted.",
    PlanAction.IMPORT: "An object that exists becomes the stack's.",
    PlanAction.READ: "It is only read.",
    PlanAction.REFRESH: "The state takes over what the platform says.",
}
REASONS: Final[Mapping[PlanReason, str]] = {
    PlanReason.NEW: "The program declares it, and the state does not have it.",
    PlanReason.IMPORTED: "The program declares the id of an object that exists.",
    PlanReason.CHANGED: "Some of its inputs changed.",
    PlanReason.UNCHANGED: "Nothing changed.",
    PlanReason.FIELD_FORCES_REPLACEMENT: "A field changed that cannot be changed in place.",
    PlanReason.DEPENDENCY_REPLACED: "Something that it needs is replaced.",
    PlanReason.REPLACEMENT_REQUESTED: "You asked for it, such as by `--replace`.",
    PlanReason.NOT_READY: "It was not ready when it was last seen: gpuform goes on waiting.",
    PlanReason.NOT_IN_PROGRAM: "The program no longer declares it.",
    PlanReason.DESTROYED: "It is a `destroy`.",
    PlanReason.DRIFT: "Somebody changed it outside of the stack.",
    PlanReason.GONE: "Its platform says that it is gone.",
    PlanReason.READ_BY_PROGRAM: "The program reads it.",
    PlanReason.EXPIRED: "Its end has come.",
}
REVIEW: Final = (
    ("format_version", "Version of this form."),
    ("failed", "Whether one of the previews has failed."),
    ("counts", "How many resources, by action."),
    ("gpus_removed", "GPUs that go: `count`, and `exact`, which is false when more are unknown."),
    ("gpus_added", "GPUs that come, in the same form."),
    ("unchecked", "How many checks could not be made."),
    ("stacks", "Each stack, as below."),
)
"""The fields of a review's document."""
REVIEWED: Final = (
    ("project", "Name of the project."),
    ("stack", "Name of the stack."),
    ("operation", "What was planned."),
    ("errors", "What the preview has failed with."),
    ("counts", "As above, of this stack."),
    ("gpus_removed", "As above, of this stack."),
    ("gpus_added", "As above, of this stack."),
    (
        "dangers",
        "Its dangerous changes: `urn`, `action`, `risk`, `text`, `forced_by`, `gpus_removed`.",
    ),
    ("stopped_by", "Names of the gates that stop it."),
    ("command", "The command that applies it; empty when nothing would change."),
    ("plan", "The plan, as on this page."),
)
"""The fields of a stack in it."""


def plan_page() -> str:
    """The whole page."""
    return page("A plan as JSON", _LEAD, _parts(plan_schema()))


def _parts(schema: Schema) -> Iterator[str]:
    yield _WHERE
    yield "## The plan"
    yield _fields(schema)
    for name, part in schema["$defs"].items():
        yield f"### {_words(name)}\n\n{plain(part.get('description', '').splitlines()[0])}"
        if "properties" in part:
            yield _fields(part)
        else:
            yield _values(name, part["enum"])
    yield "## An example\n\nThe stack's volume grows from 5 to 8 TiB."
    yield f"```json\n{PLAN.strip()}\n```"
    yield "## The JSON of a review"
    yield table(("field", "meaning"), [(f"`{name}`", text) for name, text in REVIEW])
    yield "Each of its `stacks` has:"
    yield table(("field", "meaning"), [(f"`{name}`", text) for name, text in REVIEWED])


def _fields(schema: Schema) -> str:
    needed = schema.get("required", ())
    rows = [
        (
            f"`{name}`",
            _type(field),
            plain(field.get("description", "")),
            "always" if name in needed else _default(field.get("default", [])),
        )
        for name, field in schema["properties"].items()
    ]
    return table(("field", "type", "meaning", "default"), rows)


def _values(name: str, values: list[str]) -> str:
    told = {"PlanAction": _texts(ACTIONS), "PlanReason": _texts(REASONS)}.get(name)
    if told is None:
        return f"One of {listed(values)}."
    return table(("value", "means"), [(f"`{each}`", told[each]) for each in values])


def _texts(meanings: Mapping[PlanAction, str] | Mapping[PlanReason, str]) -> dict[str, str]:
    return {str(value): text for value, text in meanings.items()}


def _type(schema: Schema) -> str:
    choices = [_type(each) for each in schema.get("anyOf", ())]
    if choices:
        return " or ".join(choices)
    if "$ref" in schema:
        words = _words(schema["$ref"].rpartition("/")[2])
        return f"[{words}]({link_to(words)})"
    if "const" in schema or "enum" in schema:
        return listed(schema.get("enum") or [schema["const"]])
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema.get('items', {}))}"
        case "object":
            inside = schema.get("additionalProperties")
            return f"object of {_type(inside if isinstance(inside, dict) else {})}"
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


def _default(value: Any) -> str:
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


def _words(name: str) -> str:
    """`PropertyChange` as `Property change`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).capitalize()

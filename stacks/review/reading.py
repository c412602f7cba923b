"""What a file for review holds: a plan of gpuform, or the JSON of a preview. Never a secret."""

import json
from typing import Any

from pydantic import ValidationError

from gpuform.schemas.plan import FORMAT_VERSION, Plan
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.review.pulumi_preview import is_preview, plan_of

_WHAT_TO_GIVE = (
    "give what `gpuform preview --save-plan FILE` saves, or what `gpuform preview --json` or "
    "`pulumi preview --json` prints"
)

_DEEPEST = 100

_OTHERS = {
    "resourcePlans": "a plan file of the Pulumi CLI, which does not tell what would change",
    "checkpoint": "a state file",
    "deployment": "an exported state",
    "sequence": "an event log, of one event a line",
    "resource_changes": "a plan of Terraform or OpenTofu",
    "stacks": "a review, not a plan",
}
"""A key that only another kind of file has, and what that is."""


def read_plan(name: str, content: bytes) -> Plan:
    """The plan in a file's content. Raises EngineError, which names the file and the place."""
    try:
        document = json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise EngineError(f"{name} is no plan: it is not text", _WHAT_TO_GIVE) from None
    except json.JSONDecodeError as error:
        raise _no_json(name, content, error) from None
    except RecursionError:
        raise _too_deep(name) from None
    if _is_too_deep(document):
        raise _too_deep(name)
    if not isinstance(document, dict):
        raise EngineError(f"{name} is no plan: it is not an object", _WHAT_TO_GIVE)
    if is_preview(document):
        return _preview(name, document)
    version = document.get("format_version")
    for key, what in _OTHERS.items():
        if key in document and "changes" not in document:
            raise EngineError(f"{name} is {what}", _WHAT_TO_GIVE)
    if isinstance(version, str) and version != FORMAT_VERSION:
        raise EngineError(
            f"{name} has format_version {version!r}: this gpuform reads {FORMAT_VERSION}",
            "review it with the release that made it, or with a later one",
        )
    return _plan(name, document)


def _preview(name: str, document: dict[str, Any]) -> Plan:
    try:
        return plan_of(name, document)
    except EngineError as error:
        error.hint = error.hint or _WHAT_TO_GIVE
        raise


def _is_too_deep(document: Any) -> bool:
    level = [document]
    for _ in range(_DEEPEST):
        lists = (value for value in level if isinstance(value, list))
        dicts = (value.values() for value in level if isinstance(value, dict))
        level = [inner for values in (*lists, *dicts) for inner in values]
        if not level:
            return False
    return True


def _plan(name: str, document: dict[str, Any]) -> Plan:
    try:
        return Plan.model_validate(document)
    except ValidationError as error:
        first, *more = error.errors(include_url=False, include_context=False, include_input=False)
        place = ".".join(str(step) for step in first["loc"]) or "the plan"
        others = f", and {len(more)} more problems" if more else ""
        text = f"{name} is no plan: {place}: {first['msg']}{others}"
        raise EngineError(text, _WHAT_TO_GIVE) from None


def _too_deep(name: str) -> EngineError:
    return EngineError(f"{name} is no plan: it is nested too deeply", _WHAT_TO_GIVE)


def _no_json(name: str, content: bytes, error: json.JSONDecodeError) -> EngineError:
    if not content.strip():
        return EngineError(f"{name} is no plan: it is empty", _WHAT_TO_GIVE)
    if error.msg == "Extra data" and b'"sequence"' in content[:2000]:
        return EngineError(f"{name} is {_OTHERS['sequence']}", _WHAT_TO_GIVE)
    where = f"line {error.lineno}, column {error.colno}: {error.msg}"
    return EngineError(f"{name} is no plan: it is not JSON: {where}", _WHAT_TO_GIVE)

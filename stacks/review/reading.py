"""What a file for review holds: a plan of gpuform, or the JSON of a preview. Never a secret."""

import json
from typing import Any

from pydantic import ValidationError

from gpuform.schemas.plan import FORMAT_VERSION, Plan
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.review.pulumi_preview import is_preview, plan_of

_TO_REVIEW = (
    "give what `gpuform preview --save-plan FILE` saves, or what `gpuform preview --json` or "
    "`pulumi preview --json` prints"
)
_TO_APPLY = "`gpuform preview --save-plan FILE` makes one; so do `gpuform destroy` and `refresh`"
_CLI_PLAN = "resourcePlans"

_DEEPEST = 100

_OTHERS = {
    _CLI_PLAN: "a plan file of the Pulumi CLI, which has another form",
    "checkpoint": "a state file",
    "deployment": "an exported state",
    "sequence": "an event log, of one event a line",
    "resource_changes": "a plan of Terraform or OpenTofu",
    "stacks": "a review, not a plan",
}
"""A key that only another kind of file has, and what that is."""


def read_plan(name: str, content: bytes) -> Plan:
    """The plan in a file's content. Raises EngineError, which names the file and the place."""
    document = _document(name, content, _TO_REVIEW)
    return _preview(name, document) if is_preview(document) else _plan(name, document, _TO_REVIEW)


def read_saved_plan(name: str, content: bytes) -> Plan:
    """The saved plan in a file's content, to be applied. Raises EngineError."""
    document = _document(name, content, _TO_APPLY)
    if is_preview(document):
        raise EngineError(f"{name} is what a preview prints, not a saved plan", _TO_APPLY)
    plan = _plan(name, document, _TO_APPLY)
    if plan.basis is None:
        raise EngineError(f"{name} is no plan: it does not say what it was made from", _TO_APPLY)
    return plan


def _document(name: str, content: bytes, hint: str) -> dict[str, Any]:
    try:
        document = json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        text = f"{name} is no plan: it is not UTF-8 text (byte {error.start})"
        raise EngineError(text, hint) from None
    except json.JSONDecodeError as error:
        raise _no_json(name, content, error, hint) from None
    except RecursionError:
        raise _too_deep(name, hint) from None
    if _is_too_deep(document):
        raise _too_deep(name, hint)
    if not isinstance(document, dict):
        raise EngineError(f"{name} is no plan: it is not an object", hint)
    return document


def _preview(name: str, document: dict[str, Any]) -> Plan:
    try:
        return plan_of(name, document)
    except EngineError as error:
        error.hint = error.hint or _TO_REVIEW
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


def _plan(name: str, document: dict[str, Any], hint: str) -> Plan:
    for key, what in _OTHERS.items():
        if key in document and "changes" not in document:
            applies = f"`pulumi up --plan {name}` applies it\n"
            raise EngineError(f"{name} is {what}", (applies if key == _CLI_PLAN else "") + hint)
    version = document.get("format_version")
    if isinstance(version, str) and version != FORMAT_VERSION:
        raise EngineError(
            f"{name} has format_version {version!r}: this gpuform reads {FORMAT_VERSION!r}",
            "use the release that made it, or a later one",
        )
    try:
        return Plan.model_validate(document)
    except ValidationError as error:
        first, *more = error.errors(include_url=False, include_context=False, include_input=False)
        place = ".".join(str(step) for step in first["loc"]) or "the plan"
        others = f", and {len(more)} more problems" if more else ""
        raise EngineError(f"{name} is no plan: {place}: {first['msg']}{others}", hint) from None


def _too_deep(name: str, hint: str) -> EngineError:
    return EngineError(f"{name} is no plan: it is nested too deeply", hint)


def _no_json(name: str, content: bytes, error: json.JSONDecodeError, hint: str) -> EngineError:
    if not content.strip():
        return EngineError(f"{name} is no plan: it is empty", hint)
    if error.msg == "Extra data" and b'"sequence"' in content[:2000]:
        return EngineError(f"{name} is {_OTHERS['sequence']}", hint)
    return EngineError(f"{name}:{error.lineno}:{error.colno}: this is not JSON: {error.msg}", hint)

"""What a file for review holds: a plan of gpuform, or a preview as JSON. Never a secret."""

import json
import re
from typing import Any, TypeVar

from pydantic import ValidationError

from gpuform.schemas.plan import FORMAT_VERSION, Plan
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.review.previews.pulumi_events import cut_off, is_event, preview_of
from gpuform.stacks.review.previews.pulumi_preview import Preview, is_preview, plan_of

_TO_REVIEW = (
    "give what `gpuform preview --save-plan FILE` saves, or what `--json` or `--event-log FILE` "
    "tells of a preview by `gpuform` or `pulumi`"
)
_TO_APPLY = "`gpuform preview --save-plan FILE` makes one; so do `gpuform destroy` and `refresh`"
_CLI_PLAN = "resourcePlans"
_PLANS = "plans"
_Model = TypeVar("_Model", Plan, StacksPlan)

_DEEPEST = 100
_VALUE = re.compile(r"[^ \t\r\n]")

_OTHERS = {
    _CLI_PLAN: "a plan file of the Pulumi CLI, which has another form",
    "checkpoint": "a state file",
    "deployment": "an exported state",
    "resource_changes": "a plan of Terraform or OpenTofu",
    "stacks": "a review, not a plan",
}
"""A key that only another kind of file has, and what that is."""


class NotReviewed(EngineError):
    """What is no plan, or one that cannot be shown."""

    help_page = "guides/review"


def read_plan(name: str, content: bytes) -> Plan:
    """The plan of one stack in a file's content. Raises EngineError, which names the place."""
    found = read_plans(name, content)
    if isinstance(found, StacksPlan):
        raise NotReviewed(f"{name} is a plan of several stacks", "`gpuform review` shows it")
    return found


def read_plans(name: str, content: bytes) -> Plan | StacksPlan:
    """The plan in a file's content, of one stack or of several. Raises EngineError."""
    *before, last = _values(name, content, _TO_REVIEW)
    if is_event(last):
        events = [each for each in before if is_event(each)]
        return _preview(name, preview_of(name, [*events, last]))
    if before:
        raise NotReviewed(f"{name} is no plan: it holds more than one JSON value", _TO_REVIEW)
    document = _object(name, last, _TO_REVIEW)
    if is_preview(document):
        return _preview(name, Preview(document))
    return _any_plan(name, document, _TO_REVIEW)


def read_saved_plan(name: str, content: bytes) -> Plan:
    """The saved plan of one stack in a file's content, to be applied. Raises EngineError."""
    found = read_saved_plans(name, content)
    if isinstance(found, StacksPlan):
        raise NotReviewed(
            f"{name} is a plan of several stacks", f"`gpuform up --all --plan {name}` applies it"
        )
    return found


def read_saved_plans(name: str, content: bytes) -> Plan | StacksPlan:
    """The saved plan in a file's content, to be applied, of one stack or of several.

    Raises EngineError.
    """
    *before, last = _values(name, content, _TO_APPLY)
    document = _object(name, last, _TO_APPLY)
    if before or is_event(document) or is_preview(document):
        raise NotReviewed(f"{name} is what a preview prints, not a saved plan", _TO_APPLY)
    found = _any_plan(name, document, _TO_APPLY)
    plans = found.plans if isinstance(found, StacksPlan) else (found,)
    if any(plan.basis is None for plan in plans):
        raise NotReviewed(f"{name} is no plan: it does not say what it was made from", _TO_APPLY)
    return found


def _values(name: str, content: bytes, hint: str) -> list[Any]:
    """The JSON values, one after the other: one, or those of an event log."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        told = f"{name} is no plan: it is not UTF-8 text (byte {error.start})"
        raise NotReviewed(told, hint) from None
    decoder, values, at = json.JSONDecoder(), list[Any](), _next(text, 0)
    if at == len(text):
        raise NotReviewed(f"{name} is no plan: it is empty", hint)
    try:
        while at < len(text):
            value, end = decoder.raw_decode(text, at)
            values.append(value)
            at = _next(text, end)
    except json.JSONDecodeError as error:
        if values and is_event(values[-1]):
            raise cut_off(name) from None
        told = f"{name}:{error.lineno}:{error.colno}: this is not JSON: {error.msg}"
        raise NotReviewed(told, hint) from None
    except RecursionError:
        raise _too_deep(name, hint) from None
    if _is_too_deep(values):
        raise _too_deep(name, hint)
    return values


def _next(text: str, at: int) -> int:
    """Where the next value begins; the text's end where none does."""
    found = _VALUE.search(text, at)
    return found.start() if found else len(text)


def _object(name: str, value: Any, hint: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NotReviewed(f"{name} is no plan: it is not an object", hint)
    return value


def _preview(name: str, preview: Preview) -> Plan:
    try:
        return plan_of(name, preview)
    except EngineError as error:
        error.hint = error.hint or _TO_REVIEW
        raise


def _is_too_deep(document: Any) -> bool:
    level = [document]
    # Only what has something inside: what is inside of the last level is too deep.
    for _ in range(_DEEPEST - 1):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value)
            if inner and isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _any_plan(name: str, document: dict[str, Any], hint: str) -> Plan | StacksPlan:
    if _PLANS in document and "changes" not in document:
        return _parsed(StacksPlan, name, document, hint)
    return _plan(name, document, hint)


def _plan(name: str, document: dict[str, Any], hint: str) -> Plan:
    for key, what in _OTHERS.items():
        if key in document and "changes" not in document:
            applies = f"`pulumi up --plan {name}` applies it\n"
            raise NotReviewed(f"{name} is {what}", (applies if key == _CLI_PLAN else "") + hint)
    return _parsed(Plan, name, document, hint)


def _parsed(model: type[_Model], name: str, document: dict[str, Any], hint: str) -> _Model:
    version = document.get("format_version")
    if isinstance(version, str) and version != FORMAT_VERSION:
        raise NotReviewed(
            f"{name} has format_version {version!r}: this gpuform reads {FORMAT_VERSION!r}",
            "use the release that made it, or a later one",
        )
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first, *more = error.errors(include_url=False, include_context=False, include_input=False)
        place = ".".join(str(step) for step in first["loc"]) or "the plan"
        others = f", and {len(more)} more problems" if more else ""
        raise NotReviewed(f"{name} is no plan: {place}: {first['msg']}{others}", hint) from None


def _too_deep(name: str, hint: str) -> EngineError:
    return EngineError(f"{name} is no plan: it is nested too deeply", hint)

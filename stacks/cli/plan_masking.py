"""Masks in a plan what a program made of a secret without saying that it is one."""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import BaseModel

from gpuform.schemas.plan import SECRET, OutputChange, Plan, PropertyChange

_Change = TypeVar("_Change", PropertyChange, OutputChange)


def masked(plan: Plan, secrets: Collection[str]) -> Plan:
    """The plan without these texts; those of one or two characters stay, as in messages."""
    secrets = sorted({text for text in secrets if len(text) > 2}, key=len, reverse=True)
    if not secrets:
        return plan
    changes = [
        each.model_copy(
            update={
                "changes": tuple(_change(c, secrets) for c in each.changes),
                "before": _facts(each.before, secrets),
                "after": _facts(each.after, secrets),
                "leaving": _facts(each.leaving, secrets),
            }
        )
        for each in plan.changes
    ]
    outputs = [_change(each, secrets) for each in plan.outputs]
    unchecked = [_text(each, secrets) for each in plan.unchecked]
    return plan.model_copy(
        update={
            "changes": tuple(changes),
            "outputs": tuple(outputs),
            "unchecked": tuple(unchecked),
            "cost": _facts(plan.cost, secrets),
            "gates": None if plan.gates is None else _facts(plan.gates, secrets),
        }
    )


def _change(change: _Change, secrets: Collection[str]) -> _Change:
    update: dict[str, Any] = {
        name: SECRET for name in ("before", "after") if _holds(getattr(change, name), secrets)
    }
    if update:
        update["secret"] = True
    if isinstance(change, PropertyChange):
        update["because"] = _text(change.because, secrets)
    return change.model_copy(update=update)


def _holds(value: Any, secrets: Collection[str]) -> bool:
    if isinstance(value, Mapping):
        return any(_holds(key, secrets) or _holds(item, secrets) for key, item in value.items())
    if isinstance(value, list | tuple):
        return any(_holds(item, secrets) for item in value)
    return value is not None and any(text in str(value) for text in secrets)


def _facts(value: Any, secrets: Sequence[str]) -> Any:
    """The same facts without these texts; words of gpuform's own stay as they are."""
    if isinstance(value, BaseModel):
        found = {name: _facts(getattr(value, name), secrets) for name in type(value).model_fields}
        return value.model_copy(update=found)
    if isinstance(value, tuple):
        return tuple(_facts(item, secrets) for item in value)
    is_text = isinstance(value, str) and not isinstance(value, StrEnum)
    return _text(value, secrets) if is_text else value


def _text(text: str, secrets: Collection[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, SECRET)
    return text

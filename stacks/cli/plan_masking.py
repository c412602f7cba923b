"""Masks in a plan what a program made of a secret without saying that it is one."""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from gpuform.schemas.plan import SECRET, OutputChange, Plan, PropertyChange

_Change = TypeVar("_Change", PropertyChange, OutputChange)


def masked(plan: Plan, secrets: Collection[str]) -> Plan:
    """The plan without these texts; those of one or two characters stay, as in messages."""
    secrets = sorted({text for text in secrets if len(text) > 2}, key=len, reverse=True)
    if not secrets:
        return plan
    changes = [
        each.model_copy(update={"changes": tuple(_change(c, secrets) for c in each.changes)})
        for each in plan.changes
    ]
    outputs = [_change(each, secrets) for each in plan.outputs]
    unchecked = [_text(each, secrets) for each in plan.unchecked]
    return plan.model_copy(
        update={
            "changes": tuple(changes),
            "outputs": tuple(outputs),
            "unchecked": tuple(unchecked),
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


def _text(text: str, secrets: Collection[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, SECRET)
    return text

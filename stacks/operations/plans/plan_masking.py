"""Masks in a plan what a program made of a secret without saying that it is one."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import BaseModel

from gpuform.providers.values import Redactor
from gpuform.schemas.plan import OutputChange, Plan, PropertyChange
from gpuform.schemas.visible import MASK

_Change = TypeVar("_Change", PropertyChange, OutputChange)


def mask_plan(plan: Plan, secrets: Iterable[str]) -> Plan:
    """The plan without these texts, in whatever spelling."""
    redactor = Redactor(secrets)
    changes = [
        each.model_copy(
            update={
                "changes": tuple(_change(c, redactor) for c in each.changes),
                "before": _facts(each.before, redactor),
                "after": _facts(each.after, redactor),
                "leaving": _facts(each.leaving, redactor),
                "in_use": redactor.redact(each.in_use),
            }
        )
        for each in plan.changes
    ]
    outputs = [_change(each, redactor) for each in plan.outputs]
    unchecked = [redactor.redact(each) for each in plan.unchecked]
    return plan.model_copy(
        update={
            "changes": tuple(changes),
            "outputs": tuple(outputs),
            "unchecked": tuple(unchecked),
            "notices": _facts(plan.notices, redactor),
            "cost": _facts(plan.cost, redactor),
            "gates": None if plan.gates is None else _facts(plan.gates, redactor),
        }
    )


def _change(change: _Change, redactor: Redactor) -> _Change:
    update: dict[str, Any] = {
        name: MASK for name in ("before", "after") if _holds(getattr(change, name), redactor)
    }
    if update:
        update["secret"] = True
    if isinstance(change, PropertyChange):
        update["because"] = redactor.redact(change.because)
    return change.model_copy(update=update)


def _holds(value: Any, redactor: Redactor) -> bool:
    if isinstance(value, Mapping):
        return any(_holds(key, redactor) or _holds(item, redactor) for key, item in value.items())
    if isinstance(value, list | tuple):
        return any(_holds(item, redactor) for item in value)
    return value is not None and redactor.holds(str(value))


def _facts(value: Any, redactor: Redactor) -> Any:
    """The same facts without these texts; words of gpuform's own stay as they are."""
    if isinstance(value, BaseModel):
        found = {name: _facts(getattr(value, name), redactor) for name in type(value).model_fields}
        return value.model_copy(update=found)
    if isinstance(value, tuple):
        return tuple(_facts(item, redactor) for item in value)
    is_text = isinstance(value, str) and not isinstance(value, StrEnum)
    return redactor.redact(value) if is_text else value

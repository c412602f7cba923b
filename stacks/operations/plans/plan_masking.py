"""Masks in a plan what a program made of a secret without saying that it is one."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import BaseModel

from gpuform.providers.values import Redactor
from gpuform.schemas.plan import OutputChange, Plan, PropertyChange
from gpuform.schemas.safe_text import MASK

_Change = TypeVar("_Change", PropertyChange, OutputChange)
_Model = TypeVar("_Model", bound=BaseModel)


def mask_plan(plan: Plan, secrets: Iterable[str]) -> Plan:
    """The plan without these texts, in whatever spelling; parts without them are not copied."""
    redactor = Redactor(secrets)
    if not redactor.has_secrets:
        return plan
    changes = [
        _with(
            each,
            changes=tuple(_change(c, redactor) for c in each.changes),
            before=_facts(each.before, redactor),
            after=_facts(each.after, redactor),
            leaving=_facts(each.leaving, redactor),
            in_use=redactor.redact(each.in_use),
            others=tuple(redactor.redact(name) for name in each.others),
        )
        for each in plan.changes
    ]
    return _with(
        plan,
        changes=tuple(changes),
        outputs=tuple(_change(each, redactor) for each in plan.outputs),
        unchecked=tuple(redactor.redact(each) for each in plan.unchecked),
        notices=_facts(plan.notices, redactor),
        cost=_facts(plan.cost, redactor),
        gates=None if plan.gates is None else _facts(plan.gates, redactor),
    )


def _with(model: _Model, **values: Any) -> _Model:
    """The model with these values: itself where it has them already."""
    changed = {name: value for name, value in values.items() if value != getattr(model, name)}
    return model.model_copy(update=changed) if changed else model


def _change(change: _Change, redactor: Redactor) -> _Change:
    held = {name: MASK for name in ("before", "after") if _holds(getattr(change, name), redactor)}
    if held:
        change = _with(change, secret=True, **held)
    if isinstance(change, PropertyChange):
        return _with(change, because=redactor.redact(change.because))
    return change


def _holds(value: Any, redactor: Redactor) -> bool:
    if isinstance(value, Mapping):
        return any(_holds(key, redactor) or _holds(item, redactor) for key, item in value.items())
    if isinstance(value, list | tuple):
        return any(_holds(item, redactor) for item in value)
    return value is not None and redactor.contains_secret(str(value))


def _facts(value: Any, redactor: Redactor) -> Any:
    """The same facts without these texts; words of gpuform's own stay as they are."""
    if isinstance(value, BaseModel):
        found = {name: _facts(getattr(value, name), redactor) for name in type(value).model_fields}
        return _with(value, **found)
    if isinstance(value, tuple):
        return tuple(_facts(item, redactor) for item in value)
    is_text = isinstance(value, str) and not isinstance(value, StrEnum)
    return redactor.redact(value) if is_text else value

"""Mask secrets in a plan that a program copied into other values without marking them as secret."""

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
    """Return the plan with the secrets masked in values and texts, in any encoding.

    A changed value with a secret is masked completely, and its change marked as secret. Resources
    keep their names and URNs. Parts without a secret are not copied.
    """
    redactor = Redactor(secrets)
    if not redactor.has_secrets:
        return plan
    changes = [
        _copy_with(
            change,
            changes=tuple(_mask_change(c, redactor) for c in change.changes),
            before=redact_value(change.before, redactor),
            after=redact_value(change.after, redactor),
            leaving=redact_value(change.leaving, redactor),
            in_use=redactor.redact(change.in_use),
            others=tuple(redactor.redact(name) for name in change.others),
        )
        for change in plan.changes
    ]
    drift = tuple(
        _copy_with(item, changes=tuple(_mask_change(c, redactor) for c in item.changes))
        for item in plan.drift
    )
    return _copy_with(
        plan,
        drift=drift,
        changes=tuple(changes),
        outputs=tuple(_mask_change(output, redactor) for output in plan.outputs),
        unchecked=tuple(redactor.redact(note) for note in plan.unchecked),
        notices=redact_value(plan.notices, redactor),
        cost=redact_value(plan.cost, redactor),
        rehearsal=redact_value(plan.rehearsal, redactor),
        gates=None if plan.gates is None else redact_value(plan.gates, redactor),
    )


def _copy_with(model: _Model, **values: Any) -> _Model:
    """Return the model with the given values, or the model itself where nothing differs."""
    changed = {name: value for name, value in values.items() if value != getattr(model, name)}
    return model.model_copy(update=changed) if changed else model


def _mask_change(change: _Change, redactor: Redactor) -> _Change:
    """Return the change as a secret one with masked values, if a value contains a secret."""
    masked_values = {
        name: MASK
        for name in ("before", "after")
        if _contains_secret(getattr(change, name), redactor)
    }
    if masked_values:
        # Marked as secret as well, so that views treat the change as that of a declared secret.
        change = _copy_with(change, secret=True, **masked_values)
    if isinstance(change, PropertyChange):
        return _copy_with(change, because=redactor.redact(change.because))
    return change


def _contains_secret(value: Any, redactor: Redactor) -> bool:
    """Return True if a scalar in the value, or a key of a mapping, contains a secret."""
    if isinstance(value, Mapping):
        return any(
            _contains_secret(key, redactor) or _contains_secret(item, redactor)
            for key, item in value.items()
        )
    if isinstance(value, list | tuple):
        return any(_contains_secret(item, redactor) for item in value)
    return value is not None and redactor.contains_secret(str(value))


def redact_value(value: Any, redactor: Redactor) -> Any:
    """Return the value with the secrets masked in all strings, also of nested models and tuples.

    Lists, mappings and enumerations stay as they are.
    """
    if isinstance(value, BaseModel):
        redacted_fields = {
            name: redact_value(getattr(value, name), redactor) for name in type(value).model_fields
        }
        return _copy_with(value, **redacted_fields)
    if isinstance(value, tuple):
        return tuple(redact_value(item, redactor) for item in value)
    is_text = isinstance(value, str) and not isinstance(value, StrEnum)
    return redactor.redact(value) if is_text else value

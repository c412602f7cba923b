"""Write, read and mask saved plans, and find out from the history whether one was applied."""

from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum, auto
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from gpuform.providers.values import Redactor
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import OutputChange, Plan, PropertyChange
from gpuform.schemas.safe_text import MASK
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.engine.stack import PLAN_SEAL
from gpuform.stacks.engine.store import RunHistory
from gpuform.stacks.review.plan_files import read_saved_plan

_OWNER_ONLY: Final = 0o600


class PlanRefused(EngineError):
    """A saved plan that cannot be read, or must not be applied. Nothing was changed."""

    help_page = "concepts/saved-plans"


def write_plan(path: Path, plan: Plan) -> None:
    """Write the plan to a file with permissions for the owner alone, replacing an existing file.

    The file is replaced in one step: a reader finds the old plan or the new one.

    Raises:
        PlanRefused: the file cannot be written.
    """
    write_private_file(path, plan.model_dump_json(indent=2).encode() + b"\n")


def write_private_file(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a plan or a part of one, as `write_plan` does; `content` are the bytes of the file.

    Raises:
        PlanRefused: the file cannot be written.
    """
    try:
        # `replace_file` keeps the permissions of an existing file.
        if path.is_file():
            path.chmod(_OWNER_ONLY)
        replace_file(path, content, mode=_OWNER_ONLY)
    except OSError as error:
        raise PlanRefused(f"the plan {path} cannot be written: {error.strerror}") from error


def read_plan(path: Path) -> Plan:
    """Return the single-stack plan of a file.

    Raises:
        EngineError: the file cannot be read, or holds no such plan; the error says what it holds.
    """
    return read_saved_plan(str(path), read_content(path))


def read_content(path: Path) -> bytes:
    """Return the bytes of a plan file.

    Raises:
        PlanRefused: the file cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise build_unreadable_error(path, error) from error


def build_unreadable_error(path: Path, error: OSError) -> PlanRefused:
    """Build the error for an unreadable plan file."""
    return PlanRefused(f"the plan {path} cannot be read: {error.strerror}")


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


class PlanRun(Enum):
    """What the history of a stack shows of a saved plan."""

    NONE = auto()
    """No run has applied the plan."""
    UNFINISHED = auto()
    """The last run has begun to apply the plan, and has failed, was killed or still runs."""
    DONE = auto()
    """The last run has applied the plan."""
    OVERTAKEN = auto()
    """A run has applied the plan, and another run has changed the stack since."""


def find_plan_run(history: RunHistory, seal: str) -> PlanRun:
    """Return from the history whether and how the plan sealed with `seal` was run.

    Raises:
        DamagedFile: an entry of the history cannot be read.
    """
    # The latest entry decides nearly always, and costs one request.
    for index, name in enumerate(reversed(history.names)):
        entry = history.read_entry(name)
        if not seal or entry.environment.get(PLAN_SEAL) != seal:
            if index >= _SEARCHED_RUNS:
                break
            continue
        if index > 0:
            return PlanRun.OVERTAKEN
        return PlanRun.DONE if entry.result == "succeeded" else PlanRun.UNFINISHED
    return PlanRun.NONE


_SEARCHED_RUNS = 20
"""How many runs back the plan is searched: the answer only chooses the words of a refusal."""

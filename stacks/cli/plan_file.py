"""The file of a saved plan: how it is read and written."""

import json
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from gpuform.schemas.plan import FORMAT_VERSION, Plan
from gpuform.stacks.engine.atomic import replace_file
from gpuform.stacks.engine.errors import EngineError

MAKE_ONE: Final = "`gpuform preview --save-plan FILE` makes one"
_OWNER_ONLY: Final = 0o600


def write_plan(path: Path, plan: Plan) -> None:
    """Writes it in one step, readable by its owner only; one that was there is replaced."""
    try:
        if path.is_file():
            path.chmod(_OWNER_ONLY)
        replace_file(path, plan.model_dump_json(indent=2).encode() + b"\n", mode=_OWNER_ONLY)
    except OSError as error:
        raise EngineError(f"the plan {path} cannot be written: {error.strerror}") from error


def read_plan(path: Path) -> Plan:
    """The plan in a file. Raises EngineError, which says what it is instead."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise EngineError(f"the plan {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _no_plan(path, f"it is not UTF-8 text (byte {error.start})") from error
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise EngineError(
            f"{path}:{error.lineno}:{error.colno}: no JSON: {error.msg}", hint=MAKE_ONE
        ) from error
    except RecursionError:
        raise _no_plan(path, "it is nested too deeply") from None
    _refuse_others(path, document)
    try:
        plan = Plan.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise _no_plan(path, f"{place}: {first['msg']}") from None
    if plan.basis is None:
        raise _no_plan(path, "it does not say what it was made from")
    return plan


def _refuse_others(path: Path, document: Any) -> None:
    if not isinstance(document, dict):
        raise _no_plan(path, "it is JSON, but no object")
    if "resourcePlans" in document and "manifest" in document:
        raise EngineError(
            f"{path} is a plan of the Pulumi CLI, which has another form",
            hint=f"`pulumi up --plan {path}` applies it; for gpuform, {MAKE_ONE}",
        )
    version = document.get("format_version")
    if not isinstance(version, str):
        raise _no_plan(path, "it has no format_version")
    if version != FORMAT_VERSION:
        raise EngineError(
            f"{path} has the form {version!r}; this gpuform reads the form {FORMAT_VERSION!r}",
            hint=f"apply it with the gpuform that made it, or make a new one: {MAKE_ONE}",
        )


def _no_plan(path: Path, why: str) -> EngineError:
    return EngineError(f"{path} is no saved plan of gpuform: {why}", hint=MAKE_ONE)

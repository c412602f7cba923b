"""The file of a saved plan: how it is read and written."""

from pathlib import Path
from typing import Final

from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.review.previews import read_saved_plan

_OWNER_ONLY: Final = 0o600


class PlanRefused(EngineError):
    """A saved plan that cannot be read, or may not be applied; nothing was changed."""

    page = "concepts/saved-plans"


def write_plan(path: Path, plan: Plan) -> None:
    """Writes it in one step, readable by its owner only; one that was there is replaced."""
    try:
        if path.is_file():
            path.chmod(_OWNER_ONLY)
        replace_file(path, plan.model_dump_json(indent=2).encode() + b"\n", mode=_OWNER_ONLY)
    except OSError as error:
        raise PlanRefused(f"the plan {path} cannot be written: {error.strerror}") from error


def read_plan(path: Path) -> Plan:
    """The plan in a file. Raises EngineError, which says what it is instead."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PlanRefused(f"the plan {path} cannot be read: {error.strerror}") from error
    return read_saved_plan(str(path), content)

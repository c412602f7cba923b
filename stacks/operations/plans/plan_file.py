"""The file of a saved plan: how it is read and written."""

from pathlib import Path
from typing import Final

from gpuform.schemas.plan import Plan
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.review.previews import read_saved_plan, read_saved_plans

_OWNER_ONLY: Final = 0o600


class PlanRefused(EngineError):
    """A saved plan that cannot be read, or may not be applied; nothing was changed."""

    help_page = "concepts/saved-plans"


def write_plan(path: Path, plan: Plan | StacksPlan) -> None:
    """Writes it in one step, readable by its owner only; one that was there is replaced."""
    try:
        if path.is_file():
            path.chmod(_OWNER_ONLY)
        replace_file(path, plan.model_dump_json(indent=2).encode() + b"\n", mode=_OWNER_ONLY)
    except OSError as error:
        raise PlanRefused(f"the plan {path} cannot be written: {error.strerror}") from error


def read_plan(path: Path) -> Plan:
    """The plan of one stack in a file. Raises EngineError, which says what it is instead."""
    return read_saved_plan(str(path), _content(path))


def read_stacks_plan(path: Path) -> StacksPlan:
    """The plan of several stacks in a file. Raises EngineError, which says what it is instead."""
    found = read_saved_plans(str(path), _content(path))
    if isinstance(found, Plan):
        raise PlanRefused(
            f"{path} is a plan of one stack", hint=f"apply it without --all: --plan {path}"
        )
    return found


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PlanRefused(f"the plan {path} cannot be read: {error.strerror}") from error

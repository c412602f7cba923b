"""Read and write the files of saved plans, for `--save-plan`, `--plan` and `gpuform review`."""

from pathlib import Path
from typing import Final

from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.review.plan_files import read_saved_plan, read_saved_plans

_OWNER_ONLY: Final = 0o600


class PlanRefused(EngineError):
    """A saved plan that cannot be read, or must not be applied. Nothing was changed."""

    help_page = "concepts/saved-plans"


def write_plan(path: Path, plan: Plan | StacksPlan) -> None:
    """Write the plan to a file with permissions for the owner alone, replacing an existing file.

    The file is replaced in one step: a reader finds the old plan or the new one.

    Raises:
        PlanRefused: the file cannot be written.
    """
    write_private_file(path, plan.model_dump_json(indent=2).encode() + b"\n")


def write_private_file(path: Path, content: bytes) -> None:
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
    return read_saved_plan(str(path), _read_content(path))


def read_stacks_plan(path: Path) -> StacksPlan:
    """Return the multi-stack plan of a file.

    Raises:
        EngineError: the file cannot be read, or holds no such plan; the error says what it holds.
    """
    plan = read_saved_plans(str(path), _read_content(path))
    if isinstance(plan, Plan):
        raise PlanRefused(
            f"{path} is a plan of a single stack", hint=f"apply it without --all: --plan {path}"
        )
    return plan


def _read_content(path: Path) -> bytes:
    """Return the bytes of a plan file.

    Raises:
        PlanRefused: the file cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise PlanRefused(f"the plan {path} cannot be read: {error.strerror}") from error

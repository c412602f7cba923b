"""Rules in Python: a function of the project is given the plan, and says what is against it."""

import importlib
import sys
import traceback
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path

from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.project import import_project_modules


def python_findings(plan: Plan, function: str, program: Path) -> list[str]:
    """What MODULE:NAME of the program's folder says. A rule that fails is against every plan."""
    module, _, name = function.partition(":")
    # What is printed on stdout may be JSON.
    with redirect_stdout(sys.stderr), import_project_modules(program):
        try:
            rule = getattr(importlib.import_module(module), name)
            found = rule(plan)
            return _texts(found)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it may be anything
            return [f"{function} failed: {_told(error)}"]


def _texts(found: object) -> list[str]:
    if found is None:
        return []
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise TypeError("a rule yields texts, or returns a list of them")
    return [str(text) for text in found]


def _told(error: BaseException) -> str:
    """Its type, its text and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"

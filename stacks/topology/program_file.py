"""Which topology a project's program runs, found by its text alone."""

import ast
from dataclasses import dataclass
from pathlib import Path

from gpuform.stacks.engine.project import Project, folder_and_entry, topology_in


@dataclass(frozen=True, slots=True)
class ProgramTopology:
    """The topology that a program runs; `alone`: the program does nothing else."""

    file: Path
    alone: bool


def topology_of(project: Project) -> ProgramTopology | None:
    """The topology of a project's program; None where it has none, or it cannot be told."""
    folder, entry = folder_and_entry(project.program)
    file = folder / ("__main__.py" if entry == "." else entry)
    try:
        body = ast.parse(file.read_bytes()).body
    except FileNotFoundError:
        found = topology_in(folder)
        return ProgramTopology(found, alone=True) if found else None
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    others = [each for each in body if not (_is_text(each) or _is_import(each))]
    runs = [path for each in others if (path := _run(each)) is not None]
    if not runs or not any(map(_is_import, body)):
        return None
    return ProgramTopology(folder / runs[0], alone=len(others) == 1)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "gpuform.stacks"


def _run(statement: ast.stmt) -> str | None:
    """The file that `run(...)` names."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    if call.func.id != "run":
        return None
    given = call.args[0] if call.args else ast.Constant("topology.yaml")
    is_path = isinstance(given, ast.Constant) and isinstance(given.value, str)
    return str(given.value) if is_path else None  # type: ignore[attr-defined]

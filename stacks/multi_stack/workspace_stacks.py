"""Define the stacks of a workspace, which are planned and applied together.

`reading` finds the stacks, `ordering` orders them; every command with `--all` works on them.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from gpuform.schemas.errors import EngineError
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.engine.store import Backend, build_full_name
from gpuform.stacks.gates.file import STACKS_FILE
from gpuform.stacks.topology.files import format_path

FILE: Final = STACKS_FILE
_POSITIONED_MESSAGE: Final = re.compile(r":(?P<line>\d+):(?P<column>\d+): (?P<text>.+)", re.DOTALL)


class MultiStackError(EngineError):
    """Something is wrong with the stacks that a command works on together."""

    help_page = "guides/several-stacks"


@dataclass(frozen=True, slots=True)
class WorkspaceStack:
    """Describe one stack of a workspace.

    `backend` is the URL of its state, as configured. `after` names stacks that are applied before
    it although it reads nothing of them. `position` is where the stack is declared. `environment`
    and `approve` are those of CI jobs that apply the stack; empty where they are not declared.
    """

    project: Project
    stack: str
    backend: str
    position: SourcePosition
    after: tuple[str, ...] = ()
    environment: str = ""
    approve: str = ""

    @property
    def name(self) -> str:
        """Return `PROJECT/STACK`, the name in files and messages."""
        return f"{self.project.name}/{self.stack}"

    @property
    def full_name(self) -> str:
        """Return `organization/PROJECT/STACK`, the name in programs."""
        return build_full_name(self.project.name, self.stack)

    def open_workspace(self, environ: Mapping[str, str]) -> Workspace:
        """Open the project with the stack's backend, independent of the current folder."""
        return Workspace(self.project, Backend.open(self.backend, environ), environ)


@dataclass(frozen=True, slots=True)
class MultiStackWorkspace:
    """Hold all stacks of a workspace by name, in the order of the file.

    `root` is the folder that contains all of them; `file` is the stacks.yaml, if there is one.
    `is_complete` is False if a project could not be read. `start` is the folder where the search
    for the file began; None stands for `root`.
    """

    root: Path
    stacks: Mapping[str, WorkspaceStack] = field(default_factory=dict)
    file: Path | None = None
    is_complete: bool = True
    start: Path | None = None

    def find(self, backend: str, stack: str) -> WorkspaceStack | None:
        """Return the stack with the full name `stack` in `backend`, or None.

        Backends have stacks of equal names, so both must match.
        """
        candidate = self.stacks.get(stack.removeprefix("organization/"))
        return (
            candidate
            if candidate is not None
            and _normalize_backend(candidate.backend) == _normalize_backend(backend)
            else None
        )


def add_problem(error: EngineError, file: Path, problems: Diagnostics) -> None:
    """Add an error about `file` to `problems`.

    The position is the one at the beginning of the message, or else line 1.
    """
    match = _POSITIONED_MESSAGE.fullmatch(error.message.removeprefix(str(file)))
    position, message = SourcePosition(format_path(file)), error.message
    if match is not None:
        position = SourcePosition(position.file, int(match["line"]), int(match["column"]))
        message = match["text"]
    problems.add(position, "project", message, error.hint or "")


def _normalize_backend(backend: str) -> str:
    """Return a backend URL in one spelling for each folder, for comparison."""
    if not backend.startswith("file://"):
        return backend.rstrip("/")
    # A file URL may have options such as `?no_tmp_dir=true`, escapes, `~` and links.
    path = unquote(backend.removeprefix("file://").partition("?")[0])
    return os.path.realpath(os.path.expanduser(path))  # noqa: PTH111 - as a text

"""The stacks that are planned and applied together."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.engine.store import Backend, build_full_name
from gpuform.stacks.topology.files import format_path

FILE: Final = "stacks.yaml"
_PLACED: Final = re.compile(r":(?P<line>\d+):(?P<column>\d+): (?P<text>.+)", re.DOTALL)


class EstateError(EngineError):
    """What is wrong with several stacks that are to be worked on together."""

    help_page = "guides/several-stacks"


@dataclass(frozen=True, slots=True)
class Member:
    """One stack of several. `backend` is the URL of where its state is, as it is configured.

    `after` are the names of stacks that come before it though it reads nothing of them. `place` is
    where the member is named.
    """

    project: Project
    stack: str
    backend: str
    place: SourcePosition
    after: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """`PROJECT/STACK`, by which people and files name it."""
        return f"{self.project.name}/{self.stack}"

    @property
    def full_name(self) -> str:
        """As programs name it: `organization/PROJECT/STACK`."""
        return build_full_name(self.project.name, self.stack)

    def workspace(self, environ: Mapping[str, str]) -> Workspace:
        """Its project with its backend, whatever the current folder is."""
        return Workspace(self.project, Backend.open(self.backend, environ), environ)


@dataclass(frozen=True, slots=True)
class Estate:
    """All stacks that are worked on together, by their names, in the order of the file.

    `root` is the folder that they are in; `file` is its stacks.yaml, where it has one. It is whole
    where every project could be read.
    """

    root: Path
    members: Mapping[str, Member] = field(default_factory=dict)
    file: Path | None = None
    is_whole: bool = True

    def find(self, backend: str, stack: str) -> Member | None:
        """The member that a full name means in a backend: elsewhere it is another stack."""
        found = self.members.get(stack.removeprefix("organization/"))
        return found if found is not None and _place(found.backend) == _place(backend) else None


def note(error: EngineError, file: Path, problems: Diagnostics) -> None:
    """Notes an error about a file, at the place that its message begins with, else at its start."""
    found = _PLACED.fullmatch(error.message.removeprefix(str(file)))
    place, message = SourcePosition(format_path(file)), error.message
    if found is not None:
        place = SourcePosition(place.file, int(found["line"]), int(found["column"]))
        message = found["text"]
    problems.add(place, "project", message, error.hint or "")


def _place(backend: str) -> str:
    """Where a backend is: one folder has several spellings."""
    if not backend.startswith("file://"):
        return backend.rstrip("/")
    path = unquote(backend.removeprefix("file://").partition("?")[0])
    return os.path.realpath(os.path.expanduser(path))  # noqa: PTH111 - as a text

"""Programs that are topologies: what they declare goes to the monitor directly, without the SDK.

What reads a topology is not the engine's: it is given to it as a `TopologyRunner`.
"""

import ast
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from gpuform.stacks.engine.language_host.services import Program
from gpuform.stacks.engine.project import folder_and_entry, topology_in
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.values import PropertyMap

PROGRAM: Final = "from gpuform.stacks import run\n\nrun({!r})\n"
"""The program of a topology that has none beside it."""
_FILE: Final = "topology.yaml"
"""What `run()` runs."""


class Ended(Exception):
    """The run has ended: nothing more can be declared, and there is nothing more to say."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What has become of something that was declared.

    `outputs` are None where there are none to tell: of components, and of what is `unknown` because
    it was left out of the run. What has `failed` goes with the run as unknown. An empty id is one
    that is not known.
    """

    urn: str
    id: str = ""
    outputs: PropertyMap | None = None
    failed: bool = False
    unknown: bool = False


class Declarations(Protocol):
    """What a topology declares its resources to, from one thread."""

    def working(self) -> AbstractContextManager[None]:
        """Around a time in which one thing after the other is declared."""

    def declare(self, asked: Registration | Read) -> Answer | Callable[[], Answer]:
        """Plans a resource. What may wait for somebody is left to do, on any thread.

        Both raise Ended.
        """

    def export(self, urn: str, outputs: PropertyMap) -> None:
        """The outputs of a component, or of the stack."""


@dataclass(frozen=True, slots=True)
class TopologyRun:
    """One run of a topology: `file` is relative to the working folder.

    `handed_over` is where the program hands it to gpuform, a file and its line; `threads` is how
    many resources may wait at a time; `warn` tells the user something.
    """

    program: Program
    file: Path
    handed_over: tuple[Path, int]
    declarations: Declarations
    preview: bool
    threads: int
    warn: Callable[[str], None]


TopologyRunner = Callable[[TopologyRun], None]
"""Declares what a topology says; raises EngineError for what is wrong with it, and Ended."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The file that a program consists of, from the program's folder; the line of the program that
    says so.
    """

    file: Path
    handed_over: tuple[Path, int]

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.handed_over[0].parent / self.file


def topology_of(directory: Path) -> Topology | None:
    """The topology that a program is, given its folder or file; None for any other program.

    That is one without a program, or whose program hands it over and does nothing else.
    """
    folder, entry = folder_and_entry(directory)
    file = folder / ("__main__.py" if entry == "." else entry)
    try:
        source = file.read_bytes()
    except FileNotFoundError:
        found = topology_in(folder) if file.name == "__main__.py" else None
        if found is None:
            return None
        source = PROGRAM.format(found.name).encode()
    except OSError:
        return None
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError):
        return None
    match [each for each in statements if not _is_docstring(each)]:
        case [
            ast.ImportFrom("gpuform.stacks", [ast.alias("run", None)], 0),
            ast.Expr(ast.Call(ast.Name("run"), [ast.Constant(str(name))], [])) as call,
        ]:
            return Topology(Path(name), (file, call.lineno))
        case [
            ast.ImportFrom("gpuform.stacks", [ast.alias("run", None)], 0),
            ast.Expr(ast.Call(ast.Name("run"), [], [])) as call,
        ]:
            return Topology(Path(_FILE), (file, call.lineno))
    return None


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)

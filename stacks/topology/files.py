"""The files of a topology: one, what it includes as if it stood there, and modules."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import MappingNode, Node, ScalarNode, get_items
from gpuform.stacks.document.reading import read_file


@dataclass(frozen=True, slots=True)
class Way:
    """How a file came to be read: the files that include it, and where modules are included."""

    files: tuple[Path, ...] = ()
    places: tuple[SourcePosition, ...] = ()


_START: Final = Way()


@dataclass(frozen=True, slots=True)
class File:
    """A file that was read, and the way to what it includes."""

    path: Path
    root: MappingNode
    way: Way


def read_all(path: Path, problems: Diagnostics, way: Way = _START) -> list[File]:
    """A file and all that it includes as if it stood there, each file once; modules are not read.

    Messages name files relative to the current folder, where they are inside it.
    """
    return list(_Files(problems, way.places).read(path, way.files))


def shown(path: Path) -> str:
    """How messages name a file."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def included(root: MappingNode, problems: Diagnostics) -> tuple[Node, ...]:
    """What stands in its `include`: a list of paths and modules, or one module."""
    node = root.get("include")
    return (node,) if isinstance(node, MappingNode) else get_items(node, "include", problems)


def included_file(node: Node | None, beside: File, problems: Diagnostics) -> Path | None:
    """The file that a file's `include` names; what is wrong with it goes to `problems`."""
    if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
        place = node.place if node else beside.root.place
        problems.add(place, "include", "a file to include is a path, as text")
        return None
    path = beside.path.parent / node.value
    try:
        return path if _is_usable(node, path, beside.way, problems) else None
    except (OSError, RuntimeError, ValueError):
        problems.add(node.place, "include", "this is no path of a file")
        return None


def _is_usable(node: ScalarNode, path: Path, way: Way, problems: Diagnostics) -> bool:
    if path.resolve() in way.files:
        circle = " -> ".join(shown(each) for each in (*way.files, path))
        hint = "a file can include itself in no way: take out one of these"
        problems.add(node.place, "include", f"files include each other: {circle}", hint)
        return False
    if not path.is_file():
        message = f"there is no file {shown(path)}"
        problems.add(node.place, "include", message, "paths are relative to this file")
        return False
    return True


def _is_in_project(path: Path, topology: Path) -> bool:
    """Return whether `path` belongs to the repository of `topology`, or without one to its project.

    Whoever writes a topology may name any file of the machine in it, such as one with credentials.
    Git's own folder holds those that a CI job has fetched the repository with.
    """
    for marker in (".git", "stacks.yaml", "Pulumi.yaml"):
        root = next((each for each in topology.parents if (each / marker).exists()), None)
        if root is not None:
            return path.is_relative_to(root) and not path.is_relative_to(root / ".git")
    return path.is_relative_to(topology.parent)


class _Files:
    def __init__(self, problems: Diagnostics, places: tuple[SourcePosition, ...]) -> None:
        self.problems, self.places = problems, places
        self.seen: set[Path] = set()

    def read(self, path: Path, including: tuple[Path, ...]) -> Iterator[File]:
        self.seen.add(path.resolve())
        is_outside = bool(including) and not _is_in_project(path.resolve(), including[0])
        root = read_file(
            path, shown(path), self.problems, self.places, is_outside_project=is_outside
        )
        file = File(path, root, Way((*including, path.resolve()), self.places))
        yield file
        for node in included(root, self.problems):
            if isinstance(node, MappingNode):
                continue  # a module
            other = included_file(node, file, self.problems)
            if other is not None and other.resolve() not in self.seen:
                yield from self.read(other, file.way.files)

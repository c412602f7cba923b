"""Read the files of a topology: the file itself, files that it includes, and modules.

`loading` turns the files into declarations; `configuration` reads only their `config`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import MappingNode, Node, ScalarNode, get_items
from gpuform.stacks.document.reading import read_file


@dataclass(frozen=True, slots=True)
class InclusionPath:
    """The files that include a file, and the positions where modules are included."""

    files: tuple[Path, ...] = ()
    positions: tuple[SourcePosition, ...] = ()


TOPOLOGY_ITSELF: Final = InclusionPath()
"""The path of a file that no other file includes."""


@dataclass(frozen=True, slots=True)
class TopologyFile:
    """A file that was read, and the path of inclusions for the files that it includes."""

    path: Path
    root: MappingNode
    inclusion_path: InclusionPath


def read_files(
    path: Path, problems: Diagnostics, inclusion_path: InclusionPath = TOPOLOGY_ITSELF
) -> list[TopologyFile]:
    """Read a file and all included files, each once. Modules are not read.

    Messages name files relative to the current folder if the files are inside it.
    """
    return list(_FileReader(problems, inclusion_path.positions).read(path, inclusion_path.files))


def format_path(path: Path) -> str:
    """Format a path for messages: relative to the current folder if possible."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    # The file is not below the current folder.
    except ValueError:
        return str(path)


def get_inclusions(root: MappingNode, problems: Diagnostics) -> tuple[Node, ...]:
    """Return the items of `include`: a list of paths and modules, or a single module."""
    node = root.get("include")
    return (node,) if isinstance(node, MappingNode) else get_items(node, "include", problems)


def resolve_included_file(
    node: Node | None, including_file: TopologyFile, problems: Diagnostics
) -> Path | None:
    """Return the path of an included file, or None after a problem.

    A relative path counts from the folder of the including file.
    """
    if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
        position = node.position if node else including_file.root.position
        problems.add(position, "include", "an included file must be a path, written as text")
        return None
    path = including_file.path.parent / node.value
    try:
        return (
            path
            if _check_included_file(node, path, including_file.inclusion_path, problems)
            else None
        )
    # Raised for a null byte, too long names and loops of symbolic links.
    except (OSError, RuntimeError, ValueError):
        problems.add(node.position, "include", "this is not a valid path of a file")
        return None


def _check_included_file(
    node: ScalarNode, path: Path, inclusion_path: InclusionPath, problems: Diagnostics
) -> bool:
    """Return True if `path` is a file and not one of the including files. Report any other path."""
    if path.resolve() in inclusion_path.files:
        cycle = " -> ".join(format_path(file) for file in (*inclusion_path.files, path))
        hint = (
            "a file cannot include itself, directly or through other files: remove one of the "
            "includes"
        )
        problems.add(node.position, "include", f"files include each other: {cycle}", hint)
        return False
    if not path.is_file():
        message = f"the file {format_path(path)} does not exist"
        problems.add(node.position, "include", message, "paths are relative to this file")
        return False
    return True


def _is_in_project(path: Path, topology: Path) -> bool:
    """Return True if `path` is in the repository of `topology`, or else in the project.

    The root is the nearest folder with .git, else stacks.yaml, else Pulumi.yaml, else the
    topology's own. Git's own folder does not count: it holds the credentials of a CI job.
    """
    for marker in (".git", "stacks.yaml", "Pulumi.yaml"):
        root = next((folder for folder in topology.parents if (folder / marker).exists()), None)
        if root is not None:
            return path.is_relative_to(root) and not path.is_relative_to(root / ".git")
    return path.is_relative_to(topology.parent)


class _FileReader:
    def __init__(self, problems: Diagnostics, positions: tuple[SourcePosition, ...]) -> None:
        self.problems, self.positions = problems, positions
        self.read_paths: set[Path] = set()

    def read(self, path: Path, including: tuple[Path, ...]) -> Iterator[TopologyFile]:
        """Yield a file, and then each included file, once; modules are left out.

        An included file outside the project is read, but no problem shows its text.
        """
        # Several paths may name one file, so the resolved path counts.
        self.read_paths.add(path.resolve())
        # The user names the first file; only included files can lead outside.
        is_outside = bool(including) and not _is_in_project(path.resolve(), including[0])
        root = read_file(
            path, format_path(path), self.problems, self.positions, is_outside_project=is_outside
        )
        file = TopologyFile(path, root, InclusionPath((*including, path.resolve()), self.positions))
        yield file
        for node in get_inclusions(root, self.problems):
            if isinstance(node, MappingNode):
                continue  # a module
            other = resolve_included_file(node, file, self.problems)
            if other is not None and other.resolve() not in self.read_paths:
                yield from self.read(other, file.inclusion_path.files)

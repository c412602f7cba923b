"""The files of a topology: one, and what it includes."""

from collections.abc import Iterator
from pathlib import Path

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import MappingNode, ScalarNode
from gpuform.stacks.document.reading import read_file
from gpuform.stacks.document.shapes import items


def read_all(path: Path, problems: Diagnostics) -> list[MappingNode]:
    """The mappings of a file and of all that it includes, each file once.

    Messages name files relative to the current folder, where they are inside it.
    """
    return list(_Files(problems).roots(path, ()))


def shown(path: Path) -> str:
    """How messages name a file."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


class _Files:
    def __init__(self, problems: Diagnostics) -> None:
        self.problems = problems
        self.read: set[Path] = set()

    def roots(self, path: Path, including: tuple[Path, ...]) -> Iterator[MappingNode]:
        self.read.add(path.resolve())
        root = read_file(path, shown(path), self.problems)
        yield root
        chain = (*including, path.resolve())
        for node in items(root.get("include"), "include", self.problems):
            if isinstance(node, ScalarNode) and isinstance(node.value, str):
                other = path.parent / node.value
                try:
                    usable = self.is_usable(node, other, chain)
                except (OSError, RuntimeError, ValueError):
                    usable = False
                    self.problems.add(node.place, "include", "this is no path of a file")
                if usable:
                    yield from self.roots(other, chain)
            else:
                self.problems.add(node.place, "include", "a file to include is a path, as text")

    def is_usable(self, node: ScalarNode, file: Path, chain: tuple[Path, ...]) -> bool:
        if file.resolve() in chain:
            way = " -> ".join(shown(each) for each in (*chain, file))
            self.problems.add(node.place, "include", f"files include each other: {way}")
            return False
        if not file.is_file():
            message = f"there is no file {shown(file)}"
            self.problems.add(node.place, "include", message, "paths are relative to this file")
            return False
        return file.resolve() not in self.read

"""Adds entries to a topology file that a person edits, and takes an option out of one.

Whole lines are added and removed; every other character stays. A file that would not say exactly
what was intended afterwards is refused instead.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from gpuform.stacks.authoring.declared import Declared
from gpuform.stacks.authoring.yaml_values import STEP, lines_of, members
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import to_plain_value
from gpuform.stacks.document.reading import LOADER, read_text
from gpuform.stacks.document.text_edits import Span, append_lines, find_member, remove_spans
from gpuform.stacks.engine.errors import EngineError

_BOM: Final = "\ufeff"


class FileNotEdited(EngineError):
    """A file that only a person can edit; the message begins with file:line:column."""

    help_page = "guides/adopt"


def with_entries(text: str, declared: Declared, where: str) -> str:
    """The file with these entries added, each at the end of its section.

    Configuration variables and outputs that are there already stay as they are. FileNotEdited for
    an entry of a name that is there, and for a section that is written in braces.
    """
    wanted = _meaning(text, where)
    for top, names in members(declared).items():
        present = wanted.get(top) or {}
        new = {name: value for name, value in names.items() if name not in present}
        taken = next((name for name in names if name in present), None)
        if taken is not None and top not in ("config", "outputs"):
            raise _File(text, where).problem(f"{top}.{taken} is there already", top, taken)
        if new:
            text = _File(text, where).add_members(top, new)
            said = _meaning("\n".join(lines_of(new, STEP)), where)
            wanted[top] = {**present, **said}
    return _checked(text, wanted, where)


def without_option(text: str, entries: Iterable[tuple[str, str]], option: str, where: str) -> str:
    """The file without one option of these entries, by section and name, which may lack it.

    An empty `options` goes, too. FileNotEdited where that cannot be said otherwise.
    """
    wanted = _meaning(text, where)
    paths = []
    for section, name in entries:
        entry = (wanted.get(section) or {}).get(name) or {}
        if option not in (entry.get("options") or {}):
            continue
        del entry["options"][option]
        paths.append([section, name, "options", option])
        if not entry["options"]:
            del entry["options"]
            paths[-1].pop()
    return _checked(_File(text, where).remove_members(paths), wanted, where) if paths else text


def _checked(text: str, wanted: Mapping[str, Any], where: str) -> str:
    if _meaning(text, where) != wanted:
        raise _File(text, where).problem("the file cannot be edited as it is written")
    return text


def _meaning(text: str, where: str) -> dict[str, Any]:
    """What a file says. Raises FileNotEdited with the first thing that is wrong with it."""
    problems = Diagnostics()
    found = to_plain_value(read_text(text.removeprefix(_BOM), where, problems))
    for problem in problems:
        raise FileNotEdited(f"{problem.position}: {problem.message}", problem.hint or None)
    return dict(found)


class _File:
    """A file that can be read, with the nodes of its text. Every edit makes another text."""

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        self._body = text.removeprefix(_BOM)
        self._bom = text[: len(text) - len(self._body)]
        self._root: Node | None = yaml.compose(self._body, Loader=LOADER)

    def add_members(self, top: str, names: Mapping[str, Any]) -> str:
        """Return the text with these members under a top-level key, which may be new."""
        if self._root is not None and getattr(self._root, "flow_style", False):
            raise self.problem("the whole file stands in braces")
        key, node = self._find_member(self._root, top)
        if node is None:
            space = [""] if self._body.strip() else []
            return self._append(self._root, [*space, f"{top}:", *lines_of(names, STEP)])
        if isinstance(node, ScalarNode) and not node.value:
            return self._append(key, lines_of(names, STEP), STEP)
        if not isinstance(node, MappingNode) or node.flow_style:
            raise self.problem(f"{top} is not written in lines, one or more for each entry", top)
        column, step = _indents(node)
        return self._append(node, lines_of(names, column, step), column)

    def _append(self, node: Node | None, lines: list[str], column: int = 0) -> str:
        return self._bom + append_lines(self._body, node, lines, column)

    def remove_members(self, paths: Iterable[Sequence[str]]) -> str:
        """Return the text without these members, none of which is the only one of its object."""
        return self._bom + remove_spans(self._body, map(self._find_span, paths))

    def _find_span(self, path: Sequence[str]) -> Span:
        parent: Any = self._root
        for name in path[:-1]:
            _, parent = self._find_member(parent, name)
        at = next(n for n, (key, _) in enumerate(parent.value) if key.value == path[-1])
        return find_member(self._body, parent, at)

    def problem(self, message: str, *path: str) -> FileNotEdited:
        """Return the error about a member, or about the file."""
        node, mark = self._root, None
        for name in path:
            key, node = self._find_member(node, name)
            mark = key.start_mark if key else None
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        return FileNotEdited(
            f"{self._where}:{line}:{column}: {message}",
            hint="write it as lines with a key each, then run the command again",
        )

    @staticmethod
    def _find_member(node: Node | None, name: str) -> tuple[Any, Any]:
        """Return the nodes of a key and its value, or None twice."""
        pairs = node.value if isinstance(node, MappingNode) else ()
        return next((pair for pair in pairs if pair[0].value == name), (None, None))


def _indents(section: MappingNode) -> tuple[int, int]:
    """How far entries stand from the left, and their members from them."""
    column = section.value[0][0].start_mark.column
    inner = (
        value.value[0][0].start_mark.column - column
        for _, value in section.value
        if isinstance(value, MappingNode) and value.value and not value.flow_style
    )
    return column, next((step for step in inner if step > 0), STEP)

"""Adds entries to a topology file that a person edits, and takes an option out of one.

Whole lines are added and removed; every other character stays. A file that would not say exactly
what was intended afterwards is refused instead.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from gpuform.stacks.authoring.declared import Declared
from gpuform.stacks.authoring.yaml_values import STEP, lines_of, members
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import Span, break_of, listed_span, plain, without_spans
from gpuform.stacks.document.reading import read_text
from gpuform.stacks.engine.errors import EngineError

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BOM: Final = "\ufeff"
_LINES: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


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
            text = _File(text, where).with_members(top, new)
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
    return _checked(_File(text, where).without(paths), wanted, where) if paths else text


def _checked(text: str, wanted: Mapping[str, Any], where: str) -> str:
    if _meaning(text, where) != wanted:
        raise _File(text, where).problem("the file cannot be edited as it is written")
    return text


def _meaning(text: str, where: str) -> dict[str, Any]:
    """What a file says. Raises FileNotEdited with the first thing that is wrong with it."""
    problems = Diagnostics()
    found = plain(read_text(text.removeprefix(_BOM), where, problems))
    for problem in problems:
        raise FileNotEdited(f"{problem.place}: {problem.message}", problem.hint or None)
    return dict(found)


class _File:
    """A file that can be read: its lines with their breaks, and where in them its parts are."""

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        self._lines = _LINES.findall(text)
        self._break = break_of(text)
        self._root: Node | None = yaml.compose(text.removeprefix(_BOM), Loader=_LOADER)

    def with_members(self, top: str, names: Mapping[str, Any]) -> str:
        """With these under a top-level key, which may be new."""
        if self._root is not None and getattr(self._root, "flow_style", False):
            raise self.problem("the whole file stands in braces")
        node = self._find(top)
        if node is None:
            end = self._end_of_content(len(self._lines))
            space = [""] if end else []
            return self._with(end, [*space, f"{top}:", *lines_of(names, STEP)])
        if isinstance(node, ScalarNode) and not node.value:
            return self._with(self._key(top).start_mark.line + 1, lines_of(names, STEP))
        if not isinstance(node, MappingNode) or node.flow_style:
            raise self.problem(f"{top} is not written in lines, one or more for each entry", top)
        column, step = _indents(node)
        keys = [key.start_mark.line for key, _ in _pairs(self._root)]
        following = [line for line in keys if line > node.start_mark.line]
        end = self._end_of_content(min(following, default=len(self._lines)), column)
        return self._with(end, lines_of(names, column, step))

    def without(self, paths: Iterable[Sequence[str]]) -> str:
        """Without these members, none of which is the only one of its object."""
        return without_spans("".join(self._lines), map(self._span, paths))

    def _span(self, path: Sequence[str]) -> Span:
        """From where to where a member goes: its lines, or its part of a line."""
        parent = self._find(*path[:-1])
        at = next(n for n, (key, _) in enumerate(parent.value) if key.value == path[-1])
        key, value = parent.value[at]
        if not parent.flow_style:
            begin = self._offset(key.start_mark.line)
            return begin, self._offset(_last(value).end_mark.line + 1)
        spans = [(self._at(k.start_mark), self._at(v.end_mark)) for k, v in parent.value]
        return listed_span(spans, at)

    def problem(self, message: str, *path: str) -> FileNotEdited:
        """About a member."""
        keys = (key for key, _ in _pairs(self._find(*path[:-1])) if path and key.value == path[-1])
        mark = next((key.start_mark for key in keys), None)
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        return FileNotEdited(
            f"{self._where}:{line}:{column}: {message}",
            hint="write it as lines with a key each, then run the command again",
        )

    def _with(self, line: int, added: list[str]) -> str:
        before = "".join(self._lines[:line])
        if before and before[-1] not in "\r\n":
            before += self._break
        new = "".join(f"{each}{self._break}" for each in added)
        return before + new + "".join(self._lines[line:])

    def _end_of_content(self, end: int, column: int = 0) -> int:
        """Where something can be added before a line: behind all that is no space between parts.

        That are empty lines, comments further to the left than the column, the document's end.
        """
        while end:
            line = self._lines[end - 1]
            text = line.strip()
            indent = len(line) - len(line.lstrip(" "))
            if text and text != "..." and not (text.startswith("#") and indent < column):
                break
            end -= 1
        return end

    def _at(self, mark: Any) -> int:
        return self._offset(mark.line) + int(mark.column)

    def _offset(self, line: int) -> int:
        return sum(map(len, self._lines[:line]))

    def _find(self, *path: str) -> Any:
        node: Any = self._root
        for name in path:
            node = next((value for key, value in _pairs(node) if key.value == name), None)
        return node

    def _key(self, top: str) -> Any:
        return next(key for key, _ in _pairs(self._root) if key.value == top)


def _pairs(node: Node | None) -> list[tuple[Any, Any]]:
    return list(node.value) if isinstance(node, MappingNode) else []


def _last(node: Any) -> Any:
    """The last node in it: the end mark of a block is behind what follows the block."""
    while isinstance(node, MappingNode) and not node.flow_style:
        node = node.value[-1][1]
    return node


def _indents(section: MappingNode) -> tuple[int, int]:
    """How far entries stand from the left, and their members from them."""
    column = section.value[0][0].start_mark.column
    inner = (
        value.value[0][0].start_mark.column - column
        for _, value in section.value
        if isinstance(value, MappingNode) and value.value and not value.flow_style
    )
    return column, next((step for step in inner if step > 0), STEP)

"""What a Python program says of other stacks, read from its text: nothing of it is run."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.topology.files import shown

_REFERENCE: Final = "StackReference"
_READING: Final = ("get_output", "require_output", "get_output_details")
_EXPORT: Final = "export"


@dataclass(slots=True)
class ProgramText:
    """What one program's files say, as far as their text alone tells it.

    `stacks` are the names of the stacks that it refers to, each with its place; `read` are the
    outputs that it reads of them; `exports` the names of its own outputs. `is_whole` is False where
    a name is made in a way that only a run can tell.
    """

    stacks: list[tuple[str, SourcePosition]] = field(default_factory=list)
    read: list[tuple[str, str, SourcePosition]] = field(default_factory=list)
    exports: set[str] = field(default_factory=set)
    is_whole: bool = True


def read_program(program: Path, about: Mapping[str, str]) -> ProgramText:
    """The program of a folder or a file; `about` has the names of its `project` and `stack`.

    A file that is no Python is left to the run, which says so better.
    """
    folder = program if program.is_dir() else program.parent
    found = ProgramText()
    for file in sorted(folder.rglob("*.py")):
        inner = file.relative_to(folder).parts[:-1]
        if any(part.startswith(".") or part in _NOT_READ for part in inner):
            continue
        try:
            tree = ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError):
            found.is_whole = False
            continue
        _File(shown(file), about, found).read(tree)
    return found


_NOT_READ: Final = frozenset({"venv", "tests", "node_modules"})


@dataclass(slots=True)
class _File:
    file: str
    about: Mapping[str, str]
    found: ProgramText
    texts: dict[str, str] = field(default_factory=dict)
    stacks: dict[str, str] = field(default_factory=dict)

    def read(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                self._assigned(node)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                self._called(node)

    def _assigned(self, node: ast.Assign | ast.AnnAssign) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [each.id for each in targets if isinstance(each, ast.Name)]
        value = node.value
        if value is None:
            return
        text = self._text(value)
        for name in names:
            if text is not None:
                self.texts[name] = text
            stack = self._stack_of(value)
            if stack is not None:
                self.stacks[name] = stack

    def _called(self, node: ast.Call) -> None:
        name = _name_of(node.func)
        place = SourcePosition(self.file, node.lineno, node.col_offset + 1)
        if name == _REFERENCE:
            stack = self._stack_of(node)
            if stack is None:
                self.found.is_whole = False
            else:
                self.found.stacks.append((stack, place))
        elif name in _READING and isinstance(node.func, ast.Attribute) and node.args:
            of = node.func.value
            stack = self.stacks.get(of.id) if isinstance(of, ast.Name) else self._stack_of(of)
            output = self._text(node.args[0])
            if stack is not None and output is not None:
                self.found.read.append((stack, output, place))
        elif name == _EXPORT and node.args:
            output = self._text(node.args[0])
            if output is None:
                self.found.is_whole = False
            else:
                self.found.exports.add(output)

    def _stack_of(self, node: ast.expr) -> str | None:
        """The name of the stack that a `StackReference(...)` is of; None where that is not told."""
        if not (isinstance(node, ast.Call) and _name_of(node.func) == _REFERENCE):
            return None
        given = {each.arg: each.value for each in node.keywords}
        named = given.get("stack_name") or (node.args[1] if len(node.args) > 1 else None)
        first = named or given.get("name") or (node.args[0] if node.args else None)
        return None if first is None else self._text(first)

    def _text(self, node: ast.expr) -> str | None:
        """A text that is written out, or made of such and of the names of project and stack."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            return self.texts.get(node.id)
        if isinstance(node, ast.Call):
            name = _name_of(node.func)
            asked = {"get_stack": "stack", "get_project": "project"}.get(name, "")
            return "organization" if name == "get_organization" else self.about.get(asked)
        parts: Iterator[str | None]
        if isinstance(node, ast.JoinedStr):
            parts = (self._part(each) for each in node.values)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = (self._text(each) for each in (node.left, node.right))
        else:
            return None
        found = list(parts)
        return None if None in found else "".join(each for each in found if each)

    def _part(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.FormattedValue):
            is_plain = node.conversion == -1 and node.format_spec is None
            return self._text(node.value) if is_plain else None
        return self._text(node)


def _name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""

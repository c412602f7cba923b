"""Test that docs/reference/errors.md has a row for each error, and no other row.

The page is written by hand. These tests compare it with the texts in the calls that create errors.
A text that reaches a call through a variable or a function is not compared.
"""

import ast
import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from gpuform.stacks.cli.failures import STACK_NOT_FOUND

# Reading every module of the package takes seconds.
pytestmark = [pytest.mark.slow, pytest.mark.sampled(1)]

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
MESSAGE_ARGUMENT: Final = {
    "add": 2,
    "add_once": 3,
    "Diagnostic": 2,
    "DocumentDiagnostic": 2,
    "FormattingError": 2,
}
"""Which argument of a call is the message, if not the first. The hint is the next one."""
PASSED_ON: Final = re.compile(r"[A-Za-z]{3}")
"""A literal without a word, such as ": ", needs no row."""

FILLED_IN: Final = re.compile(r"<[^>]*>|; or: |, or |[^\s<]*[A-Z_/.:\"$\d][^\s<]*|\(exit code")
"""Parts of a row that are filled in when the error is created, and names of constants."""


@dataclass(frozen=True)
class RaisedError:
    """A call that makes an error with a hint: the literals of both, and how its row would read."""

    position: str
    message: tuple[str, ...]
    hint: tuple[str, ...]
    row: str

    def is_in(self, cells: tuple[str, str]) -> bool:
        """Return whether a row of the page has every literal of the error."""
        return all(part in cells[0] for part in self.message) and all(
            part in cells[1] for part in self.hint
        )


@cache
def parse_modules() -> dict[str, ast.Module]:
    """Return each module of the package by path, without the emulator."""
    files = [
        file for top in ("schemas", "providers", "stacks") for file in (ROOT / top).rglob("*.py")
    ]
    return {
        path: ast.parse(file.read_text(encoding="utf-8"))
        for file in sorted(files)
        if not (path := str(file.relative_to(ROOT))).startswith("providers/emulator/")
    }


@cache
def list_constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return a module's constants by name."""
    pairs = [
        (node.targets[0] if isinstance(node, ast.Assign) else node.target, node.value)
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
    ]
    return {target.id: value for target, value in pairs if isinstance(target, ast.Name) and value}


@cache
def list_error_classes() -> frozenset[str]:
    """Return the names of all classes of errors whose second argument is a hint."""
    bases = {
        node.name: {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
        for tree in parse_modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    classes = {"GpuformError", "ExpressionError"}
    while derived := {name for name, above in bases.items() if above & classes} - classes:
        classes |= derived
    return frozenset(classes)


def list_literals(node: ast.expr, tree: ast.Module) -> Iterator[str]:
    """Yield the literals of a text in a module, in the form of the page."""
    match node:
        case ast.Constant(value=str(text)) if PASSED_ON.search(text):
            yield normalize(text)
        case ast.Name(id=name) if name in list_constants(tree):
            yield from list_literals(list_constants(tree)[name], tree)
        case ast.JoinedStr(values=parts) | ast.BoolOp(values=parts):
            for part in parts:
                yield from list_literals(part, tree)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from (*list_literals(left, tree), *list_literals(right, tree))
        case ast.IfExp(body=body, orelse=other):
            yield from (*list_literals(body, tree), *list_literals(other, tree))


def render_proposal(node: ast.expr) -> str:
    """Return how a row of the page would show a text, as a proposal."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(render_proposal, parts))
        case ast.FormattedValue(value=value):
            return render_proposal(value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return render_proposal(left) + render_proposal(right)
        case ast.IfExp(body=body, orelse=other):
            return f"{render_proposal(body)} / {render_proposal(other)}"
    return f"`<{ast.unparse(node)}>`"


def normalize(text: str) -> str:
    """Return a text without the marks of Markdown and with single spaces."""
    return " ".join(re.sub(r"[\\`]", "", html.unescape(text)).split())


def list_raised_errors() -> Iterator[RaisedError]:
    """Yield every call that creates an error with a hint and at least one literal."""
    for path, tree in parse_modules().items():
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call):
                continue
            name = ast.unparse(call.func).rpartition(".")[2]
            at = MESSAGE_ARGUMENT.get(name, 0)
            hint = next((keyword.value for keyword in call.keywords if keyword.arg == "hint"), None)
            if hint is None and (name in MESSAGE_ARGUMENT or name in list_error_classes()):
                hint = call.args[at + 1] if at + 1 < len(call.args) else None
            if hint is None or len(call.args) <= at:
                continue
            message = call.args[at]
            error = RaisedError(
                f"{path}:{call.lineno}",
                tuple(list_literals(message, tree)),
                tuple(list_literals(hint, tree)),
                f"| {render_proposal(message)} | {render_proposal(hint)} |",
            )
            if error.hint:
                yield error


def read_rows() -> list[tuple[str, str]]:
    """Return the two cells of each row of the page."""
    lines = [re.split(r"(?<!\\)\|", line) for line in PAGE.splitlines() if line.startswith("| ")]
    return [(normalize(cells[1]), normalize(cells[2])) for cells in lines]


def test_each_error_with_a_hint_has_a_row() -> None:
    catalogue = read_rows()
    errors = list(list_raised_errors())
    missing = [error for error in errors if not any(map(error.is_in, catalogue))]
    assert len(errors) > 400
    assert [f"{error.position}: add the row {error.row}" for error in missing] == []


def test_each_row_is_of_an_error() -> None:
    """Search the source for the longest words of each row that are neither names nor filled in."""
    texts = "\n".join(
        normalize(node.value)
        for tree in parse_modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    stale = [
        words
        for row in read_rows()
        for cell in row
        if (words := max(FILLED_IN.split(cell), key=len).strip(" ,;()'")) not in texts
    ]
    assert stale == ["is undefined"]  # Jinja's own words


def test_a_row_names_an_exit_code_other_than_1() -> None:
    assert f"| no stack is selected (exit code {STACK_NOT_FOUND}) |" in PAGE

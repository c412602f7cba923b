"""List the mutants of a source file, and put one into the functions of this process.

The mutants are those of mutmut's operators within functions and methods; of a text only the
variant with marks around it is taken, not the ones in capital and small letters. `play.py` calls
this.
"""

import ast
import gc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType

import libcst
from mutmut.mutation.file_mutation import create_mutations

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """One changed place: lines `first` up to `last` (from 0, exclusive) become `replacement`."""

    path: str
    function: str
    first: int
    last: int
    replacement: list[str]
    name: str

    def apply(self, lines: list[str]) -> str:
        """Return the source with the mutant."""
        return "".join([*lines[: self.first], *self.replacement, *lines[self.last :]])


def list_mutants(path: str) -> list[Mutant]:
    """Return all mutants of the file, each with a name that survives moves within the file."""
    source = (ROOT / path).read_text()
    starts = _find_starts(ast.parse(source), "")
    module, mutations, _, _ = create_mutations(path, source)
    qualified = dict(_list_qualified_names(module, ""))
    names: Counter[str] = Counter()
    mutants = []
    for mutation in mutations:
        node = mutation.contained_by_top_level_function
        if node not in qualified or _is_left_out(mutation.original_node, mutation.mutated_node):
            continue
        function = qualified[node]
        changed = node.deep_replace(mutation.original_node, mutation.mutated_node)
        old, new = _split_lines(node), _split_lines(libcst.ensure_type(changed, libcst.FunctionDef))
        first, behind = _count_common_ends(old, new)
        old_part, new_part = old[first : len(old) - behind], new[first : len(new) - behind]
        name = f"{function}: {_in_one_line(old_part)} -> {_in_one_line(new_part)}"
        names[name] += 1
        name = f"{name} (number {names[name]})" if names[name] > 1 else name
        start, indent = starts[function]
        start -= len(node.leading_lines)
        indented = [f"{indent}{line}" if line.strip() else line for line in new_part]
        end = start + len(old) - behind
        mutants.append(Mutant(path, function, start + first, end, indented, name))
    return mutants


def find_statement_lines(source: str, line: int) -> range:
    """Return the lines of the innermost statement around `line`.

    Of a block it is the head alone, but of a function all lines: its head is run at the import.
    """
    inner: ast.stmt | None = None
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            inner = node if inner is None or node.lineno >= inner.lineno else inner
    if inner is None:
        return range(line, line + 1)
    body = None if isinstance(inner, ast.FunctionDef) else getattr(inner, "body", None)
    end = body[0].lineno if body else (inner.end_lineno or line) + 1
    return range(inner.lineno, max(end, line + 1))


class Functions:
    """The functions of this process that the mutants change, found once."""

    def __init__(self, paths: list[str]) -> None:
        files = {str(ROOT / path): path for path in paths}
        self._functions: dict[tuple[str, str], list[FunctionType]] = {}
        gc.unfreeze()  # what was collected is out of the collector's sight
        for candidate in gc.get_objects():
            if type(candidate) is FunctionType and candidate.__code__.co_filename in files:
                key = (files[candidate.__code__.co_filename], candidate.__qualname__)
                self._functions.setdefault(key, []).append(candidate)
        gc.freeze()

    def replace(self, mutant: Mutant) -> None:
        """Give the mutant's function its changed code, wherever the function is held."""
        path = ROOT / mutant.path
        source = mutant.apply(path.read_text().splitlines(keepends=True))
        code = _find_code(compile(source, str(path), "exec"), mutant.function)
        arguments = _find_arguments(ast.parse(source), mutant.function)
        defaults = [compile(ast.Expression(d), str(path), "eval") for d in arguments.defaults]
        keyword_defaults = {
            argument.arg: compile(ast.Expression(default), str(path), "eval")
            for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default is not None
        }
        for function in self._functions[mutant.path, mutant.function]:
            space = function.__globals__
            function.__code__ = code
            function.__defaults__ = (
                tuple(eval(expression, space) for expression in defaults) or None
            )
            function.__kwdefaults__ = {
                name: eval(default, space) for name, default in keyword_defaults.items()
            }


def _list_qualified_names(
    node: libcst.Module | libcst.ClassDef, prefix: str
) -> Iterator[tuple[libcst.CSTNode, str]]:
    body = node.body if isinstance(node, libcst.Module) else node.body.body
    for child in body:
        if isinstance(child, libcst.FunctionDef):
            yield child, f"{prefix}{child.name.value}"
        elif isinstance(child, libcst.ClassDef):
            yield from _list_qualified_names(child, f"{prefix}{child.name.value}.")


def _is_left_out(original: libcst.CSTNode, mutated: libcst.CSTNode) -> bool:
    """Return whether another mutant of the place asks the same or an easier question."""
    if isinstance(original, libcst.SimpleString) and isinstance(mutated, libcst.SimpleString):
        return original.value.lower() == mutated.value.lower()
    if isinstance(original, libcst.Call) and isinstance(mutated, libcst.Call):
        changed = [
            a for a in original.args if all(a is not remaining for remaining in mutated.args)
        ]
        is_removal = len(mutated.args) < len(original.args)
        return len(changed) == 1 and is_removal != (changed[0].keyword is not None)
    return False


def _find_starts(node: ast.Module | ast.ClassDef, prefix: str) -> dict[str, tuple[int, str]]:
    """Return the first line, from 0, and the indent of each function."""
    starts = {}
    for child in node.body:
        if isinstance(child, ast.FunctionDef):
            first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
            starts[f"{prefix}{child.name}"] = first - 1, " " * child.col_offset
        elif isinstance(child, ast.ClassDef):
            starts |= _find_starts(child, f"{prefix}{child.name}.")
    return starts


def _split_lines(function: libcst.FunctionDef) -> list[str]:
    return libcst.Module([function]).code.splitlines(keepends=True)


def _count_common_ends(old: list[str], new: list[str]) -> tuple[int, int]:
    shorter = min(len(old), len(new))
    first = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    behind = 0
    while behind < shorter - first and old[-1 - behind] == new[-1 - behind]:
        behind += 1
    return first, behind


def _in_one_line(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines)


def _find_code(code: CodeType, function: str) -> CodeType:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    for candidate in inner:
        if candidate.co_qualname == function:
            return candidate
    outer = next(c for c in inner if function.startswith(f"{c.co_qualname}."))
    return _find_code(outer, function)


def _find_arguments(tree: ast.Module | ast.ClassDef, function: str) -> ast.arguments:
    name, _, rest = function.partition(".")
    node_of_name = next(node for node in tree.body if getattr(node, "name", None) == name)
    if isinstance(node_of_name, ast.ClassDef):
        return _find_arguments(node_of_name, rest)
    assert isinstance(node_of_name, ast.FunctionDef)
    return node_of_name.args

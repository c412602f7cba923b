"""gpuform's own source as syntax trees, for pages that are made of what it says."""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_ROOMS: Final = ("schemas", "providers", "stacks")
_OTHERS: Final = ("stacks/reference/", "providers/emulator/")
"""What says nothing to people: this room, and what stands for the platforms."""


@cache
def modules() -> Mapping[str, ast.Module]:
    """Each module by its path, such as `stacks/cli/app.py`."""
    found = {}
    for room in _ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(_OTHERS):
                found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return MappingProxyType(found)


@cache
def constants() -> Mapping[str, ast.expr]:
    """What modules give names in capitals to. Of a name that several have, the last one's."""
    found: dict[str, ast.expr] = {}
    for name in modules():
        found |= assigned(modules()[name].body)
    return MappingProxyType(found)


@cache
def functions() -> Mapping[str, ast.FunctionDef]:
    """The functions and methods by name, but for names that several have."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, []).append(node)
    return MappingProxyType({name: each[0] for name, each in found.items() if len(each) == 1})


@cache
def derived_from(*roots: str) -> frozenset[str]:
    """The names of these classes and of all that are derived from them."""
    bases: dict[str, set[str]] = {}
    for tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {last_name(base) for base in node.bases}
    found = set(roots)
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return frozenset(found)


def assigned(body: list[ast.stmt]) -> dict[str, ast.expr]:
    """What the statements of a module give names to."""
    found: dict[str, ast.expr] = {}
    for node in body:
        match node:
            case ast.Assign(targets=[target], value=value):
                found |= dict(pairs(target, value))
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                found |= dict(pairs(target, value))
    return found


def pairs(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]]:
    """The names of an assignment with what each one gets."""
    match target, value:
        case ast.Name(id=name), _:
            return [(name, value)]
        case ast.Tuple(elts=names), ast.Tuple(elts=values) if len(names) == len(values):
            return [pair for each in zip(names, values, strict=True) for pair in pairs(*each)]
    return []


def last_name(node: ast.expr) -> str:
    """`EngineError` of `errors.EngineError`, and of `EngineError[T]`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=inner):
            return last_name(inner)
    return ""

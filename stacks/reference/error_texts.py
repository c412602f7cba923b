"""What gpuform's errors say and what they tell to do, found in the source.

What is filled in when an error is raised stands as `<name>`.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from gpuform.stacks.reference.source import (
    constants,
    derived_from,
    functions,
    last_name,
    modules,
    pairs,
)

_DEEPEST: Final = 4
_MOST: Final = 6
_OF_THINGS: Final = ("name", "message", "shown", "strerror", "value", "path", "title", "text", "id")
"""Attributes that say no more than what they are of."""
_THROUGH: Final = ("str", "repr", "sorted", "list", "visible", "map", "set", "dict", "Path", "code")
"""Functions that say no more than what they are given."""
_MESSAGE_AT: Final = {
    "locate_error": 2,
    "add": 2,
    "add_once": 3,
    "Diagnostic": 2,
    "FormattingError": 2,
}
"""Where the message is among the arguments, with the remedy behind it, if it is not the first."""
_NOTED: Final = ("add", "add_once", "Diagnostic")


@dataclass(frozen=True, slots=True)
class ErrorText:
    """An error as a template. `where` is its `file:line`."""

    where: str
    error: str
    message: str
    remedy: str

    @property
    def is_passed_on(self) -> bool:
        """Whether both are another error's, which is told where it comes from."""
        return not _says_something(self.message) and not _says_something(self.remedy)


@cache
def error_texts() -> tuple[ErrorText, ...]:
    """Every error that names a remedy, by file and line."""
    return tuple(text for name, tree in modules().items() for text in _of_module(name, tree))


def _says_something(text: str) -> bool:
    return bool(re.search(r"[A-Za-z]{2}", re.sub(r"<[^>]*>", "", text)))


def _of_module(name: str, tree: ast.Module) -> Iterator[ErrorText]:
    for call, scopes in calls_in(tree):
        yield from _by_status(name, tree, call)
        hint = _hint_of(call)
        if hint is None:
            continue
        at = _MESSAGE_AT.get(last_name(call.func), 0)
        message = call.args[at] if len(call.args) > at else _UNDEFINED
        for template in _templates(tree, scopes, hint):
            told = dict.fromkeys(text for text in template.of(hint) if text)
            if told:
                said = " / ".join(dict.fromkeys(template.of(message)))
                where = f"{name}:{call.lineno}"
                yield ErrorText(where, last_name(call.func), said, "; or: ".join(told))


def _by_status(name: str, tree: ast.Module, call: ast.Call) -> Iterator[ErrorText]:
    """What to do about a platform's answers, where a call gives a table of that by status."""
    given = next((each.value for each in call.keywords if each.arg == "hints"), None)
    template = _Templates((), tree)
    for table in template.values(given.id) if isinstance(given, ast.Name) else ():
        if isinstance(table, ast.Dict) and call.args:
            (platform,) = template.of(call.args[0])
            for status, remedy in zip(table.keys, table.values, strict=True):
                code = str(status.value) if isinstance(status, ast.Constant) else "<status>"
                said = f"{platform}: <method> <path> answered {code}"
                where = f"{name}:{call.lineno}"
                yield ErrorText(where, last_name(call.func), said, template.of(remedy)[0])


_UNDEFINED: Final = ast.Constant("<name> is undefined")


def _templates(
    tree: ast.Module, scopes: Sequence[ast.FunctionDef], hint: ast.expr
) -> "list[_Templates]":
    """How to read an error: for each call of the function around it, if the remedy is given."""
    own = _Templates(scopes, tree)
    function = scopes[0] if scopes else None
    if function is None or not isinstance(hint, ast.Name) or hint.id not in _parameters(function):
        return [own]
    found = []
    for other in modules().values():
        if other is not tree and function.name not in functions():
            continue  # another function of this name may be meant
        for call, around in calls_in(other):
            given = _given(function, call) if last_name(call.func) == function.name else {}
            if hint.id in given and _hint_of(call) is None:
                found.append(_Templates(scopes, tree, given=(given, _Templates(around, other))))
    return found or [own]


def _given(function: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr]:
    """What a call gives for each parameter of a function."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    given = dict(zip(names, call.args, strict=False))
    return given | {each.arg: each.value for each in call.keywords if each.arg}


def calls_in(tree: ast.Module) -> list[tuple[ast.Call, Sequence[ast.FunctionDef]]]:
    """Every call of a module, with the functions that it stands in, from the inside."""
    if id(tree) not in _CALLS:
        _CALLS[id(tree)] = list(_calls(tree, ()))
    return _CALLS[id(tree)]


_CALLS: Final[dict[int, list[tuple[ast.Call, Sequence[ast.FunctionDef]]]]] = {}


def _calls(
    node: ast.AST, scopes: tuple[ast.FunctionDef, ...]
) -> Iterator[tuple[ast.Call, Sequence[ast.FunctionDef]]]:
    if isinstance(node, ast.Call):
        yield node, scopes
    inner = (node, *scopes) if isinstance(node, ast.FunctionDef) else scopes
    for each in ast.iter_child_nodes(node):
        yield from _calls(each, inner)


def _hint_of(call: ast.Call) -> ast.expr | None:
    """What a call gives as the remedy of an error, if it is one."""
    name = last_name(call.func)
    for keyword in call.keywords:
        if keyword.arg == "hint":
            return keyword.value
    if name not in _NOTED and name not in derived_from("UserError", "ExpressionError"):
        return None
    at = _MESSAGE_AT.get(name, 0) + 1
    return call.args[at] if at < len(call.args) else None


@dataclass(frozen=True, slots=True)
class _Templates:
    """Turns expressions into texts, where they stand."""

    scopes: Sequence[ast.FunctionDef]
    tree: ast.Module
    depth: int = 0
    given: "tuple[dict[str, ast.expr], _Templates] | None" = None
    """What the innermost function is called with, and how that is read."""

    def of(self, node: ast.expr) -> list[str]:
        """The texts that an expression can be; one with a placeholder where nobody can tell."""
        return list(dict.fromkeys(self._of(node)))[:_MOST]

    def _of(self, node: ast.expr) -> list[str]:
        match node:
            case ast.Constant(value=value):
                return [] if value is None else [str(value)]
            case ast.JoinedStr(values=parts):
                return ["".join(map(self._part, parts))]
            case ast.BinOp(op=ast.Add(), right=ast.Constant(value=int())):
                return [f"<{_named(node)}>"]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return [self._one(left) + self._one(right)]
            case ast.IfExp(body=body, orelse=other):
                return [*self.of(body), *self.of(other)]
            case ast.BoolOp(values=values):
                return [text for each in values for text in self.of(each)]
            case ast.Subscript() | ast.Name() | ast.Call() if self.depth < _DEEPEST:
                found = [text for each, inner in self._meant(node) for text in inner.of(each)]
                return found or [f"<{_named(node)}>"]
        return [f"<{_named(node)}>"]

    def _meant(self, node: ast.expr) -> "Iterator[tuple[ast.expr, _Templates]]":
        """The expressions that a name, an item or a call stands for, where they stand."""
        deeper = _Templates(self.scopes, self.tree, self.depth + 1)
        match node:
            case ast.Name(id=name) if self.given and name in self.given[0]:
                yield self.given[0][name], self.given[1]
            case ast.Name(id=name):
                yield from ((value, deeper) for value in self.values(name))
            case ast.Subscript(value=ast.Name(id=name), slice=key):
                tables = (each for each in self.values(name) if isinstance(each, ast.Dict))
                yield from ((each, deeper) for table in tables for each in _items(table, key))
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="get")):
                tables = (each for each in self.values(name) if isinstance(each, ast.Dict))
                yield from ((each, deeper) for table in tables for each in table.values)
            case ast.Call(func=func):
                own = {each.name: each for each in _functions_in(self.tree)}
                function = own.get(last_name(func)) or functions().get(last_name(func))
                if function is not None:
                    inner = _Templates((function,), self.tree, self.depth + 1)
                    yield from ((value, inner) for value in _returned(function))

    def values(self, name: str) -> list[ast.expr]:
        """What a name gets in the functions around it, else in its module, else in another."""
        for scope in self.scopes:
            if found := [value for key, value in _local(scope) if key == name]:
                return found
            if name in _parameters(scope):
                return []
        own = [value for key, value in _local(self.tree) if key == name]
        if own:
            return own[:1]
        return [constants()[name]] if name in constants() and name.strip("_").isupper() else []

    def _part(self, part: ast.expr) -> str:
        """A piece of a text with expressions in it."""
        match part:
            case ast.Constant(value=value):
                return str(value)
            case ast.FormattedValue(value=value):
                return self._one(value)
        return f"<{_named(part)}>"

    def _one(self, node: ast.expr) -> str:
        """One text for an expression inside of a text."""
        match node:
            case ast.JoinedStr() | ast.Constant() | ast.BinOp(op=ast.Add()):
                return "".join(self.of(node)[:1])
            case ast.Name(id=name) if name.strip("_").isupper() or self._is_given(name):
                return "".join(self.of(node)[:1])
            case ast.IfExp(body=body, orelse=other):
                either = [self._one(body), self._one(other)]
                return "/".join(each for each in dict.fromkeys(either) if each)
        return f"<{_named(node)}>"

    def _is_given(self, name: str) -> bool:
        """Whether the function around is called with a text for it."""
        value = self.given[0].get(name) if self.given else None
        return isinstance(value, ast.Constant | ast.JoinedStr)


@cache
def _functions_in(tree: ast.Module) -> tuple[ast.FunctionDef, ...]:
    return tuple(each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef))


def _returned(function: ast.FunctionDef) -> list[ast.expr]:
    found = [each.value for each in ast.walk(function) if isinstance(each, ast.Return)]
    return [each for each in found if each is not None]


def _items(table: ast.Dict, key: ast.expr) -> list[ast.expr]:
    """The value under a constant key, else all values."""
    wanted = key.value if isinstance(key, ast.Constant) else None
    items = list(zip(table.keys, table.values, strict=True))
    named = [v for k, v in items if isinstance(k, ast.Constant) and k.value == wanted]
    return named or table.values


@cache
def _local(scope: ast.AST) -> tuple[tuple[str, ast.expr], ...]:
    """The names that a function or module gives to expressions, in order."""
    found: list[tuple[str, ast.expr]] = []
    nodes = scope.body if isinstance(scope, ast.Module) else ast.walk(scope)
    for node in nodes:
        match node:
            case ast.Assign(targets=[target], value=value):
                found += pairs(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                found += pairs(target, value)
            case ast.NamedExpr(target=target, value=value):
                found += pairs(target, value)
    return tuple(found)


def _parameters(function: ast.FunctionDef) -> set[str]:
    given = function.args
    return {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


def _named(node: ast.expr) -> str:
    """A short name for what is filled in."""
    return _raw_name(node).strip("_").replace("_", " ") or "it"


def _raw_name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
            return name
        case ast.Attribute(attr=name) if name not in _OF_THINGS:
            return name
        case ast.Call(func=ast.Name(id="len"), args=[given]):
            return f"number of {_raw_name(given)}"
        case ast.Call(func=ast.Name(id=name), args=[]):
            return name
    inner = _inside(node)
    return "it" if inner is None else _raw_name(inner)


def _inside(node: ast.AST) -> ast.AST | None:
    """The part of an expression that says what it is about."""
    match node:
        case ast.Call(func=ast.Attribute(attr="join"), args=[inner]):
            return inner
        case ast.Call(func=func, args=[*_, inner]) if last_name(func) in _THROUGH:
            return inner
        case ast.Call(args=[inner, *_]) | ast.Call(func=ast.Attribute(value=inner)):
            return inner
        case ast.GeneratorExp(generators=[each, *_]) | ast.ListComp(generators=[each, *_]):
            return each.iter
        case ast.BoolOp(values=[inner, *_]) | ast.BinOp(left=inner) | ast.IfExp(body=inner):
            return inner
        case ast.UnaryOp(operand=inner):
            return inner
    # An attribute, an item, a value in a text.
    found: ast.AST | None = getattr(node, "value", None)
    return found if isinstance(found, ast.AST) else None

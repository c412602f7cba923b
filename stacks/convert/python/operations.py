"""The operators, calls and filters of expressions that mean the same in Python."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from jinja2 import nodes

from gpuform.stacks.authoring.python_text import literal, text
from gpuform.stacks.convert.python.references import Found, References
from gpuform.stacks.expressions.template import needs_of

_ARITHMETIC: Final[Mapping[type[nodes.BinExpr], str]] = {
    nodes.Add: "+",
    nodes.Sub: "-",
    nodes.Mul: "*",
    nodes.Div: "/",
    nodes.FloorDiv: "//",
    nodes.Mod: "%",
}
_COMPARISONS: Final = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "lteq": "<=",
    "gt": ">",
    "gteq": ">=",
    "in": "in",
    "notin": "not in",
}
_NUMBERS: Final = ("integer", "number")
ONE_LINE: Final = ("string", "integer")
"""Kinds whose text is the same in Python and in a topology."""


_PLAIN: Final[Mapping[Any, str]] = {str: "string", int: "integer", bool: "boolean"}


class NotTheSame(Exception):
    """The expression is left to `gpuform.stacks.expression`."""


class Writer(Protocol):
    """Writes expressions. Each method raises NotTheSame where Python could mean another thing."""

    @property
    def references(self) -> References:
        """Finds what references are."""

    def written(self, node: nodes.Expr) -> Found:
        """An expression of values that are known while planning."""

    def whole(self, piece: nodes.Expr) -> Found | None:
        """An expression that is a reference and nothing else; None for others."""

    def mixed(self, pieces: Sequence[str | nodes.Expr]) -> str:
        """A text of several parts."""


def formatted(parts: Sequence[str | Found]) -> str:
    """An f-string, or the only part if that is a text."""
    if all(isinstance(part, str) for part in parts):
        return text("".join(map(str, parts)))
    if len(parts) == 1 and isinstance(parts[0], Found) and parts[0].kind == "string":
        return parts[0].code
    inner = ""
    for part in parts:
        if isinstance(part, str):
            inner += text(part)[1:-1].replace("{", "{{").replace("}", "}}")
        elif set(part.code) & {'"', "\\"}:
            raise NotTheSame  # Python 3.11 has neither inside the braces
        else:
            inner += f"{{{part.code}}}"
    return f'f"{inner}"'


def no_names(value: Any) -> str:
    """For values in which all that is no plain data is code already."""
    raise AssertionError(f"{value!r} is not code")


def _constant(_: Writer, node: Any) -> Found:
    kinds = {bool: "boolean", str: "string", int: "integer", float: "number"}
    return Found(literal(node.value, no_names), kinds.get(type(node.value), "any"))


def _arithmetic(writer: Writer, node: Any) -> Found:
    left, right = writer.written(node.left), writer.written(node.right)
    kinds = {left.kind, right.kind}
    texts = kinds == {"string"} and isinstance(node, nodes.Add)
    if not texts and not kinds <= set(_NUMBERS):
        raise NotTheSame
    kind = "string" if texts else "integer" if kinds == {"integer"} else "number"
    kind = "number" if isinstance(node, nodes.Div) else kind
    return Found(f"({left.code} {_ARITHMETIC[type(node)]} {right.code})", kind)


def _compared(writer: Writer, node: Any) -> Found:
    code = writer.written(node.expr).code
    for operand in node.ops:
        code += f" {_COMPARISONS[operand.op]} {writer.written(operand.expr).code}"
    return Found(f"({code})", "boolean")


def _joined(word: str) -> Callable[[Writer, Any], Found]:
    def join(writer: Writer, node: Any) -> Found:
        left, right = writer.written(node.left), writer.written(node.right)
        kind = left.kind if left.kind == right.kind else "any"
        return Found(f"({left.code} {word} {right.code})", kind)

    return join


def _not(writer: Writer, node: Any) -> Found:
    return Found(f"(not {writer.written(node.node).code})", "boolean")


def _chosen(writer: Writer, node: Any) -> Found:
    if node.expr2 is None:
        raise NotTheSame
    test, one, other = (writer.written(each) for each in (node.test, node.expr1, node.expr2))
    kind = one.kind if one.kind == other.kind else "any"
    return Found(f"({one.code} if {test.code} else {other.code})", kind)


def _list(writer: Writer, node: Any) -> Found:
    items = ", ".join(writer.written(item).code for item in node.items)
    return Found(f"[{items}]", "array")


def _concatenated(writer: Writer, node: Any) -> Found:
    texts = (each.value if isinstance(each, nodes.Const) else each for each in node.nodes)
    pieces = [text if isinstance(text, str | nodes.Expr) else nodes.Const(text) for text in texts]
    return Found(writer.mixed(pieces), "string")


def _call(writer: Writer, node: Any) -> Found:
    """`range`, and the lookups of platforms."""
    if node.dyn_args or node.dyn_kwargs:
        raise NotTheSame
    given = [writer.written(each).code for each in node.args]
    given += [f"{each.key}={writer.written(each.value).code}" for each in node.kwargs]
    called = ", ".join(given)
    if isinstance(node.node, nodes.Name) and node.node.name == "range":
        return Found(f"range({called})", "range")
    need = next((each for each in needs_of(node.node) if each.node is node.node), None)
    found = writer.references.lookup(need) if need and len(need.steps) == 1 else None
    if found is None or found.model is None:
        raise NotTheSame
    return Found(f"{found.code}({called})", "models", model=found.model)


def _filtered(writer: Writer, node: Any) -> Found:
    """Of filters those that have one meaning: of texts, and of what lookups have found."""
    if node.node is None or node.kwargs or node.dyn_args or node.dyn_kwargs:
        raise NotTheSame
    subject = writer.written(node.node)
    if node.name in ("lower", "upper") and subject.kind == "string" and not node.args:
        return Found(f"{subject.code}.{node.name}()", "string")
    if node.name in ("length", "count") and subject.kind in ("array", "models") and not node.args:
        return Found(f"len({subject.code})", "integer")
    if subject.kind == "models" and node.name == "selectattr" and len(node.args) == 3:
        attribute, test, wanted_ = node.args
        name = getattr(attribute, "value", None)
        fields = subject.model.model_fields if subject.model else {}
        if name in fields and getattr(test, "value", None) in ("eq", "equalto", "=="):
            wanted = writer.written(wanted_).code
            chosen = f"[each for each in {subject.code} if each.{name} == {wanted}]"
            return Found(chosen, "models", model=subject.model)
    if subject.kind == "models" and node.name == "first" and not node.args:
        code = subject.code
        # A chosen list is made for its first item only.
        first = f"next({code[1:-1]})" if code.startswith("[") else f"{code}[0]"
        return Found(first, "model", model=subject.model)
    raise NotTheSame


def _attribute(writer: Writer, node: Any) -> Found | None:
    """An attribute of what a lookup has found; everything else is a reference, or is left."""
    found = writer.whole(node)
    if found is not None:
        return found
    name = node.attr if isinstance(node, nodes.Getattr) else getattr(node.arg, "value", None)
    subject = writer.written(node.node)
    fields = subject.model.model_fields if subject.kind == "model" and subject.model else {}
    if name not in fields or fields[name].annotation not in _PLAIN:
        raise NotTheSame
    return Found(f"{subject.code}.{name}", _PLAIN[fields[name].annotation])


WRITERS: Final[Mapping[type[nodes.Node], Callable[[Writer, Any], Found | None]]] = {
    nodes.Const: _constant,
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    nodes.Compare: _compared,
    nodes.And: _joined("and"),
    nodes.Or: _joined("or"),
    nodes.Not: _not,
    nodes.CondExpr: _chosen,
    nodes.List: _list,
    nodes.Concat: _concatenated,
    nodes.Call: _call,
    nodes.Filter: _filtered,
    nodes.Getattr: _attribute,
    nodes.Getitem: _attribute,
}

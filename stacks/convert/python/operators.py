"""Convert operators, calls and filters of expressions to Python.

`expressions` looks the functions up in `RENDERERS`, by the type of Jinja2's node.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from jinja2 import nodes

from gpuform.stacks.convert.python.references import PythonExpression, ReferenceWriter
from gpuform.stacks.declaration_writer.python_program import (
    quote_text,
    render_literal,
)
from gpuform.stacks.expressions.template import find_references

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
NUMBER_KINDS: Final = ("integer", "number")
TEXT_KINDS: Final = ("string", "integer")
"""Kinds of values with the same text in Python and in a topology."""


_KIND_BY_FIELD_TYPE: Final[Mapping[Any, str]] = {str: "string", int: "integer", bool: "boolean"}


class NoPythonEquivalent(Exception):
    """Raised for an expression that `gpuform.stacks.expression` has to evaluate."""


class Writer(Protocol):
    """Writes expressions.

    Each method raises NoPythonEquivalent where Python could mean something else.
    """

    @property
    def references(self) -> ReferenceWriter:
        """Return the writer of references."""

    def render_known(self, node: nodes.Expr) -> PythonExpression:
        """Return the Python expression of a value known while planning."""

    def find_reference(self, piece: nodes.Expr) -> PythonExpression | None:
        """Return the Python expression of a reference, or None for another expression."""

    def render_interpolated(self, pieces: Sequence[str | nodes.Expr]) -> str:
        """Return the code of a text of several parts."""


def render_f_string(parts: Sequence[str | PythonExpression]) -> str:
    """Return an f-string, or the only part if this part is a text.

    Raises:
        NoPythonEquivalent: Python 3.11 does not allow the code of a part inside braces.
    """
    if all(isinstance(part, str) for part in parts):
        return quote_text("".join(map(str, parts)))
    if len(parts) == 1 and isinstance(parts[0], PythonExpression) and parts[0].kind == "string":
        return parts[0].code
    content = ""
    for part in parts:
        if isinstance(part, str):
            content += quote_text(part)[1:-1].replace("{", "{{").replace("}", "}}")
        elif set(part.code) & {'"', "\\"}:
            raise NoPythonEquivalent  # Python 3.11 allows neither inside of braces
        else:
            content += f"{{{part.code}}}"
    return f'f"{content}"'


def reject_reference(value: Any) -> str:
    """Raise AssertionError: passed as variable lookup for values without references."""
    raise AssertionError(f"{value!r} is not code")


def _render_constant(_: Writer, node: Any) -> PythonExpression:
    """Return a constant as a Python literal."""
    kinds = {bool: "boolean", str: "string", int: "integer", float: "number"}
    return PythonExpression(
        render_literal(node.value, reject_reference), kinds.get(type(node.value), "any")
    )


def _render_arithmetic(writer: Writer, node: Any) -> PythonExpression:
    """Return an arithmetic operation on two numbers, or the sum of two texts.

    Raises:
        NoPythonEquivalent: the operands are of other kinds, or are not known while planning.
    """
    left, right = writer.render_known(node.left), writer.render_known(node.right)
    kinds = {left.kind, right.kind}
    are_texts = kinds == {"string"} and isinstance(node, nodes.Add)
    # For other kinds Jinja2 and Python differ, or the result depends on the value.
    if not are_texts and not kinds <= set(NUMBER_KINDS):
        raise NoPythonEquivalent
    kind = "string" if are_texts else "integer" if kinds == {"integer"} else "number"
    # Division gives a float even for two integers.
    kind = "number" if isinstance(node, nodes.Div) else kind
    return PythonExpression(f"({left.code} {_ARITHMETIC[type(node)]} {right.code})", kind)


def _render_comparison(writer: Writer, node: Any) -> PythonExpression:
    """Return a comparison, chained if it has several operators, as a Python expression.

    Raises:
        NoPythonEquivalent: an operand is not known while planning.
    """
    code = writer.render_known(node.expr).code
    for operand in node.ops:
        code += f" {_COMPARISONS[operand.op]} {writer.render_known(operand.expr).code}"
    return PythonExpression(f"({code})", "boolean")


def _create_boolean_renderer(word: str) -> Callable[[Writer, Any], PythonExpression]:
    """Create the function that renders the operator `word`: `and` or `or`."""

    def render(writer: Writer, node: Any) -> PythonExpression:
        left, right = writer.render_known(node.left), writer.render_known(node.right)
        # Both languages return one of the operands here, not true or false.
        kind = left.kind if left.kind == right.kind else "any"
        return PythonExpression(f"({left.code} {word} {right.code})", kind)

    return render


def _render_not(writer: Writer, node: Any) -> PythonExpression:
    """Return the negation of an operand known while planning."""
    return PythonExpression(f"(not {writer.render_known(node.node).code})", "boolean")


def _render_conditional(writer: Writer, node: Any) -> PythonExpression:
    """Return a Jinja2 `if` expression as a Python conditional expression.

    Raises:
        NoPythonEquivalent: there is no `else`, or a part is not known while planning.
    """
    # Jinja2 has an undefined value without else; Python has none.
    if node.expr2 is None:
        raise NoPythonEquivalent
    test, then, otherwise = (
        writer.render_known(part) for part in (node.test, node.expr1, node.expr2)
    )
    kind = then.kind if then.kind == otherwise.kind else "any"
    return PythonExpression(f"({then.code} if {test.code} else {otherwise.code})", kind)


def _render_list(writer: Writer, node: Any) -> PythonExpression:
    """Return a Jinja2 list as a Python list; every item has to be known while planning."""
    items = ", ".join(writer.render_known(item).code for item in node.items)
    return PythonExpression(f"[{items}]", "array")


def _render_concatenation(writer: Writer, node: Any) -> PythonExpression:
    """Return parts joined by Jinja2's `~` as the Python expression of one text."""
    values = (item.value if isinstance(item, nodes.Const) else item for item in node.nodes)
    pieces = [
        value if isinstance(value, str | nodes.Expr) else nodes.Const(value) for value in values
    ]
    return PythonExpression(writer.render_interpolated(pieces), "string")


def _render_call(writer: Writer, node: Any) -> PythonExpression:
    """Return a call of `range`, or of a platform's lookup."""
    # The number and types of unpacked arguments are unknown here.
    if node.dyn_args or node.dyn_kwargs:
        raise NoPythonEquivalent
    arguments = [writer.render_known(argument).code for argument in node.args]
    arguments += [
        f"{keyword.key}={writer.render_known(keyword.value).code}" for keyword in node.kwargs
    ]
    arguments_code = ", ".join(arguments)
    if isinstance(node.node, nodes.Name) and node.node.name == "range":
        return PythonExpression(f"range({arguments_code})", "range")
    lookup_reference = next(
        (reference for reference in find_references(node.node) if reference.node is node.node), None
    )
    lookup = (
        writer.references.find_lookup(lookup_reference)
        if lookup_reference and len(lookup_reference.steps) == 1
        else None
    )
    if lookup is None or lookup.model is None:
        raise NoPythonEquivalent
    return PythonExpression(f"{lookup.code}({arguments_code})", "models", model=lookup.model)


def _render_filter(writer: Writer, node: Any) -> PythonExpression:
    """Return the code of a filter on texts, lists or results of lookups.

    Only filters that mean one thing in both languages are converted.
    """
    if node.node is None or node.kwargs or node.dyn_args or node.dyn_kwargs:
        raise NoPythonEquivalent
    subject = writer.render_known(node.node)
    if node.name in ("lower", "upper") and subject.kind == "string" and not node.args:
        return PythonExpression(f"{subject.code}.{node.name}()", "string")
    if node.name in ("length", "count") and subject.kind in ("array", "models") and not node.args:
        return PythonExpression(f"len({subject.code})", "integer")
    # The results of lookups are models, whose fields are known: an unknown attribute is left to the
    # topology's own error.
    if subject.kind == "models" and node.name == "selectattr" and len(node.args) == 3:
        attribute, test, expected = node.args
        name = getattr(attribute, "value", None)
        fields = subject.model.model_fields if subject.model else {}
        if name in fields and getattr(test, "value", None) in ("eq", "equalto", "=="):
            expected_code = writer.render_known(expected).code
            comprehension = f"[item for item in {subject.code} if item.{name} == {expected_code}]"
            return PythonExpression(comprehension, "models", model=subject.model)
    if subject.kind == "models" and node.name == "first" and not node.args:
        code = subject.code
        # next() stops at the first item of the comprehension.
        first_code = f"next({code[1:-1]})" if code.startswith("[") else f"{code}[0]"
        return PythonExpression(first_code, "model", model=subject.model)
    raise NoPythonEquivalent


def _render_attribute(writer: Writer, node: Any) -> PythonExpression | None:
    """Return a reference, or an attribute of an item of a lookup's result."""
    reference = writer.find_reference(node)
    if reference is not None:
        return reference
    name = node.attr if isinstance(node, nodes.Getattr) else getattr(node.arg, "value", None)
    subject = writer.render_known(node.node)
    fields = subject.model.model_fields if subject.kind == "model" and subject.model else {}
    if name not in fields or fields[name].annotation not in _KIND_BY_FIELD_TYPE:
        raise NoPythonEquivalent
    return PythonExpression(f"{subject.code}.{name}", _KIND_BY_FIELD_TYPE[fields[name].annotation])


RENDERERS: Final[Mapping[type[nodes.Node], Callable[[Writer, Any], PythonExpression | None]]] = {
    nodes.Const: _render_constant,
    **dict.fromkeys(_ARITHMETIC, _render_arithmetic),
    nodes.Compare: _render_comparison,
    nodes.And: _create_boolean_renderer("and"),
    nodes.Or: _create_boolean_renderer("or"),
    nodes.Not: _render_not,
    nodes.CondExpr: _render_conditional,
    nodes.List: _render_list,
    nodes.Concat: _render_concatenation,
    nodes.Call: _render_call,
    nodes.Filter: _render_filter,
    nodes.Getattr: _render_attribute,
    nodes.Getitem: _render_attribute,
}

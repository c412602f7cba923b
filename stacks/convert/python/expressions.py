"""Write the expressions of a topology as Python, as a person would write them.

Where Python could mean something else, the program calls `gpuform.stacks.expression`, which
evaluates the text as a topology does. `program` and `statements` call `ExpressionWriter`, which
looks up the function for each operator, call and filter in `RENDERERS`, by the type of Jinja2's
node.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jinja2 import nodes

from gpuform.stacks.convert.python.references import (
    PythonExpression,
    ReferenceWriter,
)
from gpuform.stacks.declaration_writer.python_program import (
    Code,
    quote_text,
    render_literal,
)
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import MappingNode, Node, ScalarNode, SequenceNode
from gpuform.stacks.expressions.template import (
    ExpressionReference,
    find_references,
    parse,
    split_pieces,
)
from gpuform.stacks.topology.scope import contains_template, parse_template


@dataclass(frozen=True, slots=True)
class ExpressionWriter:
    """Writes the values of one entry, or of the topology outside of entries."""

    references: ReferenceWriter

    def convert_value(self, node: Node) -> Any:
        """Return the node's value: plain data, with `Code` in place of expressions."""
        if isinstance(node, SequenceNode):
            return [self.convert_value(item) for item in node.items]
        if isinstance(node, MappingNode):
            return {key: self.convert_value(entry.node) for key, entry in node.entries.items()}
        return self.convert_scalar(node) if contains_template(node) else node.value

    def convert_scalar(self, node: ScalarNode) -> Code:
        """Return the code of a text with expressions; a call of `expression` if Python differs."""
        pieces = split_pieces(node.text)
        try:
            if len(pieces) == 1 and not isinstance(pieces[0], str):
                return Code(self._render_single(pieces[0]))
            return Code(self.render_interpolated(pieces))
        # What Python would evaluate differently is evaluated at run time, as a topology does.
        except NoPythonEquivalent:
            return self._render_evaluation(node.text)

    def render_resource(self, node: Node) -> str:
        """Return the code of a resource named by an option.

        The instances of an entry with `for_each` are `*instances`. The topology is checked before,
        so the option does name a resource.
        """
        template = parse_template(node, Diagnostics()) if isinstance(node, ScalarNode) else None
        reference = template.reference if template else None
        code = (
            self.references.render_resource(reference.root, self.render_steps(reference))
            if reference
            else None
        )
        if code is None:
            raise AssertionError(f"{node.position}: the checked option names no resource")
        return code

    def render_condition(self, node: Node) -> str:
        """Return the Python code for a `when` of the topology."""
        return render_literal(self.convert_value(node), reject_reference)

    def _render_single(self, piece: nodes.Expr) -> str:
        reference = self.find_reference(piece)
        if reference is not None:
            return reference.code
        return _strip_brackets(self.render_known(piece).code)

    def find_reference(self, piece: nodes.Expr) -> PythonExpression | None:
        """Return the Python expression of a reference, or None for another expression."""
        reference = next((other for other in find_references(piece) if other.node is piece), None)
        return self._require_reference(reference) if reference else None

    def render_steps(self, reference: ExpressionReference) -> list[str | int | Code]:
        """Return the steps of a reference, with code for steps given as expressions."""
        return [
            step if not isinstance(step, nodes.Expr) else Code(self.render_known(step).code)
            for step in reference.steps
        ]

    def _require_reference(self, reference: ExpressionReference) -> PythonExpression:
        """Return the Python expression of a reference.

        Raises:
            NoPythonEquivalent: the reference has no equivalent.
        """
        expression = self.references.find_expression(reference.root, self.render_steps(reference))
        if expression is None:
            raise NoPythonEquivalent
        return expression

    def render_known(self, node: nodes.Expr) -> PythonExpression:
        """Return the Python expression of a value known while planning.

        Raises:
            NoPythonEquivalent: Python could mean something else, or the value is an output.
        """
        render = RENDERERS.get(type(node))
        expression = render(self, node) if render else self.find_reference(node)
        if expression is None or expression.is_output:
            raise NoPythonEquivalent
        return expression

    def render_interpolated(self, pieces: Sequence[str | nodes.Expr]) -> str:
        """Return the code of a text of several parts.

        The code is an f-string, or `pulumi.Output.concat` if a part is an output.

        Raises:
            NoPythonEquivalent: Python would write a part differently.
        """
        parts: list[str | PythonExpression] = []
        for piece in pieces:
            part = (
                piece
                if isinstance(piece, str)
                else self.find_reference(piece) or self.render_known(piece)
            )
            if isinstance(part, PythonExpression) and part.kind not in TEXT_KINDS:
                # Python may write values of other kinds differently: true, 1.0, lists.
                raise NoPythonEquivalent
            parts.append(part)
        if any(isinstance(part, PythonExpression) and part.is_output for part in parts):
            arguments = (quote_text(part) if isinstance(part, str) else part.code for part in parts)
            return f"pulumi.Output.concat({', '.join(arguments)})"
        return render_f_string(parts)

    def _render_evaluation(self, template: str) -> Code:
        """Return a call of `expression` with the text and everything to which the text refers."""
        roots: dict[str, Any] = {}
        for reference in parse(template).references:
            self.references.add_roots(reference, roots)
        arguments = (
            f"{root}={render_literal(value, reject_reference)}" for root, value in roots.items()
        )
        self.references.used.add("expression")
        return Code(f"expression({', '.join([quote_text(template), *arguments])})")


def _strip_brackets(code: str) -> str:
    """Return the code without the brackets around the complete expression."""
    try:
        expression = ast.parse(code, mode="eval").body
        inner_expression = ast.parse(code[1:-1], mode="eval").body
    except SyntaxError:
        return code
    # `(a) + (b)` begins and ends with brackets as well, but these are not a pair.
    is_pair = code[:1] == "(" and ast.dump(expression) == ast.dump(inner_expression)
    return code[1:-1] if is_pair else code


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


def _render_constant(_: ExpressionWriter, node: Any) -> PythonExpression:
    kinds = {bool: "boolean", str: "string", int: "integer", float: "number"}
    return PythonExpression(
        render_literal(node.value, reject_reference), kinds.get(type(node.value), "any")
    )


def _render_arithmetic(writer: ExpressionWriter, node: Any) -> PythonExpression:
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


def _render_comparison(writer: ExpressionWriter, node: Any) -> PythonExpression:
    """Return a comparison, chained if it has several operators, as a Python expression.

    Raises:
        NoPythonEquivalent: an operand is not known while planning.
    """
    code = writer.render_known(node.expr).code
    for operand in node.ops:
        code += f" {_COMPARISONS[operand.op]} {writer.render_known(operand.expr).code}"
    return PythonExpression(f"({code})", "boolean")


def _create_boolean_renderer(word: str) -> Callable[[ExpressionWriter, Any], PythonExpression]:
    """Create the function that renders the operator `word`: `and` or `or`."""

    def render(writer: ExpressionWriter, node: Any) -> PythonExpression:
        left, right = writer.render_known(node.left), writer.render_known(node.right)
        # Both languages return one of the operands here, not true or false.
        kind = left.kind if left.kind == right.kind else "any"
        return PythonExpression(f"({left.code} {word} {right.code})", kind)

    return render


def _render_not(writer: ExpressionWriter, node: Any) -> PythonExpression:
    """Return the negation of an operand known while planning."""
    return PythonExpression(f"(not {writer.render_known(node.node).code})", "boolean")


def _render_conditional(writer: ExpressionWriter, node: Any) -> PythonExpression:
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


def _render_list(writer: ExpressionWriter, node: Any) -> PythonExpression:
    """Return a Jinja2 list as a Python list; every item has to be known while planning."""
    items = ", ".join(writer.render_known(item).code for item in node.items)
    return PythonExpression(f"[{items}]", "array")


def _render_concatenation(writer: ExpressionWriter, node: Any) -> PythonExpression:
    values = (item.value if isinstance(item, nodes.Const) else item for item in node.nodes)
    pieces = [
        value if isinstance(value, str | nodes.Expr) else nodes.Const(value) for value in values
    ]
    return PythonExpression(writer.render_interpolated(pieces), "string")


def _render_call(writer: ExpressionWriter, node: Any) -> PythonExpression:
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


def _render_filter(writer: ExpressionWriter, node: Any) -> PythonExpression:
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


def _render_attribute(writer: ExpressionWriter, node: Any) -> PythonExpression | None:
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


RENDERERS: Final[
    Mapping[type[nodes.Node], Callable[[ExpressionWriter, Any], PythonExpression | None]]
] = {
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

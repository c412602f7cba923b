"""Parse and evaluate the Jinja2 expressions of a value, and list the references in them.

Topologies call `parse` for each text with `{{ }}`, resolve `Template.references` and evaluate the
template with the values of these references. Evaluation happens in `sandbox`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final, TypeVar

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.visitor import NodeTransformer

from gpuform.schemas.checking import suggest_name
from gpuform.stacks.expressions.sandbox import CONCATENATED, SANDBOX, WEIGHED, concatenate_texts
from gpuform.stacks.expressions.values import (
    TOO_LONG_A_NUMBER,
    ExpressionError,
    limit_evaluation,
    to_plain_value,
)


@dataclass(frozen=True, slots=True)
class ExpressionReference:
    """A reference in an expression.

    `clusters.train[each.key].id` has the root `clusters` and three steps. A step that is itself an
    expression is a Jinja2 node. `node` is the complete reference.
    """

    root: str
    steps: tuple[str | int | nodes.Expr, ...]
    node: nodes.Expr

    def find_source_text(self, text: str) -> str:
        """Return the reference as spelled in `text`, or "" if not found.

        The first computed step and all steps after it are left out.
        """
        pattern = rf"(?<![\w.]){re.escape(self.root)}"
        for step in takewhile(lambda step: not isinstance(step, nodes.Expr), self.steps):
            name = re.escape(str(step))
            pattern += rf"\s*(?:\.\s*{name}|\[\s*['\"]?{name}['\"]?\s*\])"
        match = re.search(rf"{pattern}(?!\w)", text)
        return match[0] if match else ""

    def __str__(self) -> str:
        path = self.root
        for step in self.steps:
            if isinstance(step, nodes.Expr):
                return f"{path}[...]"
            path += f"[{step}]" if isinstance(step, int) else f".{step}"
        return path


def find_references(expression: nodes.Node) -> Iterator[ExpressionReference]:
    """Yield the longest references in an expression, and the references inside brackets."""
    chain = _split_reference(expression)
    if chain is None:
        for child in expression.iter_child_nodes():
            yield from find_references(child)
        return
    root, steps = chain
    assert isinstance(expression, nodes.Expr)  # noqa: S101 - a chain is one
    yield ExpressionReference(root, tuple(steps), expression)
    for step in steps:
        if isinstance(step, nodes.Expr):
            yield from find_references(step)


def _split_reference(node: nodes.Node) -> tuple[str, Sequence[str | int | nodes.Expr]] | None:
    """Return the root name and the steps of a reference, or None if `node` is not a reference."""
    steps: list[str | int | nodes.Expr] = []
    while True:
        if isinstance(node, nodes.Name):
            return node.name, steps[::-1]
        if isinstance(node, nodes.Getattr):
            steps.append(node.attr)
        elif isinstance(node, nodes.Getitem) and not isinstance(node.arg, nodes.Slice):
            steps.append(_get_constant(node.arg))
        else:
            return None
        node = node.node


def _get_constant(arg: nodes.Expr) -> str | int | nodes.Expr:
    """Return the text or whole number in a constant; any other expression is returned unchanged."""
    if isinstance(arg, nodes.Const) and isinstance(arg.value, str | int):
        return arg.value
    return arg


_LONGEST: Final = 100_000
_DEEPEST: Final = 60
_LARGEST: Final = 2_000
_STATEMENTS: Final = (
    "a value can contain expressions, {{ ... }}, but not statements, {% ... %}",
    "write a condition as {{ a if b else c }}; to declare several resources, use for_each",
)
_TOO_DEEP: Final = "the expression is nested too deeply"

Variables = Mapping[str, Any]


@dataclass(frozen=True)
class Template:
    """A parsed text whose `{{ }}` are expressions.

    `references` are in source order. `reference` is the one that the complete text consists of, or
    None.
    """

    parts: tuple[str | Callable[[Variables], Any], ...]
    references: tuple[ExpressionReference, ...]
    reference: ExpressionReference | None

    def evaluate(self, variables: Variables) -> Any:
        """Evaluate the template with `variables`.

        A single expression keeps its type; anything else becomes text, in which null is an error.
        The result consists of plain values: text, numbers, booleans, null, lists and objects.

        Raises:
            ExpressionError: the evaluation fails or exceeds its budget.
        """
        try:
            with limit_evaluation():
                values = [part if isinstance(part, str) else part(variables) for part in self.parts]
                if len(values) == 1:
                    return to_plain_value(values[0])
                return concatenate_texts(*values)
        except ExpressionError:
            raise
        except TemplateError as error:
            raise ExpressionError(str(error), tells_values=True) from None
        except RecursionError:
            raise ExpressionError(_TOO_DEEP) from None
        # The message may quote values, so that callers must treat it like a secret.
        except Exception as error:  # noqa: BLE001 - whatever Python says of such values
            raise ExpressionError(str(error), tells_values=True) from None


def has_expression(text: str) -> bool:
    """Return True if `text` contains Jinja2 syntax."""
    return "{{" in text or "{%" in text or "{#" in text


@lru_cache(maxsize=20_000)
def parse(text: str) -> Template:
    """Parse a text with expressions into a template. Templates are cached.

    Raises:
        ExpressionError: the text has invalid syntax or statements, or is too long, large or deep.
    """
    if len(text) > _LONGEST:
        raise ExpressionError(f"a string with expressions can have at most {_LONGEST} characters")
    try:
        pieces = split_pieces(text)
        expressions = nodes.List([piece for piece in pieces if not isinstance(piece, str)])
        # Before compiling: Python's compiler overflows on deep expressions.
        _check_size([expressions])
        references = tuple(find_references(expressions))
        alone = pieces[0] if len(pieces) == 1 else None
        reference = next((candidate for candidate in references if candidate.node is alone), None)
        parts = tuple(p if isinstance(p, str) else compile_expression(p) for p in pieces)
    except TemplateSyntaxError as error:
        has_statement = "{%" in text
        problem = ExpressionError(*_STATEMENTS) if has_statement else _describe_syntax_error(error)
        problem.where = "{%" if has_statement else _find_wrong_part(text)
        raise problem from None
    except (RecursionError, MemoryError):
        raise ExpressionError(_TOO_DEEP) from None
    except SyntaxError as error:
        raise ExpressionError(f"this is not an expression: {error.msg}") from None
    except ValueError:
        raise ExpressionError(*TOO_LONG_A_NUMBER) from None
    return Template(parts, references, reference)


@lru_cache(maxsize=20_000)
def compile_step(expression: nodes.Expr) -> Template:
    """Build the template of an expression in the brackets of a reference.

    Templates are cached.
    """
    return Template((compile_expression(expression),), tuple(find_references(expression)), None)


def compile_expression(expression: nodes.Expr) -> Callable[[Variables], Any]:
    """Build the function that evaluates an expression with given variables.

    The function sets no budget, and does not convert the result to a plain value.
    """
    limited = _OperatorLimiter().visit(expression)
    body = [nodes.Assign(nodes.Name("result", "store"), limited, lineno=1)]
    template = SANDBOX.from_string(nodes.Template(body, lineno=1))

    def evaluate(variables: Variables) -> Any:
        context = template.new_context(dict(variables))
        # Rendering assigns `result`; the rendered text itself is empty.
        for _ in template.root_render_func(context):
            pass
        return context.vars["result"]

    return evaluate


def split_pieces(text: str) -> list[str | nodes.Expr]:
    """Return the literal texts and the expressions of `text` in source order.

    Raises:
        ExpressionError: `text` contains a statement.
        TemplateSyntaxError: Jinja2 cannot parse `text`.
    """
    pieces: list[str | nodes.Expr] = []
    for output in SANDBOX.parse(text).body:
        if not isinstance(output, nodes.Output):
            raise ExpressionError(*_STATEMENTS)
        pieces += [it.data if isinstance(it, nodes.TemplateData) else it for it in output.nodes]
    return pieces


def _check_size(expressions: Sequence[nodes.Node]) -> None:
    """Raise ExpressionError for expressions with too many or too deeply nested parts.

    Constants that are not plain values are refused too.
    """
    level, count = expressions, 0
    # Level by level: recursion would itself overflow on a deep expression.
    for _ in range(_DEEPEST):
        level = [child for node in level for child in node.iter_child_nodes()]
        count += len(level)
        if count > _LARGEST:
            raise ExpressionError(
                f"the expressions of one value can have at most {_LARGEST} parts",
                "move long lists and strings into config",
            )
        if not level:
            return
        for node in level:
            if isinstance(node, nodes.Const):
                to_plain_value(node.value)
    raise ExpressionError(_TOO_DEEP)


def _find_wrong_part(text: str) -> str:
    """Return the first invalid `{{ }}` of `text`, or ""."""
    for part in re.findall(r"\{\{.*?(?:\}\}|$)", text, re.DOTALL):
        try:
            SANDBOX.parse(part)
        except TemplateSyntaxError:
            return str(part)
    return ""


def _describe_syntax_error(error: TemplateSyntaxError) -> ExpressionError:
    """Build the error for a syntax error; an unknown filter or test gets the nearest name."""
    message = (error.message or "it is not an expression").rstrip(".")
    message = message.replace("unexpected 'end of print statement'", "it ends too early")
    for kind, existing_names in (("filter", SANDBOX.filters), ("test", SANDBOX.tests)):
        prefix = f"No {kind} named "
        if message.startswith(prefix):
            name = message.removeprefix(prefix).strip("'")
            usable = ", ".join(sorted(filter(str.isidentifier, existing_names)))
            hint = suggest_name(name, existing_names, f"use one of {usable}")
            return ExpressionError(f"unknown {kind} {name}", hint)
    return ExpressionError(f"this is not an expression: {message}")


_Node = TypeVar("_Node", bound=nodes.Node)


class _OperatorLimiter(NodeTransformer):
    """Replaces `~`, lists, objects, slices and comparisons by calls with a cost."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802 - Jinja's name
        return _create_call(CONCATENATED, *self._visit_children(node).nodes)

    def _weigh(self, node: nodes.Expr) -> nodes.Expr:
        return _create_call(WEIGHED, self._visit_children(node))

    visit_List = visit_Tuple = visit_Dict = _weigh  # noqa: N815 - as above

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802 - as above
        """Make a slice take its weight, and that of the sliced value, from the budget."""
        self._visit_children(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        node.node = _create_call(WEIGHED, node.node)  # Python warns of a number with brackets
        return _create_call(WEIGHED, node)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Expr:  # noqa: N802 - as above
        """Make a comparison take the weight of each value but constants from the budget."""
        self._visit_children(node)
        parts: list[nodes.Compare | nodes.Operand] = [node, *node.ops]
        for part in parts:
            if not isinstance(part.expr, nodes.Const):
                part.expr = _create_call(WEIGHED, part.expr)
        return node

    def _visit_children(self, node: _Node) -> _Node:
        """Replace the operators inside a node by calls with a cost, and return the node."""
        self.generic_visit(node)
        return node


def _create_call(name: str, *arguments: nodes.Expr) -> nodes.Expr:
    """Build a call of the function `name` with the arguments, on the line of the first one."""
    line = arguments[0].lineno
    return nodes.Call(nodes.Name(name, "load"), list(arguments), [], None, None, lineno=line)

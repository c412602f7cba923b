"""Parse and evaluate the Jinja2 expressions of a value, and list the values that they depend on."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.visitor import NodeTransformer

from gpuform.schemas.checking import find_nearest_name
from gpuform.stacks.expressions.budget import ExpressionError, budget
from gpuform.stacks.expressions.sandbox import CONCATENATED, SANDBOX, WEIGHED, concatenated
from gpuform.stacks.expressions.values import TOO_LONG_A_NUMBER, plain


@dataclass(frozen=True, slots=True)
class Need:
    """One reference: `clusters.train[each.key].id` has the root `clusters` and three steps.

    A step that is itself an expression is its node. `node` is the whole reference.
    """

    root: str
    steps: tuple[str | int | nodes.Expr, ...]
    node: nodes.Expr

    def found_in(self, text: str) -> str:
        """The reference as it is written in a text; empty when it is not found."""
        quoted = (f"(?:\\.\\s*{s}|\\[\\s*['\"]?{s}['\"]?\\s*\\])" for s in self._known())
        pattern = rf"(?<![\w.]){re.escape(self.root)}" + "".join(rf"\s*{each}" for each in quoted)
        pattern += r"(?!\w)"
        match = re.search(pattern, text)
        return match[0] if match else ""

    def _known(self) -> Iterator[str]:
        for step in self.steps:
            if isinstance(step, nodes.Expr):
                return
            yield re.escape(str(step))

    def __str__(self) -> str:
        shown = self.root
        for step in self.steps:
            if isinstance(step, nodes.Expr):
                return f"{shown}[...]"
            shown += f"[{step}]" if isinstance(step, int) else f".{step}"
        return shown


def needs_of(expression: nodes.Node) -> Iterator[Need]:
    """The references in an expression, the longest ones, and those inside their brackets."""
    chain = _chain(expression)
    if chain is None:
        for child in expression.iter_child_nodes():
            yield from needs_of(child)
        return
    root, steps = chain
    assert isinstance(expression, nodes.Expr)  # noqa: S101 - a chain is one
    yield Need(root, tuple(steps), expression)
    for step in steps:
        if isinstance(step, nodes.Expr):
            yield from needs_of(step)


def _chain(node: nodes.Node) -> tuple[str, Sequence[str | int | nodes.Expr]] | None:
    """The name that a reference begins with, and its steps; None for anything else."""
    steps: list[str | int | nodes.Expr] = []
    while True:
        if isinstance(node, nodes.Name):
            return node.name, steps[::-1]
        if isinstance(node, nodes.Getattr):
            steps.append(node.attr)
        elif isinstance(node, nodes.Getitem) and not isinstance(node.arg, nodes.Slice):
            steps.append(_constant(node.arg))
        else:
            return None
        node = node.node


def _constant(arg: nodes.Expr) -> str | int | nodes.Expr:
    if isinstance(arg, nodes.Const) and isinstance(arg.value, str | int):
        return arg.value
    return arg


_LONGEST: Final = 100_000
_DEEPEST: Final = 60
_LARGEST: Final = 2_000
_STATEMENTS: Final = (
    "a value holds expressions, {{ ... }}, and no statements, {% ... %}",
    "write a choice as {{ a if b else c }}; to declare several, use for_each",
)
_TOO_DEEP: Final = "the expression is nested too deeply"

Variables = Mapping[str, Any]


@dataclass(frozen=True)
class Template:
    """A text whose `{{ }}` are expressions.

    `needs` are its references to roots, in their order; `reference` is the one that it is and
    nothing else, if it is one.
    """

    parts: tuple[str | Callable[[Variables], Any], ...]
    needs: tuple[Need, ...]
    reference: Need | None

    def evaluate(self, variables: Variables) -> Any:
        """Its value: an expression alone keeps its type, anything else is text.

        Gives plain values: text, numbers, true, false, null, lists, objects. Raises
        ExpressionError.
        """
        try:
            with budget():
                values = [part if isinstance(part, str) else part(variables) for part in self.parts]
                if len(values) == 1:
                    return plain(values[0])
                return concatenated(*values)
        except ExpressionError:
            raise
        except TemplateError as error:
            raise ExpressionError(str(error), tells_values=True) from None
        except RecursionError:
            raise ExpressionError(_TOO_DEEP) from None
        except Exception as error:  # noqa: BLE001 - whatever Python says of such values
            raise ExpressionError(str(error), tells_values=True) from None


def has_expression(text: str) -> bool:
    """Whether a value's text is a template."""
    return "{{" in text or "{%" in text or "{#" in text


@lru_cache(maxsize=20_000)
def parse(text: str) -> Template:
    """The template of a value's text. Raises ExpressionError for what is none."""
    if len(text) > _LONGEST:
        raise ExpressionError(f"a text with expressions has at most {_LONGEST} characters")
    try:
        pieces = pieces_of(text)
        _check_size([nodes.List([p for p in pieces if not isinstance(p, str)])])
        needs = tuple(need for p in pieces if not isinstance(p, str) for need in needs_of(p))
        alone = pieces[0] if len(pieces) == 1 else None
        reference = next((need for need in needs if need.node is alone), None)
        parts = tuple(p if isinstance(p, str) else compiled(p) for p in pieces)
    except TemplateSyntaxError as error:
        wrong = ExpressionError(*_STATEMENTS) if "{%" in text else _syntax(error)
        wrong.where = "{%" if "{%" in text else _wrong_part(text)
        raise wrong from None
    except (RecursionError, MemoryError):
        raise ExpressionError(_TOO_DEEP) from None
    except SyntaxError as error:
        raise ExpressionError(f"this is not an expression: {error.msg}") from None
    except ValueError:
        raise ExpressionError(*TOO_LONG_A_NUMBER) from None
    return Template(parts, needs, reference)


@lru_cache(maxsize=20_000)
def of_step(expression: nodes.Expr) -> Template:
    """The template that is an expression in the brackets of another one."""
    return Template((compiled(expression),), tuple(needs_of(expression)), None)


def compiled(expression: nodes.Expr) -> Callable[[Variables], Any]:
    """A function that evaluates an expression."""
    body = [nodes.Assign(nodes.Name("result", "store"), _bounded_form(expression), lineno=1)]
    template = SANDBOX.from_string(nodes.Template(body, lineno=1))

    def evaluate(variables: Variables) -> Any:
        context = template.new_context(dict(variables))
        for _ in template.root_render_func(context):
            pass
        return context.vars["result"]

    return evaluate


def pieces_of(text: str) -> list[str | nodes.Expr]:
    """The texts and expressions of a value's text, in order, as Jinja2 has parsed them.

    Raises ExpressionError for statements, and Jinja2's own errors.
    """
    return list(_pieces(SANDBOX.parse(text)))


def _pieces(tree: nodes.Template) -> Iterator[str | nodes.Expr]:
    for node in tree.body:
        if not isinstance(node, nodes.Output):
            raise ExpressionError(*_STATEMENTS)
        for child in node.nodes:
            yield child.data if isinstance(child, nodes.TemplateData) else child


def _check_size(expressions: Sequence[nodes.Node]) -> None:
    level, count = expressions, 0
    for _ in range(_DEEPEST):
        level = [child for node in level for child in node.iter_child_nodes()]
        count += len(level)
        if count > _LARGEST:
            raise ExpressionError(
                f"the expressions of one value have at most {_LARGEST} parts",
                "put long lists and texts into config",
            )
        if not level:
            return
        for node in level:
            if isinstance(node, nodes.Const):
                plain(node.value)
    raise ExpressionError(_TOO_DEEP)


def _wrong_part(text: str) -> str:
    """The first expression of a text that is none by itself."""
    for part in re.findall(r"\{\{.*?(?:\}\}|$)", text, re.DOTALL):
        try:
            SANDBOX.parse(part)
        except TemplateSyntaxError:
            return str(part)
    return ""


def _syntax(error: TemplateSyntaxError) -> ExpressionError:
    message = (error.message or "it is not an expression").rstrip(".")
    message = message.replace("unexpected 'end of print statement'", "it ends too early")
    for what, known in (("filter", SANDBOX.filters), ("test", SANDBOX.tests)):
        begin = f"No {what} named "
        if message.startswith(begin):
            name = message.removeprefix(begin).strip("'")
            near = find_nearest_name(name, known)
            usable = ", ".join(sorted(each for each in known if each.isidentifier()))
            hint = f"did you mean {near}?" if near else f"there are {usable}"
            return ExpressionError(f"there is no {what} called {name}", hint)
    return ExpressionError(f"this is not an expression: {message}")


_Node = TypeVar("_Node", bound=nodes.Node)


def _bounded_form(expression: nodes.Expr) -> nodes.Expr:
    """The expression with its `~`, lists, objects, slices and comparisons weighed."""
    found: nodes.Expr = _Rewriting().visit(expression)
    return found


class _Rewriting(NodeTransformer):
    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802 - Jinja's name
        return _call(CONCATENATED, *self._inner(node).nodes)

    def visit_List(self, node: nodes.List) -> nodes.Expr:  # noqa: N802 - as above
        return _call(WEIGHED, self._inner(node))

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802 - as above
        return _call(WEIGHED, self._inner(node))

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:  # noqa: N802 - as above
        return _call(WEIGHED, self._inner(node))

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802 - as above
        self._inner(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        node.node = _call(WEIGHED, node.node)  # Python warns of a number with brackets
        return _call(WEIGHED, node)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Expr:  # noqa: N802 - as above
        self._inner(node)
        parts: list[nodes.Compare | nodes.Operand] = [node, *node.ops]
        for part in parts:
            if not isinstance(part.expr, nodes.Const):
                part.expr = _call(WEIGHED, part.expr)
        return node

    def _inner(self, node: _Node) -> _Node:
        self.generic_visit(node)
        return node


def _call(name: str, *given: nodes.Expr) -> nodes.Expr:
    line = given[0].lineno
    return nodes.Call(nodes.Name(name, "load"), list(given), [], None, None, lineno=line)

"""Turns what a sandbox cannot intercept into calls, which weigh what they take and give."""

from typing import TypeVar

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from gpuform.stacks.expressions.sandbox import CONCATENATED, WEIGHED

_Node = TypeVar("_Node", bound=nodes.Node)


def bounded_form(expression: nodes.Expr) -> nodes.Expr:
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

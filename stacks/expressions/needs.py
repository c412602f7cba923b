"""What an expression refers to, found without evaluating it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jinja2 import nodes


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

"""The expressions of topologies as Python: as a person writes them where that means the same.

Where it might not, `gpuform.stacks.expression` evaluates the text as a topology does.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import nodes

from gpuform.stacks.authoring.python_values import Code, literal, text
from gpuform.stacks.converting.python.operations import (
    ONE_LINE,
    WRITERS,
    NotTheSame,
    formatted,
    no_names,
)
from gpuform.stacks.converting.python.references import Found, References
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import MappingNode, Node, ScalarNode, SequenceNode
from gpuform.stacks.expressions.needs import Need, needs_of
from gpuform.stacks.expressions.template import parse, pieces_of
from gpuform.stacks.topology.scope import has_template, template_of


@dataclass(frozen=True, slots=True)
class Expressions:
    """Writes the values of one entry, or of what stands outside of entries."""

    references: References

    def value(self, node: Node) -> Any:
        """The node's value: plain data, with `Code` where there are expressions."""
        if isinstance(node, SequenceNode):
            return [self.value(item) for item in node.items]
        if isinstance(node, MappingNode):
            return {key: self.value(entry.node) for key, entry in node.entries.items()}
        return self.scalar(node) if has_template(node) else node.value

    def scalar(self, node: ScalarNode) -> Code:
        """A text with expressions."""
        pieces = pieces_of(node.text)
        try:
            if len(pieces) == 1 and not isinstance(pieces[0], str):
                return Code(self._alone(pieces[0]))
            return Code(self.mixed(pieces))
        except NotTheSame:
            return self._called(node.text)

    def resource(self, node: Node) -> str:
        """A resource that an option names, or the instances of an entry as `*instances`."""
        template = template_of(node, Diagnostics()) if isinstance(node, ScalarNode) else None
        need = template.reference if template else None
        found = self.references.resource(need.root, self.steps(need)) if need else None
        if found is None:
            raise AssertionError(f"{node.place}: the checked option names no resource")
        return found

    def condition(self, node: Node) -> str:
        """A `when`."""
        return literal(self.value(node), no_names)

    def _alone(self, piece: nodes.Expr) -> str:
        found = self.whole(piece)
        return found.code if found is not None else _bare(self.written(piece).code)

    def whole(self, piece: nodes.Expr) -> Found | None:
        """The expression, if it is a reference and nothing else."""
        need = next((each for each in needs_of(piece) if each.node is piece), None)
        return self._reference(need) if need else None

    def steps(self, need: Need) -> list[str | int | Code]:
        """The steps of a reference, of which some may be expressions."""
        return [
            step if not isinstance(step, nodes.Expr) else Code(self.written(step).code)
            for step in need.steps
        ]

    def _reference(self, need: Need) -> Found:
        found = self.references.find(need.root, self.steps(need))
        if found is None:
            raise NotTheSame
        return found

    def written(self, node: nodes.Expr) -> Found:
        """An expression of values that are known while planning."""
        write = WRITERS.get(type(node))
        found = write(self, node) if write else self.whole(node)
        if found is None or found.is_output:
            raise NotTheSame
        return found

    def mixed(self, pieces: Sequence[str | nodes.Expr]) -> str:
        """A text of several parts: an f-string, or Pulumi's concatenation of outputs."""
        parts: list[str | Found] = []
        for piece in pieces:
            found = piece if isinstance(piece, str) else self.whole(piece) or self.written(piece)
            if isinstance(found, Found) and found.kind not in ONE_LINE:
                raise NotTheSame
            parts.append(found)
        if any(isinstance(part, Found) and part.is_output for part in parts):
            codes = (text(part) if isinstance(part, str) else part.code for part in parts)
            return f"pulumi.Output.concat({', '.join(codes)})"
        return formatted(parts)

    def _called(self, template: str) -> Code:
        """The text itself, with what it refers to."""
        roots: dict[str, Any] = {}
        for need in parse(template).needs:
            self.references.give(need, roots)
        given = (f"{root}={literal(value, no_names)}" for root, value in roots.items())
        self.references.used.add("expression")
        return Code(f"expression({', '.join([text(template), *given])})")


def _bare(code: str) -> str:
    """Without the brackets around all of it."""
    try:
        whole = ast.parse(code, mode="eval").body
        inner = ast.parse(code[1:-1], mode="eval").body
    except SyntaxError:
        return code
    return code[1:-1] if code[:1] == "(" and ast.dump(whole) == ast.dump(inner) else code

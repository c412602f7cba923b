"""Write the expressions and loops of a topology as Python, as a person writes them where that means
the same.

Where it might not, `gpuform.stacks.expression` evaluates the text as a topology does.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jinja2 import nodes

from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.convert.python.operations import (
    ONE_LINE,
    WRITERS,
    NotTheSame,
    formatted,
    no_names,
)
from gpuform.stacks.convert.python.references import Found, Loop, References
from gpuform.stacks.declaration_writer.python_program import (
    Code,
    quote_text,
    render_literal,
    render_statement,
)
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import MappingNode, Node, ScalarNode, SequenceNode, list_scalars
from gpuform.stacks.expressions.template import (
    ExpressionReference,
    find_references,
    parse,
    split_pieces,
)
from gpuform.stacks.topology.declarations import MODULES, Repeatable
from gpuform.stacks.topology.planning import PlannedTopology
from gpuform.stacks.topology.scope import contains_template, parse_template


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
        return self.scalar(node) if contains_template(node) else node.value

    def scalar(self, node: ScalarNode) -> Code:
        """A text with expressions."""
        pieces = split_pieces(node.text)
        try:
            if len(pieces) == 1 and not isinstance(pieces[0], str):
                return Code(self._alone(pieces[0]))
            return Code(self.mixed(pieces))
        except NotTheSame:
            return self._called(node.text)

    def resource(self, node: Node) -> str:
        """A resource that an option names, or the instances of an entry as `*instances`."""
        template = parse_template(node, Diagnostics()) if isinstance(node, ScalarNode) else None
        need = template.reference if template else None
        found = self.references.resource(need.root, self.steps(need)) if need else None
        if found is None:
            raise AssertionError(f"{node.position}: the checked option names no resource")
        return found

    def condition(self, node: Node) -> str:
        """A `when`."""
        return render_literal(self.value(node), no_names)

    def _alone(self, piece: nodes.Expr) -> str:
        found = self.whole(piece)
        return found.code if found is not None else _bare(self.written(piece).code)

    def whole(self, piece: nodes.Expr) -> Found | None:
        """The expression, if it is a reference and nothing else."""
        need = next((each for each in find_references(piece) if each.node is piece), None)
        return self._reference(need) if need else None

    def steps(self, need: ExpressionReference) -> list[str | int | Code]:
        """The steps of a reference, of which some may be expressions."""
        return [
            step if not isinstance(step, nodes.Expr) else Code(self.written(step).code)
            for step in need.steps
        ]

    def _reference(self, need: ExpressionReference) -> Found:
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
            codes = (quote_text(part) if isinstance(part, str) else part.code for part in parts)
            return f"pulumi.Output.concat({', '.join(codes)})"
        return formatted(parts)

    def _called(self, template: str) -> Code:
        """The text itself, with what it refers to."""
        roots: dict[str, Any] = {}
        for need in parse(template).references:
            self.references.give(need, roots)
        given = (f"{root}={render_literal(value, no_names)}" for root, value in roots.items())
        self.references.used.add("expression")
        return Code(f"expression({', '.join([quote_text(template), *given])})")


def _bare(code: str) -> str:
    """Without the brackets around all of it."""
    try:
        whole = ast.parse(code, mode="eval").body
        inner = ast.parse(code[1:-1], mode="eval").body
    except SyntaxError:
        return code
    return code[1:-1] if code[:1] == "(" and ast.dump(whole) == ast.dump(inner) else code


_KINDS: Final[Mapping[type, str]] = {
    str: "string", int: "integer", float: "number", bool: "boolean",
}  # fmt: skip
_LATE: Final = frozenset({*SECTIONS, MODULES, "stack_references"})

Kinds = Mapping[tuple[str, ...], str]


@dataclass(frozen=True, slots=True)
class Header:
    """The lines that begin a loop, and what `each` is inside of it."""

    lines: tuple[str, ...]
    loop: Loop


def header_of(
    declaration: Repeatable, planned: PlannedTopology, outside: Expressions
) -> Header | None:
    """The loop of an entry; None for one resource."""
    node = declaration.for_each
    if node is None:
        return None
    if isinstance(node, MappingNode):
        return _of_map(declaration, node, planned, outside)
    if isinstance(node, SequenceNode) and not any(map(contains_template, list_scalars(node))):
        return _of_list(node)
    return _of_expression(declaration, node, planned, outside)


def _of_map(
    declaration: Repeatable, node: MappingNode, planned: PlannedTopology, outside: Expressions
) -> Header:
    """In an order in which instances can refer to others of the same entry."""
    made = (each.instance for each in planned.resources)
    mine = (each.key for each in made if each.declaration is declaration)
    keys = dict.fromkeys([*mine, *node.entries])
    values = {key: outside.value(node.entries[key].node) for key in keys if key in node.entries}
    lines = render_statement("for key, value in ", values, ".items():", outside.references.names)
    late = any(
        need.root in _LATE or (need.root, need.steps[:1]) in _secrets(outside)
        for scalar in list_scalars(node)
        if (template := parse_template(scalar, Diagnostics()))
        for need in template.references
    )
    return Header(tuple(lines), Loop("key", "value", _kinds(values), holds_outputs=late))


def _secrets(outside: Expressions) -> set[tuple[str, tuple[str, ...]]]:
    return {("config", (name,)) for name in outside.references.secret}


def _of_list(node: SequenceNode) -> Header:
    items = [item.value for item in node.items if isinstance(item, ScalarNode)]
    if all(isinstance(item, str) for item in items):
        line = f"for key in {render_literal(items, no_names)}:"
        return Header((line,), Loop("key", "key", {(): "string"}))
    kinds: Kinds = {(): "integer"} if all(type(item) is int for item in items) else {}
    return Header(
        (f"for value in {render_literal(items, no_names)}:",), Loop("str(value)", "value", kinds)
    )


def _of_expression(
    declaration: Repeatable, node: Node, planned: PlannedTopology, outside: Expressions
) -> Header:
    value = outside.value(node)
    code = render_literal(value, no_names)
    if code.startswith("range("):
        return Header((f"for value in {code}:",), Loop("str(value)", "value", {(): "integer"}))
    group = planned.get_group(declaration)
    items = [instance.item for instance in group.instances.values()]
    is_list = [str(each) for each in items] == list(group.instances)
    if items and not group.open and is_list:
        return Header((f"for value in {code}:",), Loop("str(value)", "value", {}))
    if items and not group.open:
        return Header((f"for key, value in {code}.items():",), Loop("key", "value", {}))
    return Header(
        (
            f"found = {code}",
            "if isinstance(found, list):",
            "    found = {str(each): each for each in found}",
            "for key, value in found.items():",
        ),
        Loop("key", "value", {}),
    )


def _kinds(values: Mapping[str, Any]) -> dict[tuple[str, ...], str]:
    """What is at each place of all values, where that is of one kind."""
    found: dict[tuple[str, ...], set[str]] = {}
    for value in values.values():
        for way, kind in _kinds_in(value, ()):
            found.setdefault(way, set()).add(kind)
    return {way: kinds.pop() for way, kinds in found.items() if len(kinds) == 1}


def _kinds_in(value: Any, way: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping):
        inner = [found for key, item in value.items() for found in _kinds_in(item, (*way, key))]
        return [(way, "object"), *inner]
    return [(way, "any" if isinstance(value, Code) else _KINDS.get(type(value), "any"))]

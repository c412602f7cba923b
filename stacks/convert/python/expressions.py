"""Write the expressions and loops of a topology as Python, as a person would write them.

Where Python could mean something else, the program calls `gpuform.stacks.expression`, which
evaluates the text as a topology does. `program` calls this module; `operators` and `references`
render the parts.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jinja2 import nodes

from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.convert.python.operators import (
    RENDERERS,
    TEXT_KINDS,
    NoPythonEquivalent,
    reject_reference,
    render_f_string,
)
from gpuform.stacks.convert.python.references import (
    LoopVariables,
    PythonExpression,
    ReferenceWriter,
)
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
class ExpressionWriter:
    """Writes the values of one entry, or of the topology outside of entries."""

    references: ReferenceWriter

    def convert_value(self, node: Node) -> Any:
        """Return the node's value: plain data, with `Code` in the place of expressions."""
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
        """Return the code of a `when`."""
        return render_literal(self.convert_value(node), reject_reference)

    def _render_single(self, piece: nodes.Expr) -> str:
        """Return the code of the only expression in a text."""
        reference = self.find_reference(piece)
        return (
            reference.code
            if reference is not None
            else _strip_brackets(self.render_known(piece).code)
        )

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
    return (
        code[1:-1]
        # `(a) + (b)` begins and ends with brackets as well, but these are not a pair.
        if code[:1] == "(" and ast.dump(expression) == ast.dump(inner_expression)
        else code
    )


_KIND_BY_TYPE: Final[Mapping[type, str]] = {
    str: "string", int: "integer", float: "number", bool: "boolean",
}  # fmt: skip
_OUTPUT_ROOTS: Final = frozenset({*SECTIONS, MODULES, "stack_references"})

KindsByPath = Mapping[tuple[str, ...], str]


@dataclass(frozen=True, slots=True)
class LoopHeader:
    """The lines of a loop's head, and the loop's variables."""

    lines: tuple[str, ...]
    loop: LoopVariables


def build_loop_header(
    declaration: Repeatable, planned: PlannedTopology, outside: ExpressionWriter
) -> LoopHeader | None:
    """Return the loop of an entry with `for_each`, or None for a single resource."""
    node = declaration.for_each
    if node is None:
        return None
    if isinstance(node, MappingNode):
        return _build_map_header(declaration, node, planned, outside)
    if isinstance(node, SequenceNode) and not any(map(contains_template, list_scalars(node))):
        return _build_list_header(node)
    return _build_expression_header(declaration, node, planned, outside)


def _build_map_header(
    declaration: Repeatable, node: MappingNode, planned: PlannedTopology, outside: ExpressionWriter
) -> LoopHeader:
    """Return a loop over the items of an object, in the order of the plan.

    In this order an instance can refer to earlier instances of the same entry.
    """
    instances = (resource.instance for resource in planned.resources)
    own_keys = (instance.key for instance in instances if instance.declaration is declaration)
    keys = dict.fromkeys([*own_keys, *node.entries])
    values = {
        key: outside.convert_value(node.entries[key].node) for key in keys if key in node.entries
    }
    # The literal is in the order of the plan, and Python's loop keeps this order.
    lines = render_statement("for key, value in ", values, ".items():", outside.references.names)
    holds_outputs = any(
        reference.root in _OUTPUT_ROOTS
        or (reference.root, reference.steps[:1]) in _find_secret_references(outside)
        for scalar in list_scalars(node)
        if (template := parse_template(scalar, Diagnostics()))
        for reference in template.references
    )
    return LoopHeader(
        tuple(lines),
        LoopVariables("key", "value", _find_common_kinds(values), holds_outputs=holds_outputs),
    )


def _find_secret_references(outside: ExpressionWriter) -> set[tuple[str, tuple[str, ...]]]:
    """Return the references to secret configuration, each as root and steps."""
    return {("config", (name,)) for name in outside.references.secret}


def _build_list_header(node: SequenceNode) -> LoopHeader:
    """Return the loop over the items of a `for_each` list without templates.

    Texts are their own keys; other items get their text as key.
    """
    items = [item.value for item in node.items if isinstance(item, ScalarNode)]
    # In a loop over a list, each item is key and value.
    if all(isinstance(item, str) for item in items):
        line = f"for key in {render_literal(items, reject_reference)}:"
        return LoopHeader((line,), LoopVariables("key", "key", {(): "string"}))
    kinds: KindsByPath = {(): "integer"} if all(type(item) is int for item in items) else {}
    return LoopHeader(
        (f"for value in {render_literal(items, reject_reference)}:",),
        LoopVariables("str(value)", "value", kinds),
    )


def _build_expression_header(
    declaration: Repeatable, node: Node, planned: PlannedTopology, outside: ExpressionWriter
) -> LoopHeader:
    """Return a loop over the result of an expression.

    If the plan does not know the result, the program decides between list and object when it runs.
    """
    value = outside.convert_value(node)
    code = render_literal(value, reject_reference)
    # The plan may not know the items yet, but `range` gives a list in any case.
    if code.startswith("range("):
        return LoopHeader(
            (f"for value in {code}:",), LoopVariables("str(value)", "value", {(): "integer"})
        )
    group = planned.get_group(declaration)
    items = [instance.item for instance in group.instances.values()]
    # The items of a list are their own keys.
    is_list = [str(item) for item in items] == list(group.instances)
    # The plan knows all instances: their keys show whether the value is a list or an object.
    if items and not group.open and is_list:
        return LoopHeader((f"for value in {code}:",), LoopVariables("str(value)", "value", {}))
    if items and not group.open:
        return LoopHeader(
            (f"for key, value in {code}.items():",), LoopVariables("key", "value", {})
        )
    return LoopHeader(
        (
            f"items = {code}",
            "if isinstance(items, list):",
            "    items = {str(item): item for item in items}",
            "for key, value in items.items():",
        ),
        LoopVariables("key", "value", {}),
    )


def _find_common_kinds(values: Mapping[str, Any]) -> dict[tuple[str, ...], str]:
    """Return the kind at each path of the values, for paths with one kind in all values."""
    kinds_by_path: dict[tuple[str, ...], set[str]] = {}
    for value in values.values():
        for path, kind in _list_kinds(value, ()):
            kinds_by_path.setdefault(path, set()).add(kind)
    return {path: kinds.pop() for path, kinds in kinds_by_path.items() if len(kinds) == 1}


def _list_kinds(value: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], str]]:
    """Return the kinds of a value and, for an object, of all its parts, each with its path.

    The kind is `any` for code and for types without a kind.
    """
    if isinstance(value, Mapping):
        inner = [
            inner_kind
            for key, item in value.items()
            for inner_kind in _list_kinds(item, (*path, key))
        ]
        return [(path, "object"), *inner]
    return [(path, "any" if isinstance(value, Code) else _KIND_BY_TYPE.get(type(value), "any"))]

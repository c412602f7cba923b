"""Evaluates the values of a file, of which some are not known yet."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jinja2 import nodes

from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.document.diagnostics import Diagnostic, Diagnostics, Place
from gpuform.stacks.document.nodes import MappingNode, Node, ScalarNode, SequenceNode, scalars
from gpuform.stacks.expressions.errors import ExpressionError
from gpuform.stacks.expressions.needs import Need
from gpuform.stacks.expressions.template import Template, has_expression, of_step, parse
from gpuform.stacks.topology.errors import TopologyError
from gpuform.stacks.topology.instances import Instance
from gpuform.stacks.topology.names import Names
from gpuform.stacks.topology.references import References

_FAILS = "the expression fails with the values that it gets"


class ResourceValue(dict[str, Any]):
    """A resource in an expression: its properties by name. As a value it means its id."""

    @property
    def stands_for(self) -> Any:
        return self["id"]


class Scope:
    """The values of expressions for one set of names."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.references = References(names, self._step)

    def within(self, instance: Instance, problems: Diagnostics) -> "Scope":
        """The scope of an instance, with its `each`."""
        if instance.declaration.is_single:
            return self
        value = instance.item
        if isinstance(value, ScalarNode | SequenceNode | MappingNode):
            value = self.value(value, problems)
        return Scope(replace(self.names, each={"key": instance.key, "value": value}))

    def value(self, node: Node, problems: Diagnostics) -> Any:
        """The node's value; what is wrong goes to `problems`, and is UNKNOWN in the value."""
        if isinstance(node, ScalarNode):
            template = template_of(node, problems)
            if template is None:
                return UNKNOWN if has_template(node) else node.value
            try:
                return self.evaluate(template, node.place)
            except ExpressionError as error:
                problems.add(node.place, "expression", str(error), error.hint)
                return UNKNOWN
        if isinstance(node, SequenceNode):
            return [self.value(item, problems) for item in node.items]
        return {key: self.value(entry.node, problems) for key, entry in node.entries.items()}

    def evaluate(self, template: Template, place: Place) -> Any:
        """The value of the template at a place, or what stands for it until it is known.

        Raises ExpressionError; a failure once the values are known is a TopologyError.
        """
        leaves: dict[tuple[str, ...], Any] = {}
        for need in template.needs:
            leaves.update(self.references.leaves(need, alone=need is template.reference))
        pending = [path for path, leaf in leaves.items() if self.names.source.is_pending(leaf)]
        if not pending:
            return template.evaluate(variables_of(leaves))

        def make(values: Sequence[Any]) -> Any:
            known = {**leaves, **dict(zip(pending, values, strict=True))}
            try:
                return template.evaluate(variables_of(known))
            except ExpressionError as error:
                shown = _FAILS if error.tells_values else str(error)
                late = Diagnostic(place, "expression", shown, error.hint)
                raise TopologyError([late]) from None

        return self.names.source.join([leaves[path] for path in pending], make)

    def resources(self, node: Node) -> list[Instance]:
        """The resources that the node's expressions refer to, each once."""
        found: dict[Instance, None] = {}
        for scalar in scalars(node):
            template = template_of(scalar, Diagnostics())
            for need in template.needs if template else ():
                try:
                    found.update(dict.fromkeys(self.references.resources(need)))
                except ExpressionError:
                    continue  # told when the value is evaluated
        return list(found)

    def _step(self, need: Need, at: int) -> str | None:
        if at >= len(need.steps):
            return None
        step: Any = need.steps[at]
        if isinstance(step, nodes.Expr):
            step = self.evaluate(of_step(step), Place(""))
            if self.names.source.is_pending(step):
                return None
        return str(step)


def has_template(node: ScalarNode) -> bool:
    """Whether the scalar is a text with expressions."""
    return isinstance(node.value, str) and has_expression(node.value)


def template_of(node: ScalarNode, problems: Diagnostics) -> Template | None:
    """The scalar's template; None when it is none, or cannot be parsed."""
    if not has_template(node):
        return None
    try:
        return parse(node.text)
    except ExpressionError as error:
        problems.add(node.place, "expression", str(error), error.hint)
        return None


def variables_of(leaves: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """The variables of an evaluation: objects inside objects, resources among them."""
    roots: dict[str, Any] = {}
    for path, leaf in leaves.items():
        inner = roots
        for depth, step in enumerate(path[:-1], start=1):
            is_resource = path[0] in SECTIONS and depth == len(path) - 1
            inner = inner.setdefault(step, ResourceValue() if is_resource else {})
        inner[path[-1]] = leaf
    return roots

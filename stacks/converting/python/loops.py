"""A `for_each` as a loop of Python."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.authoring.python_values import Code, literal, statement
from gpuform.stacks.converting.python.expressions import Expressions
from gpuform.stacks.converting.python.operations import no_names
from gpuform.stacks.converting.python.references import Loop
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import MappingNode, Node, ScalarNode, SequenceNode, scalars
from gpuform.stacks.topology.declarations import MODULES, Repeatable
from gpuform.stacks.topology.planning import Planned
from gpuform.stacks.topology.scope import has_template, template_of

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


def header_of(declaration: Repeatable, planned: Planned, outside: Expressions) -> Header | None:
    """The loop of an entry; None for one resource."""
    node = declaration.for_each
    if node is None:
        return None
    if isinstance(node, MappingNode):
        return _of_map(declaration, node, planned, outside)
    if isinstance(node, SequenceNode) and not any(map(has_template, scalars(node))):
        return _of_list(node)
    return _of_expression(declaration, node, planned, outside)


def _of_map(
    declaration: Repeatable, node: MappingNode, planned: Planned, outside: Expressions
) -> Header:
    """In an order in which instances can refer to others of the same entry."""
    made = (each.instance for each in planned.resources)
    mine = (each.key for each in made if each.declaration is declaration)
    keys = dict.fromkeys([*mine, *node.entries])
    values = {key: outside.value(node.entries[key].node) for key in keys if key in node.entries}
    lines = statement("for key, value in ", values, ".items():", outside.references.names)
    late = any(
        need.root in _LATE or (need.root, need.steps[:1]) in _secrets(outside)
        for scalar in scalars(node)
        if (template := template_of(scalar, Diagnostics()))
        for need in template.needs
    )
    return Header(tuple(lines), Loop("key", "value", _kinds(values), holds_outputs=late))


def _secrets(outside: Expressions) -> set[tuple[str, tuple[str, ...]]]:
    return {("config", (name,)) for name in outside.references.secret}


def _of_list(node: SequenceNode) -> Header:
    items = [item.value for item in node.items if isinstance(item, ScalarNode)]
    if all(isinstance(item, str) for item in items):
        line = f"for key in {literal(items, no_names)}:"
        return Header((line,), Loop("key", "key", {(): "string"}))
    kinds: Kinds = {(): "integer"} if all(type(item) is int for item in items) else {}
    return Header(
        (f"for value in {literal(items, no_names)}:",), Loop("str(value)", "value", kinds)
    )


def _of_expression(
    declaration: Repeatable, node: Node, planned: Planned, outside: Expressions
) -> Header:
    value = outside.value(node)
    code = literal(value, no_names)
    if code.startswith("range("):
        return Header((f"for value in {code}:",), Loop("str(value)", "value", {(): "integer"}))
    group = planned.group(declaration)
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

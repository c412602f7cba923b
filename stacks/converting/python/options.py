"""The options of an entry as Pulumi's in Python."""

from collections.abc import Mapping
from typing import Final

from gpuform.stacks.authoring.python_values import literal
from gpuform.stacks.converting.python.expressions import Expressions
from gpuform.stacks.converting.python.operations import no_names
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import Entry, MappingNode, Node, ScalarNode
from gpuform.stacks.topology.options import LISTS, SINGLE, items
from gpuform.stacks.topology.scope import template_of

_RENAMED: Final = {"import": "import_", "timeouts": "custom_timeouts"}


def options_code(options: Mapping[str, Entry], inside: Expressions) -> str:
    """`pulumi.ResourceOptions(...)`."""
    given = (
        f"{_RENAMED.get(key, key)}={_option(key, entry, inside)}" for key, entry in options.items()
    )
    return f"pulumi.ResourceOptions({', '.join(given)})"


def _option(key: str, entry: Entry, inside: Expressions) -> str:
    if key in LISTS:
        return f"[{', '.join(map(inside.resource, items(entry)))}]"
    if key in SINGLE:
        return inside.resource(entry.node)
    if key == "aliases":
        return f"[{', '.join(_alias(item, inside) for item in items(entry))}]"
    if key == "timeouts" and isinstance(entry.node, MappingNode):
        spans = (f"{verb}={_code(each.node, inside)}" for verb, each in entry.node.entries.items())
        return f"pulumi.CustomTimeouts({', '.join(spans)})"
    return _code(entry.node, inside)


def _alias(node: Node, inside: Expressions) -> str:
    given = []
    for key, entry in node.entries.items() if isinstance(node, MappingNode) else ():
        is_resource = key == "parent" and _is_reference(entry.node)
        value = inside.resource(entry.node) if is_resource else _code(entry.node, inside)
        given.append(f"{'type_' if key == 'type' else key}={value}")
    return f"pulumi.Alias({', '.join(given)})"


def _is_reference(node: Node) -> bool:
    template = template_of(node, Diagnostics()) if isinstance(node, ScalarNode) else None
    return template is not None and template.reference is not None


def _code(node: Node, inside: Expressions) -> str:
    return literal(inside.value(node), no_names)

"""The options of an entry that name other resources."""

from collections.abc import Iterator, Mapping

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import Entry, MappingNode, Node, ScalarNode, SequenceNode
from gpuform.stacks.expressions.errors import ExpressionError
from gpuform.stacks.topology.instances import Instance
from gpuform.stacks.topology.scope import Scope, template_of

LISTS = ("depends_on", "replace_with")
"""Options that name any number of resources."""
SINGLE = ("parent", "deleted_with")
"""Options that name one."""


def named_resources(
    options: Mapping[str, Entry], scope: Scope, problems: Diagnostics
) -> list[Instance]:
    """The resources that options name; what names none goes to `problems`."""
    found = []
    for key in (*LISTS, *SINGLE):
        for node in items(options.get(key)):
            named = resources_of(node, scope)
            if named is None or (key in SINGLE and len(named) != 1):
                wanted = "a resource" if key in SINGLE else "resources"
                hint = 'write "{{ clusters.NAME }}"'
                problems.add(node.place, "reference", f"{key} must name {wanted}", hint)
            else:
                found += named
    for alias in items(options.get("aliases")):
        parent = alias.get("parent") if isinstance(alias, MappingNode) else None
        found += (resources_of(parent, scope) or []) if parent is not None else []
    return found


def resources_of(node: Node, scope: Scope) -> list[Instance] | None:
    """The resources that a value is, and nothing else; None when it is another value."""
    template = template_of(node, Diagnostics()) if isinstance(node, ScalarNode) else None
    if template is None or template.reference is None:
        return None
    try:
        if scope.references.names_only_resources(template.reference):
            return scope.references.resources(template.reference)
    except ExpressionError:
        return []  # told when the value is evaluated
    return None


def items(entry: Entry | None) -> Iterator[Node]:
    if entry is not None:
        yield from entry.node.items if isinstance(entry.node, SequenceNode) else (entry.node,)

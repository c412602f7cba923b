"""Read the options of an entry, most of which must be known while planning.

`planning` checks options with `check_options`; both registration modules use the lists of options.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import UNKNOWN, contains_unknown
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import Entry, MappingNode, Node, SequenceNode, list_scalars
from gpuform.stacks.topology.declarations import MODULES
from gpuform.stacks.topology.scope import Scope, parse_template

_LATE = frozenset({*SECTIONS, MODULES, "stack_references"})


def require_known(
    node: Node, label: str, scope: Scope, problems: Diagnostics, *, planning: bool
) -> Any:
    """Return the value of `node`, and report an unknown value as a problem.

    `label` names the value in messages. A value that depends on a resource, a module or another
    stack is always a problem. Any other unknown value is a problem only while `planning`; otherwise
    UNKNOWN is returned for it.
    """
    count_before = len(problems)
    late = sorted(_LATE & set(_list_roots(node, problems)))
    # Values of resources are unknown while planning: nothing to evaluate.
    value = UNKNOWN if late else scope.evaluate_node(node, problems)
    if late or (planning and contains_unknown(value) and len(problems) == count_before):
        message = f"{label} must be known while planning"
        reason = f", but the values of {late[0]} are known only after apply" if late else ""
        hint = "use only literal values, `each`, and config values that are not secret"
        problems.add(node.position, "not-known", message + reason, hint)
    return value


def _list_roots(node: Node, problems: Diagnostics) -> Iterator[str]:
    """Yield the root of each reference in the expressions of a node."""
    for scalar in list_scalars(node):
        template = parse_template(scalar, problems)
        yield from (reference.root for reference in (template.references if template else ()))


LISTS = ("depends_on", "replace_with")
"""Options that name any number of resources."""
SINGLE = ("parent", "deleted_with")
"""Options that name one resource."""
LATE = ("id", "replacement_trigger")
"""Options whose values may be known only later."""


def check_options(
    options: Mapping[str, Entry],
    address: str,
    scope: Scope,
    problems: Diagnostics,
    *,
    planning: bool,
) -> dict[str, Any]:
    """Return the values of all options except options for resources. Report problems.

    While `planning`, only `id`, `replacement_trigger` and the parents of aliases may be unknown.
    """
    option_values: dict[str, Any] = {}
    for key, entry in options.items():
        if key in LISTS or key in SINGLE:
            for node in (entry.node,) if key in SINGLE else list_items(entry):
                _check_named(key, node, scope, problems)
            continue
        for node in _list_decisive_nodes(key, entry):
            require_known(node, f"{address}.{key}", scope, problems, planning=planning)
        option_values[key] = scope.evaluate_node(entry.node, problems)
        for node in _list_alias_parents(key, entry):
            # The parent of an alias can also be a URN, as text.
            if scope.find_named_resources(node) is not None:
                _check_named("parent", node, scope, problems)
    return option_values


def _check_named(key: str, node: Node, scope: Scope, problems: Diagnostics) -> None:
    """Report a node that does not name resources, or for most options exactly one."""
    count_before = len(problems)
    scope.evaluate_node(node, problems)
    if len(problems) > count_before:
        return
    named = scope.find_named_resources(node)
    if named is None or (key not in LISTS and len(named) != 1):
        expected = "resources" if key in LISTS else "one resource"
        hint = 'write "{{ clusters.NAME }}"'
        problems.add(node.position, "reference", f"{key} must refer to {expected}", hint)


def _list_decisive_nodes(key: str, entry: Entry) -> Iterator[Node]:
    """Yield the nodes of an option for planning: all parts except the parents of aliases."""
    if key == "aliases":
        for alias in list_items(entry):
            if isinstance(alias, MappingNode):
                yield from (
                    member.node for name, member in alias.entries.items() if name != "parent"
                )
            else:
                yield alias
    elif key not in LATE:
        yield entry.node


def _list_alias_parents(key: str, entry: Entry) -> Iterator[Node]:
    """Yield the parents named in `aliases`; nothing for other options."""
    for alias in list_items(entry) if key == "aliases" else ():
        parent = alias.get("parent") if isinstance(alias, MappingNode) else None
        if parent is not None:
            yield parent


def list_items(entry: Entry | None) -> Iterator[Node]:
    """Yield the items of a list, or the single value itself; nothing without an entry."""
    if entry is not None:
        yield from entry.node.items if isinstance(entry.node, SequenceNode) else (entry.node,)

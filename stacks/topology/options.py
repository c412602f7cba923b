"""Read the options of an entry. Most must be known while planning."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import UNKNOWN, contains_unknown
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import Entry, MappingNode, Node, SequenceNode, list_scalars
from gpuform.stacks.topology.declarations import MODULES
from gpuform.stacks.topology.scope import Scope, template_of

_LATE = frozenset({*SECTIONS, MODULES, "stack_references"})


def known(node: Node, what: str, scope: Scope, problems: Diagnostics, *, planning: bool) -> Any:
    """The node's value; what is wrong goes to `problems`.

    `what` is how messages call it. Unless `planning`, what is not set yet is UNKNOWN in the value.
    """
    before = len(problems)
    late = sorted(_LATE & set(_roots(node, problems)))
    value = UNKNOWN if late else scope.value(node, problems)
    if late or (planning and contains_unknown(value) and len(problems) == before):
        message = f"{what} must be known while planning"
        why = f", and {late[0]} are known only when they are made" if late else ""
        hint = "make it of config that is not secret, each, and what the file says"
        problems.add(node.place, "not-known", message + why, hint)
    return value


def _roots(node: Node, problems: Diagnostics) -> Iterator[str]:
    for scalar in list_scalars(node):
        template = template_of(scalar, problems)
        yield from (need.root for need in (template.needs if template else ()))


LISTS = ("depends_on", "replace_with")
"""Options that name any number of resources."""
SINGLE = ("parent", "deleted_with")
"""Options that name one."""
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
    """The options' values, where they are not resources; what is wrong goes to `problems`."""
    found: dict[str, Any] = {}
    for key, entry in options.items():
        if key in LISTS or key in SINGLE:
            for node in (entry.node,) if key in SINGLE else items(entry):
                _check_named(key, node, scope, problems)
            continue
        for node in _decisive(key, entry):
            known(node, f"{address}.{key}", scope, problems, planning=planning)
        found[key] = scope.value(entry.node, problems)
        for node in _parents(key, entry):
            if scope.named(node) is not None:
                _check_named("parent", node, scope, problems)
    return found


def _check_named(key: str, node: Node, scope: Scope, problems: Diagnostics) -> None:
    before = len(problems)
    scope.value(node, problems)
    if len(problems) > before:
        return
    named = scope.named(node)
    if named is None or (key not in LISTS and len(named) != 1):
        wanted = "resources" if key in LISTS else "one resource"
        hint = 'write "{{ clusters.NAME }}"'
        problems.add(node.place, "reference", f"{key} must name {wanted}", hint)


def _decisive(key: str, entry: Entry) -> Iterator[Node]:
    """The parts of an option that must be known: of aliases, all but their parents."""
    if key == "aliases":
        for alias in items(entry):
            if isinstance(alias, MappingNode):
                yield from (each.node for name, each in alias.entries.items() if name != "parent")
            else:
                yield alias
    elif key not in LATE:
        yield entry.node


def _parents(key: str, entry: Entry) -> Iterator[Node]:
    for alias in items(entry) if key == "aliases" else ():
        parent = alias.get("parent") if isinstance(alias, MappingNode) else None
        if parent is not None:
            yield parent


def items(entry: Entry | None) -> Iterator[Node]:
    if entry is not None:
        yield from entry.node.items if isinstance(entry.node, SequenceNode) else (entry.node,)

"""Applies `for_each` and `when`: from declarations to instances."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuform.schemas.values import contains_unknown
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import MappingNode, Node
from gpuform.stacks.topology.declarations import Declaration, Topology
from gpuform.stacks.topology.instances import ALONE, Group, Groups, Instance
from gpuform.stacks.topology.known import known
from gpuform.stacks.topology.names import Names
from gpuform.stacks.topology.scope import Scope

_KEY = re.compile(r"[A-Za-z0-9_.-]+")
_FORMS = "for_each must be a map, or a list of texts and whole numbers"


def expand(topology: Topology, names: Names, problems: Diagnostics, *, planning: bool) -> Groups:
    """The instances of every declaration; what is wrong goes to `problems`.

    While `planning` everything that decides which instances there are must be known; else what is
    not leaves a group open, or an instance in.
    """
    expander = _Expander(names, problems, planning)
    groups = {
        section: {name: expander.group(each) for name, each in declarations.items()}
        for section, declarations in topology.declarations.items()
    }
    scope = Scope(replace(names, groups=groups))
    for group in (group for of_section in groups.values() for group in of_section.values()):
        if group.declaration.when is not None:
            expander.narrow(group, group.declaration.when, scope)
    _refuse_same_names(groups, problems)
    return groups


class _Expander:
    def __init__(self, names: Names, problems: Diagnostics, planning: bool) -> None:
        self.scope, self.problems, self.planning = Scope(names), problems, planning

    def group(self, declaration: Declaration) -> Group:
        group = Group(declaration)
        node = declaration.for_each
        if node is None:
            group.instances[ALONE] = Instance(declaration)
            return group
        items = self.items(declaration, node)
        if items is None:
            group.open = True
        for key, item in (items or {}).items():
            if _KEY.fullmatch(key):
                group.instances[key] = Instance(declaration, key, item)
            else:
                message = f"{declaration.address}: {key!r} cannot be a part of a name"
                hint = "use letters, digits, hyphens, underscores and dots"
                self.problems.add(node.place, "for-each", message, hint)
        return group

    def items(self, declaration: Declaration, node: Node) -> Mapping[str, Any] | None:
        """What there is an instance for, by key; None when that is not known yet."""
        if isinstance(node, MappingNode):
            return {key: entry.node for key, entry in node.entries.items()}
        value = self.known(declaration, node, "for_each", self.scope)
        if contains_unknown(value):
            return None
        if isinstance(value, Mapping):
            return value
        if not isinstance(value, list):
            self.problems.add(node.place, "for-each", f"{declaration.address}: {_FORMS}")
            return {}
        return self.by_key(declaration, node, value)

    def by_key(self, declaration: Declaration, node: Node, items: list[Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for item in items:
            if isinstance(item, bool) or not isinstance(item, str | int):
                self.problems.add(node.place, "for-each", f"{declaration.address}: {_FORMS}")
            elif str(item) in found:
                message = f"{declaration.address}: {item!r} is in the list twice"
                self.problems.add(node.place, "for-each", message, "remove one of them")
            else:
                found[str(item)] = item
        return found

    def narrow(self, group: Group, node: Node, scope: Scope) -> None:
        """Takes out the instances whose `when` is false."""
        for key, instance in list(group.instances.items()):
            within = scope.within(instance, self.problems)
            wanted = self.known(group.declaration, node, "when", within)
            if wanted is False:
                del group.instances[key]
                group.absent.add(key)
            elif wanted is not True and not contains_unknown(wanted):
                message = f"{instance.address}: `when` must be true or false"
                self.problems.add(node.place, "when", message)

    def known(self, declaration: Declaration, node: Node, what: str, scope: Scope) -> Any:
        shown = f"{declaration.address}: {what}"
        return known(node, shown, scope, self.problems, planning=self.planning)


def _refuse_same_names(groups: Groups, problems: Diagnostics) -> None:
    """Two resources of one kind and platform with one name would have one URN."""
    first: dict[tuple[str, str, str], Instance] = {}
    for section, of_section in groups.items():
        for group in of_section.values():
            for instance in group.instances.values():
                declaration = instance.declaration
                other = first.setdefault((section, declaration.platform, instance.name), instance)
                if other is not instance:
                    both = f"{other.address} and {instance.address}"
                    message = f"{both} would both be called {instance.name}"
                    problems.add(declaration.place, "duplicate", message, "rename one of them")

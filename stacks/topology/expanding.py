"""Applies `for_each` and `when`: from declarations to instances."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from gpuform.schemas.values import contains_unknown
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import MappingNode, Node
from gpuform.stacks.topology.declarations import (
    ALONE,
    MODULES,
    Group,
    Inclusion,
    Instance,
    ModuleInstance,
    Repeatable,
    Repetition,
    Topology,
)
from gpuform.stacks.topology.names import Names
from gpuform.stacks.topology.options import known
from gpuform.stacks.topology.scope import Scope, named_modules

_Made = TypeVar("_Made", bound=Repetition[Any])
_KEY = re.compile(r"[A-Za-z0-9_.-]+")
_FORMS = "for_each must be a map, or a list of texts and whole numbers"


def expand(topology: Topology, names: Names, problems: Diagnostics, *, planning: bool) -> Names:
    """The names with the instances of every declaration; what is wrong goes to `problems`.

    While `planning` everything that decides which instances there are must be known; else what is
    not leaves a group open, or an instance in.
    """
    scope = _expanded(topology, Scope(names), problems, planning)
    _refuse_same_names(scope, problems)
    return replace(scope.names, passed={})


def _expanded(topology: Topology, scope: Scope, problems: Diagnostics, planning: bool) -> Scope:
    """The scope of the topology with its instances, and with those in its modules."""
    expander, module = _Expander(scope, problems, planning), scope.names.module
    groups = {
        section: {name: expander.group(Instance, each) for name, each in declarations.items()}
        for section, declarations in topology.declarations.items()
    }
    modules = {
        name: expander.group(ModuleInstance, each) for name, each in topology.modules.items()
    }
    if module is not None:
        module.groups.update(groups)
        module.modules.update(modules)
    scope = scope.having(groups, modules)
    every: list[Group[Any]] = [group for found in groups.values() for group in found.values()]
    for group in [*every, *modules.values()]:
        if group.declaration.when is not None:
            expander.narrow(group, group.declaration.when, scope)
    for inclusion in _in_order(topology.modules):
        for each in modules[inclusion].instances.values():
            inside = scope.inside(each, problems)
            _expanded(each.declaration.topology, inside, problems, planning)
    return scope


def _in_order(modules: Mapping[str, Inclusion]) -> list[str]:
    """The modules of a file, each after those whose outputs it is given, where there is a way."""
    done: dict[str, None] = {}

    def visit(name: str, path: frozenset[str]) -> None:
        if name in modules and name not in done and name not in path:
            for entry in modules[name].given.values():
                for needed in named_modules(entry.node):
                    visit(needed, path | {name})
            done[name] = None

    for name in modules:
        visit(name, frozenset())
    return list(done)


class _Expander:
    def __init__(self, scope: Scope, problems: Diagnostics, planning: bool) -> None:
        self.scope, self.problems, self.planning = scope, problems, planning

    def group(self, make: type[_Made], declaration: Repeatable) -> Group[_Made]:
        group: Group[_Made] = Group(declaration)
        node, module = declaration.for_each, self.scope.names.module
        if node is None:
            group.instances[ALONE] = make(declaration, module=module)
            return group
        items = self.items(declaration, node)
        if items is None:
            group.open = True
        for key, item in (items or {}).items():
            if _KEY.fullmatch(key):
                group.instances[key] = make(declaration, key, item, module)
            else:
                message = f"{declaration.address}: {key!r} cannot be a part of a name"
                hint = "use letters, digits, hyphens, underscores and dots"
                self.problems.add(node.place, "for-each", message, hint)
        return group

    def items(self, declaration: Repeatable, node: Node) -> Mapping[str, Any] | None:
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

    def by_key(self, declaration: Repeatable, node: Node, items: list[Any]) -> dict[str, Any]:
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

    def narrow(self, group: Group[Any], node: Node, scope: Scope) -> None:
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

    def known(self, declaration: Repeatable, node: Node, what: str, scope: Scope) -> Any:
        shown = f"{declaration.address}: {what}"
        return known(node, shown, scope, self.problems, planning=self.planning)


def _refuse_same_names(scope: Scope, problems: Diagnostics) -> None:
    """Two resources of one kind and platform with one name would have one URN, and so modules."""
    first: dict[tuple[str, ...], Repetition[Any]] = {}
    for each in scope.every():
        for instance in each.resources_here():
            own = instance.declaration
            _refuse_same((own.section, own.platform, instance.name), instance, first, problems)
        for module in each.modules_here():
            _refuse_same((MODULES, module.name), module, first, problems)


def _refuse_same(
    key: tuple[str, ...],
    instance: Repetition[Any],
    first: dict[tuple[str, ...], Repetition[Any]],
    problems: Diagnostics,
) -> None:
    other = first.setdefault(key, instance)
    if other is not instance:
        both = f"{other.address} and {instance.address}"
        message = f"{both} would both be called {instance.name}"
        problems.add(instance.declaration.place, "duplicate", message, "rename one of them")

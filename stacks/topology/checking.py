"""Checks every instance against the model of its kind and platform."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.schemas.checking import ABOUT_KEYS, check
from gpuform.schemas.rules import rules_of
from gpuform.schemas.topology import OptionsInputs
from gpuform.stacks.document.checked import tell
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import (
    Entry,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    find,
    scalars,
)
from gpuform.stacks.document.paths import steps_of
from gpuform.stacks.topology.configuration import why_not
from gpuform.stacks.topology.instances import Instance, ModuleInstance
from gpuform.stacks.topology.options import check_options
from gpuform.stacks.topology.scope import Scope


@dataclass(frozen=True, slots=True)
class Checked:
    """One resource as it will be declared.

    `values` may hold UNKNOWN. `uses` are the resources that each property refers to, `after` those
    that only options name.
    """

    instance: Instance
    properties: Mapping[str, Entry]
    values: Mapping[str, Any]
    uses: Mapping[str, list[Instance]]
    after: list[Instance]

    def place(self, path: str) -> SourcePosition:
        """Where a property is declared."""
        root = MappingNode(self.instance.declaration.place, self.properties)
        return find(root, steps_of(path)).place

    def needs(self) -> Iterator[Instance]:
        """The resources that come before this one."""
        for used in self.uses.values():
            yield from used
        yield from self.after


def check_all(scope: Scope, problems: Diagnostics, *, planning: bool) -> list[Checked]:
    """Every instance checked, in the order of the files; what is wrong goes to `problems`."""
    return [
        _checked(instance, each, problems, planning=planning)
        for each in scope.every()
        for instance in each.resources_here()
    ]


def check_given(scope: Scope, problems: Diagnostics) -> None:
    """Checks what modules are given, and what they give out; that also goes to `problems`."""
    for each in scope.every():
        for module in each.modules_here():
            outside = each.within(module, problems)
            _check_inputs(module, outside, problems)
            for entry in module.declaration.topology.outputs.values():
                each.inside(module, problems).value(entry.node, problems)


def _check_inputs(module: ModuleInstance, outside: Scope, problems: Diagnostics) -> None:
    given = module.declaration.given
    for name, variable in (module.declaration.topology.inputs or {}).items():
        if name not in given:
            continue
        value = outside.value(given[name].node, problems)
        why = "" if outside.names.source.is_pending(value) else why_not(variable, value)
        if why:
            message = f"{module.address}.with.{name}: {why}"
            hint = f"the input is declared at {variable.place.own}"
            problems.add(given[name].node.place, "input", message, hint)


def _checked(instance: Instance, outer: Scope, problems: Diagnostics, *, planning: bool) -> Checked:
    scope = outer.within(instance, problems)
    properties, options = instance.declaration.properties, instance.declaration.options
    values = {name: scope.value(entry.node, problems) for name, entry in properties.items()}
    address = f"{instance.address}.options"
    said = check_options(options, address, scope, problems, planning=planning)
    root = MappingNode(instance.declaration.place, properties)
    found = check(instance.lifecycle.inputs, values)[1]
    if said.get("id") is not None:
        found = [each for each in found if each.reason.startswith(ABOUT_KEYS)]
    tell(found, root, instance.address, problems)
    for name, rules in rules_of(instance.lifecycle.inputs).items():
        if rules.refers and name in properties:
            _check_single(properties[name].node, f"{instance.address}.{name}", scope, problems)
    if said:
        root = MappingNode(instance.declaration.place, options)
        tell(check(OptionsInputs, said)[1], root, address, problems)
    uses = {name: scope.resources(entry.node) for name, entry in properties.items()}
    after = [used for entry in options.values() for used in _named_in(entry.node, scope)]
    if isinstance(instance.item, ScalarNode | SequenceNode | MappingNode):
        after += scope.resources(instance.item)
    return Checked(instance, properties, values, uses, after)


def _named_in(node: Node, scope: Scope) -> Iterator[Instance]:
    """The resources of an option: a module means all that are in it."""
    for scalar in scalars(node):
        yield from scope.named(scalar) or scope.resources(scalar)


def _check_single(node: Node, address: str, scope: Scope, problems: Diagnostics) -> None:
    """A property that means one resource cannot be all of a `for_each`."""
    named = scope.named(node)
    if named is not None and len(named) > 1:
        message = f"{address}: this names several resources"
        problems.add(node.place, "reference", message, f"add a key: {named[0].address}")

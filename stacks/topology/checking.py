"""Checks every instance against the model of its kind and platform."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.schemas.checking import check
from gpuform.schemas.models import InputModel, Problem
from gpuform.schemas.rules import rules_of
from gpuform.schemas.topology import OptionsInputs
from gpuform.stacks.document.diagnostics import Diagnostics, Place
from gpuform.stacks.document.nodes import Entry, MappingNode, Node, ScalarNode, find, find_key
from gpuform.stacks.document.paths import steps_of
from gpuform.stacks.topology.instances import Groups, Instance
from gpuform.stacks.topology.options import named_resources
from gpuform.stacks.topology.scope import Scope

_ABOUT_KEYS = ("is not known", "is called")
"""How problems begin that are about a key, not about its value."""


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

    def place(self, path: str) -> Place:
        """Where a property is declared."""
        root = MappingNode(self.instance.declaration.place, self.properties)
        return find(root, steps_of(path)).place

    def needs(self) -> Iterator[Instance]:
        """The resources that come before this one."""
        for used in self.uses.values():
            yield from used
        yield from self.after


def check_all(groups: Groups, scope: Scope, problems: Diagnostics) -> list[Checked]:
    """Every instance checked, in the order of the files; what is wrong goes to `problems`."""
    return [
        _checked(instance, scope, problems)
        for of_section in groups.values()
        for group in of_section.values()
        for instance in group.instances.values()
    ]


def _checked(instance: Instance, outer: Scope, problems: Diagnostics) -> Checked:
    declaration = instance.declaration
    scope = outer.within(instance, problems)
    model = instance.lifecycle.inputs
    properties = _canonical(declaration.properties, model, instance, problems)
    values = {name: scope.value(entry.node, problems) for name, entry in properties.items()}
    if "id" not in declaration.options:
        _check(model, values, properties, instance, instance.address, problems)
    options = declaration.options
    said = {key: scope.value(entry.node, problems) for key, entry in options.items()}
    _check(OptionsInputs, said, options, instance, f"{instance.address}.options", problems)
    uses = {name: scope.resources(entry.node) for name, entry in properties.items()}
    after = named_resources(options, scope, problems)
    if isinstance(instance.item, ScalarNode | MappingNode):
        after = [*after, *scope.resources(instance.item)]
    return Checked(instance, properties, values, uses, after)


def _canonical(
    properties: Mapping[str, Entry],
    model: type[InputModel],
    instance: Instance,
    problems: Diagnostics,
) -> Mapping[str, Entry]:
    """The properties under the model's names: `volume` is volume_id, whose id it means."""
    rules = rules_of(model)
    found: dict[str, Entry] = {}
    for key, entry in properties.items():
        long = f"{key}_id"
        name = long if key not in rules and long in rules and rules[long].refers else key
        if name in found:
            message = f"{instance.address}: {key} and {name} are the same: keep one of the two"
            problems.add(entry.place, "duplicate", message)
        found[name] = entry
    return found


def _check(
    model: type[InputModel],
    values: Mapping[str, Any],
    entries: Mapping[str, Entry],
    instance: Instance,
    address: str,
    problems: Diagnostics,
) -> None:
    root = MappingNode(instance.declaration.place, entries)
    for problem in check(model, values)[1]:
        place, rule, reason = _told(root, problem)
        problems.add_once(place, rule, reason, f"{address}.{problem.path}: {reason}")


def _told(root: Node, problem: Problem) -> tuple[Place, str, str]:
    steps = list(steps_of(problem.path))
    if problem.reason.startswith(_ABOUT_KEYS):
        return find_key(root, steps), "unknown-key", problem.reason
    node = find(root, steps)
    reason = problem.reason
    if reason.startswith("must be text") and isinstance(node, ScalarNode):
        reason = f'must be text, not {node.text}: write it in quotes, "{node.text}"'
    return node.place, "value", reason

"""Check the resources, modules and options of an expanded topology.

`planning` calls the checks; an option or value that decides what exists must be known while
planning (`require_known`). Both registration modules use the lists of options.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.schemas.checking import KEY_PROBLEM_PREFIXES, validate_inputs
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.topology import SECTIONS, OptionsInputs
from gpuform.schemas.values import UNKNOWN, contains_unknown
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import (
    Entry,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    find_nearest_node,
    list_scalars,
    parse_path,
)
from gpuform.stacks.document.reading import report_problems
from gpuform.stacks.topology.configuration import find_value_problem
from gpuform.stacks.topology.declarations import MODULES, Instance, ModuleInstance
from gpuform.stacks.topology.scope import Scope, parse_template


@dataclass(frozen=True, slots=True)
class CheckedResource:
    """A resource that passed its checks and can be declared.

    `values` may hold UNKNOWN. `uses` holds the resources that each property refers to,
    `after` the resources that only options name.
    """

    instance: Instance
    properties: Mapping[str, Entry]
    values: Mapping[str, Any]
    uses: Mapping[str, list[Instance]]
    after: list[Instance]

    def find_position(self, path: str) -> SourcePosition:
        """Return the position of a property, or of the entry if the property is not written."""
        root = MappingNode(self.instance.declaration.position, self.properties)
        return find_nearest_node(root, parse_path(path)).position

    def list_dependencies(self) -> Iterator[Instance]:
        """Yield the resources to declare before this resource."""
        for resources in self.uses.values():
            yield from resources
        yield from self.after


def check_module_values(scope: Scope, problems: Diagnostics) -> None:
    """Check the arguments and the outputs of modules. Add problems to `problems`."""
    for file_scope in scope.list_scopes():
        for module in file_scope.list_modules():
            outside = file_scope.enter_instance(module, problems)
            _check_inputs(module, outside, problems)
            for entry in module.declaration.topology.outputs.values():
                file_scope.enter_module(module, problems).evaluate_node(entry.node, problems)


def _check_inputs(module: ModuleInstance, outside: Scope, problems: Diagnostics) -> None:
    """Report arguments of a module which violate types or limits of the module's inputs.

    Arguments that are missing or still pending are not checked.
    """
    arguments = module.declaration.arguments
    for name, variable in (module.declaration.topology.inputs or {}).items():
        if name not in arguments:
            continue
        value = outside.evaluate_node(arguments[name].node, problems)
        reason = (
            "" if outside.names.source.is_pending(value) else find_value_problem(variable, value)
        )
        if reason:
            message = f"{module.address}.with.{name}: {reason}"
            hint = f"the input is declared at {variable.position.own}"
            problems.add(arguments[name].node.position, "input", message, hint)


def check_resource(
    instance: Instance, outer: Scope, problems: Diagnostics, *, planning: bool
) -> CheckedResource:
    """Evaluate a resource, report problems in properties and options, and list dependencies.

    A resource that is only read (`id`) needs no inputs, and wrong values are not reported for it.
    """
    scope = outer.enter_instance(instance, problems)
    properties, options = instance.declaration.properties, instance.declaration.options
    values = {name: scope.evaluate_node(entry.node, problems) for name, entry in properties.items()}
    address = f"{instance.address}.options"
    option_values = check_options(options, address, scope, problems, planning=planning)
    root = MappingNode(instance.declaration.position, properties)
    model_problems = validate_inputs(instance.lifecycle.inputs, values)[1]
    # A resource that is only read needs no inputs; unknown keys stay wrong.
    if option_values.get("id") is not None:
        model_problems = [
            problem for problem in model_problems if problem.reason.startswith(KEY_PROBLEM_PREFIXES)
        ]
    report_problems(model_problems, root, instance.address, problems)
    for name, rules in get_field_rules(instance.lifecycle.inputs).items():
        if rules.reference_kind and name in properties:
            _check_single(properties[name].node, f"{instance.address}.{name}", scope, problems)
    if option_values:
        root = MappingNode(instance.declaration.position, options)
        report_problems(validate_inputs(OptionsInputs, option_values)[1], root, address, problems)
    uses = {name: scope.find_resources(entry.node) for name, entry in properties.items()}
    after: list[Instance] = []
    for scalar in (scalar for entry in options.values() for scalar in list_scalars(entry.node)):
        # A module that an option names stands for all of its resources.
        after += scope.find_named_resources(scalar) or scope.find_resources(scalar)
    if isinstance(instance.item, ScalarNode | SequenceNode | MappingNode):
        # An item of a `for_each` map may refer to resources itself.
        after += scope.find_resources(instance.item)
    return CheckedResource(instance, properties, values, uses, after)


def _check_single(node: Node, address: str, scope: Scope, problems: Diagnostics) -> None:
    """Report a reference to all instances of a `for_each` in a property for one resource."""
    named = scope.find_named_resources(node)
    if named is not None and len(named) > 1:
        message = f"{address} refers to several resources"
        problems.add(node.position, "reference", message, f"add a key: {named[0].address}")


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
                _check_resource_option(key, node, scope, problems)
            continue
        for node in _list_decisive_nodes(key, entry):
            require_known(node, f"{address}.{key}", scope, problems, planning=planning)
        option_values[key] = scope.evaluate_node(entry.node, problems)
        for node in _list_alias_parents(key, entry):
            # The parent of an alias can also be a URN, as text.
            if scope.find_named_resources(node) is not None:
                _check_resource_option("parent", node, scope, problems)
    return option_values


def _check_resource_option(key: str, node: Node, scope: Scope, problems: Diagnostics) -> None:
    """Report the value of a resource option unless it refers to resources, or to one resource.

    Only the options in `LISTS` may name several resources.
    """
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

"""Plan a topology file: its resources sorted by dependencies and validated against their models.

`gpuform validate`, the engine's topology host and the Pulumi program call `plan`.
Loading, expansion and evaluation happen in `loading`, `expanding` and `scope`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from gpuform.providers.platform import Form
from gpuform.schemas.checking import KEY_PROBLEM_PREFIXES, validate_inputs
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.topology import OptionsInputs
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.document.checked import report_problems
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
from gpuform.stacks.engine.digests import RegistrationIndex
from gpuform.stacks.engine.project import format_set_command
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.resource_rules import RULES
from gpuform.stacks.topology.configuration import (
    EMULATOR_DEFAULT,
    ConfigValue,
    StackConfig,
    find_value_problem,
    resolve_config,
)
from gpuform.stacks.topology.declarations import (
    MODULES,
    ConfigVariable,
    Instance,
    InstanceGroup,
    ModuleInstance,
    Repeatable,
    Topology,
)
from gpuform.stacks.topology.expanding import expand, refuse_foreign_references
from gpuform.stacks.topology.files import format_path
from gpuform.stacks.topology.loading import load
from gpuform.stacks.topology.names import CheckingSource, Names
from gpuform.stacks.topology.options import check_options, require_known
from gpuform.stacks.topology.scope import Scope


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


def check_resources(
    scope: Scope, problems: Diagnostics, *, planning: bool
) -> list[CheckedResource]:
    """Check every instance in file order. Add problems to `problems`."""
    return [
        _check_resource(instance, file_scope, problems, planning=planning)
        for file_scope in scope.list_scopes()
        for instance in file_scope.list_resources()
    ]


def check_module_values(scope: Scope, problems: Diagnostics) -> None:
    """Check the arguments and the outputs of modules. Add problems to `problems`."""
    for file_scope in scope.list_scopes():
        for module in file_scope.list_modules():
            outside = file_scope.enter_instance(module, problems)
            _check_inputs(module, outside, problems)
            for entry in module.declaration.topology.outputs.values():
                file_scope.enter_module(module, problems).evaluate_node(entry.node, problems)


def _check_inputs(module: ModuleInstance, outside: Scope, problems: Diagnostics) -> None:
    """Report arguments of a module that violate their inputs' types or limits.

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


def _check_resource(
    instance: Instance, outer: Scope, problems: Diagnostics, *, planning: bool
) -> CheckedResource:
    """Evaluate a resource, report problems in properties and options, and list its dependencies.

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
    after = [
        used for entry in options.values() for used in _find_named_resources(entry.node, scope)
    ]
    if isinstance(instance.item, ScalarNode | SequenceNode | MappingNode):
        # An item of a `for_each` map may refer to resources itself.
        after += scope.find_resources(instance.item)
    return CheckedResource(instance, properties, values, uses, after)


def _find_named_resources(node: Node, scope: Scope) -> Iterator[Instance]:
    """Yield the resources named in an option. A module stands for all of its resources."""
    for scalar in list_scalars(node):
        yield from scope.find_named_resources(scalar) or scope.find_resources(scalar)


def _check_single(node: Node, address: str, scope: Scope, problems: Diagnostics) -> None:
    """Report a reference to all instances of a `for_each` in a property for one resource."""
    named = scope.find_named_resources(node)
    if named is not None and len(named) > 1:
        message = f"{address} refers to several resources"
        problems.add(node.position, "reference", message, f"add a key: {named[0].address}")


NO_VALUES: Final[Mapping[str, ConfigValue]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PlanContext:
    """The values with which a topology is planned.

    `program` holds the names of the `project` and `stack`. `lookup` asks a platform;
    without `lookup` the topology is only checked, and values may be unknown. `emulated`
    returns True if all of the given platforms are emulated. `exports` holds the known
    output names of other stacks by reference name.
    """

    config: StackConfig
    program: Mapping[str, str]
    lookup: Callable[[str, str], Any] | None = None
    emulated: Callable[[Iterable[str]], bool] = lambda _platforms: False
    exports: Mapping[str, Collection[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedTopology:
    """A topology that can be registered. `config` holds the values of its variables.

    `modules` lists the included modules, each after the module that contains it.
    """

    topology: Topology
    names: Names
    config: Mapping[str, ConfigValue]
    modules: list[ModuleInstance]
    resources: list[CheckedResource]

    def list_open_groups(self) -> list[str]:
        """Return the addresses of entries and modules whose instances are unknown."""
        return [
            group.declaration.address
            for scope in Scope(self.names).list_scopes()
            for group in scope.list_groups()
            if group.open
        ]

    def get_group(self, declared: Repeatable) -> InstanceGroup[Any]:
        """Return the instances of an entry or module of the topology's own files."""
        if declared.section == MODULES:
            return self.names.modules[declared.name]
        return self.names.groups[declared.section][declared.name]


def plan(path: Path, context: PlanContext, problems: Diagnostics) -> PlannedTopology:
    """Plan a topology file with all included files. Add problems to `problems`.

    A module alone is a problem, except in a check of files (without `context.lookup`).
    """
    topology = load(path, problems)
    # A module can be checked alone but not planned: nothing gives its inputs.
    if topology.inputs is not None and context.lookup is not None:
        message = f"{path.name} has inputs, so it is a module"
        hint = (
            "include it in a topology, with values for its inputs; the topology of a stack has "
            "config instead of inputs"
        )
        problems.add(_find_first_position(topology.inputs, path), "module", message, hint)
    return plan_topology(topology, context, problems)


def plan_topology(
    topology: Topology,
    context: PlanContext,
    problems: Diagnostics,
    input_values: Mapping[str, ConfigValue] = NO_VALUES,
) -> PlannedTopology:
    """Plan a loaded topology. `input_values` holds the values of the topology's own inputs.

    Adds problems to `problems`. With `context.lookup`, configuration without a value is a problem,
    reported only if there is no earlier problem.
    """
    # Before expansion, so that the instances of one entry share one problem.
    refuse_foreign_references(topology, problems)
    emulated = context.emulated(topology.list_platforms())
    config = resolve_config(topology.config.values(), context.config, problems, emulated=emulated)
    planning = context.lookup is not None
    if planning and not problems:
        _refuse_unset(topology, config, problems)
        planning = not problems  # else unknown values would be reported twice
    source = CheckingSource(config, context.program, context.lookup, input_values, context.exports)
    names = Names(
        source,
        tuple(topology.config),
        topology.inputs,
        tuple(topology.stack_references),
        unread=topology.unread,
    )
    names = expand(topology, names, problems, planning=planning)
    scope = Scope(names)
    check_module_values(scope, problems)
    checked = check_resources(scope, problems, planning=planning)
    for name, entry in topology.stack_references.items():
        _check_stack(name, entry, scope, problems, planning=planning)
    for entry in topology.outputs.values():
        scope.evaluate_node(entry.node, problems)
    resources = _sort_by_dependencies(checked, problems)
    _check_rules(resources, problems)
    modules = [module for file_scope in scope.list_scopes() for module in file_scope.list_modules()]
    return PlannedTopology(topology, names, config, modules, resources)


def resolve_stack_references(
    topology: Topology, context: PlanContext, problems: Diagnostics
) -> dict[str, str]:
    """Return the stack names in a loaded topology's references, by reference name.

    Names that depend on more than files are absent.
    """
    config = resolve_config(topology.config.values(), context.config, problems)
    source = CheckingSource(config, context.program)
    scope = Scope(Names(source, tuple(topology.config), topology.inputs))
    stack_names = {}
    for name, entry in topology.stack_references.items():
        # Without `planning`, a name that needs more than files is UNKNOWN.
        value = require_known(
            entry.node, f"stack_references.{name}", scope, problems, planning=False
        )
        if isinstance(value, str):
            stack_names[name] = value
    return stack_names


def _find_first_position(inputs: Mapping[str, ConfigVariable], path: Path) -> SourcePosition:
    """Return the position of the first declared input."""
    return next(
        (variable.position for variable in inputs.values()), SourcePosition(format_path(path))
    )


def _check_stack(
    name: str, entry: Entry, scope: Scope, problems: Diagnostics, *, planning: bool
) -> None:
    """Report a stack reference whose name is not text, or not known while planning."""
    address = f"stack_references.{name}"
    value = require_known(entry.node, address, scope, problems, planning=planning)
    if not isinstance(value, str) and value is not UNKNOWN:
        message = f"{address} must be the name of a stack, as text"
        problems.add(entry.node.position, "value", message, "write ORGANIZATION/PROJECT/STACK")


def _refuse_unset(
    topology: Topology, config: Mapping[str, ConfigValue], problems: Diagnostics
) -> None:
    """Report each configuration variable without a value."""
    for name, variable in topology.config.items():
        if name not in config:
            hint = f"set it: {format_set_command(name, secret=variable.secret)}"
            message = f"config.{name} has no value"
            if EMULATOR_DEFAULT in variable.fields:
                message += " here: its emulator_default applies only on the emulator"
            problems.add(variable.position, "config", message, hint)


def _check_rules(resources: Iterable[CheckedResource], problems: Diagnostics) -> None:
    """Apply the rules over several resources, and add their problems to `problems`.

    A rule sees the checked resource and the ones before it: `resources` are sorted, dependencies
    first.
    """
    registered = RegistrationIndex()
    for resource in resources:
        address = resource.instance.address
        registration = _create_registration(resource)
        # As in the engine, a rule sees the resources that were declared before.
        registered.add(registration)
        for rule in RULES:
            for problem in rule(registration, registered):
                message = f"{address}.{problem.path}: {problem.reason}"
                problems.add(resource.find_position(problem.path), "resource-rule", message)


def _create_registration(resource: CheckedResource) -> Registration:
    """Create the registration of a resource, as in a program.

    The resource's address stands for its URN.
    """
    instance = resource.instance
    declaration = instance.declaration
    return Registration(
        urn=instance.address,
        type=Form.DYNAMIC.build_type(declaration.platform, declaration.kind),
        name=instance.name,
        custom=True,
        inputs=dict(resource.values),
        property_dependencies={
            name: [used.address for used in instances] for name, instances in resource.uses.items()
        },
    )


def _sort_by_dependencies(
    resources: Sequence[CheckedResource], problems: Diagnostics
) -> list[CheckedResource]:
    """Sort the resources by dependencies, otherwise in file order.

    Reports a cycle of dependencies to `problems`.
    """
    by_instance = {resource.instance: resource for resource in resources}
    sorted_resources: dict[Instance, CheckedResource] = {}
    for first in by_instance:
        _visit_dependencies(first, by_instance, sorted_resources, problems)
    return list(sorted_resources.values())


def _visit_dependencies(
    first: Instance,
    by_instance: dict[Instance, CheckedResource],
    sorted_resources: dict[Instance, CheckedResource],
    problems: Diagnostics,
) -> None:
    """Append `first` to the sorted resources, after all dependencies of `first`.

    A cycle is reported. The walk is not recursive, because a chain may be as long as the topology.
    """
    path: dict[Instance, None] = {}
    pending = [(first, False)]
    while pending:
        instance, is_end = pending.pop()
        if is_end:
            del path[instance]
            sorted_resources[instance] = by_instance[instance]
        elif instance in path:
            _report_cycle(instance, list(path), problems)
        elif instance not in sorted_resources:
            path[instance] = None
            pending.append((instance, True))
            dependencies = [
                dependency
                for dependency in by_instance[instance].list_dependencies()
                if dependency in by_instance
            ]
            # Reversed, because the last one is visited first.
            pending += [(dependency, False) for dependency in reversed(dependencies)]


def _report_cycle(instance: Instance, path: list[Instance], problems: Diagnostics) -> None:
    """Report `path` from `instance` on as a cycle, at the first declaration in the cycle.

    Only the first cycle at a declaration is reported.
    """
    cycle = [*path[path.index(instance) :], instance]
    # At the first declaration of the cycle, so that each cycle is reported once.
    cycle_path = " -> ".join(member.address for member in cycle)
    position = min(member.declaration.position for member in cycle)
    hint = "remove one of these references"
    problems.add_once(
        position, "cycle", "", f"these depend on each other in a cycle: {cycle_path}", hint
    )

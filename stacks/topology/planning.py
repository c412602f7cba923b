"""Plan a topology file: the resources that it declares, in their order, all of them checked against
their models.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from gpuform.providers.forms import Form
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
from gpuform.stacks.engine.registration import Registered, Registration
from gpuform.stacks.resource_rules import RULES
from gpuform.stacks.topology.configuration import (
    EMULATOR_DEFAULT,
    StackConfig,
    Stacked,
    configured,
    why_not,
)
from gpuform.stacks.topology.declarations import (
    MODULES,
    ConfigVariable,
    Group,
    Instance,
    ModuleInstance,
    Repeatable,
    Topology,
)
from gpuform.stacks.topology.expanding import expand, refuse_foreign_references
from gpuform.stacks.topology.files import shown
from gpuform.stacks.topology.loading import load
from gpuform.stacks.topology.names import Names
from gpuform.stacks.topology.options import check_options, known
from gpuform.stacks.topology.scope import Scope
from gpuform.stacks.topology.sources import Checking


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
        return find_nearest_node(root, parse_path(path)).place

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
    found = validate_inputs(instance.lifecycle.inputs, values)[1]
    if said.get("id") is not None:
        found = [each for each in found if each.reason.startswith(KEY_PROBLEM_PREFIXES)]
    report_problems(found, root, instance.address, problems)
    for name, rules in get_field_rules(instance.lifecycle.inputs).items():
        if rules.reference_kind and name in properties:
            _check_single(properties[name].node, f"{instance.address}.{name}", scope, problems)
    if said:
        root = MappingNode(instance.declaration.place, options)
        report_problems(validate_inputs(OptionsInputs, said)[1], root, address, problems)
    uses = {name: scope.resources(entry.node) for name, entry in properties.items()}
    after = [used for entry in options.values() for used in _named_in(entry.node, scope)]
    if isinstance(instance.item, ScalarNode | SequenceNode | MappingNode):
        after += scope.resources(instance.item)
    return Checked(instance, properties, values, uses, after)


def _named_in(node: Node, scope: Scope) -> Iterator[Instance]:
    """The resources of an option: a module means all that are in it."""
    for scalar in list_scalars(node):
        yield from scope.named(scalar) or scope.resources(scalar)


def _check_single(node: Node, address: str, scope: Scope, problems: Diagnostics) -> None:
    """A property that means one resource cannot be all of a `for_each`."""
    named = scope.named(node)
    if named is not None and len(named) > 1:
        message = f"{address}: this names several resources"
        problems.add(node.place, "reference", message, f"add a key: {named[0].address}")


NOTHING: Final[Mapping[str, Stacked]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a topology is planned with.

    `program` are the names of the `project` and `stack`. Without `lookup`, which asks a platform,
    it is only checked: then nothing needs to have a value yet. `emulated` says of platforms whether
    all of them are emulated. `exports` are the names of what other stacks give out, by the name of
    the reference, as far as that is known.
    """

    config: StackConfig
    program: Mapping[str, str]
    lookup: Callable[[str, str], Any] | None = None
    emulated: Callable[[Iterable[str]], bool] = lambda _platforms: False
    exports: Mapping[str, Collection[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Planned:
    """A topology that can be registered; `config` has the values of its variables.

    `modules` are those that it includes, each after the one that it is in.
    """

    topology: Topology
    names: Names
    config: Mapping[str, Stacked]
    modules: list[ModuleInstance]
    resources: list[Checked]

    def open_groups(self) -> list[str]:
        """The addresses of entries and modules whose instances are not known yet."""
        return [
            group.declaration.address
            for scope in Scope(self.names).every()
            for group in scope.groups_here()
            if group.open
        ]

    def group(self, declared: Repeatable) -> Group[Any]:
        """The instances of an entry or module of the topology's own files."""
        if declared.section == MODULES:
            return self.names.modules[declared.name]
        return self.names.groups[declared.section][declared.name]


def plan(path: Path, surroundings: Surroundings, problems: Diagnostics) -> Planned:
    """Checks a topology file with all that it includes; what is wrong goes to `problems`."""
    topology = load(path, problems)
    if topology.inputs is not None and surroundings.lookup is not None:
        message = f"{path.name} is a module: it has inputs"
        hint = "include it, with the values of its inputs; a topology of its own has config"
        problems.add(_first(topology.inputs, path), "module", message, hint)
    return plan_topology(topology, surroundings, problems)


def plan_topology(
    topology: Topology,
    surroundings: Surroundings,
    problems: Diagnostics,
    given: Mapping[str, Stacked] = NOTHING,
) -> Planned:
    """The same of a topology that is loaded; `given` are the values of its own inputs."""
    refuse_foreign_references(topology, problems)
    emulated = surroundings.emulated(topology.platforms())
    config = configured(topology.config.values(), surroundings.config, problems, emulated=emulated)
    planning = surroundings.lookup is not None
    if planning and not problems:
        _refuse_unset(topology, config, problems)
        planning = not problems  # else what is not known would be told twice
    source = Checking(
        config, surroundings.program, surroundings.lookup, given, surroundings.exports
    )
    names = Names(source, tuple(topology.config), topology.inputs, tuple(topology.stack_references))
    names = expand(topology, names, problems, planning=planning)
    scope = Scope(names)
    check_given(scope, problems)
    checked = check_all(scope, problems, planning=planning)
    for name, entry in topology.stack_references.items():
        _check_stack(name, entry, scope, problems, planning=planning)
    for entry in topology.outputs.values():
        scope.value(entry.node, problems)
    resources = _in_order(checked, problems)
    _check_rules(resources, problems)
    modules = [module for each in scope.every() for module in each.modules_here()]
    return Planned(topology, names, config, modules, resources)


def stacks_named(
    topology: Topology, surroundings: Surroundings, problems: Diagnostics
) -> dict[str, str]:
    """The stacks that a loaded topology refers to, by its names for them.

    Those that nobody can tell without more than files are left out.
    """
    config = configured(topology.config.values(), surroundings.config, problems)
    source = Checking(config, surroundings.program)
    scope = Scope(Names(source, tuple(topology.config), topology.inputs))
    found = {}
    for name, entry in topology.stack_references.items():
        value = known(entry.node, f"stack_references.{name}", scope, problems, planning=False)
        if isinstance(value, str):
            found[name] = value
    return found


def _first(inputs: Mapping[str, ConfigVariable], path: Path) -> SourcePosition:
    """Where inputs are declared."""
    return next((each.place for each in inputs.values()), SourcePosition(shown(path)))


def _check_stack(
    name: str, entry: Entry, scope: Scope, problems: Diagnostics, *, planning: bool
) -> None:
    address = f"stack_references.{name}"
    value = known(entry.node, address, scope, problems, planning=planning)
    if not isinstance(value, str) and value is not UNKNOWN:
        message = f"{address} must be the name of a stack, as text"
        problems.add(entry.node.place, "value", message, "write ORGANIZATION/PROJECT/STACK")


def _refuse_unset(topology: Topology, config: Mapping[str, Stacked], problems: Diagnostics) -> None:
    for name, variable in topology.config.items():
        if name not in config:
            secret = " --secret" if variable.secret else ""
            hint = f"set it: gpuform config set{secret} {name} VALUE"
            message = f"config.{name} has no value"
            if EMULATOR_DEFAULT in variable.said:
                message += " here: its emulator_default does not reach a real platform"
            problems.add(variable.place, "config", message, hint)


def _check_rules(resources: Iterable[Checked], problems: Diagnostics) -> None:
    """What the rules say of the resources goes to `problems`."""
    registered = Registered()
    for resource in resources:
        address = resource.instance.address
        registration = _registration(resource)
        registered.add(registration)
        for rule in RULES:
            for problem in rule(registration, registered):
                message = f"{address}.{problem.path}: {problem.reason}"
                problems.add(resource.place(problem.path), "resource-rule", message)


def _registration(resource: Checked) -> Registration:
    """The resource as a program would register it; its address stands for its URN."""
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


def _in_order(resources: Sequence[Checked], problems: Diagnostics) -> list[Checked]:
    """The resources in the order of the files, each after what it needs.

    Resources that need each other go to `problems`, as the way from one back to itself.
    """
    by_instance = {each.instance: each for each in resources}
    done: dict[Instance, Checked] = {}
    for first in by_instance:
        _visit(first, by_instance, done, problems)
    return list(done.values())


def _visit(
    first: Instance,
    by_instance: dict[Instance, Checked],
    done: dict[Instance, Checked],
    problems: Diagnostics,
) -> None:
    """Not recursive: a chain may be as long as the topology."""
    path: dict[Instance, None] = {}
    rest = [(first, False)]
    while rest:
        instance, is_end = rest.pop()
        if is_end:
            del path[instance]
            done[instance] = by_instance[instance]
        elif instance in path:
            _refuse(instance, list(path), problems)
        elif instance not in done:
            path[instance] = None
            rest.append((instance, True))
            needed = [need for need in by_instance[instance].needs() if need in by_instance]
            rest += [(need, False) for need in reversed(needed)]


def _refuse(instance: Instance, path: list[Instance], problems: Diagnostics) -> None:
    circle = [*path[path.index(instance) :], instance]
    # From its first declaration on, so that one circle is told once.
    way = " -> ".join(each.address for each in circle)
    place = min(each.declaration.place for each in circle)
    hint = "take out one of these references"
    problems.add_once(place, "cycle", "", f"these need each other: {way}", hint)

"""Plan a topology file: its resources sorted by dependencies and validated against their models.

`gpuform validate`, the engine's topology host and the Pulumi program call `plan`. Loading,
expansion and evaluation happen in `loading`, `expanding` and `scope`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from gpuform.providers.platform import Form
from gpuform.schemas.errors import EngineError
from gpuform.schemas.values import UNKNOWN, sort_by_dependencies
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import (
    Entry,
)
from gpuform.stacks.engine.digests import RegistrationIndex
from gpuform.stacks.engine.project import (
    Project,
    ProjectError,
    StackSettings,
    find_project,
    find_topology_file,
    format_set_command,
    is_secure,
    to_config_text,
)
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.resource_rules import RULES
from gpuform.stacks.topology.checking import (
    CheckedResource,
    check_module_values,
    check_resource,
    require_known,
)
from gpuform.stacks.topology.configuration import (
    EMULATOR_DEFAULT,
    ConfigValue,
    StackConfig,
    resolve_config,
)
from gpuform.stacks.topology.declarations import (
    MODULES,
    Instance,
    InstanceGroup,
    ModuleInstance,
    Repeatable,
    Topology,
)
from gpuform.stacks.topology.expanding import expand, refuse_foreign_references
from gpuform.stacks.topology.files import format_path
from gpuform.stacks.topology.loading import load
from gpuform.stacks.topology.references import CheckingSource, Names
from gpuform.stacks.topology.scope import Scope

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
        positions = [variable.position for variable in topology.inputs.values()]
        position = positions[0] if positions else SourcePosition(format_path(path))
        problems.add(position, "module", message, hint)
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
    checked = [
        check_resource(instance, file_scope, problems, planning=planning)
        for file_scope in scope.list_scopes()
        for instance in file_scope.list_resources()
    ]
    for name, entry in topology.stack_references.items():
        _check_stack(name, entry, scope, problems, planning=planning)
    for entry in topology.outputs.values():
        scope.evaluate_node(entry.node, problems)
    resources = _sort_resources(checked, problems)
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
    for name, variable in topology.config.items():
        if name not in config:
            hint = f"set it: {format_set_command(name, secret=variable.secret)}"
            message = f"config.{name} has no value"
            if EMULATOR_DEFAULT in variable.fields:
                message += " here: its emulator_default applies only on the emulator"
            problems.add(variable.position, "config", message, hint)


def _check_rules(resources: Iterable[CheckedResource], problems: Diagnostics) -> None:
    """Apply the rules over several resources, and add every problem found to `problems`.

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


def _sort_resources(
    resources: Sequence[CheckedResource], problems: Diagnostics
) -> list[CheckedResource]:
    """Sort the resources by dependencies, otherwise in file order. Report each cycle."""
    by_instance = {resource.instance: resource for resource in resources}

    def report_cycle(cycle: list[Instance]) -> None:
        cycle_path = " -> ".join(member.address for member in cycle)
        message = f"these depend on each other in a cycle: {cycle_path}"
        # At the first declaration of the cycle, so that each cycle is reported once.
        position = min(member.declaration.position for member in cycle)
        problems.add_once(position, "cycle", "", message, "remove one of these references")

    instances = sort_by_dependencies(
        by_instance, lambda instance: by_instance[instance].list_dependencies(), report_cycle
    )
    return [by_instance[instance] for instance in instances]


def find_topology(folder: Path) -> Path:
    """Return the topology of the project in `folder` or in a folder above.

    A topology directly in `folder` is returned as a bare file name.

    Raises:
        EngineError: there is no project, or its program is not a topology.
    """
    project = find_project(folder)
    program = project.program
    topology_path = find_topology_file(program if program.is_dir() else program.parent)
    if topology_path is None:
        raise EngineError(
            f"{program} has no topology.yaml",
            hint="name the file: `gpuform validate FILE`; a Python program is checked by "
            "`gpuform preview`",
        )
    # Relative if possible: messages begin with the path.
    return Path(topology_path.name) if topology_path.parent == folder else topology_path


def find_project_folder(file: Path) -> Path:
    """Return the folder of a topology's project, or else the file's own folder.

    Raises YamlError for a Pulumi.yaml with wrong content.
    """
    try:
        return find_project(file.parent).directory
    except ProjectError:
        return file.parent


def read_plan_context(file: Path, stack: str | None, project: Project | None = None) -> PlanContext:
    """Read the context of a file's project and stack from files alone.

    Without `project`, the project that contains the file is used. The context is empty without a
    `stack` if there is no such project or the project cannot be used.

    Raises:
        EngineError: `stack` is given, but has no settings file or no usable project.
        YamlError: the project's or the stack's file has wrong content.
    """
    try:
        project = project or find_project(file.parent)
    except ProjectError:
        # Only a project has stacks.
        if stack is not None:
            raise
        return PlanContext(_Settings(None, None), {})
    names = {"project": project.name}
    if stack is None:
        return PlanContext(_Settings(project, None), names)
    # Settings files have the stack's own name, without organization and project.
    name = stack.rsplit("/", 1)[-1]
    settings = StackSettings.load(project, name)
    if not settings.path.exists():
        raise EngineError(
            f"stack {name} has no settings file {settings.path.name}",
            hint=f"create it: `gpuform stack init {name}`, or leave --stack out",
        )
    return PlanContext(_Settings(project, settings), {**names, "stack": name})


@dataclass(frozen=True, slots=True)
class _Settings:
    """The values of a stack and its project that are stored unencrypted."""

    project: Project | None
    settings: StackSettings | None

    def get(self, name: str) -> str | None:
        """Return the stack's value of a key, else the project's; None if unset or encrypted."""
        value = self.settings.get(name) if self.settings else None
        if value is None and self.project and name in self.project.config:
            value = self.project.config[name].value
        # Without a passphrase, a secret counts as not set.
        return None if value is None or is_secure(value) else to_config_text(value, None)

    def is_secret(self, name: str) -> bool:
        """Return True if the value of a key is encrypted, or a default declared as secret."""
        stack_value = self.settings.get(name) if self.settings else None
        default = self.project.config.get(name) if self.project else None
        return is_secure(stack_value) or (
            stack_value is None and default is not None and default.secret
        )

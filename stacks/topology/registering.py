"""Evaluate what a planned topology declares while a run registers it, and register with the SDK.

The Pulumi program of a topology calls `register`, modules in Python programs `register_resources`.
`declaring` registers with gpuform's own engine instead; both have a `RunSource` of values.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import pulumi

from gpuform.providers.catalog import load_resource_class
from gpuform.providers.resource import PlatformResource
from gpuform.schemas.errors import EngineError
from gpuform.schemas.values import contains_unknown, iterate_leaves
from gpuform.stacks.document.diagnostics import Diagnostics, DocumentDiagnostic, SourcePosition
from gpuform.stacks.document.nodes import Entry, MappingNode, Node
from gpuform.stacks.engine.urn import MODULE_TYPE
from gpuform.stacks.topology.checking import LISTS, SINGLE, CheckedResource, list_items
from gpuform.stacks.topology.configuration import find_team_files
from gpuform.stacks.topology.declarations import Instance, ModuleInstance
from gpuform.stacks.topology.planning import PlannedTopology
from gpuform.stacks.topology.scope import Scope


class TopologyError(EngineError, pulumi.RunError):
    """All problems of a topology. Both engines show the error without a traceback."""

    help_page = "reference/topology"

    def __init__(self, diagnostics: Iterable[DocumentDiagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(map(str, self.diagnostics)))


ResourceT = TypeVar("ResourceT")
ModuleT = TypeVar("ModuleT")
StackT = TypeVar("StackT")


class RunSource(ABC, Generic[ResourceT, ModuleT, StackT]):
    """The source of values in a run, and what stands for the resources registered so far."""

    def __init__(self, planned: PlannedTopology) -> None:
        self._planned, self._checking = planned, planned.names.source
        self.resources: dict[Instance, ResourceT] = {}
        self.modules: dict[ModuleInstance, ModuleT] = {}
        self.stacks: dict[str, StackT] = {}

    @abstractmethod
    def make_secret(self, value: Any) -> Any:
        """Return the value of an expression marked as secret."""

    @abstractmethod
    def create_alias(self, fields: dict[str, Any]) -> Any:
        """Return an alias with the values in `fields`, which include `parent` if declared."""

    def get_config(self, name: str) -> Any:
        """Return the value of a configuration variable, marked if secret."""
        config_value = self._planned.config[name]
        return self.make_secret(config_value.value) if config_value.secret else config_value.value

    def lookup(self, platform: str, name: str) -> Any:
        """Return a platform's lookup as a `Function` for expressions."""
        return self._checking.lookup(platform, name)

    def get_name(self, name: str) -> Any:
        """Return the name of the running `project` or `stack`."""
        return self._checking.get_name(name)

    def build_missing_output_error(
        self, reference: str, name: str, existing_names: Collection[str]
    ) -> TopologyError:
        """Return the error for a referenced stack without the output `name`.

        `reference` is the entry of `stack_references`; the hint lists the existing outputs.
        """
        message = f"the stack of stack_references.{reference} has no output {name}"
        names = ", ".join(sorted(existing_names))
        hint = f"its outputs are {names}" if existing_names else "it has no outputs"
        position = self._planned.topology.stack_references[reference].position
        return TopologyError([DocumentDiagnostic(position, "reference", message, hint)])

    def evaluate_options(self, options: Mapping[str, Entry], scope: Scope) -> dict[str, Any]:
        """Return the values of the set options; options for resources hold the resource objects.

        Raises:
            TopologyError: an option cannot be evaluated.
        """
        option_values: dict[str, Any] = {}
        for key, entry in options.items():
            if key in LISTS:
                value: Any = self._find_named(entry, scope)
            elif key in SINGLE:
                (value,) = self._find_named(entry, scope)
            elif key == "aliases":
                value = [self._evaluate_alias(item, scope) for item in list_items(entry)]
            else:
                value = require_value(scope, entry.node)
            if value is not None:
                option_values[key] = value
        return option_values

    def _find_named(self, entry: Entry, scope: Scope) -> list[ResourceT]:
        """Return the registered resource object of each resource named in the option's items."""
        return [
            self.resources[resource]
            for item in list_items(entry)
            for resource in scope.find_named_resources(item) or ()
        ]

    def _evaluate_alias(self, node: Node, scope: Scope) -> Any:
        """Return the alias of a node; the parent of the alias is a resource or a URN."""
        entries = node.entries if isinstance(node, MappingNode) else {}
        fields = {
            key: require_value(scope, entry.node)
            for key, entry in entries.items()
            if key != "parent"
        }
        if "parent" in entries:
            parent = entries["parent"].node
            named = scope.find_named_resources(parent)
            fields["parent"] = self.resources[named[0]] if named else require_value(scope, parent)
        return self.create_alias(fields)


def enter_instance(scope: Scope, instance: Instance) -> Scope:
    """Return the scope in which an instance's properties and options are evaluated.

    `scope` is that of the topology. Raises TopologyError with all problems.
    """
    problems = Diagnostics()
    inner = scope.find_module_scope(instance.module).enter_instance(instance, problems)
    _raise_problems(problems)
    return inner


def evaluate_properties(resource: CheckedResource, scope: Scope) -> dict[str, Any]:
    """Return the values of a resource's properties; values known while planning are reused.

    Raises TopologyError with all problems of a property.
    """
    return {
        name: require_value(scope, resource.properties[name].node)
        if contains_unknown(value)
        else value
        for name, value in resource.values.items()
    }


def evaluate_outputs(module: ModuleInstance, scope: Scope) -> dict[str, Any]:
    """Evaluate the outputs of a module. `scope` is the scope of the topology."""
    inside = scope.find_module_scope(module)
    outputs = module.declaration.topology.outputs
    return {name: require_value(inside, entry.node) for name, entry in outputs.items()}


def require_value(scope: Scope, node: Node) -> Any:
    """Return the value of a node. Raises TopologyError with all problems."""
    problems = Diagnostics()
    value = scope.evaluate_node(node, problems)
    _raise_problems(problems)
    return value


def _raise_problems(problems: Diagnostics) -> None:
    if problems:
        raise TopologyError(problems)


class ProgramSource(RunSource[PlatformResource, pulumi.ComponentResource, pulumi.StackReference]):
    """The source of values in a running Pulumi program, and the resources registered so far."""

    def __init__(self, planned: PlannedTopology, input_values: Mapping[str, Any]) -> None:
        super().__init__(planned)
        self._given = input_values

    def get_input(self, name: str) -> Any:
        """Return the value passed by the Python program for an input."""
        return self._given[name]

    def make_secret(self, value: Any) -> Any:
        """Return the value of an expression as Pulumi's secret output."""
        return pulumi.Output.secret(value)

    def create_alias(self, fields: dict[str, Any]) -> pulumi.Alias:
        """Return the SDK's alias with the values in `fields`."""
        return pulumi.Alias(**{"type_" if key == "type" else key: fields[key] for key in fields})

    def get_property(self, instance: Instance, name: str) -> Any:
        """Return the output of a registered resource for an expression."""
        return getattr(self.resources[instance], name)

    def get_stack_output(self, reference: str, name: str) -> Any:
        """Return an output of another stack. The run fails if the stack has no such output."""
        stack = self.stacks[reference]
        # Names of outputs are not secret, although one secret makes the whole map secret.
        names = pulumi.Output.unsecret(stack.outputs.apply(_get_names, run_with_unknowns=True))

        def require_output(value: Any, existing_names: Sequence[str]) -> Any:
            if name not in existing_names:
                raise self.build_missing_output_error(reference, name, existing_names)
            return value

        return pulumi.Output.all(stack.get_output(name), names).apply(
            lambda both: require_output(*both)
        )

    def is_pending(self, value: Any) -> bool:
        """Return True if a value contains an output of Pulumi's SDK."""
        return any(isinstance(leaf, pulumi.Output) for leaf in iterate_leaves(value))

    def join(
        self,
        values: Sequence[Any],
        make: Callable[[Sequence[Any]], Any],
        of_secret: Callable[[], None],
    ) -> Any:
        """Return an output with the secrecy and the dependencies of all `values`.

        If an agent proposes the topology (`find_team_files`) and a value is secret, `of_secret` is
        called first and may raise.
        """
        joined = pulumi.Output.all(*values)
        # Only proposals need to know whether a part is secret.
        if find_team_files() is None:
            return joined.apply(make)

        def check_and_make(joined_with_secrecy: Sequence[Any]) -> Any:
            joined_values, is_secret = joined_with_secrecy
            if is_secret:
                of_secret()
            return make(joined_values)

        return pulumi.Output.all(joined, joined.is_secret()).apply(check_and_make)


def _get_names(outputs: Any) -> Any:
    """Return the names of outputs, or unknown outputs unchanged.

    In a plan of several stacks not all outputs have a value.
    """
    return list(outputs) if isinstance(outputs, Mapping) else outputs


def register(planned: PlannedTopology) -> None:
    """Register stack references, modules and resources in order, and export the outputs.

    Raises TopologyError if a value cannot be evaluated; everything before it is registered.
    """
    program = ProgramSource(planned, {})
    scope = Scope(replace(planned.names, source=program, passed={}))
    for name, entry in planned.topology.stack_references.items():
        stack_name = require_value(scope, entry.node)
        program.stacks[name] = pulumi.StackReference(name, stack_name=stack_name)
    register_resources(planned, scope, program)
    for name, entry in planned.topology.outputs.items():
        pulumi.export(name, require_value(scope, entry.node))


def register_resources(planned: PlannedTopology, scope: Scope, program: ProgramSource) -> None:
    """Register the modules of a topology, the resources, and then the outputs of the modules.

    Modules whose component the program has created already are not created again.
    """
    for module in planned.modules:
        if module not in program.modules:
            parent = program.modules[module.module] if module.module else None
            component = pulumi.ComponentResource(
                MODULE_TYPE, module.name, None, pulumi.ResourceOptions(parent=parent)
            )
            program.modules[module] = component
    for resource in planned.resources:
        program.resources[resource.instance] = _register_resource(resource, scope, program)
    # Outputs last: they may refer to any resource of the module.
    for module, component in program.modules.items():
        component.register_outputs(evaluate_outputs(module, scope))


def _register_resource(
    resource: CheckedResource, topology: Scope, program: ProgramSource
) -> PlatformResource:
    """Register a resource, or read the object of a declared id; the default parent is the module.

    A read ignores the declared properties.
    """
    instance, declaration = resource.instance, resource.instance.declaration
    kind = load_resource_class(declaration.platform, declaration.kind)
    scope = enter_instance(topology, instance)
    options = {
        _RENAMED.get(key, key): value
        for key, value in program.evaluate_options(declaration.options, scope).items()
    }
    if "custom_timeouts" in options:
        options["custom_timeouts"] = pulumi.CustomTimeouts(**options["custom_timeouts"])
    if instance.module:
        options.setdefault("parent", program.modules[instance.module])
    # An entry with an id is read: its declared values are not sent.
    existing = options.pop("id", None)
    opts = pulumi.ResourceOptions(**options)
    position = declaration.position
    if existing is not None:
        return _call_at(position, lambda: kind.get(instance.name, existing, opts))
    values = evaluate_properties(resource, scope)
    return _call_at(position, lambda: kind(instance.name, opts, **values))


_RENAMED = {"import": "import_", "timeouts": "custom_timeouts"}


_Made = TypeVar("_Made")
_CODE: Final = compile("make()", "", "eval")


def _call_at(position: SourcePosition, make: Callable[[], _Made]) -> _Made:
    """Call `make` with the positions of the entry and all includes on the call stack.

    Pulumi's SDK sends the lines of the call stack to the engine, under the Pulumi CLI as well.
    Positions of includes in Python files are left out: the program's own calls show them.
    """
    called = partial(_call_at_line, position, make)
    for outer in position.included:
        if not outer.file.endswith(".py"):  # a program's line is among its own
            called = partial(_call_at_line, outer, called)
    return called()


def _call_at_line(position: SourcePosition, make: Callable[[], _Made]) -> _Made:
    """Call `make` with the entry's line as the caller seen by the SDK."""
    file = str(Path(position.file).resolve())
    # The compiled call has the entry's file and line, which the frame then shows.
    code = _CODE.replace(co_filename=file, co_firstlineno=position.line, co_name=file)
    result: _Made = eval(code, {"make": make})  # noqa: S307 - our own two words
    return result

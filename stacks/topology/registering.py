"""Register a planned topology with Pulumi's SDK, with the registrations of a program.

The Pulumi program of a topology calls `register`, modules in Python programs `register_resources`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pulumi

from gpuform.providers.catalog import load_resource_class
from gpuform.providers.resource import PlatformResource
from gpuform.schemas.values import contains_unknown
from gpuform.stacks.document.diagnostics import Diagnostics, DocumentDiagnostic, SourcePosition
from gpuform.stacks.document.nodes import Entry, MappingNode, Node
from gpuform.stacks.engine.urn import MODULE_TYPE
from gpuform.stacks.topology.declarations import Instance, ModuleInstance
from gpuform.stacks.topology.errors import TopologyError
from gpuform.stacks.topology.options import LISTS, SINGLE, list_items
from gpuform.stacks.topology.planning import CheckedResource, PlannedTopology
from gpuform.stacks.topology.proposals import find_team_files
from gpuform.stacks.topology.scope import Scope


class ProgramSource:
    """The source of values in a running Pulumi program, and the resources registered so far."""

    def __init__(self, planned: PlannedTopology, input_values: Mapping[str, Any]) -> None:
        self._checking, self._given = planned.names.source, input_values
        self._config = planned.config
        self._references = planned.topology.stack_references
        self.resources: dict[Instance, PlatformResource] = {}
        self.modules: dict[ModuleInstance, pulumi.ComponentResource] = {}
        self.stacks: dict[str, pulumi.StackReference] = {}

    def get_config(self, name: str) -> Any:
        """Return the value of a configuration variable, a secret as Pulumi's secret output."""
        config_value = self._config[name]
        return (
            pulumi.Output.secret(config_value.value) if config_value.secret else config_value.value
        )

    def get_input(self, name: str) -> Any:
        """Return the program's value for an input."""
        return self._given[name]

    def make_secret(self, value: Any) -> Any:
        """Return `value` as Pulumi's secret output."""
        return pulumi.Output.secret(value)

    def get_property(self, instance: Instance, name: str) -> Any:
        """Return the resource's output."""
        return getattr(self.resources[instance], name)

    def get_stack_output(self, reference: str, name: str) -> Any:
        """Return an output of another stack. The run fails if the stack has no such output."""
        stack = self.stacks[reference]
        # Names of outputs are not secret, although one secret makes the whole map secret.
        names = pulumi.Output.unsecret(stack.outputs.apply(_get_names, run_with_unknowns=True))

        def require_output(value: Any, existing_names: Sequence[str]) -> Any:
            if name not in existing_names:
                message = f"the stack of stack_references.{reference} has no output {name}"
                hint = (
                    f"its outputs are {', '.join(sorted(existing_names))}"
                    if existing_names
                    else "it has no outputs"
                )
                position = self._references[reference].position
                raise TopologyError([DocumentDiagnostic(position, "reference", message, hint)])
            return value

        return pulumi.Output.all(stack.get_output(name), names).apply(
            lambda both: require_output(*both)
        )

    def lookup(self, platform: str, name: str) -> Any:
        """Return a platform's lookup as a `Function`."""
        return self._checking.lookup(platform, name)

    def get_name(self, name: str) -> Any:
        """Return the name of the running `project` or `stack`."""
        return self._checking.get_name(name)

    def is_pending(self, value: Any) -> bool:
        """Return True if `value` contains an output."""
        if isinstance(value, Mapping):
            return any(map(self.is_pending, value.values()))
        if isinstance(value, list):
            return any(map(self.is_pending, value))
        return isinstance(value, pulumi.Output)

    def join(
        self,
        values: Sequence[Any],
        make: Callable[[Sequence[Any]], Any],
        of_secret: Callable[[], None],
    ) -> Any:
        """Return an output with the secrecy and the dependencies of all `values`.

        If an agent proposes the topology (`find_team_files`) and a value is secret, `of_secret` is
        called
        first and may raise.
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
        stack_name = _evaluate(scope, entry.node)
        program.stacks[name] = pulumi.StackReference(name, stack_name=stack_name)
    register_resources(planned, scope, program)
    for name, entry in planned.topology.outputs.items():
        pulumi.export(name, _evaluate(scope, entry.node))


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


def evaluate_outputs(module: ModuleInstance, scope: Scope) -> dict[str, Any]:
    """Evaluate the outputs of a module. `scope` is the scope of the topology."""
    inside = scope.find_module_scope(module)
    outputs = module.declaration.topology.outputs
    return {name: _evaluate(inside, entry.node) for name, entry in outputs.items()}


def _register_resource(
    resource: CheckedResource, topology: Scope, program: ProgramSource
) -> PlatformResource:
    """Register a resource, or read it if an id is declared; the default parent is its module.

    A read ignores the declared properties.
    """
    instance = resource.instance
    outer = topology.find_module_scope(instance.module)
    declaration = instance.declaration
    kind = load_resource_class(declaration.platform, declaration.kind)
    problems = Diagnostics()
    scope = outer.enter_instance(instance, problems)
    _raise_problems(problems)
    options = _evaluate_options(declaration.options, scope, program)
    if instance.module:
        options.setdefault("parent", program.modules[instance.module])
    # An entry with an id is read: its declared values are not sent.
    existing = options.pop("id", None)
    opts = pulumi.ResourceOptions(**options)
    position = declaration.position
    if existing is not None:
        return _call_at(position, lambda: kind.get(instance.name, existing, opts))
    values = {
        name: _evaluate(scope, resource.properties[name].node) if contains_unknown(value) else value
        for name, value in resource.values.items()
    }
    return _call_at(position, lambda: kind(instance.name, opts, **values))


_RENAMED = {"import": "import_", "timeouts": "custom_timeouts"}


def _evaluate_options(
    options: Mapping[str, Entry], scope: Scope, program: ProgramSource
) -> dict[str, Any]:
    """Return the SDK's options that are set, with resources in place of references."""
    option_values: dict[str, Any] = {}
    for key, entry in options.items():
        if key in LISTS:
            value: Any = _find_resources(entry, scope, program)
        elif key in SINGLE:
            (value,) = _find_resources(entry, scope, program)
        elif key == "aliases":
            value = [_create_alias(item, scope, program) for item in list_items(entry)]
        else:
            value = _evaluate(scope, entry.node)
        if value is not None:
            option_values[_RENAMED.get(key, key)] = value
    timeouts = option_values.get("custom_timeouts")
    if timeouts is not None:
        option_values["custom_timeouts"] = pulumi.CustomTimeouts(**timeouts)
    return option_values


def _find_resources(entry: Entry, scope: Scope, program: ProgramSource) -> list[PlatformResource]:
    """Return the declared resources named by the option's items."""
    named = [
        resource
        for item in list_items(entry)
        for resource in scope.find_named_resources(item) or ()
    ]
    return [program.resources[resource] for resource in named]


def _create_alias(node: Node, scope: Scope, program: ProgramSource) -> pulumi.Alias:
    """Return the alias of a node; its parent is a resource or a URN."""
    entries = node.entries if isinstance(node, MappingNode) else {}
    own_entries = {key: entry for key, entry in entries.items() if key != "parent"}
    arguments = {key: _evaluate(scope, entry.node) for key, entry in own_entries.items()}
    if "type" in arguments:
        arguments["type_"] = arguments.pop("type")
    if "parent" in entries:
        named = scope.find_named_resources(entries["parent"].node)
        parent = program.resources[named[0]] if named else None
        arguments["parent"] = parent or _evaluate(scope, entries["parent"].node)
    return pulumi.Alias(**arguments)


def _evaluate(scope: Scope, node: Node) -> Any:
    """Return the value of a node. Raises TopologyError with all problems."""
    problems = Diagnostics()
    value = scope.evaluate_node(node, problems)
    _raise_problems(problems)
    return value


def _raise_problems(problems: Diagnostics) -> None:
    """Raise TopologyError with all problems if there are any."""
    if problems:
        raise TopologyError(problems)


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

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
from gpuform.schemas.values import iterate_leaves
from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.engine.urn import MODULE_TYPE
from gpuform.stacks.topology.checking import CheckedResource
from gpuform.stacks.topology.configuration import find_team_files
from gpuform.stacks.topology.declarations import Instance
from gpuform.stacks.topology.planning import PlannedTopology
from gpuform.stacks.topology.run_sources import (
    RunSource,
    enter_instance,
    evaluate_outputs,
    evaluate_properties,
    require_value,
)
from gpuform.stacks.topology.scope import Scope


class ProgramSource(RunSource[PlatformResource, pulumi.ComponentResource, pulumi.StackReference]):
    """The source of values in a running Pulumi program, and the resources registered so far."""

    def __init__(self, planned: PlannedTopology, input_values: Mapping[str, Any]) -> None:
        super().__init__(planned)
        self._given = input_values

    def get_input(self, name: str) -> Any:
        """Return the program's value for an input."""
        return self._given[name]

    def make_secret(self, value: Any) -> Any:
        """Return `value` as Pulumi's secret output."""
        return pulumi.Output.secret(value)

    def create_alias(self, fields: dict[str, Any]) -> pulumi.Alias:
        """Return the SDK's alias."""
        return pulumi.Alias(**{"type_" if key == "type" else key: fields[key] for key in fields})

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
                raise self.build_missing_output_error(reference, name, existing_names)
            return value

        return pulumi.Output.all(stack.get_output(name), names).apply(
            lambda both: require_output(*both)
        )

    def is_pending(self, value: Any) -> bool:
        """Return True if `value` contains an output."""
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
    """Register a resource, or read it if an id is declared; the default parent is its module.

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

"""Declares a planned topology to Pulumi: the same registrations that a program would make."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pulumi

from gpuform.providers.catalog import load_resource_class
from gpuform.providers.resource import PlatformResource
from gpuform.schemas.values import contains_unknown
from gpuform.stacks.document.diagnostics import Diagnostic, Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import Entry, MappingNode, Node
from gpuform.stacks.engine.urn import MODULE_TYPE
from gpuform.stacks.topology.declarations import Instance, ModuleInstance
from gpuform.stacks.topology.errors import TopologyError
from gpuform.stacks.topology.options import LISTS, SINGLE, items
from gpuform.stacks.topology.planning import Checked, Planned
from gpuform.stacks.topology.proposals import team_files
from gpuform.stacks.topology.scope import Scope


class Program:
    """The source of values in a running program, and what it has registered so far."""

    def __init__(self, planned: Planned, given: Mapping[str, Any]) -> None:
        self._checking, self._given = planned.names.source, given
        self._config = planned.config
        self._references = planned.topology.stack_references
        self.resources: dict[Instance, PlatformResource] = {}
        self.modules: dict[ModuleInstance, pulumi.ComponentResource] = {}
        self.stacks: dict[str, pulumi.StackReference] = {}

    def config(self, name: str) -> Any:
        """A secret as Pulumi's secret output."""
        found = self._config[name]
        return pulumi.Output.secret(found.value) if found.secret else found.value

    def input(self, name: str) -> Any:
        """What the program gives."""
        return self._given[name]

    def secret(self, value: Any) -> Any:
        """Pulumi's secret output."""
        return pulumi.Output.secret(value)

    def property(self, instance: Instance, name: str) -> Any:
        """Pulumi's output of the resource."""
        return getattr(self.resources[instance], name)

    def stack_output(self, reference: str, name: str) -> Any:
        """Pulumi's output; the run fails when the other stack has none of that name."""
        stack = self.stacks[reference]
        names = pulumi.Output.unsecret(stack.outputs.apply(_names, run_with_unknowns=True))

        def found(value: Any, known: Sequence[str]) -> Any:
            if name not in known:
                message = f"the stack of stack_references.{reference} has no output {name}"
                hint = f"there is {', '.join(sorted(known))}" if known else "it has none at all"
                place = self._references[reference].place
                raise TopologyError([Diagnostic(place, "reference", message, hint)])
            return value

        return pulumi.Output.all(stack.get_output(name), names).apply(lambda both: found(*both))

    def lookup(self, platform: str, name: str) -> Any:
        """A Function."""
        return self._checking.lookup(platform, name)

    def about(self, name: str) -> Any:
        """The name of the `project` or `stack`."""
        return self._checking.about(name)

    def is_pending(self, value: Any) -> bool:
        """Whether it holds an output."""
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
        """An output: secret, unknown and dependent as its parts are."""
        whole = pulumi.Output.all(*values)
        if team_files() is None:
            return whole.apply(make)

        def made(found: Sequence[Any]) -> Any:
            known, is_secret = found
            if is_secret:
                of_secret()
            return make(known)

        return pulumi.Output.all(whole, whole.is_secret()).apply(made)


def _names(outputs: Any) -> Any:
    """The names of outputs; in a plan of several stacks not all of them have a value yet."""
    return list(outputs) if isinstance(outputs, Mapping) else outputs


def register(planned: Planned) -> None:
    """Registers stack references, modules and resources in their order, and outputs."""
    program = Program(planned, {})
    scope = Scope(replace(planned.names, source=program, passed={}))
    for name, entry in planned.topology.stack_references.items():
        stack_name = _value(scope, entry.node)
        program.stacks[name] = pulumi.StackReference(name, stack_name=stack_name)
    register_all(planned, scope, program)
    for name, entry in planned.topology.outputs.items():
        pulumi.export(name, _value(scope, entry.node))


def register_all(planned: Planned, scope: Scope, program: Program) -> None:
    """Registers modules, each with its outputs, and resources.

    A module whose component the program has made already is not made again.
    """
    for module in planned.modules:
        if module not in program.modules:
            parent = program.modules[module.module] if module.module else None
            component = pulumi.ComponentResource(
                MODULE_TYPE, module.name, None, pulumi.ResourceOptions(parent=parent)
            )
            program.modules[module] = component
    for resource in planned.resources:
        program.resources[resource.instance] = _registered(resource, scope, program)
    for module, component in program.modules.items():
        component.register_outputs(outputs_of(module, scope))


def outputs_of(module: ModuleInstance, scope: Scope) -> dict[str, Any]:
    """What a module gives out; `scope` is the topology's."""
    inside = scope.of(module)
    outputs = module.declaration.topology.outputs
    return {name: _value(inside, entry.node) for name, entry in outputs.items()}


def _registered(resource: Checked, topology: Scope, program: Program) -> PlatformResource:
    instance = resource.instance
    outer = topology.of(instance.module)
    declaration = instance.declaration
    kind = load_resource_class(declaration.platform, declaration.kind)
    problems = Diagnostics()
    scope = outer.within(instance, problems)
    _raise(problems)
    options = _options(declaration.options, scope, program)
    if instance.module:
        options.setdefault("parent", program.modules[instance.module])
    existing = options.pop("id", None)
    opts = pulumi.ResourceOptions(**options)
    place = declaration.place
    if existing is not None:
        return _declared_at(place, lambda: kind.get(instance.name, existing, opts))
    values = {
        name: _value(scope, resource.properties[name].node) if contains_unknown(value) else value
        for name, value in resource.values.items()
    }
    return _declared_at(place, lambda: kind(instance.name, opts, **values))


_RENAMED = {"import": "import_", "timeouts": "custom_timeouts"}


def _options(options: Mapping[str, Entry], scope: Scope, program: Program) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, entry in options.items():
        if key in LISTS:
            value: Any = _resources(entry, scope, program)
        elif key in SINGLE:
            (value,) = _resources(entry, scope, program)
        elif key == "aliases":
            value = [_alias(item, scope, program) for item in items(entry)]
        else:
            value = _value(scope, entry.node)
        if value is not None:
            found[_RENAMED.get(key, key)] = value
    timeouts = found.get("custom_timeouts")
    if timeouts is not None:
        found["custom_timeouts"] = pulumi.CustomTimeouts(**timeouts)
    return found


def _resources(entry: Entry, scope: Scope, program: Program) -> list[PlatformResource]:
    named = [each for item in items(entry) for each in scope.named(item) or ()]
    return [program.resources[each] for each in named]


def _alias(node: Node, scope: Scope, program: Program) -> pulumi.Alias:
    entries = node.entries if isinstance(node, MappingNode) else {}
    said = {key: entry for key, entry in entries.items() if key != "parent"}
    given = {key: _value(scope, entry.node) for key, entry in said.items()}
    if "type" in given:
        given["type_"] = given.pop("type")
    if "parent" in entries:
        named = scope.named(entries["parent"].node)
        parent = program.resources[named[0]] if named else None
        given["parent"] = parent or _value(scope, entries["parent"].node)
    return pulumi.Alias(**given)


def _value(scope: Scope, node: Node) -> Any:
    problems = Diagnostics()
    value = scope.value(node, problems)
    _raise(problems)
    return value


def _raise(problems: Diagnostics) -> None:
    if problems:
        raise TopologyError(problems)


_Made = TypeVar("_Made")
_CODE: Final = compile("make()", "", "eval")


def _declared_at(place: SourcePosition, make: Callable[[], _Made]) -> _Made:
    """What `make` makes, called from this place in the file, and from where that is included.

    Pulumi's SDK tells engines the lines of the stack of calls: one of these is the entry's, under
    the Pulumi CLI as well.
    """
    called = partial(_called, place, make)
    for outer in place.included:
        if not outer.file.endswith(".py"):  # a program's line is among its own
            called = partial(_called, outer, called)
    return called()


def _called(place: SourcePosition, make: Callable[[], _Made]) -> _Made:
    file = str(Path(place.file).resolve())
    code = _CODE.replace(co_filename=file, co_firstlineno=place.line, co_name=file)
    made: _Made = eval(code, {"make": make})  # noqa: S307 - our own two words
    return made

"""Evaluate what a planned topology declares while a run registers it.

`registering` registers with Pulumi's SDK, `declaring` with gpuform's own engine: both subclass
`RunSource`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Generic, TypeVar

import pulumi

from gpuform.schemas.errors import EngineError
from gpuform.schemas.values import contains_unknown
from gpuform.stacks.document.diagnostics import Diagnostics, DocumentDiagnostic
from gpuform.stacks.document.nodes import Entry, MappingNode, Node
from gpuform.stacks.topology.checking import LISTS, SINGLE, CheckedResource, list_items
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
        """Return `value` marked as secret."""

    @abstractmethod
    def create_alias(self, fields: dict[str, Any]) -> Any:
        """Return an alias with these fields; `parent` is among them if it is declared."""

    def get_config(self, name: str) -> Any:
        """Return the value of a configuration variable, marked if it is secret."""
        config_value = self._planned.config[name]
        return self.make_secret(config_value.value) if config_value.secret else config_value.value

    def lookup(self, platform: str, name: str) -> Any:
        """Return a platform's lookup as a `Function`."""
        return self._checking.lookup(platform, name)

    def get_name(self, name: str) -> Any:
        """Return the name of the running `project` or `stack`."""
        return self._checking.get_name(name)

    def build_missing_output_error(
        self, reference: str, name: str, existing_names: Collection[str]
    ) -> TopologyError:
        """Return the error that a referenced stack has no output `name`.

        `reference` is the entry of `stack_references`; the hint lists the existing outputs.
        """
        message = f"the stack of stack_references.{reference} has no output {name}"
        names = ", ".join(sorted(existing_names))
        hint = f"its outputs are {names}" if existing_names else "it has no outputs"
        position = self._planned.topology.stack_references[reference].position
        return TopologyError([DocumentDiagnostic(position, "reference", message, hint)])

    def evaluate_options(self, options: Mapping[str, Entry], scope: Scope) -> dict[str, Any]:
        """Return the values of options that are set; options for resources have what stands there.

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
        """Return what stands for the resources named by the option's items."""
        return [
            self.resources[resource]
            for item in list_items(entry)
            for resource in scope.find_named_resources(item) or ()
        ]

    def _evaluate_alias(self, node: Node, scope: Scope) -> Any:
        """Return the alias of a node; its parent is a resource or a URN."""
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
    """Return the values of a resource's properties; those known while planning are not repeated.

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

"""Evaluate expressions of a topology against a stack's state, for `gpuform console`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from gpuform.providers import values
from gpuform.providers.operations import Settings, use_lookup_settings
from gpuform.providers.values import Secret
from gpuform.schemas.errors import EngineError
from gpuform.schemas.safe_text import MASK
from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import UNKNOWN, contains_unknown, convert_leaves
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.engine.project import find_topology_file
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.expressions.template import has_expression, parse
from gpuform.stacks.expressions.values import ExpressionError
from gpuform.stacks.resource_rules import find_kind
from gpuform.stacks.topology.configuration import ConfigValue
from gpuform.stacks.topology.declarations import (
    ALONE,
    MODULES,
    ConfigVariable,
    Declaration,
    Instance,
    InstanceGroup,
    Topology,
)
from gpuform.stacks.topology.planning import PlanContext, PlannedTopology, plan, plan_topology
from gpuform.stacks.topology.references import CheckingSource, Names, list_roots
from gpuform.stacks.topology.registering import TopologyError
from gpuform.stacks.topology.scope import Scope
from gpuform.stacks.topology_program import create_lookup_finder

Key = tuple[str, str, str]
"""The platform, kind and name of a resource: a topology has only one resource for each."""

_SECTION_BY_KIND = {kind: section for section, kind in SECTIONS.items()}


def group_by_key(entries: Iterable[ResourceState]) -> dict[Key, ResourceState]:
    """Return the resources of a state by key, without old objects to be deleted."""
    entries_by_key = {}
    for entry in entries:
        kind = find_kind(entry.type)
        if kind is not None and not entry.delete:
            entries_by_key[(*kind, name_of(entry.urn))] = entry
    return entries_by_key


def get_key(instance: Instance) -> Key:
    """Return the key of a declared resource in a state."""
    declaration = instance.declaration
    return declaration.platform, declaration.kind, instance.name


def add_stored_resources(names: Names, keys: Iterable[Key]) -> Names:
    """Return the names with an entry for each undeclared resource of the state.

    Resources of modules are included. A name that its section has already is not replaced.
    """
    declared = {get_key(instance) for instance in Scope(names).list_resources()}
    groups: dict[str, dict[str, InstanceGroup[Instance]]] = {
        section: dict(group) for section, group in names.groups.items()
    }
    for key in keys:
        section, name = _SECTION_BY_KIND[key[1]], key[2]
        if key not in declared and name not in groups[section]:
            groups[section][name] = _build_group(section, key)
    return replace(names, groups=groups)


def _build_group(section: str, key: Key) -> InstanceGroup[Instance]:
    """Return the group of one resource missing in the topology, without properties."""
    declaration = Declaration(
        section=section,
        name=key[2],
        position=SourcePosition(""),
        platform=key[0],
        properties={},
        options={},
    )
    return InstanceGroup(declaration, {ALONE: Instance(declaration)})


@dataclass(frozen=True, slots=True)
class StateSource:
    """The source of values for expressions: resources missing in the state are UNKNOWN.

    A value made of a secret is a Secret. `stack_outputs` returns the outputs of the stack that a
    reference names.
    """

    checking: CheckingSource
    configured: Mapping[str, ConfigValue]
    entries: Mapping[Key, ResourceState]
    stack_outputs: Callable[[str], Mapping[str, Any]]

    def get_config(self, name: str) -> Any:
        """Return the value of a variable, UNKNOWN without a value."""
        config_value = self.configured.get(name)
        if config_value is None:
            return UNKNOWN
        return Secret(config_value.value) if config_value.secret else config_value.value

    def get_input(self, _name: str) -> Any:
        """Return UNKNOWN: a stack has no inputs, unlike a module."""
        return UNKNOWN

    def make_secret(self, value: Any) -> Any:
        """Return the value of an expression as a Secret; UNKNOWN stays UNKNOWN."""
        return value if value is UNKNOWN else Secret(values.unwrap_secrets(value))

    def get_property(self, instance: Instance, name: str) -> Any:
        """Return the state's value; UNKNOWN for a resource missing in the state.

        A property that the state does not have is None.
        """
        entry = self.entries.get(get_key(instance))
        if entry is None:
            return UNKNOWN
        if name in ("id", "urn"):
            return entry.id if name == "id" else entry.urn
        # The platform's own value counts before the declared one.
        return _to_expression_value({**entry.inputs, **entry.outputs}.get(name))

    def get_stack_output(self, reference: str, name: str) -> Any:
        """Return an output of another stack.

        Raises:
            ExpressionError: the other stack has no such output.
        """
        outputs = self.stack_outputs(reference)
        if name not in outputs:
            raise ExpressionError(
                f"the stack of stack_references.{reference} has no output {name}",
                f"its outputs are {', '.join(sorted(outputs))}" if outputs else "it has no outputs",
            )
        return _to_expression_value(outputs[name])

    def lookup(self, platform: str, name: str) -> Any:
        """Return the function behind a platform's lookup, such as `scp.images`."""
        return self.checking.lookup(platform, name)

    def get_name(self, name: str) -> Any:
        """Return the name of the project or stack, for `pulumi.NAME`."""
        return self.checking.get_name(name)

    def is_pending(self, value: Any) -> bool:
        """Return whether a value or a part of it is unknown or secret."""
        return contains_unknown(value) or values.contains_secret(value)

    def join(
        self,
        parts: Sequence[Any],
        make: Callable[[Sequence[Any]], Any],
        _of_secret: Callable[[], None],
    ) -> Any:
        """Return the result of `make`: UNKNOWN if a part is unknown, else a Secret."""
        if contains_unknown(list(parts)):
            return UNKNOWN
        return Secret(make([values.unwrap_secrets(part) for part in parts]))


def render_value(value: Any, *, show_secrets: bool) -> Any:
    """Return a value for display, with masked secrets and unknown parts as `[unknown]`."""

    def render_leaf(leaf: Any) -> Any:
        if isinstance(leaf, Secret):
            return render_value(leaf.value, show_secrets=True) if show_secrets else MASK
        return "[unknown]" if leaf is UNKNOWN else leaf

    return convert_leaves(value, render_leaf)


def _to_expression_value(value: Any) -> Any:
    """Return a value of a state as an expression value: whole numbers are integers."""

    def convert_leaf(leaf: Any) -> Any:
        if isinstance(leaf, Secret):
            return Secret(_to_expression_value(leaf.value))
        # State files hold all numbers as floats.
        if isinstance(leaf, float) and leaf.is_integer():
            return int(leaf)
        return leaf

    return convert_leaves(value, convert_leaf)


@dataclass(frozen=True, slots=True)
class Console:
    """Evaluates expressions against a stack; nothing is locked or changed."""

    scope: Scope
    settings: Settings

    @classmethod
    def from_stack(cls, stack: Stack, environ: Mapping[str, str]) -> "Console":
        """Return the console of a stack.

        Raises:
            TopologyError: the stack's topology has problems.
        """
        config_values, secret = stack.settings.build_program_config(stack.crypter)
        prefix = f"{stack.project.name}:"
        project_values = {
            key.removeprefix(prefix): value
            for key, value in config_values.items()
            if key.startswith(prefix)
        }
        config = _StackConfig(project_values, frozenset(key.removeprefix(prefix) for key in secret))
        program = {"project": stack.project.name, "stack": stack.name}
        planned = _plan_topology(stack, PlanContext(config, program))
        entries = group_by_key(stack.snapshot.resources)
        source = StateSource(
            CheckingSource(planned.config, program, create_lookup_finder()),
            planned.config,
            entries,
            _create_output_reader(stack, planned),
        )
        # Resources that only modules declare are in the state, not in the topology's own sections.
        names = replace(add_stored_resources(planned.names, entries), source=source, passed={})
        return cls(Scope(names), Settings(config=config_values.get, environ=environ))

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression, or of a text with expressions.

        An expression may lack the `{{ }}`. Secrets in the result are not masked; look-ups ask their
        platforms.

        Raises:
            GpuformError: the expression cannot be evaluated.
        """
        template = expression if has_expression(expression) else f"{{{{ {expression} }}}}"
        try:
            with use_lookup_settings(self.settings):
                return self.scope.evaluate(parse(template), SourcePosition("the expression"))
        except ExpressionError as error:
            raise EngineError(str(error), hint=error.hint or None) from None
        except TopologyError as error:
            raise EngineError(error.diagnostics[0].message, error.diagnostics[0].hint) from None

    def find_completions(self, prefix: str) -> Iterator[str]:
        """Yield the complete expressions to continue `prefix` by one step, up to the next dot."""
        *steps, last = prefix.split(".")
        for name in self._list_names(steps):
            if name.startswith(last):
                yield ".".join([*steps, name])

    def _list_names(self, steps: list[str]) -> Iterable[str]:
        """Return the possible names after `steps` in an expression; nothing after unknown steps.

        The steps lead from the root to a section, a resource, an instance and then a property. A
        resource that is a single one has no step for the instance.
        """
        names = self.scope.names
        if not steps:
            return list_roots()
        if steps[0] == "config" and len(steps) == 1:
            return names.config
        groups: Mapping[str, Any] = names.groups.get(steps[0], {})
        if steps[0] == MODULES:
            groups = names.modules
        if len(steps) == 1:
            return groups
        group = groups.get(steps[1])
        if group is None:
            return ()
        own_step_count = 2 if group.declaration.is_single else 3
        if len(steps) < own_step_count:
            return tuple(group.instances)
        # All instances of an entry have the same properties.
        instance = next(iter(group.instances.values()), None)
        if len(steps) > own_step_count or instance is None:
            return ()
        if steps[0] == MODULES:
            return list(instance.declaration.topology.outputs)
        return list(instance.list_property_names())


@dataclass(frozen=True, slots=True)
class _StackConfig:
    """The decrypted values of a stack."""

    texts: Mapping[str, str]
    secret: frozenset[str]

    def get(self, name: str) -> str | None:
        """Return the stack's value for a configuration key, or None."""
        return self.texts.get(name)

    def is_secret(self, name: str) -> bool:
        """Return whether the value of a configuration key is secret."""
        return name in self.secret


def _plan_topology(stack: Stack, context: PlanContext) -> PlannedTopology:
    """Return the stack's planned topology; for a program, one with only the configuration."""
    program, problems = stack.project.program, Diagnostics()
    file = find_topology_file(program if program.is_dir() else program.parent)
    if file is not None:
        planned = plan(file, context, problems)
    else:
        config = context.config
        assert isinstance(config, _StackConfig)  # noqa: S101 - made above
        position = SourcePosition(Path(stack.settings.path).name)
        # A program does not declare its configuration: each key of the settings becomes a variable.
        variables = {name: ConfigVariable(name, position, {}) for name in config.texts}
        planned = plan_topology(Topology(config=variables), context, problems)
    if problems:
        raise TopologyError(problems)
    return planned


def _create_output_reader(
    stack: Stack, planned: PlannedTopology
) -> Callable[[str], Mapping[str, Any]]:
    """Return a cached function to read the outputs of the stack behind a stack reference.

    Outputs that are not an object are empty.
    """

    # An expression may read several outputs of one stack, which is read once.
    @cache
    def read_outputs(reference: str) -> Mapping[str, Any]:
        node = planned.topology.stack_references[reference].node
        name = Scope(planned.names).evaluate_node(node, Diagnostics())
        stack_outputs = stack.references.read({"name": name})["outputs"]
        return stack_outputs if isinstance(stack_outputs, Mapping) else {}

    return read_outputs

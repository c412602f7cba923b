"""Evaluate an expression of a topology against a stack, for `gpuform console`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from gpuform.providers.operations import Settings, use_lookup_settings
from gpuform.schemas.safe_text import MASK
from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import UNKNOWN, contains_unknown
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.engine import values
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import find_topology_file
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.engine.values import Secret
from gpuform.stacks.expressions.budget import ExpressionError
from gpuform.stacks.expressions.template import has_expression, parse
from gpuform.stacks.program import lookups
from gpuform.stacks.resource_rules import kind_of
from gpuform.stacks.topology.configuration import ConfigValue
from gpuform.stacks.topology.declarations import (
    ALONE,
    MODULES,
    ConfigVariable,
    Declaration,
    Group,
    Instance,
    Topology,
)
from gpuform.stacks.topology.errors import TopologyError
from gpuform.stacks.topology.names import Names
from gpuform.stacks.topology.planning import PlanContext, PlannedTopology, plan, plan_topology
from gpuform.stacks.topology.references import list_roots
from gpuform.stacks.topology.scope import Scope
from gpuform.stacks.topology.sources import CheckingSource

Key = tuple[str, str, str]
"""A resource by platform, kind and name: topologies have one of each."""

_SECTION_OF = {kind: section for section, kind in SECTIONS.items()}


def by_key(entries: Iterable[ResourceState]) -> dict[Key, ResourceState]:
    """The resources of a state, without old objects that wait for their deletion."""
    found = {}
    for entry in entries:
        kind = kind_of(entry.type)
        if kind is not None and not entry.delete:
            found[(*kind, name_of(entry.urn))] = entry
    return found


def key_of(instance: Instance) -> Key:
    """What a declared resource has in a state."""
    own = instance.declaration
    return own.platform, own.kind, instance.name


def with_stored(names: Names, keys: Iterable[Key]) -> Names:
    """The names with an entry for each other resource of the state, those in modules among them."""
    declared = {key_of(each) for each in Scope(names).list_resources()}
    groups: dict[str, dict[str, Group[Instance]]] = {
        section: dict(found) for section, found in names.groups.items()
    }
    for key in keys:
        section, name = _SECTION_OF[key[1]], key[2]
        if key not in declared and name not in groups[section]:
            groups[section][name] = _stored(section, key)
    return replace(names, groups=groups)


def _stored(section: str, key: Key) -> Group[Instance]:
    declaration = Declaration(
        section=section,
        name=key[2],
        position=SourcePosition(""),
        platform=key[0],
        properties={},
        options={},
    )
    return Group(declaration, {ALONE: Instance(declaration)})


@dataclass(frozen=True, slots=True)
class Stored:
    """What is not in the state is UNKNOWN; what is made of a secret is a Secret.

    `stack_outputs` are the outputs of the stack that a reference names.
    """

    checking: CheckingSource
    configured: Mapping[str, ConfigValue]
    entries: Mapping[Key, ResourceState]
    stack_outputs: Callable[[str], Mapping[str, Any]]

    def get_config(self, name: str) -> Any:
        """UNKNOWN when not set."""
        found = self.configured.get(name)
        if found is None:
            return UNKNOWN
        return Secret(found.value) if found.secret else found.value

    def get_input(self, _name: str) -> Any:
        """No stack is a module."""
        return UNKNOWN

    def make_secret(self, value: Any) -> Any:
        """The value as one."""
        return value if value is UNKNOWN else Secret(_opened(value))

    def get_property(self, instance: Instance, name: str) -> Any:
        """What the state has; UNKNOWN for a resource that the next `up` makes."""
        entry = self.entries.get(key_of(instance))
        if entry is None:
            return UNKNOWN
        if name in ("id", "urn"):
            return entry.id if name == "id" else entry.urn
        return _plain({**entry.inputs, **entry.outputs}.get(name))

    def get_stack_output(self, reference: str, name: str) -> Any:
        """Raises ExpressionError for an output that the other stack does not have."""
        outputs = self.stack_outputs(reference)
        if name not in outputs:
            raise ExpressionError(
                f"the stack of stack_references.{reference} has no output {name}",
                f"there is {', '.join(sorted(outputs))}" if outputs else "it has none at all",
            )
        return _plain(outputs[name])

    def lookup(self, platform: str, name: str) -> Any:
        """A Function."""
        return self.checking.lookup(platform, name)

    def get_name(self, name: str) -> Any:
        """The name of the `project` or `stack`."""
        return self.checking.get_name(name)

    def is_pending(self, value: Any) -> bool:
        """Whether a value, or a part of it, is not known, or secret."""
        return contains_unknown(value) or _has_secret(value)

    def join(
        self,
        parts: Sequence[Any],
        make: Callable[[Sequence[Any]], Any],
        _of_secret: Callable[[], None],
    ) -> Any:
        """UNKNOWN where a part is; else a Secret, since one of them is."""
        if contains_unknown(list(parts)):
            return UNKNOWN
        return Secret(make([_opened(part) for part in parts]))


def shown(value: Any, *, show_secrets: bool) -> Any:
    """A value for people: secret parts masked, and unknown ones named."""
    if value is UNKNOWN:
        return "[unknown]"
    if isinstance(value, Secret):
        return shown(value.value, show_secrets=True) if show_secrets else MASK
    if isinstance(value, Mapping):
        return {key: shown(item, show_secrets=show_secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item, show_secrets=show_secrets) for item in value]
    return value


def _plain(value: Any) -> Any:
    """A value of a state as expressions have it: whole numbers are whole, and UNKNOWN is ours."""
    if value is values.UNKNOWN:
        return UNKNOWN
    if isinstance(value, Secret):
        return Secret(_plain(value.value))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _has_secret(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_secret, value.values()))
    if isinstance(value, list):
        return any(map(_has_secret, value))
    return isinstance(value, Secret)


def _opened(value: Any) -> Any:
    if isinstance(value, Secret):
        return _opened(value.value)
    if isinstance(value, Mapping):
        return {key: _opened(item) for key, item in value.items()}
    return [_opened(item) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Console:
    """A stack as expressions see it: nothing is locked, and nothing is changed."""

    scope: Scope
    settings: Settings

    @classmethod
    def of(cls, stack: Stack, environ: Mapping[str, str]) -> "Console":
        """That of a stack. Raises TopologyError with what is wrong in its topology."""
        texts, secret = stack.settings.build_program_config(stack.crypter)
        prefix = f"{stack.project.name}:"
        own = {k.removeprefix(prefix): v for k, v in texts.items() if k.startswith(prefix)}
        config = _Config(own, frozenset(key.removeprefix(prefix) for key in secret))
        program = {"project": stack.project.name, "stack": stack.name}
        planned = _planned(stack, PlanContext(config, program))
        entries = by_key(stack.snapshot.resources)
        source = Stored(
            CheckingSource(planned.config, program, lookups()),
            planned.config,
            entries,
            _stack_outputs(stack, planned),
        )
        names = replace(with_stored(planned.names, entries), source=source, passed={})
        return cls(Scope(names), Settings(config=texts.get, environ=environ))

    def evaluate(self, text: str) -> Any:
        """The value of an expression, with or without its `{{ }}`, or of a text with some.

        Raises UserError for what cannot be evaluated.
        """
        whole = text if has_expression(text) else f"{{{{ {text} }}}}"
        try:
            with use_lookup_settings(self.settings):
                return self.scope.evaluate(parse(whole), SourcePosition("the expression"))
        except ExpressionError as error:
            raise EngineError(str(error), hint=error.hint or None) from None
        except TopologyError as error:
            raise EngineError(error.diagnostics[0].message, error.diagnostics[0].hint) from None

    def completions(self, begun: str) -> Iterator[str]:
        """What may stand where `begun` is: names, one step at a time."""
        *steps, last = begun.split(".")
        for name in self._names(steps):
            if name.startswith(last):
                yield ".".join([*steps, name])

    def _names(self, steps: list[str]) -> Iterable[str]:
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
        own = 2 if group.declaration.is_single else 3
        if len(steps) < own:
            return tuple(group.instances)
        instance = next(iter(group.instances.values()), None)
        if len(steps) > own or instance is None:
            return ()
        if steps[0] == MODULES:
            return list(instance.declaration.topology.outputs)
        return list(instance.list_property_names())


@dataclass(frozen=True, slots=True)
class _Config:
    """The values of a stack, in the clear."""

    texts: Mapping[str, str]
    secret: frozenset[str]

    def get(self, name: str) -> str | None:
        return self.texts.get(name)

    def is_secret(self, name: str) -> bool:
        return name in self.secret


def _planned(stack: Stack, surroundings: PlanContext) -> PlannedTopology:
    """The stack's topology; for a program, one that declares its configuration alone."""
    program, problems = stack.project.program, Diagnostics()
    file = find_topology_file(program if program.is_dir() else program.parent)
    if file is not None:
        planned = plan(file, surroundings, problems)
    else:
        config = surroundings.config
        assert isinstance(config, _Config)  # noqa: S101 - made above
        place = SourcePosition(Path(stack.settings.path).name)
        variables = {name: ConfigVariable(name, place, {}) for name in config.texts}
        planned = plan_topology(Topology(config=variables), surroundings, problems)
    if problems:
        raise TopologyError(problems)
    return planned


def _stack_outputs(stack: Stack, planned: PlannedTopology) -> Callable[[str], Mapping[str, Any]]:
    @cache
    def outputs(reference: str) -> Mapping[str, Any]:
        node = planned.topology.stack_references[reference].node
        name = Scope(planned.names).evaluate_node(node, Diagnostics())
        found = stack.references.read({"name": name})["outputs"]
        return found if isinstance(found, Mapping) else {}

    return outputs

"""Opens a stack for expressions, and evaluates them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from gpuform.providers.operations import Settings, looking_up
from gpuform.stacks.console.source import Stored, by_key, with_stored
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import topology_in
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.expressions.budget import ExpressionError
from gpuform.stacks.expressions.template import has_expression, parse
from gpuform.stacks.program import lookups
from gpuform.stacks.topology.declarations import MODULES, ConfigVariable, Topology
from gpuform.stacks.topology.errors import TopologyError
from gpuform.stacks.topology.planning import Planned, Surroundings, plan, plan_topology
from gpuform.stacks.topology.references import roots
from gpuform.stacks.topology.scope import Scope
from gpuform.stacks.topology.sources import Checking


@dataclass(frozen=True, slots=True)
class Console:
    """A stack as expressions see it: nothing is locked, and nothing is changed."""

    scope: Scope
    settings: Settings

    @classmethod
    def of(cls, stack: Stack, environ: Mapping[str, str]) -> "Console":
        """That of a stack. Raises TopologyError with what is wrong in its topology."""
        texts, secret = stack.settings.program_config(stack.crypter)
        prefix = f"{stack.project.name}:"
        own = {k.removeprefix(prefix): v for k, v in texts.items() if k.startswith(prefix)}
        config = _Config(own, frozenset(key.removeprefix(prefix) for key in secret))
        program = {"project": stack.project.name, "stack": stack.name}
        planned = _planned(stack, Surroundings(config, program))
        entries = by_key(stack.snapshot.resources)
        source = Stored(
            Checking(planned.config, program, lookups()),
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
            with looking_up(self.settings):
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
            return roots()
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
        return list(instance.property_names())


@dataclass(frozen=True, slots=True)
class _Config:
    """The values of a stack, in the clear."""

    texts: Mapping[str, str]
    secret: frozenset[str]

    def get(self, name: str) -> str | None:
        return self.texts.get(name)

    def is_secret(self, name: str) -> bool:
        return name in self.secret


def _planned(stack: Stack, surroundings: Surroundings) -> Planned:
    """The stack's topology; for a program, one that declares its configuration alone."""
    program, problems = stack.project.program, Diagnostics()
    file = topology_in(program if program.is_dir() else program.parent)
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


def _stack_outputs(stack: Stack, planned: Planned) -> Callable[[str], Mapping[str, Any]]:
    @cache
    def outputs(reference: str) -> Mapping[str, Any]:
        node = planned.topology.stack_references[reference].node
        name = Scope(planned.names).value(node, Diagnostics())
        found = stack.references.read({"name": name})["outputs"]
        return found if isinstance(found, Mapping) else {}

    return outputs

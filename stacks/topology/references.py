"""What references of expressions are to: the values to evaluate with, and the resources."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gpuform.providers.catalog import list_lookups
from gpuform.providers.platform import platforms
from gpuform.schemas.checking import find_nearest_name
from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.expressions.budget import ExpressionError
from gpuform.stacks.expressions.filters import METHODS
from gpuform.stacks.expressions.template import Need
from gpuform.stacks.topology.declarations import (
    ALONE,
    MODULES,
    Group,
    Instance,
    ModuleInstance,
    Repetition,
)
from gpuform.stacks.topology.names import Names

Leaf = tuple[tuple[str, ...], Any]
"""Where a value stands among the variables, and the value."""


class Values(Protocol):
    """What a scope knows of the values in its file."""

    def step(self, need: Need, at: int) -> str | None:
        """A step of a reference as text; None when it is not there, or not known yet."""

    def input(self, name: str) -> Any:
        """What the module is given."""

    def output(self, module: ModuleInstance, name: str) -> Any:
        """What a module gives out."""

    def resources_given(self, name: str) -> list[Instance]:
        """The resources that an input is made of."""

    def resources_out(self, module: ModuleInstance, name: str) -> list[Instance]:
        """The resources that an output is made of."""

    def named_given(self, name: str) -> list[Instance] | None:
        """The resources that an input is, and nothing else."""

    def named_out(self, module: ModuleInstance, name: str) -> list[Instance] | None:
        """The resources that an output is, and nothing else."""


_Made = TypeVar("_Made", bound=Repetition[Any])
_FUNCTIONS = ("range",)
_OUTSIDE = ("config", "stack_references")
"""What a module cannot see: it is of the topology's own stack."""
_OF_MAPS = frozenset(METHODS[next(kind for kind in METHODS if kind is not str)])


def roots() -> tuple[str, ...]:
    """What a reference can begin with."""
    return (
        *("config", "inputs", "each", "stack_references", "pulumi", MODULES),
        *(*SECTIONS, *platforms(), *_FUNCTIONS),
    )


@dataclass(frozen=True, slots=True)
class References:
    """Finds what references are to. Every method raises ExpressionError for one to nothing."""

    names: Names
    values: Values

    def leaves(self, need: Need, *, alone: bool) -> Iterator[Leaf]:
        """The values that a reference needs; `alone`, when it is the whole expression."""
        if need.root in _OUTSIDE and self.names.inputs is not None:
            hint = "declare an input, and give it the value in `with` where the module is included"
            raise ExpressionError(f"{need.root} is not known in a module", hint)
        if need.root in SECTIONS:
            yield from self._of_resources(need, alone=alone)
        elif need.root == MODULES:
            yield from self._of_modules(need)
        elif need.root == "each":
            yield from self._of_each(need)
        elif need.root == "stack_references":
            yield self._of_stack(need)
        elif need.root not in _FUNCTIONS:
            known, get, hint = self._simple(need.root)
            for name in self._chosen(need, known, hint):
                yield (need.root, name), get(name)

    def _simple(self, root: str) -> tuple[Sequence[str], Callable[[str], Any], str]:
        """The names of a root, how to get the value of one, and a hint for those it lacks."""
        source = self.names.source
        if root == "config":
            return self.names.config, source.config, "declare it in the config section"
        if root == "inputs":
            if self.names.inputs is None:
                raise ExpressionError("inputs are known only in modules", "use config")
            return tuple(self.names.inputs), self.values.input, "declare it in the inputs section"
        if root == "pulumi":
            return ("project", "stack"), source.about, ""
        if root in platforms():
            return list_lookups(root), lambda name: source.lookup(root, name), ""
        raise _unknown(root, roots())

    def resources(self, need: Need) -> list[Instance]:
        """The resources that a reference is to; none for one to something else."""
        if need.root == "inputs":
            names = self._chosen(need, tuple(self.names.inputs or ()))
            return [each for name in names for each in self.values.resources_given(name)]
        if need.root == MODULES:
            chosen = self._outputs_of(need)
            return [r for module, name in chosen for r in self.values.resources_out(module, name)]
        if need.root not in SECTIONS:
            return []
        group = self._group(need)
        instance, _ = self._instance(need, group)
        return list(group.instances.values()) if instance is None else [instance]

    def named(self, need: Need) -> list[Instance] | None:
        """The resources that a reference is, and nothing else: one, or all of an entry or module.

        None for another value.
        """
        if need.root == "inputs" and len(need.steps) == 1:
            (name,) = self._chosen(need, tuple(self.names.inputs or ()))
            return self.values.named_given(name)
        if need.root not in (*SECTIONS, MODULES):
            return None
        group = self._group(need)
        instance, used = self._instance(need, group)
        if need.root in SECTIONS:
            return self.resources(need) if used == len(need.steps) else None
        if used == len(need.steps):
            every = group.instances.values() if instance is None else [instance]
            return [resource for module in every for resource in module.resources()]
        if instance is None or used + 1 != len(need.steps):
            return None
        ((module, name),) = self._outputs_of(need)
        return self.values.named_out(module, name)

    def _chosen(self, need: Need, known: Sequence[str], hint: str = "") -> Sequence[str]:
        """The name that the first step is; all of them when it is not known."""
        step = self.values.step(need, 0)
        if step is None:
            return known
        if step not in known:
            raise _unknown(step, known, f"{need.root}.", hint)
        return [step]

    def _of_each(self, need: Need) -> Iterator[Leaf]:
        if self.names.each is None:
            raise ExpressionError("each is known only in entries with for_each")
        for name in self._chosen(need, ("key", "value")):
            yield (need.root, name), self.names.each[name]

    def _of_stack(self, need: Need) -> Leaf:
        output = self.values.step(need, 1)
        if output is None:
            raise ExpressionError(
                f"{need} names no output of a stack",
                "write {{ stack_references.NAME.OUTPUT }}",
            )
        (name,) = self._chosen(need, self.names.stack_references)
        return (need.root, name, output), self.names.source.stack_output(name, output)

    def _of_modules(self, need: Need) -> Iterator[Leaf]:
        group = self._group(need)
        instance, _ = self._instance(need, group)
        if instance is None and (group.open or not group.instances):
            yield (need.root, group.declaration.name), UNKNOWN if group.open else {}
            return
        for module in [instance] if instance else group.instances.values():
            if not module.declaration.topology.outputs:
                yield module.path, {}
        for module, name in self._outputs_of(need):
            yield (*module.path, name), self.values.output(module, name)

    def _outputs_of(self, need: Need) -> Iterator[tuple[ModuleInstance, str]]:
        """The outputs of modules that a reference may read."""
        group = self._group(need)
        instance, used = self._instance(need, group)
        for module in [instance] if instance else group.instances.values():
            known = tuple(module.declaration.topology.outputs)
            name = self.values.step(need, used) if instance else None
            if name is not None and name not in known:
                before, hint = f"{'.'.join(module.path)}.", "declare it in the module's outputs"
                raise _unknown(name, known, before, hint)
            yield from ((module, each) for each in (known if name is None else (name,)))

    def _of_resources(self, need: Need, *, alone: bool) -> Iterator[Leaf]:
        group = self._group(need)
        instance, used = self._instance(need, group)
        if instance is None and (group.open or not group.instances):
            yield (need.root, group.declaration.name), UNKNOWN if group.open else {}
            return
        for each in [instance] if instance else group.instances.values():
            for name in self._properties(need, each, used if instance else None, alone=alone):
                yield (*each.path, name), self.names.source.property(each, name)

    def _properties(
        self, need: Need, instance: Instance, at: int | None, *, alone: bool
    ) -> Sequence[str]:
        """The properties that a reference may read; `at` is the step that chooses one, if any."""
        known = instance.property_names()
        name = None if at is None else self.values.step(need, at)
        if name is None:
            is_whole = len(need.steps) == (1 if at is None else at)
            return ("id",) if alone and is_whole else known
        if name not in known:
            raise _unknown(name, known, f"{'.'.join(instance.path)}.")
        return (name,)

    def _group(self, need: Need) -> Group[Any]:
        groups: Mapping[str, Group[Any]]
        groups = self.names.modules if need.root == MODULES else self.names.groups[need.root]
        name = self.values.step(need, 0)
        if name is None:
            raise ExpressionError(f"{need} names no entry", f"write {{{{ {need.root}.NAME }}}}")
        if name in groups:
            return groups[name]
        longer = next((each for each in groups if each.startswith(f"{name}-")), None)
        if longer is not None:
            raise ExpressionError(
                f"there is no {need.root}.{name}",
                f"a name with a hyphen goes in brackets: {need.root}['{longer}']",
            )
        raise _unknown(name, tuple(groups), f"{need.root}.")

    def _instance(self, need: Need, group: Group[_Made]) -> tuple[_Made | None, int]:
        """The instance that a reference is to, and how many steps led there; None for all."""
        key, used = (ALONE, 1) if group.declaration.is_single else (self.values.step(need, 1), 2)
        address = group.declaration.address
        if key in group.absent:
            shown = address if group.declaration.is_single else f"{address}.{key}"
            raise ExpressionError(f"{shown} is not declared: its `when` is false")
        if key is None or group.open:
            return None, 1
        if key in group.instances:
            return group.instances[key], used
        if key in _OF_MAPS:
            return None, 1
        hint = f"{address} has for_each: name the instance, {address}.KEY"
        raise _unknown(key, tuple(group.instances), f"{address}.", hint)


def _unknown(name: str, known: Sequence[str], before: str = "", hint: str = "") -> ExpressionError:
    near = find_nearest_name(name, tuple(known))
    if near:
        hint = f"did you mean {before}{near}?"
    elif not hint and known:
        hint = f"there is {', '.join(known[:30])}"
    return ExpressionError(f"there is no {before}{name}", hint)

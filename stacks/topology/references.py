"""What references of expressions are to: the values to evaluate with, and the resources."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.providers.catalog import LIFECYCLES, lookup_names
from gpuform.schemas.reasons import nearest
from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.expressions.errors import ExpressionError
from gpuform.stacks.expressions.filters import METHODS
from gpuform.stacks.expressions.needs import Need
from gpuform.stacks.topology.instances import ALONE, Group, Instance
from gpuform.stacks.topology.names import Names

Leaf = tuple[tuple[str, ...], Any]
"""Where a value stands among the variables, and the value."""
Step = Callable[[Need, int], str | None]
"""A step of a reference as text; None when it is not there, or not known yet."""

_FUNCTIONS = ("range",)
ROOTS = ("config", "each", "stack_references", "pulumi", *SECTIONS, *LIFECYCLES, *_FUNCTIONS)
_OF_MAPS = frozenset(METHODS[next(kind for kind in METHODS if kind is not str)])


@dataclass(frozen=True, slots=True)
class References:
    """Finds what references are to. Every method raises ExpressionError for one to nothing."""

    names: Names
    step: Step

    def leaves(self, need: Need, *, alone: bool) -> Iterator[Leaf]:
        """The values that a reference needs; `alone`, when it is the whole expression."""
        if need.root in SECTIONS:
            yield from self._of_resources(need, alone=alone)
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
        if root == "pulumi":
            return ("project", "stack"), source.about, ""
        if root in LIFECYCLES:
            return lookup_names(root), lambda name: source.lookup(root, name), ""
        raise _unknown(root, ROOTS)

    def resources(self, need: Need) -> list[Instance]:
        """The resources that a reference is to; none for one to something else."""
        if need.root not in SECTIONS:
            return []
        group = self._group(need)
        instance, _ = self._instance(need, group)
        return list(group.instances.values()) if instance is None else [instance]

    def names_only_resources(self, need: Need) -> bool:
        """Whether a reference ends with a resource, or with all of an entry."""
        if need.root not in SECTIONS:
            return False
        _, used = self._instance(need, self._group(need))
        return used == len(need.steps)

    def _chosen(self, need: Need, known: Sequence[str], hint: str = "") -> Sequence[str]:
        """The name that the first step is; all of them when it is not known."""
        step = self.step(need, 0)
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
        output = self.step(need, 1)
        if output is None:
            raise ExpressionError(
                f"{need} names no output of a stack",
                "write {{ stack_references.NAME.OUTPUT }}",
            )
        (name,) = self._chosen(need, self.names.stack_references)
        return (need.root, name, output), self.names.source.stack_output(name, output)

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
        name = None if at is None else self.step(need, at)
        if name is None:
            is_whole = len(need.steps) == (1 if at is None else at)
            return ("id",) if alone and is_whole else known
        if name not in known:
            raise _unknown(name, known, f"{instance.address}.")
        return (name,)

    def _group(self, need: Need) -> Group:
        name, groups = self.step(need, 0), self.names.groups[need.root]
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

    def _instance(self, need: Need, group: Group) -> tuple[Instance | None, int]:
        """The instance that a reference is to, and how many steps led there; None for all."""
        key, used = (ALONE, 1) if group.declaration.is_single else (self.step(need, 1), 2)
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
    near = nearest(name, tuple(known))
    if near:
        hint = f"did you mean {before}{near}?"
    elif not hint and known:
        hint = f"there is {', '.join(known[:30])}"
    return ExpressionError(f"there is no {before}{name}", hint)

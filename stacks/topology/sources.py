"""Where the values of expressions come from while a topology is checked."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuform.schemas.checking import find_nearest_name
from gpuform.schemas.values import UNKNOWN, contains_unknown
from gpuform.stacks.expressions.budget import ExpressionError
from gpuform.stacks.topology.configuration import Stacked
from gpuform.stacks.topology.declarations import Instance


@dataclass(frozen=True, slots=True)
class Checking:
    """What is not known before anything is made is UNKNOWN, and so is all that is made of it.

    `lookup` asks a platform; without it, and without names in `program`, these are UNKNOWN, too.
    """

    values: Mapping[str, Stacked]
    program: Mapping[str, str]
    lookups: Callable[[str, str], Any] | None = None
    given: Mapping[str, Stacked] = field(default_factory=dict)
    """The inputs of a module that no file includes."""
    exports: Mapping[str, Collection[str]] = field(default_factory=dict)
    """What other stacks are known to give out, by the name of the reference."""

    def config(self, name: str) -> Any:
        """UNKNOWN when secret, or not set."""
        found = self.values.get(name)
        return UNKNOWN if found is None or found.secret else found.value

    def input(self, name: str) -> Any:
        """UNKNOWN when secret, or not given."""
        found = self.given.get(name)
        return UNKNOWN if found is None or found.secret else found.value

    def secret(self, _value: Any) -> Any:
        """UNKNOWN."""
        return UNKNOWN

    def property(self, _instance: Instance, _name: str) -> Any:
        """Never known."""
        return UNKNOWN

    def stack_output(self, reference: str, name: str) -> Any:
        """Never known. Raises ExpressionError where the other stack is known to have no such."""
        known = self.exports.get(reference)
        if known is not None and name not in known:
            near = find_nearest_name(name, tuple(known))
            there = f"there is {', '.join(sorted(known))}" if known else "it has none at all"
            raise ExpressionError(
                f"the stack of stack_references.{reference} has no output {name}",
                f"did you mean {near}?" if near else there,
            )
        return UNKNOWN

    def lookup(self, platform: str, name: str) -> Any:
        """A Function."""
        return self.lookups(platform, name) if self.lookups else UNKNOWN

    def about(self, name: str) -> Any:
        """The name of the `project` or `stack`."""
        return self.program.get(name, UNKNOWN)

    def is_pending(self, value: Any) -> bool:
        """Whether it holds UNKNOWN."""
        return contains_unknown(value)

    def join(
        self,
        _values: Sequence[Any],
        _make: Callable[[Sequence[Any]], Any],
        _of_secret: Callable[[], None],
    ) -> Any:
        """Always UNKNOWN."""
        return UNKNOWN

"""Where the values of expressions come from while a topology is checked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuform.schemas.values import UNKNOWN, contains_unknown
from gpuform.stacks.topology.configuration import Stacked
from gpuform.stacks.topology.instances import Instance


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

    def stack_output(self, _reference: str, _name: str) -> Any:
        """Never known."""
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

    def join(self, _values: Sequence[Any], _make: Callable[[Sequence[Any]], Any]) -> Any:
        """Always UNKNOWN."""
        return UNKNOWN

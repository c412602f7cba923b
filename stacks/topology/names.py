"""The names that expressions can use, and where their values come from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.topology.instances import Groups, Instance


class Source(Protocol):
    """The values that a topology does not hold itself: known, or standing for what will be."""

    def config(self, name: str) -> Any:
        """The value of a declared configuration variable."""

    def property(self, instance: Instance, name: str) -> Any:
        """A property of a resource."""

    def stack_output(self, reference: str, name: str) -> Any:
        """An output of another stack."""

    def lookup(self, platform: str, name: str) -> Any:
        """A platform's lookup, as a Function."""

    def about(self, name: str) -> Any:
        """The name of the running `project` or `stack`."""

    def is_pending(self, value: Any) -> bool:
        """Whether a value, or a part of it, is not known yet."""

    def join(self, values: Sequence[Any], make: Callable[[Sequence[Any]], Any]) -> Any:
        """What `make` makes of the values once all are known, or what stands for it."""


def _no_groups() -> Groups:
    return {section: {} for section in SECTIONS}


@dataclass(frozen=True, slots=True)
class Names:
    """What there is. `each` is what it means in the instance at hand, None outside of one."""

    source: Source
    config: Sequence[str] = ()
    stack_references: Sequence[str] = ()
    groups: Groups = field(default_factory=_no_groups)
    each: Mapping[str, Any] | None = None

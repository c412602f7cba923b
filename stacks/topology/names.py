"""Define the names that expressions can use, and where their values come from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.topology.declarations import (
    ConfigVariable,
    Groups,
    Instance,
    ModuleInstance,
    Modules,
)


class Source(Protocol):
    """The values that a topology does not hold itself: known, or standing for what will be."""

    def config(self, name: str) -> Any:
        """The value of a declared configuration variable."""

    def input(self, name: str) -> Any:
        """The value of an input of a module that no file includes."""

    def secret(self, value: Any) -> Any:
        """The value as a secret one."""

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

    def join(
        self,
        values: Sequence[Any],
        make: Callable[[Sequence[Any]], Any],
        of_secret: Callable[[], None],
    ) -> Any:
        """What `make` makes of the values once all are known, or what stands for it.

        Where one of them is secret, `of_secret` is called before, and may raise.
        """


def no_groups() -> Groups:
    """Those of a file before anything is expanded."""
    return {section: {} for section in SECTIONS}


@dataclass(frozen=True, slots=True)
class Names:
    """What there is. `each` is what it means in the instance at hand, None outside of one.

    `module` is the one whose file is looked at; `inputs` are None outside of modules. `passed`
    keeps what has gone in and out of modules, each value once for each source.
    """

    source: Source
    config: Sequence[str] = ()
    inputs: Mapping[str, ConfigVariable] | None = None
    stack_references: Sequence[str] = ()
    groups: Groups = field(default_factory=no_groups)
    modules: Modules = field(default_factory=dict)
    module: ModuleInstance | None = None
    each: Mapping[str, Any] | None = None
    passed: dict[tuple[Any, ...], Any] = field(default_factory=dict)

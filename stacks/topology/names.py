"""Define the names that expressions can use, and the protocol of the sources of their values.

`expanding` adds instances to the names; `scope` evaluates expressions with them.
"""

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
    UnreadNames,
)


class ValueSource(Protocol):
    """The values that come from outside of a topology, known or standing for a later value."""

    def get_config(self, name: str) -> Any:
        """Return the value of a declared configuration variable."""

    def get_input(self, name: str) -> Any:
        """Return the value of an input of a module without an including file."""

    def make_secret(self, value: Any) -> Any:
        """Return `value` marked as secret."""

    def get_property(self, instance: Instance, name: str) -> Any:
        """Return a property of a resource."""

    def get_stack_output(self, reference: str, name: str) -> Any:
        """Return an output of another stack."""

    def lookup(self, platform: str, name: str) -> Any:
        """Return a platform's lookup as a `Function`."""

    def get_name(self, name: str) -> Any:
        """Return the name of the running `project` or `stack`."""

    def is_pending(self, value: Any) -> bool:
        """Return True if `value` contains an unknown value."""

    def join(
        self,
        values: Sequence[Any],
        make: Callable[[Sequence[Any]], Any],
        of_secret: Callable[[], None],
    ) -> Any:
        """Return the result of `make` once all `values` are known, or a stand-in until then.

        If one of the values is secret, `of_secret` is called first and may raise.
        """


def create_empty_groups() -> Groups:
    """Create the groups of a file before expansion: every section, without entries."""
    return {section: {} for section in SECTIONS}


@dataclass(frozen=True, slots=True)
class Names:
    """The names that expressions of a file can use.

    `each` is the `each` of the current instance, None outside of an instance. `module` is
    the module whose file is evaluated, `inputs` are None outside of modules. `passed`
    caches the inputs and outputs of modules for one source. `unread` holds the names of the file
    with problems that are already reported.
    """

    source: ValueSource
    config: Sequence[str] = ()
    inputs: Mapping[str, ConfigVariable] | None = None
    stack_references: Sequence[str] = ()
    groups: Groups = field(default_factory=create_empty_groups)
    modules: Modules = field(default_factory=dict)
    module: ModuleInstance | None = None
    each: Mapping[str, Any] | None = None
    passed: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    unread: UnreadNames = field(default_factory=UnreadNames)

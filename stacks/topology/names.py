"""Define the names that expressions can use, and their values while a topology is checked.

`expanding` adds instances to the names; `scope` evaluates expressions with them.

`planning` creates a `CheckingSource`; in runs, `registering` and `declaring` have sources of their
own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpuform.schemas.checking import find_nearest_name
from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import UNKNOWN, contains_unknown
from gpuform.stacks.expressions.values import ExpressionError
from gpuform.stacks.topology.configuration import ConfigValue
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


@dataclass(frozen=True, slots=True)
class CheckingSource:
    """A source in which values of resources and secrets are UNKNOWN.

    `lookups` asks a platform. Without `lookups`, and for names missing in `program`, values are
    UNKNOWN.
    """

    values: Mapping[str, ConfigValue]
    program: Mapping[str, str]
    lookups: Callable[[str, str], Any] | None = None
    input_values: Mapping[str, ConfigValue] = field(default_factory=dict)
    """The inputs of a module that no file includes."""
    exports: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The known outputs of other stacks, by the name of the reference."""

    def get_config(self, name: str) -> Any:
        """Return the value of a variable, UNKNOWN for a secret or missing value."""
        config_value = self.values.get(name)
        return UNKNOWN if config_value is None or config_value.secret else config_value.value

    def get_input(self, name: str) -> Any:
        """Return the value of an input, UNKNOWN for a secret or missing value."""
        input_value = self.input_values.get(name)
        return UNKNOWN if input_value is None or input_value.secret else input_value.value

    def make_secret(self, _value: Any) -> Any:
        """Return UNKNOWN for any secret."""
        return UNKNOWN

    def get_property(self, _instance: Instance, _name: str) -> Any:
        """Return UNKNOWN: no resource exists yet."""
        return UNKNOWN

    def get_stack_output(self, reference: str, name: str) -> Any:
        """Return UNKNOWN for an output of another stack.

        Raises:
            ExpressionError: the other stack's outputs are known and do not include `name`.
        """
        output_names = self.exports.get(reference)
        # Without names from the other stack, the run itself finds a missing output.
        if output_names is not None and name not in output_names:
            nearest_name = find_nearest_name(name, tuple(output_names))
            existing_names = (
                f"its outputs are {', '.join(sorted(output_names))}"
                if output_names
                else "it has no outputs"
            )
            raise ExpressionError(
                f"the stack of stack_references.{reference} has no output {name}",
                f"did you mean {nearest_name}?" if nearest_name else existing_names,
            )
        return UNKNOWN

    def lookup(self, platform: str, name: str) -> Any:
        """Return a platform's lookup as a `Function`, or UNKNOWN."""
        return self.lookups(platform, name) if self.lookups else UNKNOWN

    def get_name(self, name: str) -> Any:
        """Return the name of the `project` or `stack`, or UNKNOWN."""
        return self.program.get(name, UNKNOWN)

    def is_pending(self, value: Any) -> bool:
        """Return True if `value` contains UNKNOWN."""
        return contains_unknown(value)

    def join(
        self,
        _values: Sequence[Any],
        _make: Callable[[Sequence[Any]], Any],
        _of_secret: Callable[[], None],
    ) -> Any:
        """Return UNKNOWN for any result of unknown values."""
        return UNKNOWN

"""Provide the values of expressions while a topology is checked, before any resource exists.

`planning` creates a `CheckingSource`; in runs, `registering` and `declaring` have sources of their
own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuform.schemas.checking import find_nearest_name
from gpuform.schemas.values import UNKNOWN, contains_unknown
from gpuform.stacks.expressions.budget import ExpressionError
from gpuform.stacks.topology.configuration import ConfigValue
from gpuform.stacks.topology.declarations import Instance


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

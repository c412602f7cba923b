"""The values of a stack's expressions: its configuration, and the outputs that its state has."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.schemas.values import UNKNOWN, contains_unknown
from gpuform.schemas.visible import MASK
from gpuform.stacks.console.names import Key, key_of
from gpuform.stacks.engine import values
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.values import Secret
from gpuform.stacks.expressions.errors import ExpressionError
from gpuform.stacks.topology.configuration import Stacked
from gpuform.stacks.topology.instances import Instance
from gpuform.stacks.topology.sources import Checking


@dataclass(frozen=True, slots=True)
class Stored:
    """What is not in the state is UNKNOWN; what is made of a secret is a Secret.

    `stack_outputs` are the outputs of the stack that a reference names.
    """

    checking: Checking
    configured: Mapping[str, Stacked]
    entries: Mapping[Key, ResourceState]
    stack_outputs: Callable[[str], Mapping[str, Any]]

    def config(self, name: str) -> Any:
        """UNKNOWN when not set."""
        found = self.configured.get(name)
        if found is None:
            return UNKNOWN
        return Secret(found.value) if found.secret else found.value

    def input(self, _name: str) -> Any:
        """No stack is a module."""
        return UNKNOWN

    def secret(self, value: Any) -> Any:
        """The value as one."""
        return value if value is UNKNOWN else Secret(_opened(value))

    def property(self, instance: Instance, name: str) -> Any:
        """What the state has; UNKNOWN for a resource that the next `up` makes."""
        entry = self.entries.get(key_of(instance))
        if entry is None:
            return UNKNOWN
        if name in ("id", "urn"):
            return entry.id if name == "id" else entry.urn
        return _plain({**entry.inputs, **entry.outputs}.get(name))

    def stack_output(self, reference: str, name: str) -> Any:
        """Raises ExpressionError for an output that the other stack does not have."""
        outputs = self.stack_outputs(reference)
        if name not in outputs:
            raise ExpressionError(
                f"the stack of stack_references.{reference} has no output {name}",
                f"there is {', '.join(sorted(outputs))}" if outputs else "it has none at all",
            )
        return _plain(outputs[name])

    def lookup(self, platform: str, name: str) -> Any:
        """A Function."""
        return self.checking.lookup(platform, name)

    def about(self, name: str) -> Any:
        """The name of the `project` or `stack`."""
        return self.checking.about(name)

    def is_pending(self, value: Any) -> bool:
        """Whether a value, or a part of it, is not known, or secret."""
        return contains_unknown(value) or _has_secret(value)

    def join(
        self,
        parts: Sequence[Any],
        make: Callable[[Sequence[Any]], Any],
        _of_secret: Callable[[], None],
    ) -> Any:
        """UNKNOWN where a part is; else a Secret, since one of them is."""
        if contains_unknown(list(parts)):
            return UNKNOWN
        return Secret(make([_opened(part) for part in parts]))


def shown(value: Any, *, show_secrets: bool) -> Any:
    """A value for people: secret parts masked, and unknown ones named."""
    if value is UNKNOWN:
        return "[unknown]"
    if isinstance(value, Secret):
        return shown(value.value, show_secrets=True) if show_secrets else MASK
    if isinstance(value, Mapping):
        return {key: shown(item, show_secrets=show_secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item, show_secrets=show_secrets) for item in value]
    return value


def _plain(value: Any) -> Any:
    """A value of a state as expressions have it: whole numbers are whole, and UNKNOWN is ours."""
    if value is values.UNKNOWN:
        return UNKNOWN
    if isinstance(value, Secret):
        return Secret(_plain(value.value))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _has_secret(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_secret, value.values()))
    if isinstance(value, list):
        return any(map(_has_secret, value))
    return isinstance(value, Secret)


def _opened(value: Any) -> Any:
    if isinstance(value, Secret):
        return _opened(value.value)
    if isinstance(value, Mapping):
        return {key: _opened(item) for key, item in value.items()}
    return [_opened(item) for item in value] if isinstance(value, list) else value

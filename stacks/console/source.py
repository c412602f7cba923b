"""Find the values of a stack's expressions: its configuration and the outputs of its state."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuform.schemas.safe_text import MASK
from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import UNKNOWN, contains_unknown
from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.engine import values
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.engine.values import Secret
from gpuform.stacks.expressions.budget import ExpressionError
from gpuform.stacks.lifecycles import kind_of
from gpuform.stacks.topology.configuration import Stacked
from gpuform.stacks.topology.declarations import ALONE, Declaration, Group, Instance
from gpuform.stacks.topology.names import Names
from gpuform.stacks.topology.scope import Scope
from gpuform.stacks.topology.sources import Checking

Key = tuple[str, str, str]
"""A resource by platform, kind and name: topologies have one of each."""

_SECTION_OF = {kind: section for section, kind in SECTIONS.items()}


def by_key(entries: Iterable[ResourceState]) -> dict[Key, ResourceState]:
    """The resources of a state, without old objects that wait for their deletion."""
    found = {}
    for entry in entries:
        kind = kind_of(entry.type)
        if kind is not None and not entry.delete:
            found[(*kind, name_of(entry.urn))] = entry
    return found


def key_of(instance: Instance) -> Key:
    """What a declared resource has in a state."""
    own = instance.declaration
    return own.platform, own.kind, instance.name


def with_stored(names: Names, keys: Iterable[Key]) -> Names:
    """The names with an entry for each other resource of the state, those in modules among them."""
    declared = {key_of(each) for each in Scope(names).resources_here()}
    groups: dict[str, dict[str, Group[Instance]]] = {
        section: dict(found) for section, found in names.groups.items()
    }
    for key in keys:
        section, name = _SECTION_OF[key[1]], key[2]
        if key not in declared and name not in groups[section]:
            groups[section][name] = _stored(section, key)
    return replace(names, groups=groups)


def _stored(section: str, key: Key) -> Group[Instance]:
    declaration = Declaration(
        section=section,
        name=key[2],
        place=SourcePosition(""),
        platform=key[0],
        properties={},
        options={},
    )
    return Group(declaration, {ALONE: Instance(declaration)})


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

"""Define values that are known once their resources are registered.

They follow the rules of Pulumi's outputs: a value made of an unknown value is unknown,
a value made of a secret is secret, and a value made of resources depends on these
resources.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.providers import values
from gpuform.providers.values import PropertyMap, PropertyValue, Secret
from gpuform.schemas.values import UNKNOWN, contains_unknown, convert_leaves, iterate_leaves
from gpuform.stacks.engine import value_json
from gpuform.stacks.engine.language_host import ResourceResult

_NOTHING: Final[frozenset[Any]] = frozenset()


@dataclass(eq=False, slots=True)
class Handle:
    """A declared resource or component, and the engine's answer once it is registered.

    `types` converts each property to the type that programs see. `read_id` is the id of a
    resource that is only read.
    """

    urn: str
    types: Callable[[str, Any], Any]
    inputs: PropertyMap = field(default_factory=dict)
    answer: ResourceResult | None = None
    read_id: str | None = None


@dataclass(frozen=True, slots=True)
class ResolvedValue:
    """A value that is known, or `UNKNOWN` for the rest of the run.

    `urns` are the resources that the value depends on.
    """

    value: Any
    secret: bool = False
    urns: frozenset[str] = _NOTHING


@dataclass(eq=False, slots=True)
class Deferred:
    """A value that `make` computes once, after all `dependencies` are registered.

    `make` raises the errors of the value.
    """

    make: Callable[[], ResolvedValue]
    dependencies: frozenset[Handle] = _NOTHING
    _resolved: ResolvedValue | None = None

    def resolve(self) -> ResolvedValue:
        """Return the value, computed at the first call."""
        if self._resolved is None:
            self._resolved = self.make()
        return self._resolved


def is_deferred(value: Any) -> bool:
    """Return True if `value` contains a deferred value."""
    return any(True for _ in find_deferred(value))


def find_deferred(value: Any) -> Iterator[Deferred]:
    """Yield the deferred values at any depth."""
    return (leaf for leaf in iterate_leaves(value) if isinstance(leaf, Deferred))


def find_dependencies(value: Any) -> frozenset[Handle]:
    """Return the handles to register before `value` is known."""
    return _NOTHING.union(*(deferred.dependencies for deferred in find_deferred(value)))


def join_values(
    parts: Sequence[Any], make: Callable[[Sequence[Any]], Any], of_secret: Callable[[], None]
) -> Deferred:
    """Defer the result of `make` for `parts` until all parts are known.

    If a part is secret, `of_secret` is called first and may raise. The result is unknown if a part
    is; then neither function is called.
    """

    def resolve_result() -> ResolvedValue:
        resolved = resolve_value(list(parts))
        if resolved.value is UNKNOWN:
            return resolved
        if resolved.secret:
            of_secret()
        return ResolvedValue(make(resolved.value), resolved.secret, resolved.urns)

    return Deferred(resolve_result, find_dependencies(list(parts)))


def create_secret(value: Any) -> Deferred:
    """Return `value` as a deferred secret."""

    def resolve_secret() -> ResolvedValue:
        resolved = resolve_value(value)
        return ResolvedValue(resolved.value, secret=True, urns=resolved.urns)

    return Deferred(resolve_secret, find_dependencies(value))


def resolve_value(value: Any) -> ResolvedValue:
    """Resolve a value with the deferred values inside: unknown or secret if any part is."""
    resolved_parts = [deferred.resolve() for deferred in find_deferred(value)]
    urns = _NOTHING.union(*(part.urns for part in resolved_parts))
    is_secret = any(part.secret for part in resolved_parts)
    if any(part.value is UNKNOWN for part in resolved_parts):
        return ResolvedValue(UNKNOWN, is_secret, urns)
    return ResolvedValue(
        convert_leaves(
            value, lambda leaf: leaf.resolve().value if isinstance(leaf, Deferred) else leaf
        ),
        is_secret,
        urns,
    )


def serialize_value(value: Any, urns: set[str]) -> PropertyValue:
    """Convert a value to a property value for the engine, and add dependencies to `urns`.

    An unknown part makes its deferred value unknown, a secret part secret.
    """
    if isinstance(value, Deferred):
        resolved = value.resolve()
        urns |= resolved.urns
        is_unknown = resolved.value is UNKNOWN
        sent = UNKNOWN if is_unknown else value_json.from_plain(resolved.value)
        return values.make_secret(sent) if resolved.secret else sent
    if isinstance(value, Mapping):
        if not is_deferred(value):
            return value_json.from_plain(value)
        return {key: serialize_value(value[key], urns) for key in sorted(value)}
    if isinstance(value, list):
        return [serialize_value(item, urns) for item in value]
    return value_json.from_plain(value)


def defer_property(handle: Handle, name: str, *, preview: bool) -> Deferred:
    """Defer a property of a resource. The id and the URN are properties too.

    Without an output the value is the input, or None; in a preview or after a failure it is
    UNKNOWN.
    """
    return Deferred(lambda: _resolve_property(handle, name, preview), frozenset([handle]))


def defer_members(handle: Handle, name: str, *, preview: bool) -> Deferred:
    """Defer an object property whose members may be known or unknown one by one."""
    return Deferred(
        lambda: _resolve_property(handle, name, preview, by_member=True), frozenset([handle])
    )


def _resolve_property(
    handle: Handle, name: str, preview: bool, *, by_member: bool = False
) -> ResolvedValue:
    """Resolve a property of a registered resource: the output or, without one, the input.

    UNKNOWN if a preview or a failed resource has no output, or a skipped resource neither of the
    two. With `by_member`, only the members of an object that contain an unknown value are unknown,
    not the object.
    """
    answer, urns = handle.answer, frozenset([handle.urn])
    # The tasks' dependencies guarantee an answer: without one, gpuform has a bug.
    if answer is None:
        raise AssertionError(f"{handle.urn} has not been registered")
    if name == "urn":
        return ResolvedValue(handle.urn, urns=urns)
    if name == "id":
        return ResolvedValue(_resolve_id(handle, answer, preview), urns=urns)
    outputs = {} if answer.failed else answer.outputs or {}
    keeps_unknowns = preview or (handle.read_id is None and not answer.failed)
    revealed = _reveal_value(outputs.get(name), unknown=UNKNOWN if keeps_unknowns else None)
    is_missing = revealed == (None, False)
    if is_missing and not preview and not answer.failed and name in handle.inputs:
        revealed = _reveal_value(handle.inputs[name], unknown=None)
    elif is_missing and (preview or answer.failed or answer.unknown):
        return ResolvedValue(UNKNOWN, urns=urns)
    plain, is_secret = revealed
    if by_member and isinstance(plain, dict):
        plain = {key: UNKNOWN if contains_unknown(item) else item for key, item in plain.items()}
    elif (plain is None and preview) or contains_unknown(plain):
        plain = UNKNOWN
    else:
        plain = handle.types(name, plain)
    return ResolvedValue(plain, is_secret, urns)


def _resolve_id(handle: Handle, answer: ResourceResult, preview: bool) -> Any:
    """Return the id in the answer, or for a failed read the requested one; UNKNOWN without any."""
    if answer.id or handle.read_id is None or preview:
        return answer.id or UNKNOWN
    return handle.read_id


def _reveal_value(value: PropertyValue, unknown: Any) -> tuple[Any, bool]:
    """Return a property value without secret marks, and whether any part is secret.

    UNKNOWN becomes `unknown`, and an integer a float; members without a value are removed from
    objects.
    """
    if isinstance(value, Secret):
        return _reveal_value(value.value, unknown)[0], True
    if isinstance(value, list):
        items = [_reveal_value(item, unknown) for item in value]
        return [item for item, _ in items], any(is_secret for _, is_secret in items)
    if isinstance(value, dict):
        members = {key: _reveal_value(item, unknown) for key, item in value.items()}
        present_members = {
            key: member for key, member in members.items() if member != (None, False)
        }
        plain = {key: item for key, (item, _) in present_members.items()}
        return plain, any(is_secret for _, is_secret in present_members.values())
    if value is UNKNOWN:
        return unknown, False
    if isinstance(value, int) and not isinstance(value, bool):
        # Pulumi's wire format has only doubles.
        return float(value), False
    return value, False

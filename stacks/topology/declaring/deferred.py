"""Values that are known once what they are made of has been registered.

They go by the rules of Pulumi's outputs: what is made of something unknown is unknown, what is made
of a secret is one, and what is made of resources depends on them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.stacks.engine import values
from gpuform.stacks.engine.language_host import Answer
from gpuform.stacks.engine.values import UNKNOWN, PropertyMap, PropertyValue, Secret

_NOTHING: Final[frozenset[Any]] = frozenset()


@dataclass(eq=False, slots=True)
class Handle:
    """Something that is declared, and what has become of it, once it is known.

    `types` gives each of its properties the type that programs see; `read_id` is the id of what is
    only read.
    """

    urn: str
    types: Callable[[str, Any], Any]
    inputs: PropertyMap = field(default_factory=dict)
    answer: Answer | None = None
    read_id: str | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """A value that is known, or will be `UNKNOWN` to the end of the run.

    `urns` are the resources that it depends on.
    """

    value: Any
    secret: bool = False
    urns: frozenset[str] = _NOTHING


@dataclass(eq=False, slots=True)
class Deferred:
    """A value that `make` makes when all that it `waits` for has been registered.

    It is made once; `make` raises what is wrong with it.
    """

    make: Callable[[], Settled]
    waits: frozenset[Handle] = _NOTHING
    _made: Settled | None = None

    def settled(self) -> Settled:
        """What it turned out to be."""
        if self._made is None:
            self._made = self.make()
        return self._made


def is_deferred(value: Any) -> bool:
    """Whether a value, or a part of it, is a deferred one."""
    return any(True for _ in deferred_in(value))


def deferred_in(value: Any) -> Iterator[Deferred]:
    """The deferred values at any depth."""
    if isinstance(value, Deferred):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from deferred_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from deferred_in(item)


def waits_of(value: Any) -> frozenset[Handle]:
    """What has to be registered before a value is known."""
    return _NOTHING.union(*(each.waits for each in deferred_in(value)))


def joined(
    parts: Sequence[Any], make: Callable[[Sequence[Any]], Any], of_secret: Callable[[], None]
) -> Deferred:
    """What `make` makes of the parts once all of them are known; `of_secret` is called before
    where one of them is secret, and may raise.
    """

    def made() -> Settled:
        whole = gathered(list(parts))
        if whole.value is UNKNOWN:
            return whole
        if whole.secret:
            of_secret()
        return Settled(make(whole.value), whole.secret, whole.urns)

    return Deferred(made, waits_of(list(parts)))


def secret(value: Any) -> Deferred:
    """The value as a secret one."""

    def made() -> Settled:
        whole = gathered(value)
        return Settled(whole.value, secret=True, urns=whole.urns)

    return Deferred(made, waits_of(value))


def gathered(value: Any) -> Settled:
    """The whole value, with the deferred ones in it: unknown and secret as any of them is."""
    found = [each.settled() for each in deferred_in(value)]
    urns = _NOTHING.union(*(each.urns for each in found))
    is_secret = any(each.secret for each in found)
    if any(each.value is UNKNOWN for each in found):
        return Settled(UNKNOWN, is_secret, urns)
    return Settled(_filled(value), is_secret, urns)


def _filled(value: Any) -> Any:
    if isinstance(value, Deferred):
        return value.settled().value
    if isinstance(value, Mapping):
        return {key: _filled(item) for key, item in value.items()}
    return [_filled(item) for item in value] if isinstance(value, list) else value


def serialized(value: Any, urns: set[str]) -> PropertyValue:
    """The property value that an engine is sent; what it depends on is added to `urns`."""
    if isinstance(value, Deferred):
        settled = value.settled()
        urns |= settled.urns
        is_unknown = settled.value is UNKNOWN
        found = UNKNOWN if is_unknown else values.from_plain(settled.value)
        return values.make_secret(found) if settled.secret else found
    if isinstance(value, Mapping):
        if not is_deferred(value):
            return values.from_plain(value)
        return {key: serialized(value[key], urns) for key in sorted(value)}
    if isinstance(value, list):
        return [serialized(item, urns) for item in value]
    return values.from_plain(value)


def property_of(handle: Handle, name: str, *, preview: bool) -> Deferred:
    """A property of a resource, with its id and its URN among them."""
    return Deferred(lambda: _property(handle, name, preview), frozenset([handle]))


def members_of(handle: Handle, name: str, *, preview: bool) -> Deferred:
    """The same of an object of which some members may be known, and others not."""
    return Deferred(lambda: _property(handle, name, preview, by_member=True), frozenset([handle]))


def _property(handle: Handle, name: str, preview: bool, *, by_member: bool = False) -> Settled:
    answer, urns = handle.answer, frozenset([handle.urn])
    if answer is None:
        raise AssertionError(f"{handle.urn} has not been registered")
    if name == "urn":
        return Settled(handle.urn, urns=urns)
    if name == "id":
        return Settled(_id(handle, answer, preview), urns=urns)
    outputs = {} if answer.failed else answer.outputs or {}
    keeps_unknowns = preview or (handle.read_id is None and not answer.failed)
    found = _revealed(outputs.get(name), unknown=UNKNOWN if keeps_unknowns else None)
    is_missing = found == (None, False)
    if is_missing and not preview and not answer.failed and name in handle.inputs:
        found = _revealed(handle.inputs[name], unknown=None)
    elif is_missing and (preview or answer.failed or answer.unknown):
        return Settled(UNKNOWN, urns=urns)
    plain, is_secret = found
    if by_member and isinstance(plain, dict):
        plain = {key: UNKNOWN if _contains_unknown(item) else item for key, item in plain.items()}
    elif (plain is None and preview) or _contains_unknown(plain):
        plain = UNKNOWN
    else:
        plain = handle.types(name, plain)
    return Settled(plain, is_secret, urns)


def _id(handle: Handle, answer: Answer, preview: bool) -> Any:
    if answer.id or handle.read_id is None or preview:
        return answer.id or UNKNOWN
    return handle.read_id


def _revealed(value: PropertyValue, unknown: Any) -> tuple[Any, bool]:
    """A value as programs see it, and whether it is secret: as a whole, if anything in it is.

    Objects have no members without a value.
    """
    if isinstance(value, Secret):
        return _revealed(value.value, unknown)[0], True
    if isinstance(value, list):
        items = [_revealed(item, unknown) for item in value]
        return [item for item, _ in items], any(is_secret for _, is_secret in items)
    if isinstance(value, dict):
        members = {key: _revealed(item, unknown) for key, item in value.items()}
        there = {key: each for key, each in members.items() if each != (None, False)}
        plain = {key: item for key, (item, _) in there.items()}
        return plain, any(is_secret for _, is_secret in there.values())
    if value is UNKNOWN:
        return unknown, False
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value), False
    return value, False


def _contains_unknown(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_contains_unknown, value.values()))
    if isinstance(value, list):
        return any(map(_contains_unknown, value))
    return value is UNKNOWN

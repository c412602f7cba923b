"""What can be said of a field beside its type: ``Annotated[int, GrowOnly, Field(...)]``.

Diff, replacement, secrets and the documentation are all computed from these rules, so no resource
writes its own diff. A rule of an object also holds for what is inside it (Immutable, Secret).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel

from gpuform.schemas.values import same


@dataclass(frozen=True, slots=True)
class Flag:
    """A rule that needs no value."""

    name: str


Immutable: Final = Flag("immutable")
"""A change replaces the resource."""

GrowOnly: Final = Flag("grow_only")
"""A smaller value is refused, unless the resource is replaced anyway."""

Secret: Final = Flag("secret")
"""Shown nowhere, and encrypted in the state."""

WriteOnly: Final = Flag("write_only")
"""The platform never returns it: compared with the last input, kept by read."""

Unordered: Final = Flag("unordered")
"""A list whose order means nothing."""

Spelling: Final = Flag("spelling")
"""Another way to write other fields: ``InputModel.canonical`` removes it; never compared."""

Computed: Final = Flag("computed")
"""Set by the platform alone; never compared."""


Local: Final = Flag("local")
"""gpuform's own setting: never sent to the platform, and never compared."""

Recorded: Final = Flag("recorded")
"""Of a Local field: a change of it is a change, of what the state has alone."""

AtCreate: Final = Flag("at_create")
"""Sent with a create alone, and never compared: a change holds for what is made later."""


@dataclass(frozen=True, slots=True)
class KeyedBy:
    """A list whose items are matched by the field ``name``, in any order.

    ``absent_when`` says of a declared item that the platform does not return it: then its absence
    from an answer is what was declared. A ``closed`` list is declared as a whole: an item that the
    platform has and nobody declared is a change.
    """

    name: str
    absent_when: Callable[[Mapping[str, Any]], bool] | None = None
    closed: bool = False

    def is_off(self, item: Mapping[str, Any]) -> bool:
        return self.absent_when is not None and self.absent_when(item)


@dataclass(frozen=True, slots=True)
class Default:
    """The platform's documented value of a field that is not declared.

    A field no longer declared goes back to it; an immutable one stays, since a removed line is no
    reason to replace a resource. Declaring an immutable field's default is no change either.
    """

    value: Any


@dataclass(frozen=True, slots=True)
class ReplaceIf:
    """A change from ``before`` to ``after`` replaces the resource when the predicate says so.

    The predicate gets values that are there and known; one not known yet counts as a replacement.
    """

    predicate: Callable[[Any, Any], bool]
    because: str


@dataclass(frozen=True, slots=True)
class SameIf:
    """Two different values that mean the same, as when a server answers in another spelling."""

    predicate: Callable[[Any, Any], bool]


@dataclass(frozen=True, slots=True)
class Measured:
    """How much a text of this field is: `1Ti` is as much as `1024Gi`, and more than `10Gi`.

    The function may raise ValueError for a text that it does not know.
    """

    amount: Callable[[str], Any]

    def compared(self, one: Any, other: Any) -> int | None:
        """-1, 0 or 1 as `one` is less, as much or more; None when that cannot be told."""
        if not isinstance(one, str) or not isinstance(other, str):
            return None
        try:
            left, right = self.amount(one), self.amount(other)
        except ValueError:
            return None
        return int(left > right) - int(left < right)


@dataclass(frozen=True, slots=True)
class ShownAs:
    """The output that shows what the field has become, where that may differ from the declaration.

    The echo stays as declared; declaring what the output shows changes nothing but the echo.
    """

    output: str


@dataclass(frozen=True, slots=True)
class Refers:
    """The id of a resource of this kind, on the same platform.

    A program may give the resource itself; a topology file may, too, under the name without `_id`.
    """

    kind: str


@dataclass(frozen=True, slots=True)
class TakenFrom:
    """Usually an output of a resource of this kind, on the same platform.

    What has the value of such an output is declared by it, so that it depends on the resource.
    """

    kind: str
    output: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where a fact about the field is documented."""

    text: str


@dataclass(frozen=True, slots=True)
class FieldRules:
    """All rules of one field.

    ``nested`` is the model of its object, or of the items of its list or map.
    """

    immutable: bool = False
    grow_only: bool = False
    secret: bool = False
    write_only: bool = False
    unordered: bool = False
    spelling: bool = False
    computed: bool = False
    local: bool = False
    recorded: bool = False
    at_create: bool = False
    keyed_by: KeyedBy | None = None
    default: Default | None = None
    replace_if: ReplaceIf | None = None
    same_if: SameIf | None = None
    measured: Measured | None = None
    shown_as: str = ""
    refers: str = ""
    """The kind of resource that the field holds the id of."""
    taken_from: TakenFrom | None = None
    source: str = ""
    nested: type[BaseModel] | None = None
    is_map: bool = False
    """The value is an object of objects of ``nested``, each under a key of its own."""
    whole: bool = False
    """Numbers of this field are whole ones."""
    choices: tuple[str, ...] = ()
    """The values that an enumeration allows."""

    def under(self, parent: "FieldRules") -> "FieldRules":
        """These rules for a field inside ``parent``."""
        immutable, secret = self.immutable or parent.immutable, self.secret or parent.secret
        recorded = self.recorded or parent.recorded
        if (immutable, secret, recorded) == (self.immutable, self.secret, self.recorded):
            return self
        return replace(self, immutable=immutable, secret=secret, recorded=recorded)

    def is_same(self, one: Any, other: Any) -> bool:
        """Whether two values of this field are equal, or mean the same."""
        if same(one, other, unordered=self.unordered):
            return True
        if self.measured is not None and self.measured.compared(one, other) == 0:
            return True
        # A state that was edited may have a value of another type.
        is_text = isinstance(one, str) and isinstance(other, str)
        return is_text and self.same_if is not None and self.same_if.predicate(one, other)

    @property
    def holds_secret(self) -> bool:
        """Whether a value of the field is secret, or has a secret part."""
        return self.secret or any(rules.holds_secret for rules in self.inner.values())

    @property
    def is_compared(self) -> bool:
        """Whether a change of the field is a change of the resource."""
        is_own = self.local and not self.recorded
        return not (self.spelling or self.computed or is_own or self.at_create)

    @property
    def inner(self) -> "Mapping[str, FieldRules]":
        """The rules of the fields inside; empty for anything but a modelled object."""
        return rules_of(self.nested) if self.nested else _NO_FIELDS


_NO_FIELDS: Mapping[str, FieldRules] = MappingProxyType({})


@cache
def rules_of(model: type[BaseModel]) -> Mapping[str, FieldRules]:
    """The rules of every field of ``model``, in its order."""
    found = {}
    for name, field in model.model_fields.items():
        leaves = _leaf_types(field.annotation)
        nested = next((leaf for leaf in leaves if issubclass(leaf, BaseModel)), None)
        found[name] = FieldRules(
            nested=nested,
            is_map=nested is not None and _is_map(field.annotation),
            whole=int in leaves and float not in leaves,
            choices=_choices(field.annotation),
            **_stated(field.metadata),
        )
    return MappingProxyType(found)


_WHOLE: Final[Mapping[type, str]] = {
    KeyedBy: "keyed_by",
    Default: "default",
    ReplaceIf: "replace_if",
    SameIf: "same_if",
    Measured: "measured",
    TakenFrom: "taken_from",
}


def _stated(metadata: list[Any]) -> dict[str, Any]:
    stated: dict[str, Any] = {}
    for rule in metadata:
        match rule:
            case Flag(name):
                stated[name] = True
            case KeyedBy() | Default() | ReplaceIf() | SameIf() | Measured() | TakenFrom():
                stated[_WHOLE[type(rule)]] = rule
            case ShownAs(output):
                stated["shown_as"] = output
            case Refers(kind):
                stated["refers"] = kind
            case Source(text):
                stated["source"] = text
    return stated


def _leaf_types(annotation: Any) -> list[type]:
    if get_origin(annotation) is Literal:
        return []
    arguments = get_args(annotation)
    if arguments:
        return [leaf for argument in arguments for leaf in _leaf_types(argument)]
    return [annotation] if isinstance(annotation, type) else []


def _is_map(annotation: Any) -> bool:
    return get_origin(annotation) is dict or any(map(_is_map, get_args(annotation)))


def _choices(annotation: Any) -> tuple[str, ...]:
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        spelled = {True: "true", False: "false"}
        return tuple(spelled[each] if isinstance(each, bool) else str(each) for each in arguments)
    return tuple(choice for argument in arguments for choice in _choices(argument))


def effect(rules: FieldRules) -> str:
    """What a change of the field does to the resource, and what else to know of it."""
    if rules.spelling:
        return "as the fields it stands for"
    if rules.recorded:
        return "recorded, nothing is sent"
    if rules.local:
        return "nothing"
    if rules.at_create:
        return "holds for what is made later"
    found = "replaces" if rules.immutable else "in place"
    if rules.replace_if:
        found = f"in place, or replaces: {rules.replace_if.because}"
    notes = {"grow-only": rules.grow_only, "write-only": rules.write_only, "secret": rules.secret}
    return ", ".join([found, *(note for note, holds in notes.items() if holds)])


def with_effect(meaning: str, rules: FieldRules) -> str:
    """A field's description, with what a change does where that is not the usual thing."""
    found = effect(rules)
    return meaning if found == "in place" else f"{meaning} ({found})"


def inside(rules: FieldRules, outer: FieldRules) -> FieldRules:
    """The rules of a field in an object that is itself a field with rules."""
    return replace(
        rules.under(outer),
        local=rules.local or outer.local,
        recorded=rules.recorded or outer.recorded,
        at_create=rules.at_create or outer.at_create,
        write_only=rules.write_only or outer.write_only,
    )

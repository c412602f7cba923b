"""Describe how a field behaves beside its type: ``Annotated[int, GrowOnly, Field(...)]``.

The input models of the platforms are annotated with these rules. ``changes``, the lifecycles, the
code generators and the reference pages read them with `get_field_rules`, so that no resource has a
diff of its own. Immutable, Secret and StateOnly of an object also hold for the fields inside it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel

from gpuform.schemas.values import is_equal


@dataclass(frozen=True, slots=True)
class Flag:
    """A rule without a value.

    ``name`` is the attribute of `FieldRules` that the rule sets to True.
    """

    name: str


Immutable: Final = Flag("immutable")
"""A change of the field replaces the resource."""

GrowOnly: Final = Flag("grow_only")
"""A smaller value is a problem, unless another change replaces the resource anyway."""

Secret: Final = Flag("secret")
"""The value is masked in every output and encrypted in the state."""

WriteOnly: Final = Flag("write_only")
"""The platform never returns the value: diff compares with the last input, which `read` keeps."""

Unordered: Final = Flag("unordered")
"""The order of the list has no meaning."""

AlternativeSpelling: Final = Flag("spelling")
"""Another way to write other fields.

``InputModel.normalize`` removes the field; diff never compares it.
"""

Computed: Final = Flag("computed")
"""The platform alone sets the value; diff never compares it."""


Local: Final = Flag("local")
"""A setting of gpuform: never sent to the platform; compared if StateOnly, too."""

StateOnly: Final = Flag("state_only")
"""For a Local field: a new value is a change, which is written to the state alone."""

CreateOnly: Final = Flag("create_only")
"""Sent with a create only and never compared: a new value is used for later creates."""


@dataclass(frozen=True, slots=True)
class KeyedBy:
    """A list whose items are matched by the value of their field ``name``, in any order.

    Args:
        name: the field of the items that is the key.
        absent_when: says of a declared item whether the platform omits such an item from its
            answers. Then a missing item is no change.
        closed: the list is declared completely: an item that only the platform has is a change.
    """

    name: str
    absent_when: Callable[[Mapping[str, Any]], bool] | None = None
    closed: bool = False

    def is_off(self, item: Mapping[str, Any]) -> bool:
        """Return True if the platform's list leaves out an item declared like ``item``.

        Such an item is declared as disabled, and the platform lists only enabled ones.
        """
        return self.absent_when is not None and self.absent_when(item)


@dataclass(frozen=True, slots=True)
class Default:
    """The platform's documented value of a field that is not declared.

    A field that is no longer declared returns to ``value``. An immutable field keeps its value
    instead, because a removed line is no reason to replace a resource; declaring the default of an
    immutable field is no change either.
    """

    value: Any


@dataclass(frozen=True, slots=True)
class ReplaceIf:
    """A change replaces the resource if ``needs_replacement(before, after)`` is True.

    The predicate is only called with known values that are not None; a change to or from an unknown
    value counts as a replacement. ``because`` is shown to people.
    """

    needs_replacement: Callable[[Any, Any], bool]
    because: str


@dataclass(frozen=True, slots=True)
class EquivalentIf:
    """Two different texts have the same meaning if ``are_equivalent(left, right)`` is True.

    For platforms that answer in another spelling than the declared one.
    """

    are_equivalent: Callable[[Any, Any], bool]


@dataclass(frozen=True, slots=True)
class ComparedBy:
    """Texts of this field are compared by amount: `1Ti` equals `1024Gi` and is more than `10Gi`.

    ``to_amount`` converts a text into a comparable amount, and raises ValueError for an unknown
    form.
    """

    to_amount: Callable[[str], Any]

    def compare(self, left_text: Any, right_text: Any) -> int | None:
        """Return -1, 0 or 1 as the left amount (such as `10Gi`) is less, equal or more.

        None if one of the texts is no known amount.
        """
        if not isinstance(left_text, str) or not isinstance(right_text, str):
            return None
        try:
            left, right = self.to_amount(left_text), self.to_amount(right_text)
        except ValueError:
            return None
        return int(left > right) - int(left < right)


@dataclass(frozen=True, slots=True)
class ObservedAs:
    """The output that holds the field's actual value, where the platform may choose another one.

    The repeated input stays as declared. Declaring the value of the output changes nothing on the
    platform.
    """

    output: str


@dataclass(frozen=True, slots=True)
class ReferenceTo:
    """The field holds the id of a resource of this kind on the same platform.

    A program may pass the resource itself; a topology file may, too, under the field's name without
    `_id`.
    """

    kind: str


@dataclass(frozen=True, slots=True)
class OutputOf:
    """The value is usually the output ``output`` of a resource of this kind on this platform.

    Generated declarations refer to the output instead of repeating its value, which makes a
    dependency.
    """

    kind: str
    output: str


@dataclass(frozen=True, slots=True)
class Source:
    """The document that a fact about the field is from."""

    text: str


@dataclass(frozen=True, slots=True)
class FieldRules:
    """All rules of one field.

    ``nested`` is the model of the field's object, or of the items of the field's list or map.
    """

    immutable: bool = False
    grow_only: bool = False
    secret: bool = False
    write_only: bool = False
    unordered: bool = False
    spelling: bool = False
    computed: bool = False
    local: bool = False
    state_only: bool = False
    create_only: bool = False
    keyed_by: KeyedBy | None = None
    default: Default | None = None
    replace_if: ReplaceIf | None = None
    equivalent_if: EquivalentIf | None = None
    compared_by: ComparedBy | None = None
    observed_as: str = ""
    reference_kind: str = ""
    """The kind of resource whose id the field holds; empty: none."""
    output_of: OutputOf | None = None
    source: str = ""
    nested: type[BaseModel] | None = None
    is_map: bool = False
    """The value is an object of objects of ``nested``, each under a key of its own."""
    is_text_map: bool = False
    """The value is an object of texts under keys that people choose, such as tags."""
    is_integer: bool = False
    """The field's numbers are integers."""
    choices: tuple[str, ...] = ()
    """The values of an enumeration; empty: any value."""

    def inherit_rules(self, parent: "FieldRules") -> "FieldRules":
        """Return the field's rules, with immutable, secret and state_only also from ``parent``.

        ``parent`` are the rules of the object field that contains this field.
        """
        immutable, secret = self.immutable or parent.immutable, self.secret or parent.secret
        state_only = self.state_only or parent.state_only
        if (immutable, secret, state_only) == (self.immutable, self.secret, self.state_only):
            # nearly all fields inherit nothing; a copy for each of them is slow
            return self
        return replace(self, immutable=immutable, secret=secret, state_only=state_only)

    def is_equivalent(self, left: Any, right: Any) -> bool:
        """Return True if two values of this field are equal, or equivalent by the field's rules.

        The rules may ignore the order of a list, compare amounts (`1Ti` and `1024Gi`), or know
        other spellings.
        """
        if is_equal(left, right, unordered=self.unordered):
            return True
        if self.compared_by is not None and self.compared_by.compare(left, right) == 0:
            return True
        # A state that was edited may have a value of another type.
        is_text = isinstance(left, str) and isinstance(right, str)
        return (
            is_text
            and self.equivalent_if is not None
            and self.equivalent_if.are_equivalent(left, right)
        )

    @property
    def holds_secret(self) -> bool:
        """True if the value is secret or has a secret part."""
        return self.secret or any(rules.holds_secret for rules in self.nested_rules.values())

    @property
    def is_compared(self) -> bool:
        """Return True if `diff` compares the field's declared value with the earlier value."""
        is_own = self.local and not self.state_only
        return not (self.spelling or self.computed or is_own or self.create_only)

    @property
    def nested_rules(self) -> "Mapping[str, FieldRules]":
        """Rules of the fields of the nested model, by field name; empty without a nested model."""
        return get_field_rules(self.nested) if self.nested else _NO_FIELDS


_NO_FIELDS: Mapping[str, FieldRules] = MappingProxyType({})


@cache
def get_field_rules(model: type[BaseModel]) -> Mapping[str, FieldRules]:
    """Return the rules of every field of ``model`` by field name, in the model's order."""
    field_rules = {}
    for name, field in model.model_fields.items():
        types = list(_iterate_value_types(field.annotation))
        # a union has one object model at most: the first one counts
        nested = next(filter(is_model, types), None)
        field_rules[name] = FieldRules(
            nested=nested,
            is_map=nested is not None and any(isinstance(item, MapOf) for item in types),
            is_text_map=any(isinstance(item, MapOf) and item.item is str for item in types),
            is_integer=int in types and float not in types,
            choices=tuple(
                _format_choice(value)
                for item in types
                if isinstance(item, Choice)
                for value in item.values
            ),
            **_read_metadata(field.metadata),
        )
    return MappingProxyType(field_rules)


_RULE_ATTRIBUTES: Final[Mapping[type, str]] = {
    KeyedBy: "keyed_by",
    Default: "default",
    ReplaceIf: "replace_if",
    EquivalentIf: "equivalent_if",
    ComparedBy: "compared_by",
    OutputOf: "output_of",
}


def _read_metadata(metadata: list[Any]) -> dict[str, Any]:
    """Return the attributes of `FieldRules` for the rules in a field's `Annotated` metadata."""
    attributes: dict[str, Any] = {}
    for rule in metadata:
        match rule:
            case Flag(name):
                attributes[name] = True
            case KeyedBy() | Default() | ReplaceIf() | EquivalentIf() | ComparedBy() | OutputOf():
                attributes[_RULE_ATTRIBUTES[type(rule)]] = rule
            case ObservedAs(output):
                attributes["observed_as"] = output
            case ReferenceTo(kind):
                attributes["reference_kind"] = kind
            case Source(text):
                attributes["source"] = text
    return attributes


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few values."""

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; ``item`` is the annotation of its items."""

    item: Any


@dataclass(frozen=True, slots=True)
class MapOf:
    """An object with free keys; ``item`` is the annotation of its values."""

    item: Any


def list_value_types(annotation: Any) -> list[Choice | ListOf | MapOf | Any]:
    """Return the types that an annotation allows apart from None, without `Annotated` rules.

    A class, a model or `Any` stays as it is.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return list_value_types(arguments[0])
    if origin in (Union, UnionType):
        return [item for member in arguments for item in list_value_types(member)]
    if origin is Literal:
        return [Choice(arguments)]
    if origin in (list, tuple, Sequence):
        return [ListOf(arguments[0])]
    if origin in (dict, Mapping):
        return [MapOf(arguments[1])]
    return [] if annotation is NoneType else [annotation]


def _iterate_value_types(annotation: Any) -> Iterator[Any]:
    """Yield the types of an annotation, and those inside lists and maps at any depth."""
    for value_type in list_value_types(annotation):
        yield value_type
        if isinstance(value_type, ListOf | MapOf):
            yield from _iterate_value_types(value_type.item)


def is_model(value_type: Any) -> TypeGuard[type[BaseModel]]:
    """Return True if a type of `list_value_types` is a model."""
    return isinstance(value_type, type) and issubclass(value_type, BaseModel)


def _format_choice(value: Any) -> str:
    """Return a value of a Literal in YAML's spelling: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def describe_change_effect(rules: FieldRules) -> str:
    """Return the effect of a field's change on the resource, such as "replaces" or "in place".

    A field that is not sent, or only with a create, has a text that says so. Rules that people need
    to know follow: grow-only, write-only, secret.
    """
    if rules.spelling:
        return "as the fields it stands for"
    if rules.state_only:
        return "recorded, nothing is sent"
    if rules.local:
        return "nothing"
    if rules.create_only:
        return "applies to objects created later"
    main_effect = "replaces" if rules.immutable else "in place"
    if rules.replace_if:
        main_effect = f"in place, or replaces: {rules.replace_if.because}"
    notes = {"grow-only": rules.grow_only, "write-only": rules.write_only, "secret": rules.secret}
    return ", ".join([main_effect, *(note for note, holds in notes.items() if holds)])


def append_change_effect(description: str, rules: FieldRules) -> str:
    """Return a field's description with the effect of a change in brackets: (replaces).

    The effect "in place" is left out.
    """
    change_effect = describe_change_effect(rules)
    return description if change_effect == "in place" else f"{description} ({change_effect})"


def inherit_all_rules(rules: FieldRules, outer: FieldRules) -> FieldRules:
    """Return ``rules`` for a field inside an object field with ``outer`` rules.

    Inherited are immutable, secret and state_only, as by `FieldRules.inherit_rules`, and also
    local, create_only and write_only.
    """
    return replace(
        rules.inherit_rules(outer),
        local=rules.local or outer.local,
        state_only=rules.state_only or outer.state_only,
        create_only=rules.create_only or outer.create_only,
        write_only=rules.write_only or outer.write_only,
    )

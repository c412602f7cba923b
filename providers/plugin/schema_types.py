"""The types of the package schema, from the annotations of models and look-ups."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gpuform.providers.forms import PACKAGE
from gpuform.schemas.models import InputModel
from gpuform.schemas.rules import FieldRules, inside, rules_of, with_effect

Spec = dict[str, Any]

ANYTHING: Final[Spec] = {"$ref": "pulumi.json#/Any"}
_PLAIN: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}


@dataclass(slots=True)
class Types:
    """Collects the types that one resource, or one platform's look-ups, use.

    `name` gives a model its type's name; two models with one name are a fault of the models.
    """

    platform: str
    name: Callable[[type[BaseModel]], str]
    specs: dict[str, Spec] = field(default_factory=dict)
    _models: dict[str, type[BaseModel]] = field(default_factory=dict)

    def of(self, annotation: Any, place: str, rules: FieldRules) -> Spec:
        """The type of a value. `place` names an enumeration found there."""
        kinds = alternatives(annotation)
        if len(kinds) > 1:
            return _either([self.of(each, place, rules) for each in kinds])
        kind = kinds[0]
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Literal:
            return self._enumeration(place, arguments)
        if origin in (list, tuple, Sequence):
            return {"type": "array", "items": self.of(arguments[0], place, rules)}
        if origin in (dict, Mapping):
            return {"type": "object", "additionalProperties": self.of(arguments[1], place, rules)}
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return self._object(kind, rules)
        return {"type": _PLAIN[kind]} if kind in _PLAIN else ANYTHING

    def property(self, field: FieldInfo, place: str, rules: FieldRules) -> Spec:
        """A property with this field's type and meaning.

        The platform's default is told and not set: what an SDK fills in would be declared, and
        compared from then on.
        """
        meaning = with_effect(field.description or "", rules)
        if rules.default is not None:
            meaning += f" Default: {_told(rules.default.value)}."
        found = {**self.of(field.annotation, place, rules), "description": meaning}
        if rules.immutable and rules.is_compared:
            found["willReplaceOnChanges"] = True
        if rules.secret:
            found["secret"] = True
        return found

    def _object(self, model: type[BaseModel], outer: FieldRules) -> Spec:
        name = self.name(model)
        token = f"{PACKAGE}:{self.platform}:{name}"
        if self._models.setdefault(token, model) is not model:
            raise ValueError(f"{token} is {self._models[token].__name__} and {model.__name__}")
        if token not in self.specs:
            self.specs[token] = {}  # told once, also where it is inside itself
            self.specs[token] = {
                "type": "object",
                "description": first_line(model),
                "properties": {
                    key: self.property(
                        field, name + camel(key), inside(rules_of(model)[key], outer)
                    )
                    for key, field in model.model_fields.items()
                },
                "required": always_there(model),
            }
        return reference(token)

    def _enumeration(self, place: str, values: Sequence[Any]) -> Spec:
        token = f"{PACKAGE}:{self.platform}:{place}"
        spec = {"type": "string", "enum": [{"value": str(each)} for each in values]}
        if self.specs.setdefault(token, spec) != spec:
            raise ValueError(f"{token} is two types")
        return reference(token)


def reference(token: str) -> Spec:
    """The type of this token."""
    return {"$ref": f"#/types/{token}"}


def always_there(model: type[BaseModel]) -> list[str]:
    """The fields that have to be given; of what is answered, those that are never left out."""
    given = issubclass(model, InputModel)
    return [
        name
        for name, field in model.model_fields.items()
        if field.is_required() or not (given or is_optional(field.annotation))
    ]


def alternatives(annotation: Any) -> list[Any]:
    """The types that an annotation allows, without None and without rules."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return alternatives(get_args(annotation)[0])
    if origin in (Union, UnionType):
        inner = [each for each in get_args(annotation) if each is not NoneType]
        return [kind for each in inner for kind in alternatives(each)]
    return [annotation]


def _either(specs: list[Spec]) -> Spec:
    different = [spec for place, spec in enumerate(specs) if spec not in specs[:place]]
    if ANYTHING in different:
        return ANYTHING
    if {"type": "number"} in different:
        different = [spec for spec in different if spec != {"type": "integer"}]
    return {"oneOf": different} if len(different) > 1 else different[0]


def is_optional(annotation: Any) -> bool:
    """Whether None is allowed."""
    return annotation is Any or NoneType in get_args(annotation)


def camel(name: str) -> str:
    """`BillingType` for `billing_type`."""
    return "".join(word.capitalize() for word in name.split("_"))


def first_line(model: type[BaseModel]) -> str:
    """What a model is."""
    return (model.__doc__ or model.__name__).strip().partition("\n")[0]


def _told(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'

"""Build Pulumi's package schema from the models: every resource, look-up, type and setting.

The plugin answers GetSchema with it, so that it has the platforms of other distributions as well.
`tools/generate.py` writes the schema of gpuform's own platforms to `schema.json`.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gpuform.providers.catalog import all_kinds, lifecycle_class, lookup, lookup_names
from gpuform.providers.forms import FORM_CONFIG, PACKAGE, Form
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.platform import Setting, all_settings, platforms
from gpuform.providers.plugin.places import plugin_version
from gpuform.providers.plugin.settings import ITEMS
from gpuform.schemas.models import InputModel
from gpuform.schemas.rules import (
    FieldRules,
    append_change_effect,
    get_field_rules,
    inherit_all_rules,
)

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
        meaning = append_change_effect(field.description or "", rules)
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
                        field,
                        name + camel(key),
                        inherit_all_rules(get_field_rules(model)[key], outer),
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


NOT_PUBLISHED: Final = "https://gpuform.invalid/run-gpuform-plugin-install"
"""Where Pulumi would download the plugin: nowhere, for the domain cannot exist. Without an address
it would take what somebody publishes under the plugin's name; the error shows what to run."""


def package_schema() -> dict[str, Any]:
    """The package schema, as GetSchema answers it."""
    types: dict[str, Spec] = {}
    resources = {
        Form.PLUGIN.type_of(platform, kind): _resource(lifecycle_class(platform, kind), types)
        for platform, kind in all_kinds()
    }
    functions = dict(_functions(types))
    variables = {each.name: _variable(each) for each in all_settings()}
    return {
        "name": PACKAGE,
        "displayName": PACKAGE,
        "version": plugin_version(),
        "description": "GPU clusters, node pools, shared volumes and what belongs to them.",
        "keywords": ["pulumi", "gpu", "category/cloud", "kind/native"],
        "license": "Apache-2.0",
        "publisher": PACKAGE,
        "pluginDownloadURL": NOT_PUBLISHED,
        "language": _languages(),
        "config": {"variables": {"form": _form(), **variables}},
        "provider": _provider(),
        "types": dict(sorted(types.items())),
        "resources": resources,
        "functions": functions,
    }


def _resource(lifecycle: type[Lifecycle[Any, Any]], types: dict[str, Spec]) -> Spec:
    found = Types(lifecycle.platform, partial(_type_name, lifecycle.kind))
    inputs, outputs = get_field_rules(lifecycle.inputs), get_field_rules(lifecycle.outputs)
    given = {
        name: found.property(field, lifecycle.kind + camel(name), inputs[name])
        for name, field in lifecycle.inputs.model_fields.items()
    }
    computed = {
        name: found.property(field, f"{lifecycle.kind}{camel(name)}Info", outputs[name])
        for name, field in lifecycle.outputs.model_fields.items()
    }
    required = [n for n, field in lifecycle.inputs.model_fields.items() if field.is_required()]
    returned = [n for n in required if not inputs[n].write_only and n not in computed]
    types.update(found.specs)
    names = lifecycle.list_property_names()
    return {
        "description": first_line(lifecycle.inputs),
        "properties": {name: computed.get(name) or _echo(given[name]) for name in names},
        "required": [*returned, *always_there(lifecycle.outputs)],
        "inputProperties": given,
        "requiredInputs": required,
        "aliases": [{"type": Form.DYNAMIC.type_of(lifecycle.platform, lifecycle.kind)}],
    }


def _echo(given: Spec) -> Spec:
    """An input as an output."""
    return {key: value for key, value in given.items() if key != "willReplaceOnChanges"}


def _type_name(kind: str, model: type[BaseModel]) -> str:
    """Never a resource's name, whose classes an SDK would mistake it for."""
    name = model.__name__.removesuffix("Inputs")
    if name.endswith("Outputs"):
        name = f"{name.removesuffix('Outputs')}Info"
    return name if name.startswith(kind) and name != kind else kind + name


def _functions(types: dict[str, Spec]) -> Iterator[tuple[str, Spec]]:
    for platform in platforms():
        found = Types(platform, lambda model: f"Found{model.__name__}")
        for name in lookup_names(platform):
            function = lookup(platform, name)
            if inspect.isfunction(function):
                yield f"{PACKAGE}:{platform}:{name}", _function(name, function, found)
        types.update(found.specs)


def _function(name: str, function: Any, types: Types) -> Spec:
    hints = get_type_hints(function, include_extras=True)
    answer, parameters = hints.pop("return"), inspect.signature(function).parameters
    inputs = {
        key: types.of(hint, camel(name) + camel(key), FieldRules()) for key, hint in hints.items()
    }
    return {
        "description": (inspect.getdoc(function) or name).partition("\n\n")[0],
        "inputs": {
            "properties": inputs,
            "required": [k for k in inputs if parameters[k].default is inspect.Parameter.empty],
        },
        "outputs": _answer(answer, name, types),
    }


def _answer(annotation: Any, name: str, types: Types) -> Spec:
    """One object is the answer itself, a list is its `items`."""
    spec = types.of(annotation, camel(name), FieldRules())
    if spec.get("type") == "array":
        return {"type": "object", "properties": {ITEMS: spec}, "required": [ITEMS]}
    return types.specs[spec["$ref"].removeprefix("#/types/")]


def _provider() -> Spec:
    """Without `defaultInfo`: an SDK would put the environment's keys into the state."""
    properties = {
        each.name: {key: value for key, value in _variable(each).items() if key != "defaultInfo"}
        for each in all_settings()
    }
    return {
        "description": "An account of each platform; what is not set, the environment has.",
        "properties": properties,
        "inputProperties": properties,
    }


def _variable(setting: Setting) -> Spec:
    else_ = f" Else the environment's {setting.variable}." if setting.variable else ""
    found: Spec = {"type": "string", "description": f"{setting.description}{else_}"}
    if setting.secret:
        found["secret"] = True
    if setting.variable:
        found["defaultInfo"] = {"environment": [setting.variable]}
    return found


def _form() -> Spec:
    told = f"Whether Python programs use the plugin ({FORM_CONFIG}): {' or '.join(Form)}."
    return {"type": "string", "description": told}


def _languages() -> Spec:
    """Names of generated SDKs: none of them is gpuform's own Python package."""
    names: dict[str, dict[str, Any]] = {
        "csharp": {
            "rootNamespace": "Gpuform.Sdk",
            "namespaces": {PACKAGE: "Gpuform", **{each: camel(each) for each in platforms()}},
        },
        "go": {"generateResourceContainerTypes": True},
        "java": {"basePackage": "dev.gpuform"},
        "nodejs": {"packageName": "gpuform-pulumi"},
        "python": {"packageName": "pulumi_gpuform"},
    }
    return {language: {**said, "respectSchemaVersion": True} for language, said in names.items()}

"""Build Pulumi's package schema from the models: every resource, look-up, type and setting.

The servicer answers GetSchema with the schema, so that platforms of other distributions are
included. `tools/generate.py` writes the schema of gpuform's own platforms to `schema.json`.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gpuform.providers.catalog import list_kinds, list_lookups, load_lifecycle_class, load_lookup
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.platform import FORM_CONFIG, PACKAGE, Form, Setting, list_settings, platforms
from gpuform.providers.plugin.locations import get_plugin_version
from gpuform.providers.plugin.settings import ITEMS
from gpuform.schemas.models import InputModel
from gpuform.schemas.rules import (
    Choice,
    FieldRules,
    ListOf,
    MapOf,
    append_change_effect,
    get_field_rules,
    inherit_all_rules,
    is_model,
    list_value_types,
)

Spec = dict[str, Any]

ANYTHING: Final[Spec] = {"$ref": "pulumi.json#/Any"}
_PRIMITIVE_TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}


@dataclass(slots=True)
class TypeCollector:
    """Collects the schema's types that one resource, or the look-ups of one platform, use.

    `get_type_name` gives the type's name for a model. Two different models with one name are an
    error.
    """

    platform: str
    get_type_name: Callable[[type[BaseModel]], str]
    specs: dict[str, Spec] = field(default_factory=dict)
    _models: dict[str, type[BaseModel]] = field(default_factory=dict)

    def build_spec(self, annotation: Any, enum_name: str, rules: FieldRules) -> Spec:
        """Return the schema of a value with this annotation, and add the value's types to `specs`.

        A type without a counterpart in Pulumi's schema becomes `ANYTHING`.

        Args:
            annotation: The type annotation of a field or a parameter.
            enum_name: The name for an enumeration, if the annotation is a Literal.
            rules: The rules that the fields of a nested model inherit.

        Raises:
            ValueError: two different types have one name.
        """
        specs: list[Spec] = []
        for value_type in list_value_types(annotation):
            match value_type:
                case Choice(values):
                    specs.append(self._add_enumeration(enum_name, values))
                case ListOf(item):
                    items = self.build_spec(item, enum_name, rules)
                    specs.append({"type": "array", "items": items})
                case MapOf(item):
                    items = self.build_spec(item, enum_name, rules)
                    specs.append({"type": "object", "additionalProperties": items})
                case _ if is_model(value_type):
                    specs.append(self._add_object(value_type, rules))
                case _:
                    name = _PRIMITIVE_TYPES.get(value_type)
                    specs.append({"type": name} if name else ANYTHING)
        return _merge_specs(specs)

    def build_property(self, field: FieldInfo, enum_name: str, rules: FieldRules) -> Spec:
        """Return the schema of a property with the field's type, description and rules.

        Raises:
            ValueError: two different types have one name.
        """
        description = append_change_effect(field.description or "", rules)
        # Not as `default`: an SDK would declare the value, which is compared from then on.
        if rules.default is not None:
            description += f" Default: {_format_default(rules.default.value)}."
        property_spec = {
            **self.build_spec(field.annotation, enum_name, rules),
            "description": description,
        }
        # A property that is not compared never differs, and must not replace the resource.
        if rules.immutable and rules.is_compared:
            property_spec["willReplaceOnChanges"] = True
        if rules.secret:
            property_spec["secret"] = True
        return property_spec

    def _add_object(self, model: type[BaseModel], outer_rules: FieldRules) -> Spec:
        """Return a reference to the object type of a model, and add the type to `specs` once.

        The fields inherit `outer_rules`. Raises ValueError if another model has the same token.
        """
        name = self.get_type_name(model)
        token = f"{PACKAGE}:{self.platform}:{name}"
        if self._models.setdefault(token, model) is not model:
            raise ValueError(f"{token} is {self._models[token].__name__} and {model.__name__}")
        if token not in self.specs:
            # Registered while empty: a model that contains itself would recurse for ever.
            self.specs[token] = {}
            self.specs[token] = {
                "type": "object",
                "description": get_summary(model),
                "properties": {
                    key: self.build_property(
                        field,
                        name + to_camel_case(key),
                        inherit_all_rules(get_field_rules(model)[key], outer_rules),
                    )
                    for key, field in model.model_fields.items()
                },
                "required": list_required_properties(model),
            }
        return build_type_reference(token)

    def _add_enumeration(self, enum_name: str, values: Sequence[Any]) -> Spec:
        """Return a reference to an enumeration of texts, and add it to `specs` once.

        Raises ValueError if another type has the same token.
        """
        token = f"{PACKAGE}:{self.platform}:{enum_name}"
        spec = {"type": "string", "enum": [{"value": str(value)} for value in values]}
        if self.specs.setdefault(token, spec) != spec:
            raise ValueError(f"{token} is two types")
        return build_type_reference(token)


def build_type_reference(token: str) -> Spec:
    """Return the schema of a value whose type has this token."""
    return {"$ref": f"#/types/{token}"}


def list_required_properties(model: type[BaseModel]) -> list[str]:
    """Return the names of the properties that the schema of a model marks as required.

    Of inputs these are the fields without a default; of outputs also the fields that are never
    None.
    """
    is_input = issubclass(model, InputModel)
    return [
        name
        for name, field in model.model_fields.items()
        if field.is_required() or not (is_input or is_optional(field.annotation))
    ]


def _merge_specs(specs: list[Spec]) -> Spec:
    """Return one schema for a union of several: the only distinct one, or `oneOf`.

    `ANYTHING` includes all others, and a number includes integers.
    """
    distinct_specs = [spec for index, spec in enumerate(specs) if spec not in specs[:index]]
    if ANYTHING in distinct_specs:
        return ANYTHING
    # A number includes integers: a union of both is a number.
    if {"type": "number"} in distinct_specs:
        distinct_specs = [spec for spec in distinct_specs if spec != {"type": "integer"}]
    return {"oneOf": distinct_specs} if len(distinct_specs) > 1 else distinct_specs[0]


def is_optional(annotation: Any) -> bool:
    """Return True if the annotation allows None, as `Any` does."""
    return annotation is Any or NoneType in get_args(annotation)


def to_camel_case(name: str) -> str:
    """Return a snake_case name in camel case: `BillingType` for `billing_type`."""
    return "".join(word.capitalize() for word in name.split("_"))


def get_summary(model: type[BaseModel]) -> str:
    """Return the first line of the model's docstring, or the model's name without one."""
    return (model.__doc__ or model.__name__).strip().partition("\n")[0]


def _format_default(value: Any) -> str:
    """Return a field's default value as text for the description of the field."""
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


NOT_PUBLISHED: Final = "https://gpuform.invalid/run-gpuform-plugin-install"
"""Address from which Pulumi would download the plugin.

The domain `.invalid` never exists (RFC 2606). Without an address Pulumi downloads whatever somebody
publishes under the plugin's name. With this one the download fails, and the error shows the command
to run.
"""


def build_package_schema() -> dict[str, Any]:
    """Return gpuform's package schema for Pulumi: resources, functions, types and settings."""
    types: dict[str, Spec] = {}
    resources = {
        Form.PLUGIN.build_type(platform, kind): _build_resource(
            load_lifecycle_class(platform, kind), types
        )
        for platform, kind in list_kinds()
    }
    functions = dict(_build_functions(types))
    variables = {setting.name: _build_config_variable(setting) for setting in list_settings()}
    return {
        "name": PACKAGE,
        "displayName": PACKAGE,
        "version": get_plugin_version(),
        "description": "GPU clusters, node pools, shared volumes and related resources.",
        "keywords": ["pulumi", "gpu", "category/cloud", "kind/native"],
        "license": "Apache-2.0",
        "publisher": PACKAGE,
        # The plugin is installed with `gpuform plugin install` only.
        "pluginDownloadURL": NOT_PUBLISHED,
        "language": _build_language_options(),
        "config": {"variables": {"form": _build_resource_form_variable(), **variables}},
        "provider": _build_provider(),
        "types": dict(sorted(types.items())),
        "resources": resources,
        "functions": functions,
    }


def _build_resource(lifecycle: type[Lifecycle[Any, Any]], types: dict[str, Spec]) -> Spec:
    """Return the schema of a resource, and add the types of its properties to `types`."""
    collector = TypeCollector(lifecycle.platform, partial(_get_type_name, lifecycle.kind))
    inputs, outputs = get_field_rules(lifecycle.inputs), get_field_rules(lifecycle.outputs)
    input_properties = {
        name: collector.build_property(field, lifecycle.kind + to_camel_case(name), inputs[name])
        for name, field in lifecycle.inputs.model_fields.items()
    }
    output_properties = {
        name: collector.build_property(
            field, f"{lifecycle.kind}{to_camel_case(name)}Info", outputs[name]
        )
        for name, field in lifecycle.outputs.model_fields.items()
    }
    required = [
        name for name, field in lifecycle.inputs.model_fields.items() if field.is_required()
    ]
    returned_inputs = [
        name for name in required if not inputs[name].write_only and name not in output_properties
    ]
    types.update(collector.specs)
    names = lifecycle.list_property_names()
    return {
        "description": get_summary(lifecycle.inputs),
        "properties": {
            name: output_properties.get(name) or _input_to_output(input_properties[name])
            for name in names
        },
        "required": [*returned_inputs, *list_required_properties(lifecycle.outputs)],
        "inputProperties": input_properties,
        "requiredInputs": required,
        # A stack of the dynamic form keeps its resources when the program changes to the plugin.
        "aliases": [{"type": Form.DYNAMIC.build_type(lifecycle.platform, lifecycle.kind)}],
    }


def _input_to_output(input_property: Spec) -> Spec:
    """Return the schema of an output that repeats an input; outputs force no replacement."""
    return {key: value for key, value in input_property.items() if key != "willReplaceOnChanges"}


def _get_type_name(kind: str, model: type[BaseModel]) -> str:
    """Return the name of the type for a nested model of a resource.

    The name begins with the kind and is never the kind alone: a generated SDK would give the type
    and the resource the same class.
    """
    name = model.__name__.removesuffix("Inputs")
    if name.endswith("Outputs"):
        name = f"{name.removesuffix('Outputs')}Info"
    return name if name.startswith(kind) and name != kind else kind + name


def _build_functions(types: dict[str, Spec]) -> Iterator[tuple[str, Spec]]:
    """Yield token and schema of each look-up function, and add their types to `types`."""
    for platform in platforms():
        # The prefix keeps types of look-ups apart from a resource's types of the same name.
        collector = TypeCollector(platform, lambda model: f"Found{model.__name__}")
        for name in list_lookups(platform):
            function = load_lookup(platform, name)
            if inspect.isfunction(function):
                yield (
                    f"{PACKAGE}:{platform}:{name}",
                    _build_function(name, function, collector),
                )
        types.update(collector.specs)


def _build_function(name: str, function: Any, types: TypeCollector) -> Spec:
    """Return the schema of a look-up function from its signature and docstring."""
    hints = get_type_hints(function, include_extras=True)
    return_type, parameters = hints.pop("return"), inspect.signature(function).parameters
    inputs = {
        key: types.build_spec(hint, to_camel_case(name) + to_camel_case(key), FieldRules())
        for key, hint in hints.items()
    }
    return {
        "description": (inspect.getdoc(function) or name).partition("\n\n")[0],
        "inputs": {
            "properties": inputs,
            "required": [
                name_ for name_ in inputs if parameters[name_].default is inspect.Parameter.empty
            ],
        },
        "outputs": _build_outputs(return_type, name, types),
    }


def _build_outputs(annotation: Any, name: str, types: TypeCollector) -> Spec:
    """Return the outputs of a function: the returned object, or a list as the property `items`."""
    spec = types.build_spec(annotation, to_camel_case(name), FieldRules())
    # A Pulumi function returns an object, never a list.
    if spec.get("type") == "array":
        return {"type": "object", "properties": {ITEMS: spec}, "required": [ITEMS]}
    return types.specs[spec["$ref"].removeprefix("#/types/")]


def _build_provider() -> Spec:
    """Return the schema of the provider resource, whose inputs are the platforms' settings."""
    # With `defaultInfo` an SDK would read keys from the environment and store them in the state.
    properties = {
        setting.name: {
            key: value
            for key, value in _build_config_variable(setting).items()
            if key != "defaultInfo"
        }
        for setting in list_settings()
    }
    return {
        "description": "An account of each platform. The environment supplies missing settings.",
        "properties": properties,
        "inputProperties": properties,
    }


def _build_config_variable(setting: Setting) -> Spec:
    """Return the schema of a platform's setting, with its environment variable as default."""
    fallback = (
        f" Defaults to the environment variable {setting.variable}." if setting.variable else ""
    )
    spec: Spec = {"type": "string", "description": f"{setting.description}{fallback}"}
    if setting.secret:
        spec["secret"] = True
    if setting.variable:
        spec["defaultInfo"] = {"environment": [setting.variable]}
    return spec


def _build_resource_form_variable() -> Spec:
    """Return the schema of the setting for dynamic or plugin resources in Python programs."""
    description = f"Form of the resources in Python programs ({FORM_CONFIG}): {' or '.join(Form)}."
    return {"type": "string", "description": description}


def _build_language_options() -> Spec:
    """Return the options of generated SDKs by language: package names, and the schema's version.

    No name is that of gpuform's own Python package.
    """
    names: dict[str, dict[str, Any]] = {
        "csharp": {
            "rootNamespace": "Gpuform.Sdk",
            "namespaces": {
                PACKAGE: "Gpuform",
                **{platform: to_camel_case(platform) for platform in platforms()},
            },
        },
        "go": {"generateResourceContainerTypes": True},
        "java": {"basePackage": "dev.gpuform"},
        "nodejs": {"packageName": "gpuform-pulumi"},
        "python": {"packageName": "pulumi_gpuform"},
    }
    return {
        language: {**options, "respectSchemaVersion": True} for language, options in names.items()
    }

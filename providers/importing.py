"""Import objects: read an object, and complete required inputs that no read returns.

The platform's lists report some of them. An input that no list reports is added to the id,
`ID@VALUE`, where the kind has an import field (`Traits.import_field`); a secret is in the
environment. The engine and the plugin call this module.
"""

import json
from collections.abc import Mapping
from typing import Any

import yaml
from pulumi.dynamic import ReadResult

from gpuform.providers.catalog import list_existing_objects
from gpuform.providers.errors import GpuformError
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.lifecycle.traits import Properties
from gpuform.providers.operations import Settings
from gpuform.schemas.errors import EngineError
from gpuform.schemas.rules import get_field_rules

Kind = type[Lifecycle[Any, Any]]


def parse_object_id(kind: Kind, import_id: str) -> str:
    """Return the object's id in the text of an import: the part before `@`.

    For a kind without an import field, the whole text.
    """
    return import_id.partition("@")[0] if kind.import_field else import_id


def parse_import_input(kind: Kind, import_id: str) -> Properties:
    """Return the input in an import's text ID@VALUE as a property: `{import field: value}`.

    Empty without `@`, and for a kind without an import field. The value is read as YAML, unless the
    field is a text.

    Raises EngineError for an invalid or empty value.
    """
    _, is_given, value = import_id.partition("@") if kind.import_field else (import_id, "", "")
    if not is_given:
        return {}
    try:
        parsed = value if _is_import_field_text(kind) else yaml.safe_load(value)
    except yaml.YAMLError:
        parsed = None
    if not parsed or not str(parsed).strip():
        raise EngineError(
            f"{import_id}: {value!r} is not a valid {kind.import_field}",
            hint=describe_import_format(kind, import_id),
        )
    return {kind.import_field: parsed}


def describe_import_format(kind: Kind, text: str) -> str:
    """Return a hint that shows how an import names an object of the kind."""
    example = kind.inputs.model_fields[kind.import_field].examples or ("VALUE",)
    value = example[0] if _is_import_field_text(kind) else json.dumps(example[0])
    return (
        f"import it as ID@{kind.import_field.upper()}, such as "
        f"'{parse_object_id(kind, text)}@{value}'"
    )


def merge_import_inputs(kind: Kind, import_id: str, listed_inputs: Mapping[str, Any]) -> Properties:
    """Return the inputs listed for an object, with the one in the import's text ID@VALUE.

    Raises EngineError if both have the input, with different values, and for an invalid VALUE.
    """
    given_inputs = parse_import_input(kind, import_id)
    for name, value in given_inputs.items():
        if listed_inputs.get(name, value) != value:
            raise EngineError(
                f"the {name} of {parse_object_id(kind, import_id)} is {listed_inputs[name]}, not "
                f"{value}",
                hint="correct the value after the @, or leave it out: the platform reports the "
                "value",
            )
    return {**listed_inputs, **given_inputs}


def build_secret_variable(name: str) -> str:
    """Return the name of the environment variable with the secret input `name` of an import."""
    return f"GPUFORM_{name.upper()}"


def import_object(kind: Kind, import_id: str, settings: Settings) -> ReadResult:
    """Return the object that an import names, with all inputs that a program has to declare.

    An object that the platform does not have is returned with an empty id. Secrets that no platform
    reports come from the environment (`build_secret_variable`), and become outputs and no inputs:
    the CLI writes inputs into generated code.

    Raises:
        GpuformError: a required input is unknown or invalid, or the platform does not answer.
    """
    lifecycle, parsed_id = kind.with_settings(settings), parse_object_id(kind, import_id)
    result = lifecycle.read(parsed_id, {})
    if not result.id:
        return result
    inputs, rules = dict(result.inputs or {}), get_field_rules(kind.inputs)
    missing_names = [
        name
        for name, field in kind.inputs.model_fields.items()
        if (field.is_required() or name == kind.import_field) and name not in inputs
    ]
    secret_names = [name for name in missing_names if rules[name].secret]
    public_names = [name for name in missing_names if not rules[name].secret]
    secrets = {name: settings.environ.get(build_secret_variable(name)) for name in secret_names}
    existing_objects = list_existing_objects(kind.platform, settings) if public_names else ()
    listed_inputs = {
        name: value
        for existing_object in existing_objects
        if (existing_object.kind, existing_object.id) == (kind.kind, parsed_id)
        for name, value in existing_object.listed_inputs.items()
        if name in public_names
    }
    merged_inputs = merge_import_inputs(kind, import_id, listed_inputs)
    inputs |= merged_inputs
    for name in public_names:
        if name not in inputs:
            raise GpuformError(
                f"the platform does not report the {name} of {parsed_id}, which a program has to "
                "declare",
                hint=describe_import_format(kind, import_id) if name == kind.import_field else None,
            )
    for name, value in secrets.items():
        if not value:
            raise GpuformError(
                f"the platform does not report the {name} of {parsed_id}, a secret that a program "
                "has to declare",
                hint=f"set {build_secret_variable(name)} in the environment of the import to the "
                "value that the create used; in the program, declare it with a secret of "
                "the configuration",
            )
    completed_inputs = {**merged_inputs, **secrets}
    for failure in lifecycle.check({}, {**inputs, **secrets}).failures:
        if failure.property.split(".")[0] in completed_inputs:
            raise GpuformError(
                f"{failure.property} {failure.reason}", hint=describe_import_format(kind, import_id)
            )
    return ReadResult(result.id, {**(result.outs or {}), **completed_inputs}, inputs)


def _is_import_field_text(kind: Kind) -> bool:
    """Return True if the input that an import names beside the id is a text."""
    return kind.inputs.model_fields[kind.import_field].annotation in (str, str | None)

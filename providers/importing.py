"""What an import has to know beside an object's id: required inputs that no read of it brings.

The platform's lists tell some of them. One that they do not tell is added to the id, `ID@VALUE`,
where the kind has such an input (`Traits.asked`); a secret is in the environment (`variable`).
"""

import json
from collections.abc import Mapping
from typing import Any

import yaml
from pulumi.dynamic import ReadResult

from gpuform.providers.errors import GpuformError
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.offering import held_by
from gpuform.providers.operations import Settings
from gpuform.providers.properties import Properties
from gpuform.schemas.rules import get_field_rules

Kind = type[Lifecycle[Any, Any]]


def object_id(kind: Kind, text: str) -> str:
    """The id of the object that an import names."""
    return text.partition("@")[0] if kind.import_field else text


def given_with(kind: Kind, text: str) -> Properties:
    """The input that an import names beside the id, if it does. Raises GpuformError."""
    _, is_given, value = text.partition("@") if kind.import_field else (text, "", "")
    if not is_given:
        return {}
    try:
        parsed = value if _is_text(kind) else yaml.safe_load(value)
    except yaml.YAMLError:
        parsed = None
    if not parsed or not str(parsed).strip():
        raise GpuformError(f"{text}: {value!r} is no {kind.import_field}", hint=how(kind, text))
    return {kind.import_field: parsed}


def how(kind: Kind, text: str) -> str:
    """How an object of the kind is named."""
    example = kind.inputs.model_fields[kind.import_field].examples or ("VALUE",)
    value = example[0] if _is_text(kind) else json.dumps(example[0])
    return f"import it as ID@{kind.import_field.upper()}, such as '{object_id(kind, text)}@{value}'"


def agreed(kind: Kind, text: str, told: Mapping[str, Any]) -> Properties:
    """What is given with the id and what the platform tells. Raises GpuformError if they differ."""
    given = given_with(kind, text)
    for name, value in given.items():
        if told.get(name, value) != value:
            raise GpuformError(
                f"the {name} of {object_id(kind, text)} is {told[name]}, not {value}",
                hint="correct what is behind the @, or leave it out: the platform tells it",
            )
    return {**told, **given}


def variable(name: str) -> str:
    """The environment variable that has a secret input of what is imported."""
    return f"GPUFORM_{name.upper()}"


def imported(kind: Kind, text: str, settings: Settings) -> ReadResult:
    """The object that an import names, with all that a program has to declare.

    Secrets that no platform tells are outputs and no inputs: the CLI writes inputs into the code
    that it makes. Raises GpuformError for what nobody tells.
    """
    lifecycle, id_ = kind.with_settings(settings), object_id(kind, text)
    found = lifecycle.read(id_, {})
    if not found.id:
        return found
    inputs, rules = dict(found.inputs or {}), get_field_rules(kind.inputs)
    fields = kind.inputs.model_fields.items()
    needed = {name for name, field in fields if field.is_required()} | {kind.import_field} - {""}
    lacking = [name for name, _ in fields if name in needed and name not in inputs]
    secrets = {n: settings.environ.get(variable(n)) for n in lacking if rules[n].secret}
    plain = [name for name in lacking if not rules[name].secret]
    held = held_by(kind.platform, settings) if plain else ()
    listed = next((each.told for each in held if (each.kind, each.id) == (kind.kind, id_)), {})
    known = agreed(kind, text, {name: listed[name] for name in plain if name in listed})
    inputs |= known
    for name in plain:
        if name not in inputs:
            raise GpuformError(
                f"the platform does not tell the {name} of {id_}, which a program has to declare",
                hint=how(kind, text) if name == kind.import_field else None,
            )
    for name, value in secrets.items():
        if not value:
            raise GpuformError(
                f"the platform does not tell the {name} of {id_}, a secret that a program has to "
                "declare",
                hint=f"set {variable(name)} in the environment of the import to what it was made "
                "with; in the program declare it by a secret of the configuration",
            )
    told = {**known, **secrets}
    for failure in lifecycle.check({}, {**inputs, **secrets}).failures:
        if failure.property.split(".")[0] in told:
            raise GpuformError(f"{failure.property} {failure.reason}", hint=how(kind, text))
    return ReadResult(found.id, {**(found.outs or {}), **told}, inputs)


def _is_text(kind: Kind) -> bool:
    return kind.inputs.model_fields[kind.import_field].annotation in (str, str | None)

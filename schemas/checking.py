"""Validate declared inputs against their model, and describe every problem with what to do.

The lifecycles, the topology reader and the editors call `validate_inputs`. Pydantic finds the
errors of single fields, the models' `find_problems` the errors over several fields; both skip
unknown values. No message contains a secret.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gpuform.schemas.models import InputModel, Problem
from gpuform.schemas.rules import FieldRules, get_field_rules
from gpuform.schemas.values import UNKNOWN

_MAX_VALUE_LENGTH: Final = 60


def describe_error(model: type[InputModel], error: ErrorDetails) -> str:
    """Return message and advice for one pydantic error of an input model, for people.

    The value of a secret field is not shown.
    """
    owner, field_name, rules = _find_field(model, error["loc"])
    describe = _DESCRIPTIONS.get(error["type"])
    if error["type"] == "missing":
        # the field's description says what to write
        return f"is required: {owner.model_fields[field_name].description}"
    if error["type"] == "literal_error":
        return _describe_wrong_choice(owner, field_name, rules, error["input"])
    if error["type"] == "value_error":
        return _read_validator_message(rules, error)
    if describe is None:
        return "is not valid" if rules.secret else f"is not valid: {error['msg']}"
    return describe("the value" if rules.secret else format_value(error["input"]), error)


def format_value(value: Any) -> str:
    """Return a value in YAML's spelling for a message, cut after 60 characters.

    For an object or a list only the words `an object` or `a list`.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    # Pulumi sends each number as a double: a message shows 16, not 16.0.
    formatted = f"{value:.15g}" if isinstance(value, float) else str(value)
    return (
        formatted if len(formatted) <= _MAX_VALUE_LENGTH else f"{formatted[:_MAX_VALUE_LENGTH]}..."
    )


def find_nearest_name(
    name: str, known_names: Iterable[str], *, similarity: float = 0.7
) -> str | None:
    """Return the known name most similar to a misspelled ``name``, ignoring case, or None.

    Names with less than ``similarity``, from 0 to 1, are not similar. Short names with numbers need
    a lower one.
    """
    names_by_folded = {known_name.casefold(): known_name for known_name in known_names}
    matches = get_close_matches(name.casefold(), names_by_folded, n=1, cutoff=similarity)
    return names_by_folded[matches[0]] if matches else None


def suggest_name(
    name: str, known_names: Iterable[str], otherwise: str = "", *, similarity: float = 0.7
) -> str:
    """Return a hint with the known name most similar to ``name``, or ``otherwise``."""
    nearest_name = find_nearest_name(name, known_names, similarity=similarity)
    return f"did you mean {nearest_name}?" if nearest_name else otherwise


def _find_field(
    model: type[InputModel], location: tuple[str | int, ...]
) -> tuple[type[InputModel], str, FieldRules]:
    """Return the field at ``location`` of an input: its model, its name and its rules.

    The location is pydantic's, such as ("add_ons", 0, "name").
    """
    owner, rules, field_name, is_key = model, FieldRules(), "", False
    for step in location:
        if isinstance(step, int) or is_key:
            is_key = False
            continue
        if rules.nested and issubclass(rules.nested, InputModel):
            owner = rules.nested
        fields = get_field_rules(owner)
        if step in fields:
            field_name, rules = step, fields[step].inherit_rules(rules)
            is_key = rules.is_map
    return owner, field_name, rules


def _describe_wrong_choice(
    owner: type[InputModel], name: str, rules: FieldRules, value: Any
) -> str:
    """Return the message for a value outside of a field's choices, with the nearest choice.

    The value of a secret field is not shown.
    """
    choices = ", ".join(rules.choices)
    if rules.secret or not isinstance(value, str):
        return f"must be one of {choices}" if len(rules.choices) > 1 else f"must be {choices}"
    # a value of the console or of an older API has its own translation
    suggestion = owner.retired_values.get(name, {}).get(value) or find_nearest_name(
        value, rules.choices
    )
    if suggestion:
        return f"{format_value(value)} is not one of {choices}: did you mean {suggestion}?"
    return f"{format_value(value)} is not known: use one of {choices}"


def _read_validator_message(rules: FieldRules, error: ErrorDetails) -> str:
    """Return the message of gpuform's own validator; for a secret field, one without the value."""
    message = str(error.get("ctx", {}).get("error", error["msg"]))
    return "is not valid" if rules.secret and str(error["input"]) in message else message


def _describe_not_integer(yaml_value: str, error: ErrorDetails) -> str:
    """Return the message for a value other than a whole number; `shown` is the value as YAML."""
    prefix = "the text " if isinstance(error["input"], str) else ""
    return f"must be a whole number, not {prefix}{yaml_value}"


def _describe_not_text(yaml_value: str, error: ErrorDetails) -> str:
    """Return the message for a value other than text; `shown` is the value as YAML."""
    is_number = isinstance(error["input"], int | float) and not isinstance(error["input"], bool)
    return f"must be text, not {yaml_value}" + (": write it in quotes" if is_number else "")


def _describe_not_multiple(yaml_value: str, error: ErrorDetails) -> str:
    """Return the message for a number between two multiples, with the nearest multiples."""
    step = error["ctx"]["multiple_of"]
    lower_multiple = error["input"] // step * step
    suggestions = (
        f"{lower_multiple} or {lower_multiple + step}" if lower_multiple > 0 else str(step)
    )
    return f"{yaml_value} is not a multiple of {step}: use {suggestions}"


def _make_bound_description(key: str, template: str) -> Callable[[str, ErrorDetails], str]:
    """Return a function to fill value and bound of a pydantic error into `template`.

    `key` is the name of the bound in the error's context, such as `ge`.
    """
    return lambda shown, error: template.format(shown=shown, bound=format_value(error["ctx"][key]))


_DESCRIPTIONS: Final[Mapping[str, Callable[[str, ErrorDetails], str]]] = {
    "int_type": _describe_not_integer,
    "int_from_float": _describe_not_integer,
    "int_parsing": _describe_not_integer,
    "float_type": lambda shown, _: f"must be a number, not {shown}",
    "string_type": _describe_not_text,
    "bool_type": lambda shown, _: f"must be true or false, not {shown}",
    "list_type": lambda shown, _: f"must be a list, not {shown}",
    "model_type": lambda shown, _: f"must be an object, not {shown}",
    "dict_type": lambda shown, _: f"must be an object, not {shown}",
    "multiple_of": _describe_not_multiple,
    "greater_than_equal": _make_bound_description(
        "ge", "{shown} is too small: the least is {bound}"
    ),
    "less_than_equal": _make_bound_description("le", "{shown} is too large: the most is {bound}"),
    "greater_than": _make_bound_description(
        "gt", "{shown} is too small: it must be more than {bound}"
    ),
    "less_than": _make_bound_description(
        "lt", "{shown} is too large: it must be less than {bound}"
    ),
    "too_short": _make_bound_description(
        "min_length", "is too short: give at least {bound} item(s)"
    ),
    "string_too_short": _make_bound_description(
        "min_length", "is too short: give at least {bound} character(s)"
    ),
    "string_too_long": _make_bound_description(
        "max_length", "is too long: give at most {bound} characters"
    ),
}


KEY_PROBLEM_PREFIXES: Final = ("is not known", "is called", "is not a valid name")
"""How reasons of problems begin that concern a key instead of its value."""

ErrorLocation = tuple[str | int, ...]
"""The location of a value: names of fields and indexes of items, from the outside in."""


def validate_inputs(
    model: type[InputModel], values: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the declared fields in declared types and normal form, and all problems of inputs.

    Args:
        model: the input model.
        values: the raw inputs. They may be UNKNOWN at any depth and stay so, without a problem.
            None means not declared, unless the model refuses null. A float without a fraction
            becomes an integer where the field is an integer, because Pulumi's wire format knows
            only doubles.

    Returns:
        The typed values, without unknown names, and the problems. With problems the values are not
        normalized, and wrong values stay as they are.
    """
    reader = _InputReader(refuses_null=model.refuses_null)
    typed_values = reader.read_object(model, values, ())
    problems = reader.problems
    # a value with a problem becomes unknown, so that rules over several fields do not report the
    # same problem again
    masked_values = typed_values
    for location in reader.assumed:
        masked_values = _replace_value(masked_values, location, UNKNOWN)
    for error in _validate_fields(model, masked_values):
        location = error["loc"]
        if not _is_unknown(masked_values, location):
            problems.append(Problem(format_path(location), describe_error(model, error)))
            masked_values = _replace_value(masked_values, location, UNKNOWN)
    problems.extend(_find_model_problems(model, masked_values, ()))
    return (typed_values, problems) if problems else (model.normalize(typed_values), [])


def format_path(location: ErrorLocation) -> str:
    """Return pydantic's location of an input as a property path: ``add_ons[0].name``."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


class _InputReader:
    """Reads the declared fields from raw values, and collects names that the models do not have."""

    def __init__(self, *, refuses_null: bool) -> None:
        self._refuses_null = refuses_null
        self.problems: list[Problem] = []
        self.assumed: list[ErrorLocation] = []
        """Fields that are not missing, and not known: meant by a wrong name, or without a value."""

    def read_object(
        self, model: type[InputModel], values: Mapping[str, Any], location: ErrorLocation
    ) -> dict[str, Any]:
        """Return an object's fields, converted to the declared types, without unknown names.

        Adds to `self.problems` the unknown names and the former names beside present ones, and to
        `self.assumed` the fields that unknown names probably mean.
        """
        rules, values = get_field_rules(model), model.rename_former_fields(values)
        for name, present_name in model.former_names.items():
            if values.get(name) is not None:
                message = (
                    f"is the former name of {present_name}, which is declared too: remove {name}"
                )
                self.problems.append(Problem(format_path((*location, name)), message))
        given_values = {
            name: value for name, value in values.items() if value is not None or self._refuses_null
        }
        typed_values = {
            name: self._read_value(rules[name], given_values[name], (*location, name))
            for name in rules
            if name in given_values
        }
        for name, value in given_values.items():
            if name not in rules:
                suggested_field, message = _describe_unknown_name(model, name, value)
                self.problems.append(Problem(format_path((*location, name)), message))
                if suggested_field and suggested_field not in typed_values:
                    # the misspelled field would otherwise be reported as missing, too
                    self.assumed.append((*location, suggested_field))
        return typed_values

    def _read_value(self, rules: FieldRules, value: Any, location: ErrorLocation) -> Any:
        """Return a declared value in the field's type, with objects and lists read recursively.

        An integer field's 8.0 becomes 8. A refused null is added to ``self.problems``.
        """
        if isinstance(value, list | tuple):
            return [self._read_value(rules, item, (*location, at)) for at, item in enumerate(value)]
        if isinstance(value, Mapping):
            nested = rules.nested
            if nested is None or not issubclass(nested, InputModel):
                return dict(value)
            if rules.is_map:
                item = replace(rules, is_map=False)
                return {key: self._read_value(item, value[key], (*location, key)) for key in value}
            return self.read_object(nested, value, location)
        if value is None and self._refuses_null:
            self.problems.append(
                Problem(format_path(location), "has no value: give it one, or remove it")
            )
            self.assumed.append(location)
        if rules.is_integer and isinstance(value, float) and value.is_integer():
            # Pulumi's wire format sends every number as a double
            return int(value)
        return value


def _describe_unknown_name(
    model: type[InputModel], name: str, value: Any
) -> tuple[str | None, str]:
    """Return the probable field of an unknown name, or None, and the message."""
    rules = get_field_rules(model)
    if name in model.system_names:
        return None, model.system_names[name]
    retired = model.retired_names.get(name)
    if retired:
        is_shown = not rules[retired].secret and isinstance(value, str | int | float)
        example = f": {format_value(model.convert_retired_value(name, value))}" if is_shown else ""
        return retired, f"is called {retired} here: write {retired}{example}"
    nearest_name = find_nearest_name(name, rules) or _find_synonym(name, rules)
    if nearest_name:
        return nearest_name, f"is not known: did you mean {nearest_name}?"
    known_names = ", ".join(name for name, field in rules.items() if not field.computed)
    return None, f"is not known: remove it, or use one of {known_names}"


_NUMBER_WORDS: Final = frozenset({"num", "number", "count", "quantity", "amount", "n"})


def _find_synonym(name: str, rules: Mapping[str, FieldRules]) -> str | None:
    """Return the only field with the words of `name`: `num_gpus` for `gpu_count`. Else None."""
    words = _split_words(name)
    matches = [known_name for known_name in rules if _split_words(known_name) == words]
    return matches[0] if len(matches) == 1 else None


def _split_words(name: str) -> frozenset[str]:
    """Return the words of a field's name in singular, with one word for all words for a number."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).casefold().replace("-", "_").split("_")
    return frozenset(
        "num" if word in _NUMBER_WORDS else word.removesuffix("s") for word in words if word != "of"
    )


def _validate_fields(model: type[InputModel], values: Mapping[str, Any]) -> Iterator[ErrorDetails]:
    """Yield pydantic's errors of the values, each field by itself."""
    try:
        # Without strict, pydantic would accept the text "8" as a number.
        model.model_validate(values, strict=True)
    except ValidationError as error:
        yield from error.errors(include_url=False)


def _find_model_problems(
    model: type[InputModel], values: Mapping[str, Any], location: ErrorLocation
) -> Iterator[Problem]:
    """Yield the problems over several fields, of the model and of every object inside."""
    for problem in model.find_problems(values):
        yield Problem(_join_paths(format_path(location), problem.path), problem.reason)
    for name, rules in get_field_rules(model).items():
        nested, value = rules.nested, values.get(name)
        if nested is None or not issubclass(nested, InputModel):
            continue
        for step, item in _iterate_objects(rules, value):
            if isinstance(item, Mapping):
                yield from _find_model_problems(nested, item, (*location, name, *step))


def _iterate_objects(rules: FieldRules, value: Any) -> Iterator[tuple[ErrorLocation, Any]]:
    """Yield the objects of a field (one, or the items of a list or map) with locations."""
    if isinstance(value, list):
        yield from (((at,), item) for at, item in enumerate(value))
    elif isinstance(value, Mapping) and rules.is_map:
        yield from (((key,), item) for key, item in value.items())
    else:
        yield (), value


def _join_paths(outer: str, inner: str) -> str:
    """Return two property paths joined by a dot; an empty path is left out."""
    return ".".join(filter(None, (outer, inner)))


def _is_unknown(values: Any, location: ErrorLocation) -> bool:
    """Return True if the value at ``location``, or an object around it, is UNKNOWN."""
    for step in location:
        if values is UNKNOWN:
            return True
        if isinstance(values, Mapping):
            values = values.get(str(step))
        elif isinstance(values, list) and isinstance(step, int):
            values = values[step]
    return values is UNKNOWN


def _replace_value(values: Any, location: ErrorLocation, value: Any) -> Any:
    """Return a copy of inputs with another value at one location, at any depth."""
    if not location:
        return value
    step, rest = location[0], location[1:]
    if isinstance(values, list) and isinstance(step, int):
        return [_replace_value(v, rest, value) if at == step else v for at, v in enumerate(values)]
    if isinstance(values, Mapping):
        return {**values, step: _replace_value(values.get(str(step)), rest, value)}
    return value

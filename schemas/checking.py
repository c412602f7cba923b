"""Check a declaration as a whole, and word every problem with what to do.

A message never contains a secret.

Pydantic finds the errors of single fields, the model's own ``problems`` those over several; what is
not known yet is skipped by both.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gpuform.schemas.models import InputModel, Problem
from gpuform.schemas.rules import FieldRules, get_field_rules
from gpuform.schemas.values import UNKNOWN

_LONGEST_VALUE: Final = 60


def reason(model: type[InputModel], error: ErrorDetails) -> str:
    """What is wrong at the place of one of ``model``'s errors, and what to do."""
    owner, name, rules = _field_at(model, error["loc"])
    word = _WORDS.get(error["type"])
    if error["type"] == "missing":
        return f"is required: {owner.model_fields[name].description}"
    if error["type"] == "literal_error":
        return _not_a_choice(owner, name, rules, error["input"])
    if error["type"] == "value_error":
        return _own_words(rules, error)
    if word is None:
        return "is not valid" if rules.secret else f"is not valid: {error['msg']}"
    return word("the value" if rules.secret else plain(error["input"]), error)


def plain(value: Any) -> str:
    """A value as people write it, shortened."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    text = f"{value:.15g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def nearest(name: str, known: Mapping[str, Any] | tuple[str, ...]) -> str | None:
    """The known name that ``name`` was probably meant to be; case does not matter."""
    folded = {one.casefold(): one for one in known}
    near = get_close_matches(name.casefold(), folded, n=1, cutoff=0.7)
    return folded[near[0]] if near else None


def _field_at(
    model: type[InputModel], place: tuple[str | int, ...]
) -> tuple[type[InputModel], str, FieldRules]:
    """The model that has the field at ``place``, the field's name, and its rules there."""
    owner, rules, name, is_key = model, FieldRules(), "", False
    for step in place:
        if isinstance(step, int) or is_key:
            is_key = False
            continue
        if rules.nested and issubclass(rules.nested, InputModel):
            owner = rules.nested
        fields = get_field_rules(owner)
        if step in fields:
            name, rules = step, fields[step].inherit_rules(rules)
            is_key = rules.is_map
    return owner, name, rules


def _not_a_choice(owner: type[InputModel], name: str, rules: FieldRules, value: Any) -> str:
    choices = ", ".join(rules.choices)
    if rules.secret or not isinstance(value, str):
        return f"must be one of {choices}" if len(rules.choices) > 1 else f"must be {choices}"
    meant = owner.retired_values.get(name, {}).get(value) or nearest(value, rules.choices)
    if meant:
        return f"{plain(value)} is not one of {choices}: did you mean {meant}?"
    return f"{plain(value)} is not known: use one of {choices}"


def _own_words(rules: FieldRules, error: ErrorDetails) -> str:
    words = str(error.get("ctx", {}).get("error", error["msg"]))
    return "is not valid" if rules.secret and str(error["input"]) in words else words


def _whole_number(shown: str, error: ErrorDetails) -> str:
    text = "the text " if isinstance(error["input"], str) else ""
    return f"must be a whole number, not {text}{shown}"


def _text(shown: str, error: ErrorDetails) -> str:
    is_number = isinstance(error["input"], int | float) and not isinstance(error["input"], bool)
    return f"must be text, not {shown}" + (": write it in quotes" if is_number else "")


def _multiple(shown: str, error: ErrorDetails) -> str:
    step = error["ctx"]["multiple_of"]
    below = error["input"] // step * step
    counts = f"{below} or {below + step}" if below > 0 else str(step)
    return f"{shown} is not a multiple of {step}: use {counts}"


def _bound(key: str, template: str) -> Callable[[str, ErrorDetails], str]:
    return lambda shown, error: template.format(shown=shown, bound=plain(error["ctx"][key]))


_WORDS: Final[Mapping[str, Callable[[str, ErrorDetails], str]]] = {
    "int_type": _whole_number,
    "int_from_float": _whole_number,
    "int_parsing": _whole_number,
    "float_type": lambda shown, _: f"must be a number, not {shown}",
    "string_type": _text,
    "bool_type": lambda shown, _: f"must be true or false, not {shown}",
    "list_type": lambda shown, _: f"must be a list, not {shown}",
    "model_type": lambda shown, _: f"must be an object, not {shown}",
    "dict_type": lambda shown, _: f"must be an object, not {shown}",
    "multiple_of": _multiple,
    "greater_than_equal": _bound("ge", "{shown} is too small: the least is {bound}"),
    "less_than_equal": _bound("le", "{shown} is too large: the most is {bound}"),
    "greater_than": _bound("gt", "{shown} is too small: it must be more than {bound}"),
    "less_than": _bound("lt", "{shown} is too large: it must be less than {bound}"),
    "too_short": _bound("min_length", "is too short: give at least {bound} item(s)"),
    "string_too_short": _bound("min_length", "is too short: give at least {bound} character(s)"),
    "string_too_long": _bound("max_length", "is too long: give at most {bound} characters"),
}


ABOUT_KEYS: Final = ("is not known", "is called")
"""How the reasons of problems begin that are about a key, not about its value."""

ErrorLocation = tuple[str | int, ...]
"""Where a value is: names of fields and indexes of items, from the outside in."""


def check(
    model: type[InputModel], values: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Problem]]:
    """The declared fields in canonical spelling and declared types, and everything wrong with them.

    Values may be UNKNOWN at any depth: they stay, and nothing is said of them. None means not
    declared, unless the model refuses it. A whole double is an integer where the field wants one
    (Pulumi's wire knows only doubles). With problems, the values are not canonical.
    """
    reader = _Reader(refuses_null=model.refuses_null)
    typed = reader.read(model, values, ())
    problems = reader.problems
    masked = typed
    for place in reader.assumed:
        masked = _replaced(masked, place, UNKNOWN)
    for error in _field_errors(model, masked):
        place = error["loc"]
        if not _is_unknown(masked, place):
            problems.append(Problem(path_of(place), reason(model, error)))
            masked = _replaced(masked, place, UNKNOWN)
    problems.extend(_model_problems(model, masked, ()))
    return (typed, problems) if problems else (model.normalize(typed), [])


def path_of(place: ErrorLocation) -> str:
    """The property path of a place: ``add_ons[0].name``."""
    path = ""
    for step in place:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


class _Reader:
    """Takes the declared fields out of raw values, and notes the names that no model knows."""

    def __init__(self, *, refuses_null: bool) -> None:
        self._refuses_null = refuses_null
        self.problems: list[Problem] = []
        self.assumed: list[ErrorLocation] = []
        """Fields that are not missing, and not known: meant by a wrong name, or without a value."""

    def read(
        self, model: type[InputModel], values: Mapping[str, Any], place: ErrorLocation
    ) -> dict[str, Any]:
        rules, values = get_field_rules(model), model.rename_former_fields(values)
        for name, now in model.former_names.items():
            if values.get(name) is not None:
                answer = f"is the former name of {now}, which is declared too: remove {name}"
                self.problems.append(Problem(path_of((*place, name)), answer))
        given = {
            name: value for name, value in values.items() if value is not None or self._refuses_null
        }
        typed = {
            name: self._value(rules[name], given[name], (*place, name))
            for name in rules
            if name in given
        }
        for name, value in given.items():
            if name not in rules:
                meant, answer = _unknown_name(model, name, value)
                self.problems.append(Problem(path_of((*place, name)), answer))
                if meant and meant not in typed:
                    self.assumed.append((*place, meant))
        return typed

    def _value(self, rules: FieldRules, value: Any, place: ErrorLocation) -> Any:
        if isinstance(value, list | tuple):
            return [self._value(rules, item, (*place, at)) for at, item in enumerate(value)]
        if isinstance(value, Mapping):
            nested = rules.nested
            if nested is None or not issubclass(nested, InputModel):
                return dict(value)
            if rules.is_map:
                item = replace(rules, is_map=False)
                return {key: self._value(item, value[key], (*place, key)) for key in value}
            return self.read(nested, value, place)
        if value is None and self._refuses_null:
            self.problems.append(Problem(path_of(place), "has no value: give it one, or remove it"))
            self.assumed.append(place)
        if rules.is_integer and isinstance(value, float) and value.is_integer():
            return int(value)
        return value


def _unknown_name(model: type[InputModel], name: str, value: Any) -> tuple[str | None, str]:
    """The field that was meant, and what to say."""
    rules = get_field_rules(model)
    if name in model.system_names:
        return None, model.system_names[name]
    retired = model.retired_names.get(name)
    if retired:
        shown = not rules[retired].secret and isinstance(value, str | int | float)
        example = f": {plain(model.convert_retired_value(name, value))}" if shown else ""
        return retired, f"is called {retired} here: write {retired}{example}"
    near = nearest(name, rules)
    if near:
        return near, f"is not known: did you mean {near}?"
    known = ", ".join(name for name, field in rules.items() if not field.computed)
    return None, f"is not known: remove it, or use one of {known}"


def _field_errors(model: type[InputModel], values: Mapping[str, Any]) -> Iterator[ErrorDetails]:
    try:
        model.model_validate(values, strict=True)
    except ValidationError as error:
        yield from error.errors(include_url=False)


def _model_problems(
    model: type[InputModel], values: Mapping[str, Any], place: ErrorLocation
) -> Iterator[Problem]:
    """The rules over several fields, of the model and of what is inside it."""
    for problem in model.find_problems(values):
        yield Problem(_joined(path_of(place), problem.path), problem.reason)
    for name, rules in get_field_rules(model).items():
        nested, value = rules.nested, values.get(name)
        if nested is None or not issubclass(nested, InputModel):
            continue
        for step, item in _objects(rules, value):
            if isinstance(item, Mapping):
                yield from _model_problems(nested, item, (*place, name, *step))


def _objects(rules: FieldRules, value: Any) -> Iterator[tuple[ErrorLocation, Any]]:
    """The objects of a field, each with its place inside: one, or those of a list or map."""
    if isinstance(value, list):
        yield from (((at,), item) for at, item in enumerate(value))
    elif isinstance(value, Mapping) and rules.is_map:
        yield from (((key,), item) for key, item in value.items())
    else:
        yield (), value


def _joined(outer: str, inner: str) -> str:
    return ".".join(filter(None, (outer, inner)))


def _is_unknown(values: Any, place: ErrorLocation) -> bool:
    """Whether the value at ``place``, or one around it, is UNKNOWN."""
    for step in place:
        if values is UNKNOWN:
            return True
        if isinstance(values, Mapping):
            values = values.get(str(step))
        elif isinstance(values, list) and isinstance(step, int):
            values = values[step]
    return values is UNKNOWN


def _replaced(values: Any, place: ErrorLocation, value: Any) -> Any:
    """A copy of ``values`` with ``value`` at ``place``."""
    if not place:
        return value
    step, rest = place[0], place[1:]
    if isinstance(values, list) and isinstance(step, int):
        return [_replaced(v, rest, value) if at == step else v for at, v in enumerate(values)]
    if isinstance(values, Mapping):
        return {**values, step: _replaced(values.get(str(step)), rest, value)}
    return value

"""Words for pydantic's errors: what is wrong with a field, and what to do. Never a secret."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from pydantic_core import ErrorDetails

from gpuform.schemas.models import InputModel
from gpuform.schemas.rules import FieldRules, rules_of

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
        fields = rules_of(owner)
        if step in fields:
            name, rules = step, fields[step].under(rules)
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

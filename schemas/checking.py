"""All that is wrong with a declaration, at once, in words that say what to do.

Pydantic finds the errors of single fields, the model's own ``problems`` those over several; what is
not known yet is skipped by both.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gpuform.schemas.models import InputModel, Problem
from gpuform.schemas.reasons import nearest, plain, reason
from gpuform.schemas.rules import FieldRules, rules_of
from gpuform.schemas.values import UNKNOWN

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
    return (typed, problems) if problems else (model.canonical(typed), [])


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
        rules, values = rules_of(model), model.by_new_names(values)
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
        if rules.whole and isinstance(value, float) and value.is_integer():
            return int(value)
        return value


def _unknown_name(model: type[InputModel], name: str, value: Any) -> tuple[str | None, str]:
    """The field that was meant, and what to say."""
    rules = rules_of(model)
    if name in model.system_names:
        return None, model.system_names[name]
    retired = model.retired_names.get(name)
    if retired:
        shown = not rules[retired].secret and isinstance(value, str | int | float)
        example = f": {plain(model.converted(name, value))}" if shown else ""
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
    for problem in model.problems(values):
        yield Problem(_joined(path_of(place), problem.path), problem.reason)
    for name, rules in rules_of(model).items():
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

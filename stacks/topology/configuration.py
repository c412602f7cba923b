"""Typed configuration: from a stack's texts to the values that a topology declares."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.expressions.errors import ExpressionError
from gpuform.stacks.topology.declarations import ConfigVariable


@dataclass(frozen=True, slots=True)
class Stacked:
    """The value of a configuration variable in a stack, in the clear."""

    value: Any
    secret: bool


class StackConfig(Protocol):
    """Where a stack's texts are."""

    def get(self, name: str) -> str | None:
        """The text that the stack sets, if it sets one."""

    def is_secret(self, name: str) -> bool:
        """Whether the stack keeps it encrypted."""


def configured(
    variables: Iterable[ConfigVariable], stack: StackConfig, problems: Diagnostics
) -> dict[str, Stacked]:
    """The stack's values of the variables; those without one are left out, and what is wrong."""
    found = {}
    for variable in variables:
        secret = variable.secret or stack.is_secret(variable.name)
        text = stack.get(variable.name)
        try:
            if text is not None:
                found[variable.name] = Stacked(parsed(variable, text), secret)
            elif "default" in variable.said:
                default = allowed(variable, variable.said["default"])
                found[variable.name] = Stacked(default, secret)
        except ExpressionError as error:
            problems.add(variable.place, "config", str(error), error.hint)
    return found


_WORDS: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list, as JSON",
    "object": "an object, as JSON",
}


def parsed(variable: ConfigVariable, text: str) -> Any:
    """The value of a configuration text. Raises ExpressionError for one that is not allowed."""
    try:
        value = _PARSERS[variable.type](text)
    except ValueError:
        raise _refused(variable, text, f"is not {_WORDS[variable.type]}") from None
    return allowed(variable, value)


def allowed(variable: ConfigVariable, value: Any) -> Any:
    """The value, if it is of the declared type and within the declared limits."""
    if not _IS_TYPE[variable.type](value):
        raise _refused(variable, value, f"is not {_WORDS[variable.type]}")
    said = variable.said
    choices = said.get("enum")
    if choices is not None and value not in choices:
        shown = ", ".join(map(str, choices))
        raise _refused(variable, value, f"is not one of {shown}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(variable, value)
    if isinstance(value, str | list):
        _check_length(variable, value)
    pattern = said.get("pattern")
    if pattern and isinstance(value, str) and not re.fullmatch(pattern, value):
        raise _refused(variable, value, f"does not match {pattern}")
    return value


def _check_number(variable: ConfigVariable, value: float) -> None:
    said = variable.said
    least, most, step = said.get("minimum"), said.get("maximum"), said.get("multiple_of")
    if least is not None and value < least:
        raise _refused(variable, value, f"is less than {least:g}")
    if most is not None and value > most:
        raise _refused(variable, value, f"is more than {most:g}")
    if step and value % step:
        raise _refused(variable, value, f"is not a multiple of {step:g}")


def _check_length(variable: ConfigVariable, value: str | list[Any]) -> None:
    least, most = variable.said.get("min_length"), variable.said.get("max_length")
    if least is not None and len(value) < least:
        raise _refused(variable, value, f"is shorter than {least}")
    if most is not None and len(value) > most:
        raise _refused(variable, value, f"is longer than {most}")


def _refused(variable: ConfigVariable, value: Any, why: str) -> ExpressionError:
    shown = "its value" if variable.secret else json.dumps(value, ensure_ascii=False)
    secret = " --secret" if variable.secret else ""
    return ExpressionError(
        f"config.{variable.name}: {shown} {why}",
        f"set another one: gpuform config set{secret} {variable.name} VALUE",
    )


def _integer(text: str) -> int:
    if not re.fullmatch(r"[-+]?[0-9]+", text):
        raise ValueError(text)
    return int(text)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text] if text in ("true", "false") else _fail(text)


def _fail(text: str) -> Any:
    raise ValueError(text)


_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "string": str,
    "integer": _integer,
    "number": float,
    "boolean": _boolean,
    "array": json.loads,
    "object": json.loads,
}
_IS_TYPE: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}

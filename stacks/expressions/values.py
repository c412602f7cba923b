"""The values that expressions give: plain ones, and what each is as text."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from jinja2 import Undefined

from gpuform.stacks.expressions.budget import ExpressionError

_LARGEST: Final = 2**53
"""Up to here every whole number is a double, as states and platforms keep them."""
_DEEPEST: Final = 64
TOO_LONG_A_NUMBER: Final = ("a whole number has at most 16 digits", "write it as text")


def plain(value: Any, depth: int = 0) -> Any:
    """The value of text, numbers, true, false, null, lists and objects only."""
    if isinstance(value, Undefined):
        str(value)  # raises what is undefined
    if depth > _DEEPEST:
        raise ExpressionError(f"more than {_DEEPEST} lists and objects inside each other")
    if isinstance(value, Mapping):
        stands_for = getattr(value, "stands_for", None)
        if stands_for is not None:
            return stands_for
        return {as_text(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, str):
        return _whole_characters(value)
    if value is None or isinstance(value, bool):
        return value
    return number(value)


def number(value: Any) -> Any:
    """The number, if JSON and doubles can hold it."""
    if isinstance(value, int):
        if abs(value) > _LARGEST:
            raise ExpressionError(*TOO_LONG_A_NUMBER)
    elif not isinstance(value, float):
        raise ExpressionError(f"a {kind_of(value)} is no value", "call it: name(...)")
    elif not math.isfinite(value):
        raise ExpressionError("the number is too large, or none")
    return value


def as_text(value: Any) -> str:
    """A value inside a text: true and false as in YAML, lists and objects as JSON."""
    found = plain(value)
    if found is None:
        raise ExpressionError("there is no value to put into the text", "give one: default('')")
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def kind_of(value: Any) -> str:
    """What a value is, in a word of YAML's."""
    kinds = {str: "text", bool: "true or false", int: "number", float: "number", list: "list"}
    if value is None:
        return "null"
    return kinds.get(type(value), "object" if isinstance(value, Mapping) else "function")


def _whole_characters(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ExpressionError("the text has half a character, \\ud800 to \\udfff") from None
    return text

"""Define the values of expressions with their weights and errors, and limit the cost of evaluating.

The weight of a value counts its characters, numbers, list items and entries. The sandbox spends the
weight of a value before it creates the value, or creates a value at most a few times as heavy as
its operands.

gpuform keeps a text such as `${volume.id}` as text: a user of another tool would create objects
with this text as the id of a volume. `topology` reports such text as a problem, and
`declaration_writer` escapes it when it writes YAML.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from itertools import islice
from types import GeneratorType
from typing import Any, Final

from jinja2 import Undefined

_LONGEST: Final = 500


class ExpressionError(Exception):
    """An error of an expression: `str` says what is wrong, `hint` what to do.

    `tells_values` is True if the message may show values that the expression was evaluated with.
    `where` is the wrong part of the source text, empty if unknown.
    """

    def __init__(
        self, message: str, hint: str = "", *, tells_values: bool = False, where: str = ""
    ) -> None:
        super().__init__(_truncate_text(message))
        self.hint = _truncate_text(hint)
        self.tells_values = tells_values
        self.where = where


def _truncate_text(text: str) -> str:
    """Return the text, cut after `_LONGEST` characters and marked with `...` if longer."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


MOST: Final = 2_000_000
"""The maximum weight of everything that one evaluation creates."""
_HEAVIEST: Final = 1_000_000
"""The maximum weight of one value."""
_CALL: Final = 10
_BITS: Final = 64

_remaining_budget: ContextVar[int] = ContextVar("left", default=MOST)


@contextmanager
def limit_evaluation() -> Iterator[None]:
    """Set a full budget of `MOST` for the evaluation inside the context."""
    token = _remaining_budget.set(MOST)
    try:
        yield
    finally:
        _remaining_budget.reset(token)


def take_from_budget(amount: int) -> None:
    """Take `amount` from the budget of the running evaluation.

    Raises:
        ExpressionError: one value is too heavy, or the evaluation has spent its budget.
    """
    remaining_weight = _remaining_budget.get() - amount
    if amount > _HEAVIEST or remaining_weight < 0:
        raise ExpressionError(
            "the expression takes too many steps, or its result is too large",
            "use smaller numbers, lists or strings",
        )
    _remaining_budget.set(remaining_weight)


def count_weight(value: Any) -> Any:
    """Take the weight of `value` from the budget, and return `value`.

    Raises:
        ExpressionError: the value is too heavy, or the budget is spent.
    """
    take_from_budget(measure_weight(value))
    return value


def limit_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `function` to take the weight of its arguments and its result from the budget.

    A generator's items are collected into a list, so that they are counted too.
    """
    # Jinja2 passes its environment first, which costs the user nothing.
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)  # with the marks by which Jinja passes the environment
    def call_within_budget(*args: Any, **kwargs: Any) -> Any:
        for argument in (*args[first:], *kwargs.values()):
            take_from_budget(measure_weight(argument))
        result = function(*args, **kwargs)
        if isinstance(result, GeneratorType):
            # A generator can be endless.
            result = list(islice(result, MOST))
        take_from_budget(_CALL)
        return count_weight(result)

    return call_within_budget


def measure_weight(value: Any) -> int:
    """Return the weight of a value, or a number above the limit if it is too heavy."""
    total, pending_parts = 0, [value]
    # Stop at the limit: counting a huge value would itself cost too much.
    while pending_parts and total <= _HEAVIEST:
        part = pending_parts.pop()
        total += 1
        if isinstance(part, str):
            total += len(part)
        elif isinstance(part, int):
            total += part.bit_length() // _BITS
        elif isinstance(part, Mapping):
            total += sum(len(key) for key in part if isinstance(key, str))
            pending_parts.extend(part.values())
        elif isinstance(part, list | tuple | set | range):
            if len(part) > _HEAVIEST:
                return len(part)
            pending_parts.extend(part)
    return total


_LARGEST: Final = 2**53
"""The largest magnitude up to which a double represents every integer. States store doubles."""
_DEEPEST: Final = 64
TOO_LONG_A_NUMBER: Final = ("a whole number can have at most 16 digits", "write the number as text")


def to_plain_value(value: Any, depth: int = 0) -> Any:
    """Convert a value to text, numbers, booleans, null, lists and objects only.

    A resource becomes its id.

    Raises:
        ExpressionError: the value does not exist, is nested too deeply, or not a plain value.
    """
    if isinstance(value, Undefined):
        str(value)  # raises what is undefined
    if depth > _DEEPEST:
        raise ExpressionError(f"more than {_DEEPEST} levels of nested lists and objects")
    if isinstance(value, Mapping):
        # A resource has this property: as a value it means its id.
        stands_for = getattr(value, "stands_for", None)
        if stands_for is not None:
            return stands_for
        return {as_text(key): to_plain_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain_value(item, depth + 1) for item in value]
    if isinstance(value, str):
        return _reject_surrogates(value)
    if value is None or isinstance(value, bool):
        return value
    return require_number(value)


def require_number(value: Any) -> Any:
    """Return `value` if JSON and doubles can represent the number. A boolean counts as a number.

    Raises:
        ExpressionError: the value is too large, not finite, or not a number.
    """
    if isinstance(value, int):
        if abs(value) > _LARGEST:
            raise ExpressionError(*TOO_LONG_A_NUMBER)
    elif not isinstance(value, float):
        raise ExpressionError(f"a {describe_kind(value)} is not a value", "call it: name(...)")
    elif not math.isfinite(value):
        raise ExpressionError("the result is too large, or not a number")
    return value


def as_text(value: Any) -> str:
    """Convert a value for use inside a text: booleans as in YAML, lists and objects as JSON.

    Raises:
        ExpressionError: the value is null or cannot be converted to a plain value.
    """
    plain_value = to_plain_value(value)
    if plain_value is None:
        raise ExpressionError("null cannot be part of a string", "give a default: default('')")
    is_text = isinstance(plain_value, str)
    return plain_value if is_text else json.dumps(plain_value, ensure_ascii=False)


def describe_kind(value: Any) -> str:
    """Return the name of the value's type for messages."""
    kinds = {str: "text", bool: "true or false", int: "number", float: "number", list: "list"}
    if value is None:
        return "null"
    return kinds.get(type(value), "object" if isinstance(value, Mapping) else "function")


def _reject_surrogates(text: str) -> str:
    """Return `text`. Raises ExpressionError if it has half a surrogate pair."""
    try:
        # JSON allows half of a surrogate pair, UTF-8 does not.
        text.encode()
    except UnicodeEncodeError:
        raise ExpressionError(
            "the string contains an unpaired surrogate (\\ud800 to \\udfff)"
        ) from None
    return text


# Possessive throughout: no text makes these take more than linear time.
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_-]*+"
_INDEX: Final = r"\[[^\[\]{}]*+\]"
_STEPS: Final = rf"(?:\s*+(?:\.\s*+{_NAME}|{_INDEX}))*+"
_REST: Final = r"[^{}]*+\}"
_REFERENCE: Final = re.compile(
    # `${a.b}` of Terraform and Pulumi, `#{a.b}` of Ruby. Not a shell's `${VAR:-x}` or `${arr[0]}`.
    rf"[$#]\{{\s*+(?P<path>{_NAME}(?:{_INDEX})?+\s*+\.\s*+{_NAME}{_STEPS}){_REST}"
    # A root of Terraform with an index: `${var["x"]}`.
    rf"|\$\{{\s*+(?P<indexed>(?:var|local|module|data|each){_INDEX}{_STEPS})\s*+\}}"
    # A function of Terraform: `${join(",", var.names)}`.
    rf"|\$\{{\s*+{_NAME}\({_REST}"
    # A directive of Terraform.
    rf"|%\{{~?\s*+(?:if|for|else|endif|endfor)\b{_REST}"
    rf"|<%[-=]?\s*+(?P<erb>{_NAME}{_STEPS})?+[^%]*+%>"
)
_WHOLE: Final = re.compile(rf"\$\{{\s*+(?P<path>{_NAME})\s*+\}}")
"""A value that is one name, as Pulumi YAML refers to a resource."""
_BEFORE_EXPRESSION: Final = "$"
"""GitHub Actions and Azure Pipelines write `${{ ... }}`: gpuform would keep the dollar sign."""


@dataclass(frozen=True, slots=True)
class ForeignReference:
    """A part of a text that another tool would replace by a value.

    `path` is the target in the other tool's words, empty for anything but a reference. `is_whole`
    is True if the text consists of one bare name.
    """

    text: str
    path: str = ""
    is_whole: bool = False

    @property
    def steps(self) -> list[str]:
        """Return the names and indexes in the path of a foreign reference."""
        steps = re.findall(rf"{_NAME}|\[[^\[\]]*\]", self.path)
        return [step.strip("[]\"' ") for step in steps]


def find_foreign_references(parts: Sequence[object]) -> Iterator[ForeignReference]:
    """Yield the references of other tools in `parts`. Parts that are not text are expressions.

    A bare `${name}` counts only as the whole text; a `$` before an expression counts as `${{`.
    """
    for index, part in enumerate(parts):
        if not isinstance(part, str):
            continue
        for match in _REFERENCE.finditer(part):
            groups = match.groupdict()
            path = groups["path"] or groups["indexed"] or groups["erb"] or ""
            yield ForeignReference(match[0], path)
        bare_reference = _WHOLE.fullmatch(part.strip())
        # Inside a longer text, `${name}` may be a variable of a shell.
        if bare_reference and len(parts) == 1:
            yield ForeignReference(part.strip(), bare_reference["path"], is_whole=True)
        if part.endswith(_BEFORE_EXPRESSION) and index + 1 < len(parts):
            yield ForeignReference("${{")


def has_foreign_reference(text: str) -> bool:
    """Return True if a text without expressions contains a reference of another tool.

    A bare `${name}` counts only as the whole text: in a longer text it may be a shell's variable.
    """
    return next(find_foreign_references((text,)), None) is not None

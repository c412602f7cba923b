"""Define the values of expressions, and find references of other tools in text.

gpuform takes such text as it stands, so that whoever is used to the other tool creates objects with
`${volume.id}` as the id of a volume. `topology` reports it, and `authoring` writes it in a form
that means the text itself.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    """A part of a text that another tool would replace.

    `path` is what it refers to, in that tool's words; empty where it is no reference. `is_whole`
    says that the value is one bare name and nothing else.
    """

    text: str
    path: str = ""
    is_whole: bool = False

    @property
    def steps(self) -> list[str]:
        """The names and indexes of the path."""
        steps = re.findall(rf"{_NAME}|\[[^\[\]]*\]", self.path)
        return [step.strip("[]\"' ") for step in steps]


def find_foreign_references(parts: Sequence[object]) -> Iterator[ForeignReference]:
    """Yield the foreign references in a template's parts; what is no text is an expression."""
    for place, part in enumerate(parts):
        if not isinstance(part, str):
            continue
        for match in _REFERENCE.finditer(part):
            groups = match.groupdict()
            path = groups["path"] or groups["indexed"] or groups["erb"] or ""
            yield ForeignReference(match[0], path)
        whole = _WHOLE.fullmatch(part.strip())
        if whole and len(parts) == 1:
            yield ForeignReference(part.strip(), whole["path"], is_whole=True)
        if part.endswith(_BEFORE_EXPRESSION) and place + 1 < len(parts):
            yield ForeignReference("${{")


def has_foreign_reference(text: str) -> bool:
    """Return whether a text without expressions reads like another tool's reference."""
    return next(find_foreign_references((text,)), None) is not None

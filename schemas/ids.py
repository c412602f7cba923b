"""Validate ids and names as platforms and Kubernetes accept them (Kubernetes' page 'Object Names
and IDs').

No platform documents the form of its ids. What can be held to everywhere is that an id is one line
that people see as it is: it goes into paths of requests, files of other programs and logs.
"""

import re
from typing import Annotated, Final

from pydantic import AfterValidator

from gpuform.schemas.visible import is_seen, replace_unseen

LONGEST: Final = 256
_REPLACED: Final = "\ufffd"
"""What stands for a character that cannot be shown. No name that is declared may have it."""


def checked_id(text: str) -> str:
    """What names one object in a path. Raises ValueError that says the rule, never the text."""
    if text in ("", ".", ".."):
        raise ValueError("must name an object: it is empty, or dots")
    return checked_line(text)


def checked_line(text: str) -> str:
    """The same, where there may be none."""
    if len(text) > LONGEST:
        raise ValueError(f"must have at most {LONGEST} characters")
    if not is_seen(text) or _REPLACED in text:
        raise ValueError("must be one line without control characters and direction marks")
    return text


def readable_name(text: str) -> str:
    """Return a name that anybody may have given as one short line.

    A list that has somebody else's odd name is a list all the same. A name that was changed here
    has a character that `checked_line` refuses: it is nobody's declared name.
    """
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + _REPLACED
    return replace_unseen(text, _REPLACED)


Id = Annotated[str, AfterValidator(checked_id)]
"""Of an object that requests are about."""

Line = Annotated[str, AfterValidator(checked_line)]
"""A name, or an id that is only told; it may be empty."""

ForeignName = Annotated[str, AfterValidator(readable_name)]
"""A name in a platform's answer; it may be empty."""


DEFAULT_NAMESPACE: Final = "default"

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _checked_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no name in Kubernetes: use a-z, 0-9 and -")
    return text


def _checked_namespace(text: str) -> str:
    if not _NAMESPACE.fullmatch(text):
        raise ValueError(f"{text!r} is no namespace: use a-z, 0-9 and -, at most 63 of them")
    return text


Name = Annotated[str, AfterValidator(_checked_name)]
Namespace = Annotated[str, AfterValidator(_checked_namespace)]

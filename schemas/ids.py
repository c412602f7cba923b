"""Ids and names as platforms send them.

No platform documents the form of its ids. What can be held to everywhere is that an id is one line
that people see as it is: it goes into paths of requests, files of other programs and logs.
"""

from typing import Annotated, Final

from pydantic import AfterValidator

from gpuform.schemas.visible import is_seen

LONGEST: Final = 256


def checked_id(text: str) -> str:
    """What names one object in a path. Raises ValueError that says the rule, never the text."""
    if text in ("", ".", ".."):
        raise ValueError("must name an object: it is empty, or dots")
    return checked_line(text)


def checked_line(text: str) -> str:
    """The same, where there may be none."""
    if len(text) > LONGEST:
        raise ValueError(f"must have at most {LONGEST} characters")
    if not is_seen(text):
        raise ValueError("must be one line without control characters and direction marks")
    return text


Id = Annotated[str, AfterValidator(checked_id)]
"""Of an object that requests are about."""

Line = Annotated[str, AfterValidator(checked_line)]
"""A name, or an id that is only told; it may be empty."""

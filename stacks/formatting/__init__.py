"""The form that `gpuform fmt` gives to topology files."""

from typing import Final

from yaml import YAMLError

from gpuform.stacks.formatting.layout import broken, laid_out
from gpuform.stacks.formatting.meaning import (
    FormattingError,
    difference,
    facts_of,
    not_yaml,
    place_at,
    without_tabs,
)

__all__ = ["FormattingError", "formatted"]

_WIDTH: Final = 100


def formatted(data: bytes, where: str) -> bytes:
    """The file's text, laid out; the same when it is laid out already.

    Comments, order, quotes and the text of every value stay as they are. FormattingError where the
    text is not YAML, and where another layout would not mean exactly the same.
    """
    text = _decoded(data, where)
    facts = facts_of(text, where)
    made = _laid_out(without_tabs(text, where), where).encode()
    different = difference(facts, facts_of(_decoded(made, where), where))
    if different and not text.endswith("\n"):
        made = made.removesuffix(b"\n")  # a `|` at the very end has no line break in its value
        different = difference(facts, facts_of(_decoded(made, where), where))
    if different:
        raise FormattingError(
            where,
            different,
            "formatted, the text from here on would not mean the same: the file stays as it is",
            hint="write this part in a simpler way",
        )
    return made


def _decoded(data: bytes, where: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        place = place_at(before, len(before))
        raise FormattingError(where, place, "the file is not UTF-8") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    stray = text.find("\ufeff")
    if stray >= 0:  # some parsers read it, some do not
        place = place_at(text, stray)
        raise FormattingError(where, place, "here is an invisible byte order mark", "remove it")
    return text


def _laid_out(text: str, where: str) -> str:
    try:
        made = laid_out(text)
        while (shorter := broken(made, _WIDTH)) != made:
            made = laid_out(shorter)
    except (YAMLError, ValueError, OverflowError) as error:
        raise not_yaml(error, where) from None
    return made

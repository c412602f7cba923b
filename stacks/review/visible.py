"""Text of others made harmless: what cannot be seen is written out, what is too long is cut."""

import unicodedata
from typing import Final

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Controls, direction marks, half surrogates, line separators: they are seen nowhere, or move
what is seen."""


def visible(text: str) -> str:
    """One line, in which every character that cannot be seen stands as its escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in _HIDDEN else c for c in text)


def shortened(text: str, length: int) -> str:
    """The text, or its beginning and how long it was; never longer than `length`."""
    if len(text) <= length:
        return text
    ending = f"... ({len(text):,} characters)"
    return text[: max(0, length - len(ending))] + ending


def _escaped(character: str) -> str:
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    code = ord(character)
    return known.get(character) or (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")

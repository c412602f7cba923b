"""Text of others made harmless: what cannot be seen is written out, what is too long is cut."""

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

MASK: Final = "[secret]"
"""What is shown in place of a secret."""

_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Controls, direction marks, half surrogates, line separators: they are seen nowhere, or move
what is seen."""

HIDDEN: Final = _UNSEEN | {"Co", "Cn"}
"""And what no font shows, or another one in each."""

_NOT_ASCII: Final = re.compile(r"[^ -~]")
_NOT_ASCII_LINES: Final = re.compile(r"[^ -~\t\n]")


def visible(text: str) -> str:
    """One line, in which every character that cannot be seen stands as its escape."""
    return text if text.isascii() and text.isprintable() else _NOT_ASCII.sub(_shown, text)


def visible_lines(text: str) -> str:
    """The same on as many lines as the text has, with its tabulators."""
    return _NOT_ASCII_LINES.sub(_shown, text)


def is_seen(text: str) -> bool:
    """Whether it is one line in which nothing is hidden and nothing moves what is seen."""
    if text.isascii() and text.isprintable():
        return True  # nearly all texts, and many times faster
    return all(unicodedata.category(each) not in _UNSEEN for each in text)


def replace_unseen(text: str, replacement: str) -> str:
    """Return the text with `replacement` for each character that `is_seen` does not take."""
    if is_seen(text):
        return text
    return "".join(replacement if unicodedata.category(each) in _UNSEEN else each for each in text)


def shortened(text: str, length: int) -> str:
    """The text, or its beginning and how long it was; never longer than `length`."""
    if len(text) <= length:
        return text
    ending = f"... ({len(text):,} characters)"
    return text[: max(0, length - len(ending))] + ending


def _shown(found: re.Match[str]) -> str:
    character = found[0]
    if unicodedata.category(character) not in HIDDEN:
        return character
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    code = ord(character)
    return known.get(character) or (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


_SUSPECT: Final = re.compile(r"[^ -~\n\t]|(?<=#)#")


def json_text(value: Any, *, indent: int | None = None, compact: bool = False) -> str:
    """The value as JSON, in which what cannot be seen is escaped.

    So is the second of two `#`: some CI systems look for commands behind them.
    """
    separators = (",", ":") if compact else None
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)
    return _SUSPECT.sub(_escaped, text)


def json_parts(value: Any, *, indent: int) -> Iterator[str]:
    """The same text in parts, of whole lines each: of what is large, never all at once."""
    encoder = json.JSONEncoder(indent=indent, ensure_ascii=False)
    held: list[str] = []
    for piece in encoder.iterencode(value):
        held.append(piece)
        if len(held) >= _PIECES and "\n" in piece:
            lines, _, begun = "".join(held).rpartition("\n")
            yield _SUSPECT.sub(_escaped, lines + "\n")
            held = [begun]
    yield _SUSPECT.sub(_escaped, "".join(held))


_PIECES: Final = 10_000


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character != "#" and unicodedata.category(character) not in HIDDEN:
        return character
    return "\\u0023" if character == "#" else json.dumps(character)[1:-1]

"""Make text safe to show: escape invisible characters, shorten long text, write JSON.

Text of platforms and people goes through these functions before a terminal, a log, a message or a
JSON document gets it.
"""

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

MASK: Final = "[secret]"
"""Shown in place of a secret."""

_INVISIBLE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of characters that are invisible or move visible text.

Controls, direction marks, lone surrogates and line separators.
"""

HIDDEN_CATEGORIES: Final = _INVISIBLE_CATEGORIES | {"Co", "Cn"}
"""The same, with characters that no font shows or that each font shows differently."""

_NOT_ASCII: Final = re.compile(r"[^ -~]")
_NOT_ASCII_LINES: Final = re.compile(r"[^ -~\t\n]")


def escape_invisible(text: str) -> str:
    """Return ``text`` as one line with escapes for invisible characters."""
    # nearly all texts are plain ASCII, and this test is much faster than the search
    return (
        text if text.isascii() and text.isprintable() else _NOT_ASCII.sub(_escape_character, text)
    )


def escape_invisible_lines(text: str) -> str:
    """Return ``text`` with invisible characters escaped; line ends and tabulators stay."""
    return _NOT_ASCII_LINES.sub(_escape_character, text)


def is_visible_line(text: str) -> bool:
    """Return True if ``text`` is one line without invisible characters and direction marks."""
    if text.isascii() and text.isprintable():
        return True  # nearly all texts, and many times faster
    return all(unicodedata.category(character) not in _INVISIBLE_CATEGORIES for character in text)


def replace_invisible(text: str, replacement: str) -> str:
    """Return ``text`` with `replacement` for every invisible character."""
    if is_visible_line(text):
        return text
    return "".join(
        replacement if unicodedata.category(character) in _INVISIBLE_CATEGORIES else character
        for character in text
    )


def truncate(text: str, length: int) -> str:
    """Return ``text``, shortened to `length` characters with the total number at the end."""
    if len(text) <= length:
        return text
    ending = f"... ({len(text):,} characters)"
    return text[: max(0, length - len(ending))] + ending


def _escape_character(match: re.Match[str]) -> str:
    """Return a matched character, or the character's escape if invisible."""
    character = match[0]
    if unicodedata.category(character) not in HIDDEN_CATEGORIES:
        return character
    short_escapes = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    code = ord(character)
    return short_escapes.get(character) or (
        f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )


# the second of two `#`: some CI systems read commands behind `##`
_NEEDS_JSON_ESCAPE: Final = re.compile(r"[^ -~\n\t]|(?<=#)#")


def format_json(value: Any, *, indent: int | None = None, compact: bool = False) -> str:
    """Return ``value`` as JSON with invisible characters escaped; ``compact`` leaves out blanks.

    The second of two `#` is escaped, too: some CI systems look for commands behind `##`.
    """
    separators = (",", ":") if compact else None
    document = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)
    return _NEEDS_JSON_ESCAPE.sub(_escape_json_character, document)


def iterate_json_parts(value: Any, *, indent: int) -> Iterator[str]:
    """Yield the JSON of `format_json` in parts of complete lines, to save memory."""
    encoder = json.JSONEncoder(indent=indent, ensure_ascii=False)
    chunks: list[str] = []
    for chunk in encoder.iterencode(value):
        chunks.append(chunk)
        # cut at the end of a line only, so that every part has complete lines
        if len(chunks) >= _CHUNKS_PER_PART and "\n" in chunk:
            complete_lines, _, rest = "".join(chunks).rpartition("\n")
            yield _NEEDS_JSON_ESCAPE.sub(_escape_json_character, complete_lines + "\n")
            chunks = [rest]
    yield _NEEDS_JSON_ESCAPE.sub(_escape_json_character, "".join(chunks))


_CHUNKS_PER_PART: Final = 10_000


def _escape_json_character(match: re.Match[str]) -> str:
    """Return a matched character, or the JSON escape of an invisible one and of `#`."""
    character = match[0]
    if character != "#" and unicodedata.category(character) not in HIDDEN_CATEGORIES:
        return character
    return "\\u0023" if character == "#" else json.dumps(character)[1:-1]

"""The encodings in which a platform may quote a text that a client sent."""

import base64
import html
import json
import shlex
from collections.abc import Callable, Mapping
from pprint import pformat
from urllib.parse import quote, quote_plus

Encoding = Callable[[str], str]


def quote_in_lower_case(text: str) -> str:
    """Return the text in URL encoding, with lower-case hex digits."""
    return "".join(
        character if character.isascii() and character.isalnum() else f"%{byte:02x}"
        for character in text
        for byte in character.encode()
        if not (character.isascii() and character.isalnum()) or byte == character.encode()[0]
    )


def escape_json_in_upper_case(text: str) -> str:
    r"""Return the text with JSON's `\\u` escapes, their hex digits in upper case."""
    halves = text.encode("utf-16-be")
    units = (halves[start : start + 2] for start in range(0, len(halves), 2))
    return "".join(
        chr(unit[1]) if unit[0] == 0 and chr(unit[1]).isalnum() else f"\\u{unit.hex().upper()}"
        for unit in units
    )


ENCODINGS: Mapping[str, Encoding] = {
    "as it is": str,
    "json": json.dumps,
    "json twice": lambda text: json.dumps(json.dumps(text)),
    "json in UTF-8": lambda text: json.dumps(text, ensure_ascii=False),
    "json in upper case": escape_json_in_upper_case,
    "python": repr,
    "python in ASCII": ascii,
    "python's bytes": lambda text: repr(text.encode()),
    "url": lambda text: quote(text, safe=""),
    "url in lower case": quote_in_lower_case,
    "form": quote_plus,
    "url of json": lambda text: quote(json.dumps(text)),
    "html": html.escape,
    "html of json": lambda text: html.escape(json.dumps(text)),
    "html in numbers": lambda text: "".join(f"&#{ord(character)};" for character in text),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 of json": lambda text: base64.b64encode(json.dumps(text).encode()).decode(),
    "base64 for urls": lambda text: base64.urlsafe_b64encode(f"x{text}".encode()).decode(),
    "base64 twice": lambda text: base64.b64encode(base64.b64encode(text.encode())).decode(),
    "base64 in lines": lambda text: base64.encodebytes(text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "shell": shlex.quote,
    "yaml": lambda text: "'" + text.replace("'", "''") + "'",
    "blanks for line feeds": lambda text: " ".join(text.split()),
    "indented": lambda text: text.replace("\n", "\n      "),
    "another encoding": lambda text: text.encode().decode("latin-1"),
}

RARE_ENCODINGS: Mapping[str, Encoding] = {
    "a long literal": lambda text: pformat({"a": text * 2}, width=20),
    "escapes of scripts": lambda text: "".join(
        f"%u{ord(character):04x}" if ord(character) < 0x10000 else character for character in text
    ),
    "hex dump": lambda text: text.encode().hex(":"),
    "base64 of UTF-16": lambda text: base64.b64encode(text.encode("utf-16-le")).decode(),
    "in colours": lambda text: f"\x1b[31m{text[:3]}\x1b[0m{text[3:]}",
}
"""Encodings in which gpuform finds only long texts that have no escapes of their own."""

LOOSE_ENCODINGS: Mapping[str, Encoding] = {
    "upper case": str.upper,
    "lower case": str.lower,
    "swapped case": str.swapcase,
    "title case": str.title,
    "reversed": lambda text: text[::-1],
    "reversed in upper case": lambda text: text[::-1].upper(),
    "spaced": " ".join,
    "hyphenated": "-".join,
    "a character a line": "\n".join,
    "in groups of four": lambda text: " ".join(text[at : at + 4] for at in range(0, len(text), 4)),
    "line-broken": lambda text: f"{text[:5]}-\n    {text[5:]}",
    "upper case in base64": lambda text: base64.b64encode(text.upper().encode()).decode(),
    "lower case in hex": lambda text: text.lower().encode().hex().upper(),
    "spaced in json": lambda text: json.dumps("\n".join(text)),
    "upper case in a url": lambda text: quote(text.upper(), safe=""),
}
"""Encodings that show a secret to a reader, though no eight of its characters stand together."""

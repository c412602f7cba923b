"""Takes secrets out of texts that others wrote, in whatever spelling they come back.

A platform that quotes a request in its error escapes what it quotes: as JSON (perhaps twice), as a
Python literal, for a URL or for HTML, in base64, with line feeds as blanks, or only a part of it.
So every escape of a text is undone, step by step, with a map from each character to its place in
the original; after each step the text is compared with all that is secret, and what is found is cut
out of the original.

Found are all parts of `PART` characters or more in any case, and shorter secrets and lines as a
whole. With separators between its characters, or read backwards, a secret is found by any
`LOOSE_PART` of its letters and digits. What every kubeconfig or key file has (`_COMMON`) is no part
of a secret.
"""

import binascii
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from html import unescape
from itertools import chain, takewhile
from typing import Any, Final, NamedTuple, Self

from gpuform.schemas.safe_text import MASK

QUOTED: Final = "[request]"
"""What is shown in place of a request that a platform quotes."""

PART: Final = 8
"""Characters of a secret, of which any that follow each other are found."""

LOOSE_PART: Final = 12
"""Letters and digits of a secret that are found in a row whatever stands between them.

More than `PART`: what is left of prose without its blanks has many rows of eight.
"""

_SHORTEST_LOOSE: Final = 6
"""Letters and digits of a secret below which it is not looked for between separators."""

SHORTEST: Final = 3
"""Characters of a secret, below which it may be found anywhere and is not looked for.

One of so many is found between other characters only, as are the lines of longer secrets.
"""

_SHORTEST_LINE: Final = 4
_NESTED: Final = 4
"""How often something is in base64 that is in base64 itself."""

_LAYERS: Final = 32
"""Escapes of escapes that are undone: so many nobody reads."""

_LONGEST_KEPT: Final = 200
_MOST_KEPT: Final = 4096
"""Of the texts that hold nothing so many are remembered, and only those of so few characters."""

_COMMON: Final = (
    *("apiVersion: v1", "kind: Config", "preferences: {}", "current-context:"),
    *("clusters:", "contexts:", "users:", "- cluster:", "- context:", "- name:", "- user:"),
    *("certificate-authority-data:", "client-certificate-data:", "client-key-data:"),
    *("insecure-skip-tls-verify: true", "server: https://", "http://", "#!/bin/bash"),
    *("password", "passphrase", "emulator", "kubeconfig", "together", "tensorone", "training"),
    *("production", "development", "registry"),
    *(2 * PART * each for each in "-=#*_~."),
)
"""Texts that tell nothing, though secrets have them."""

_ARMOUR: Final = r"^[ \t]*-----(?:BEGIN|END) [A-Z0-9 ]+-----[ \t]*$"
_IDENTITY: Final = (
    r"""^[ \t-]*"?(?:name|cluster|user|server|namespace|current-context|kind|apiVersion)"?:"""
    r"""[ \t]+[^\s@{}\[\]|>&*]+[ \t]*$"""
)
"""The lines of a kubeconfig that say where and who, and not with what."""

_ESCAPE: Final = re.compile(
    r"""\\+(?:u\{(?P<braced>[0-9a-fA-F]{1,6})\}|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})
             |x(?P<x>[0-9a-fA-F]{2})|(?P<octal>[0-3][0-7]{2})|(?P<blank>[fnrtv])|[0ab])?
      |%(?:25)*(?:(?P<url>[0-9a-fA-F]{2})|u(?P<escape>[0-9a-fA-F]{4}))
      |&(?:amp;)*(?:\#(?P<number>[0-9]{1,7})|\#[xX](?P<hex>[0-9a-fA-F]{1,6})
                  |(?P<entity>[a-zA-Z][a-zA-Z0-9]{1,31}));""",
    re.VERBOSE,
)
"""One escape, however often it was escaped again. What is left of a backslash is dropped."""

_BYTES: Final = re.compile(
    "[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
    "|[\ud800-\udbff][\udc00-\udfff]"
)
"""One character whose bytes, or halves in UTF-16, became a character each."""

_ALIKE: Final = re.compile(
    r"""(?P<unseen>\x1b\[[0-9;]*m|[\x00-\x08\x0e-\x1b\x7f\xad\u200b-\u200f\u2060\ufeff]+)
      |(?P<join>['"`]\s+['"`])|(?P<quote>['"`]{2,}|["`])|(?P<space>[\s+]{2,}|[^\S ]|\+)""",
    re.VERBOSE,
)
"""What is compared as nothing, a quote or a blank: what nobody sees, the seam of a long literal,
quotes that are doubled or made of several for a shell, a plus in forms, and line feeds with what
indents the next line."""

_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{11,}")
_BASE64_LINES: Final = re.compile(
    r"(?<![A-Za-z0-9+/_-])(?:[A-Za-z0-9+/_-]{48,}+\s{1,20})+[A-Za-z0-9+/_-]+"
)
_HEX: Final = re.compile(r"[0-9a-fA-F]{16,}|(?:[0-9a-fA-F]{2}[ :]){7,}[0-9a-fA-F]{2}")
_BREAKS: Final = re.compile(r"[\s:]+")


class _Text(NamedTuple):
    """A text, and where each of its characters was in the original; at the end, the end."""

    text: str
    at: Sequence[int]

    @classmethod
    def of(cls, text: str) -> Self:
        return cls(text, range(len(text) + 1))


class Redactor:
    """Hides secrets in texts; safe for many threads, and linear in the texts.

    `within` are the only texts that it is for, where the secrets are many: then it remembers only
    what they have in common.
    """

    def __init__(self, secrets: Iterable[str], within: Iterable[str] | None = None) -> None:
        wanted = None if within is None else _parts_within(within)
        self._parts: set[str] = set()
        self._loose_parts: dict[int, set[str]] = {}
        self._clean: set[str] = set()  # the same values come in thousands of resources
        patterns: set[str] = set()
        for secret in set(secrets):
            sought = _remembered(secret) if wanted is None else _sought(secret)
            self._parts |= sought.parts if wanted is None else sought.parts & wanted
            for part in sought.loose_parts if wanted is None else sought.loose_parts & wanted:
                self._loose_parts.setdefault(len(part), set()).add(part)
            patterns |= sought.patterns
        longest_first = sorted(patterns, key=len, reverse=True)
        self._pattern = re.compile("|".join(longest_first)) if patterns else None

    def __repr__(self) -> str:
        return "Redactor()"

    @property
    def seeks_anything(self) -> bool:
        """Whether there is any text that it would hide."""
        return bool(self._parts) or self._pattern is not None

    def redact(self, text: str) -> str:
        """The text, with `[secret]` in place of every secret or part of one."""
        if not self.holds(text):
            return text
        return MASK.join(_without(each, self._places(each), MASK) for each in text.split(MASK))

    def holds(self, text: str) -> bool:
        """Whether there is anything to be hidden in the text."""
        if text in self._clean:
            return False
        found = any(True for each in text.split(MASK) for _ in self._places(each))
        if not found and len(text) <= _LONGEST_KEPT and len(self._clean) < _MOST_KEPT:
            self._clean.add(text)
        return found

    def _places(self, text: str) -> Iterator[tuple[int, int]]:
        parts, pattern = self._parts, self._pattern
        if len(text) < SHORTEST or not self.seeks_anything:
            return
        for step in _undone(_Text.of(text)):
            compared = _compared(step)
            folded = _folded(compared)
            for start in _starts_of(parts, PART, folded.text):
                yield folded.at[start], folded.at[start + PART]
            if self._loose_parts:
                kept = [index for index, each in enumerate(folded.text) if each.isalnum()]
                joined = "".join([folded.text[index] for index in kept])
                for size, loose_parts in self._loose_parts.items():
                    for start in _starts_of(loose_parts, size, joined):
                        # up to the last letter: a separator after it is not the secret's
                        yield folded.at[kept[start]], folded.at[kept[start + size - 1] + 1]
            for found in pattern.finditer(compared.text) if pattern else ():
                yield compared.at[found.start()], compared.at[found.end()]


def texts_in(value: Any) -> Iterator[str]:
    """Every text in a secret value, which may be a list or an object."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from chain.from_iterable(map(texts_in, value.values()))
    elif isinstance(value, list | tuple):
        yield from chain.from_iterable(map(texts_in, value))


def without_request(text: str, body: Mapping[str, Any]) -> str:
    """A platform's text without what quotes the body of the request, in whatever spelling.

    That is an object or a call with one of its members, or a member that others follow; it goes
    to the last end of an object or call.
    """
    members = sorted({each for each in _members(body) if each[0]}, key=repr)
    if not members:
        return text
    member = f"(?:{'|'.join(_quoted(*each) for each in members)})"
    name = f"(?:{'|'.join(re.escape(name) for name, _ in members)})"
    pattern = re.compile(
        rf"(?:\{{|(?<=\w)\() ?{member}(?:.*[}})]|.*)"
        rf"|(?<![\w-])'?{member}.*\b{name}'? ?[:=](?:.*[}})]| ?[^ ]*)"
    )
    compared = map(_compared, _undone(_Text.of(text)))
    places = [
        (at[found.start()], at[found.end()])
        for shown, at in compared
        for found in pattern.finditer(shown)
    ]
    return _without(text, places, QUOTED)


class _Sought(NamedTuple):
    """What is looked for to find a secret: its parts, and patterns of what is found as a whole.

    `loose_parts` have letters and digits alone, and are compared with texts without separators.
    """

    parts: frozenset[str]
    loose_parts: frozenset[str]
    patterns: frozenset[str]


def _sought(secret: str) -> _Sought:
    parts: set[str] = set()
    loose_parts: set[str] = set()
    whole = secret.strip()
    patterns = {*_short_patterns(whole)}
    for piece in _secret_pieces(secret):
        for step in _undone(_Text.of(piece), is_secret=True):
            folded = _folded(_compared(step))
            parts |= _parts(folded.text)
            loose_parts |= _loose_parts(folded.text)
        lines = {line.strip() for line in piece.splitlines()} - {whole}
        patterns |= {
            _alone(line)
            for line in lines
            if _SHORTEST_LINE <= len(line) < PART and line not in _COMMON
        }
    return _Sought(
        frozenset(parts if whole in _COMMON else parts - _COMMON_PARTS),
        frozenset(loose_parts - _COMMON_PARTS),
        frozenset(patterns),
    )


_remembered = lru_cache(maxsize=64)(_sought)


def _short_patterns(secret: str) -> Iterator[str]:
    """Of a secret that is too short to have parts, or is so when its own escapes are undone."""
    for step in _undone(_Text.of(secret), depth=0):
        spelling = _compared(step).text.strip()
        if SHORTEST <= len(spelling) < PART:
            pattern = _alone(spelling) if len(spelling) == SHORTEST else re.escape(spelling)
            yield pattern if spelling.isalpha() else f"(?i:{pattern})"  # a word is a word
    if SHORTEST <= len(secret) < PART:
        for cased in {secret} if secret.isalpha() else {secret, secret.upper(), secret.lower()}:
            encoded = cased.encode(errors="surrogatepass")
            base64 = binascii.b2a_base64(encoded).decode().rstrip("=\n")
            yield from (_alone(base64), _alone(base64.translate(_TO_URL_SAFE)))
            yield f"(?i:{_alone(encoded.hex())})"


def _secret_pieces(secret: str) -> list[str]:
    """All of it, but of key files not the armour and of a kubeconfig not who and where."""
    is_kubeconfig = "apiVersion" in secret and "clusters" in secret
    told = f"{_ARMOUR}|{_IDENTITY}" if is_kubeconfig else _ARMOUR
    return [each for each in re.split(told, secret, flags=re.MULTILINE) if each.strip()]


def _parts(text: str, size: int = PART) -> set[str]:
    return {text[start : start + size] for start in range(len(text) - size + 1)}


def _loose_parts(text: str) -> set[str]:
    """Return what is found of a secret between separators, in both directions.

    A short one is found as a whole, and only if it is no word: nobody takes its separators for
    those of ordinary text then.
    """
    joined = _join_letters(text)
    if len(joined) >= LOOSE_PART:
        parts = _parts(joined, LOOSE_PART)
    elif len(joined) < _SHORTEST_LOOSE or joined.isalpha() or joined.isdigit():
        return set()
    else:
        parts = {joined}
    return parts | {part[::-1] for part in parts}


def _parts_within(texts: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for text in texts:
        for step in _undone(_Text.of(text)):
            folded = _folded(_compared(step))
            found |= _parts(folded.text)
            joined = _join_letters(folded.text)
            for size in range(_SHORTEST_LOOSE, LOOSE_PART + 1):
                found |= _parts(joined, size)
    return found


def _starts_of(parts: set[str], size: int, text: str) -> Iterator[int]:
    """Yield where in `text` any of the parts begins, all of which have `size` characters."""
    for start in range(len(text) - size + 1) if parts else ():
        if text[start : start + size] in parts:
            yield start


def _undone(text: _Text, depth: int = _NESTED, *, is_secret: bool = False) -> Iterator[_Text]:
    """The text, and what becomes of it with each layer of escapes that is undone.

    Of a secret only that is taken out of an encoding which was a text.
    """
    for _ in range(_LAYERS):
        yield text
        for decoded in _decoded(text, is_secret=is_secret) if depth else ():
            yield from _undone(decoded, depth - 1, is_secret=is_secret)
        plainer = _changed(_BYTES, _joined, _changed(_ESCAPE, _unescaped, text))
        if plainer.text == text.text:
            return
        text = plainer


def _compared(text: _Text) -> _Text:
    """The text as it is compared."""
    return _changed(_ALIKE, lambda found: _SAME_AS[found.lastgroup or ""], text)


def _folded(text: _Text) -> _Text:
    """Return the text in lower case, where that takes no more characters, as for `İ`."""
    lowered = text.text.lower()
    if len(lowered) != len(text.text):
        lowered = "".join(low if len(low := each.lower()) == 1 else each for each in text.text)
    return _Text(lowered, text.at)


def _join_letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _changed(pattern: re.Pattern[str], made: Callable[[re.Match[str]], str], text: _Text) -> _Text:
    """The text with something else in place of what is found: at most a character each."""
    pieces: list[str] = []
    at: list[int] = []
    end = 0
    for found in pattern.finditer(text.text):
        start, piece = found.start(), made(found)
        pieces += (text.text[end:start], piece)
        at += text.at[end : start + len(piece)]
        end = found.end()
    if not end:
        return text
    return _Text("".join((*pieces, text.text[end:])), [*at, *text.at[end:]])


def _unescaped(found: re.Match[str]) -> str:
    kind = found.lastgroup
    if kind is None:
        return ""
    if kind == "blank":
        return " "
    if kind == "entity":
        made = unescape(f"&{found[kind]};")
        return made if len(made) == 1 else found[0][:1]
    code = int(found[kind], _BASES.get(kind, 16))
    return chr(code) if code <= sys.maxunicode else ""


def _joined(found: re.Match[str]) -> str:
    text = found[0]
    try:
        if text[0] >= "\ud800":
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        return text.encode("latin-1").decode()
    except UnicodeDecodeError:
        return text[:1]


def _decoded(text: _Text, *, is_secret: bool) -> Iterator[_Text]:
    """What may be in base64 or hexadecimal in the text, from each place where it may begin."""
    for found in chain(_BASE64.finditer(text.text), _BASE64_LINES.finditer(text.text)):
        shown, at = _changed(_BREAKS, lambda _: "", _part_of(text, *found.span()))
        run = shown.translate(_FROM_URL_SAFE)
        for start in range(1 if is_secret else 4):
            length = len(run) - start
            length -= length % 4 == 1
            data = binascii.a2b_base64(run[start : start + length] + "=" * (-length % 4))
            if not is_secret or _is_text(data):
                places = [at[start + index * 4 // 3] for index in range(len(data))]
                yield _bytes_joined(data, [*places, at[start + length]])
    for found in _HEX.finditer(text.text):
        run, at = _changed(_BREAKS, lambda _: "", _part_of(text, *found.span()))
        for start in range(1 if is_secret else 2):
            end = start + (len(run) - start) // 2 * 2
            data = bytes.fromhex(run[start:end])
            if not is_secret or _is_text(data):
                yield _bytes_joined(data, at[start : end + 1 : 2])


def _part_of(text: _Text, start: int, end: int) -> _Text:
    return _Text(text.text[start:end], text.at[start : end + 1])


def _bytes_joined(data: bytes, at: Sequence[int]) -> _Text:
    return _changed(_BYTES, _joined, _Text(data.decode("latin-1"), at))


def _is_text(data: bytes) -> bool:
    try:
        return all(each.isprintable() or each.isspace() for each in data.decode())
    except UnicodeDecodeError:
        return False


def _without(text: str, places: Iterable[tuple[int, int]], mark: str) -> str:
    pieces: list[str] = []
    end = 0
    for start, stop in sorted(places):
        if start > end or not pieces:
            pieces.append(text[end:start])
        end = max(end, stop)
    return mark.join((*pieces, text[end:]))


def _alone(text: str) -> str:
    """A pattern of the text where it stands by itself."""
    return rf"(?<![^\W_]){re.escape(text)}(?![^\W_])"


def _members(value: Any) -> Iterator[tuple[str, str]]:
    """Every member of the objects in a body, with a pattern of its value."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield str(name), _begin_of(item)
            yield from _members(item)
    elif isinstance(value, list | tuple):
        yield from chain.from_iterable(map(_members, value))


def _begin_of(value: Any) -> str:
    """A pattern of how a value begins where it is quoted: that is enough of it."""
    if isinstance(value, bool | None):
        return r"(?:true|false|null|True|False|None)\b"
    if isinstance(value, int | float):
        return rf"{re.escape(str(value))}\b"
    if isinstance(value, str):
        return f"'?{''.join(takewhile(str.isalnum, value))}"
    return r"[\[{(]"


def _quoted(name: str, begin: str) -> str:
    return rf"'?\b{re.escape(name)}'? ?[:=] ?{begin}"


_BASES: Final = {"octal": 8, "number": 10}
_SAME_AS: Final = {"unseen": "", "join": "", "quote": "'", "space": " "}
_TO_URL_SAFE: Final = str.maketrans("+/", "-_")
_FROM_URL_SAFE: Final = str.maketrans("-_", "+/")
_COMMON_PARTS: Final = frozenset(
    part
    for each in _COMMON
    for part in (
        *_parts(f" {each.lower()} "),
        *_loose_parts(each.lower()),
    )
)

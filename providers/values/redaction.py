"""Take secrets out of texts that others wrote, in whatever spelling the secrets come back.

A platform that quotes a request in its error escapes the quotation: as JSON (perhaps twice), as a
Python literal, for a URL or for HTML, in base64, with line feeds as blanks, or only a part of it.
So every escape of a text is undone, step by step, with a map from each character to its position in
the original; after each step the text is compared with all secrets, and matches are cut out of the
original.

Found are all parts of `PART` characters or more in any case, and shorter secrets and lines as a
whole. With separators between its characters, or read backwards, a secret is found by any
`LOOSE_PART` of its letters and digits. Texts of every kubeconfig or key file (`_COMMON`) are no
part of a secret.
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
from gpuform.schemas.values import iterate_leaves

QUOTED: Final = "[request]"
"""The text in place of a request that a platform quotes."""

PART: Final = 8
"""Characters of a secret: any sequence of so many is found."""

LOOSE_PART: Final = 12
"""Letters and digits of a secret that are found in a row, whatever stands between them.

More than `PART`: prose without its blanks has many sequences of eight.
"""

_SHORTEST_LOOSE: Final = 6
"""Letters and digits of a secret below which no search between separators happens."""

SHORTEST: Final = 3
"""Characters below which a secret is not searched for, because any text may contain it.

A secret of exactly so many is found between other characters only, as are the lines of longer
secrets.
"""

_SHORTEST_LINE: Final = 4
_NESTED: Final = 4
"""How many levels of base64 inside base64 are decoded."""

_LAYERS: Final = 32
"""Escapes of escapes that are undone; nobody reads more."""

_LONGEST_KEPT: Final = 200
_MOST_KEPT: Final = 4096
"""How many clean texts are remembered, none of them longer than `_LONGEST_KEPT`."""

_COMMON: Final = (
    *("apiVersion: v1", "kind: Config", "preferences: {}", "current-context:"),
    *("clusters:", "contexts:", "users:", "- cluster:", "- context:", "- name:", "- user:"),
    *("certificate-authority-data:", "client-certificate-data:", "client-key-data:"),
    *("insecure-skip-tls-verify: true", "server: https://", "http://", "#!/bin/bash"),
    *("password", "passphrase", "emulator", "kubeconfig", "together", "tensorone", "training"),
    *("production", "development", "registry"),
    *(2 * PART * character for character in "-=#*_~."),
)
"""Texts that reveal nothing, although secrets contain them."""

_ARMOUR: Final = r"^[ \t]*-----(?:BEGIN|END) [A-Z0-9 ]+-----[ \t]*$"
_IDENTITY: Final = (
    r"""^[ \t-]*"?(?:name|cluster|user|server|namespace|current-context|kind|apiVersion)"?:"""
    r"""[ \t]+[^\s@{}\[\]|>&*]+[ \t]*$"""
)
"""The lines of a kubeconfig that name places and users, not credentials."""

_ESCAPE: Final = re.compile(
    r"""\\+(?:u\{(?P<braced>[0-9a-fA-F]{1,6})\}|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})
             |x(?P<x>[0-9a-fA-F]{2})|(?P<octal>[0-3][0-7]{2})|(?P<blank>[fnrtv])|[0ab])?
      |%(?:25)*(?:(?P<url>[0-9a-fA-F]{2})|u(?P<escape>[0-9a-fA-F]{4}))
      |&(?:amp;)*(?:\#(?P<number>[0-9]{1,7})|\#[xX](?P<hex>[0-9a-fA-F]{1,6})
                  |(?P<entity>[a-zA-Z][a-zA-Z0-9]{1,31}));""",
    re.VERBOSE,
)
"""One escape, however often it was escaped again. The rest of a backslash is dropped."""

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
    """A text with the position of each of its characters in the original; at the end, the end."""

    text: str
    at: Sequence[int]

    @classmethod
    def from_original(cls, text: str) -> Self:
        """Return a text for redaction in which each character's position is its original one."""
        return cls(text, range(len(text) + 1))


class Redactor:
    """A search for secrets in texts; safe for many threads, and linear in the texts.

    `within` limits the search to these texts, where the secrets are many: then only common parts
    are remembered.
    """

    def __init__(self, secrets: Iterable[str], within: Iterable[str] | None = None) -> None:
        relevant_parts = None if within is None else _collect_parts(within)
        self._parts: set[str] = set()
        self._loose_parts: dict[int, set[str]] = {}
        self._clean: set[str] = set()  # the same values come in thousands of resources
        patterns: set[str] = set()
        for secret in set(secrets):
            search = (
                _build_search_terms_cached(secret)
                if relevant_parts is None
                else _build_search_terms(secret)
            )
            self._parts |= search.parts if relevant_parts is None else search.parts & relevant_parts
            for part in (
                search.loose_parts
                if relevant_parts is None
                else search.loose_parts & relevant_parts
            ):
                self._loose_parts.setdefault(len(part), set()).add(part)
            patterns |= search.patterns
        # A shorter pattern may match the beginning of a longer one, and would leave the rest in the
        # text.
        longest_first = sorted(patterns, key=len, reverse=True)
        self._pattern = re.compile("|".join(longest_first)) if patterns else None

    def __repr__(self) -> str:
        return "Redactor()"

    @property
    def has_secrets(self) -> bool:
        """True if there is a secret long enough to be searched for."""
        return bool(self._parts) or self._pattern is not None

    def redact(self, text: str) -> str:
        """Return the text with `[secret]` in place of secrets, and of 8 characters of one."""
        if not self.contains_secret(text):
            return text
        # A mask from an earlier search stays as it is.
        return MASK.join(
            _cut_spans(segment, self._find_spans(segment), MASK) for segment in text.split(MASK)
        )

    def contains_secret(self, text: str) -> bool:
        """Return True if the text contains a secret, or `PART` (8) characters in a row of one.

        Secrets and texts are compared without escapes, encodings and case.
        """
        if text in self._clean:
            return False
        has_match = any(True for segment in text.split(MASK) for _ in self._find_spans(segment))
        if not has_match and len(text) <= _LONGEST_KEPT and len(self._clean) < _MOST_KEPT:
            self._clean.add(text)
        return has_match

    def _find_spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of each secret, or part of one, in a text; spans may overlap."""
        parts, pattern = self._parts, self._pattern
        if len(text) < SHORTEST or not self.has_secrets:
            return
        for step in _decode_layers(_Text.from_original(text)):
            compared = _normalize(step)
            folded = _fold_case(compared)
            for start in _find_starts(parts, PART, folded.text):
                yield folded.at[start], folded.at[start + PART]
            if self._loose_parts:
                letter_positions = [
                    index for index, character in enumerate(folded.text) if character.isalnum()
                ]
                joined = "".join([folded.text[index] for index in letter_positions])
                for size, loose_parts in self._loose_parts.items():
                    for start in _find_starts(loose_parts, size, joined):
                        # up to the last letter: a separator after it is not the secret's
                        yield (
                            folded.at[letter_positions[start]],
                            folded.at[letter_positions[start + size - 1] + 1],
                        )
            for match in pattern.finditer(compared.text) if pattern else ():
                yield compared.at[match.start()], compared.at[match.end()]


@lru_cache(maxsize=64)
def get_redactor(secrets: frozenset[str]) -> Redactor:
    """Return the redactor of `secrets`, cached with the texts found clean.

    Every request of a platform has one of a few paths: each is searched once.
    """
    return Redactor(secrets)


def collect_texts(value: Any) -> Iterator[str]:
    """Yield every text in a value, at any depth of lists and objects; keys do not count."""
    return (leaf for leaf in iterate_leaves(value) if isinstance(leaf, str))


def redact_request(text: str, body: Mapping[str, Any]) -> str:
    """Return a platform's message with quotations of the request's body cut out.

    A quotation, in whatever spelling, is an object or a call with one of the body's members, or a
    member that others follow; the cut goes to the last end of an object or call.
    """
    members = sorted({member for member in _iterate_members(body) if member[0]}, key=repr)
    if not members:
        return text
    member_pattern = f"(?:{'|'.join(_build_member_pattern(*member) for member in members)})"
    name_pattern = f"(?:{'|'.join(re.escape(name) for name, _ in members)})"
    pattern = re.compile(
        rf"(?:\{{|(?<=\w)\() ?{member_pattern}(?:.*[}})]|.*)"
        rf"|(?<![\w-])'?{member_pattern}.*\b{name_pattern}'? ?[:=](?:.*[}})]| ?[^ ]*)"
    )
    compared = map(_normalize, _decode_layers(_Text.from_original(text)))
    spans = [
        (at[match.start()], at[match.end()])
        for compared_text, at in compared
        for match in pattern.finditer(compared_text)
    ]
    return _cut_spans(text, spans, QUOTED)


class _SearchTerms(NamedTuple):
    """The parts of a secret to search for, and patterns of what is found as a whole.

    `loose_parts` have letters and digits only, and are compared with texts without separators.
    """

    parts: frozenset[str]
    loose_parts: frozenset[str]
    patterns: frozenset[str]


def _build_search_terms(secret: str) -> _SearchTerms:
    """Return the parts and patterns by which a secret is found in texts."""
    parts: set[str] = set()
    loose_parts: set[str] = set()
    stripped = secret.strip()
    patterns = {*_build_short_patterns(stripped)}
    for piece in _split_secret(secret):
        for step in _decode_layers(_Text.from_original(piece), is_secret=True):
            folded = _fold_case(_normalize(step))
            parts |= _slice_parts(folded.text)
            loose_parts |= _slice_separated_parts(folded.text)
        lines = {line.strip() for line in piece.splitlines()} - {stripped}
        patterns |= {
            _build_word_pattern(line)
            for line in lines
            if _SHORTEST_LINE <= len(line) < PART and line not in _COMMON
        }
    return _SearchTerms(
        frozenset(parts if stripped in _COMMON else parts - _COMMON_PARTS),
        frozenset(loose_parts - _COMMON_PARTS),
        frozenset(patterns),
    )


_build_search_terms_cached = lru_cache(maxsize=64)(_build_search_terms)


def _build_short_patterns(secret: str) -> Iterator[str]:
    """Yield patterns for a secret of `SHORTEST` to `PART - 1` characters, also encoded."""
    for step in _decode_layers(_Text.from_original(secret), depth=0):
        spelling = _normalize(step).text.strip()
        if SHORTEST <= len(spelling) < PART:
            pattern = (
                _build_word_pattern(spelling) if len(spelling) == SHORTEST else re.escape(spelling)
            )
            yield pattern if spelling.isalpha() else f"(?i:{pattern})"  # a word is a word
    if SHORTEST <= len(secret) < PART:
        for cased in {secret} if secret.isalpha() else {secret, secret.upper(), secret.lower()}:
            encoded = cased.encode(errors="surrogatepass")
            base64 = binascii.b2a_base64(encoded).decode().rstrip("=\n")
            yield from (
                _build_word_pattern(base64),
                _build_word_pattern(base64.translate(_TO_URL_SAFE)),
            )
            yield f"(?i:{_build_word_pattern(encoded.hex())})"


def _split_secret(secret: str) -> list[str]:
    """Return a secret's pieces, without a key file's or kubeconfig's lines that are not secret.

    Not secret are BEGIN and END lines, and a kubeconfig's names, users and servers.
    """
    is_kubeconfig = "apiVersion" in secret and "clusters" in secret
    separators = f"{_ARMOUR}|{_IDENTITY}" if is_kubeconfig else _ARMOUR
    return [piece for piece in re.split(separators, secret, flags=re.MULTILINE) if piece.strip()]


def _slice_parts(text: str, size: int = PART) -> set[str]:
    """Return every sequence of `size` characters in a text."""
    return {text[start : start + size] for start in range(len(text) - size + 1)}


def _slice_separated_parts(text: str) -> set[str]:
    """Return the sequences of a secret's letters and digits to find in texts with separators.

    Each sequence is there forwards and backwards. A short secret is one sequence, and none if it
    has only letters or only digits, because ordinary text with separators would match.
    """
    joined = _join_letters(text)
    if len(joined) >= LOOSE_PART:
        parts = _slice_parts(joined, LOOSE_PART)
    elif len(joined) < _SHORTEST_LOOSE or joined.isalpha() or joined.isdigit():
        return set()
    else:
        parts = {joined}
    return parts | {part[::-1] for part in parts}


def _collect_parts(texts: Iterable[str]) -> set[str]:
    """Return every sequence of characters in these texts that could be part of a secret."""
    parts: set[str] = set()
    for secret in texts:
        for step in _decode_layers(_Text.from_original(secret)):
            folded = _fold_case(_normalize(step))
            parts |= _slice_parts(folded.text)
            joined = _join_letters(folded.text)
            for size in range(_SHORTEST_LOOSE, LOOSE_PART + 1):
                parts |= _slice_parts(joined, size)
    return parts


def _find_starts(parts: set[str], size: int, text: str) -> Iterator[int]:
    """Yield each position in `text` where one of the secret's parts of `size` characters begins."""
    for start in range(len(text) - size + 1) if parts else ():
        if text[start : start + size] in parts:
            yield start


def _decode_layers(
    text: _Text, depth: int = _NESTED, *, is_secret: bool = False
) -> Iterator[_Text]:
    """Yield the text, then its plainer forms with escapes and encodings undone, layer by layer.

    Of a secret, only encodings of a text are decoded.
    """
    for _ in range(_LAYERS):
        yield text
        for decoded in _decode_encodings(text, is_secret=is_secret) if depth else ():
            yield from _decode_layers(decoded, depth - 1, is_secret=is_secret)
        plainer = _substitute(_BYTES, _join_bytes, _substitute(_ESCAPE, _unescape, text))
        if plainer.text == text.text:
            return
        text = plainer


def _normalize(text: _Text) -> _Text:
    """Return the text with quotes and blanks unified and invisible characters dropped."""
    return _substitute(_ALIKE, lambda found: _SAME_AS[found.lastgroup or ""], text)


def _fold_case(text: _Text) -> _Text:
    """Return the text in lower case, except where that takes more characters, as for `İ`."""
    lowered = text.text.lower()
    if len(lowered) != len(text.text):
        lowered = "".join(
            low if len(low := character.lower()) == 1 else character for character in text.text
        )
    return _Text(lowered, text.at)


def _join_letters(text: str) -> str:
    """Return the letters and digits of a text."""
    return "".join(filter(str.isalnum, text))


def _substitute(
    pattern: re.Pattern[str], build_piece: Callable[[re.Match[str]], str], text: _Text
) -> _Text:
    """Return the text with each match replaced by at most one character from `build_piece`."""
    pieces: list[str] = []
    at: list[int] = []
    end = 0
    for match in pattern.finditer(text.text):
        start, piece = match.start(), build_piece(match)
        pieces += (text.text[end:start], piece)
        at += text.at[end : start + len(piece)]
        end = match.end()
    if not end:
        return text
    return _Text("".join((*pieces, text.text[end:])), [*at, *text.at[end:]])


def _unescape(match: re.Match[str]) -> str:
    """Return the character that a matched escape stands for; empty for a lone backslash."""
    kind = match.lastgroup
    if kind is None:
        return ""
    if kind == "blank":
        return " "
    if kind == "entity":
        character = unescape(f"&{match[kind]};")
        return character if len(character) == 1 else match[0][:1]
    code = int(match[kind], _BASES.get(kind, 16))
    # Eight hexadecimal digits can be more than any character has, which chr refuses.
    return chr(code) if code <= sys.maxunicode else ""


def _join_bytes(match: re.Match[str]) -> str:
    """Return the character whose UTF-8 bytes or UTF-16 halves the matched characters are.

    The first of them, if they are not such bytes.
    """
    characters = match[0]
    try:
        if characters[0] >= "\ud800":
            return characters.encode("utf-16", "surrogatepass").decode("utf-16")
        return characters.encode("latin-1").decode()
    except UnicodeDecodeError:
        return characters[:1]


def _decode_encodings(text: _Text, *, is_secret: bool) -> Iterator[_Text]:
    """Yield decodings of base64 and hexadecimal in the text, from each possible start.

    With `is_secret` the text is a secret itself: only its decodings from the first character that
    are text are yielded.
    """
    for match in chain(_BASE64.finditer(text.text), _BASE64_LINES.finditer(text.text)):
        run_text, at = _substitute(_BREAKS, lambda _: "", _slice_text(text, *match.span()))
        run = run_text.translate(_FROM_URL_SAFE)
        # A quoted secret may begin anywhere in a group of four characters.
        for start in range(1 if is_secret else 4):
            length = len(run) - start
            length -= length % 4 == 1
            data = binascii.a2b_base64(run[start : start + length] + "=" * (-length % 4))
            if not is_secret or _is_text(data):
                positions = [at[start + index * 4 // 3] for index in range(len(data))]
                yield _join_decoded_bytes(data, [*positions, at[start + length]])
    for match in _HEX.finditer(text.text):
        run, at = _substitute(_BREAKS, lambda _: "", _slice_text(text, *match.span()))
        # The first digit may belong to the text before the secret.
        for start in range(1 if is_secret else 2):
            end = start + (len(run) - start) // 2 * 2
            data = bytes.fromhex(run[start:end])
            if not is_secret or _is_text(data):
                yield _join_decoded_bytes(data, at[start : end + 1 : 2])


def _slice_text(text: _Text, start: int, end: int) -> _Text:
    """Return a part of a text, with the positions of its characters in the original."""
    return _Text(text.text[start:end], text.at[start : end + 1])


def _join_decoded_bytes(data: bytes, at: Sequence[int]) -> _Text:
    """Return decoded bytes as text, with the position in the original of each character."""
    return _substitute(_BYTES, _join_bytes, _Text(data.decode("latin-1"), at))


def _is_text(data: bytes) -> bool:
    """Return True if bytes are UTF-8 of printable characters and blanks."""
    try:
        return all(character.isprintable() or character.isspace() for character in data.decode())
    except UnicodeDecodeError:
        return False


def _cut_spans(text: str, spans: Iterable[tuple[int, int]], replacement: str) -> str:
    """Return a text with `replacement` in place of each span; overlapping spans become one."""
    pieces: list[str] = []
    end = 0
    for start, stop in sorted(spans):
        if start > end or not pieces:
            pieces.append(text[end:start])
        end = max(end, stop)
    return replacement.join((*pieces, text[end:]))


def _build_word_pattern(text: str) -> str:
    """Return a pattern of the text between other characters than letters and digits."""
    return rf"(?<![^\W_]){re.escape(text)}(?![^\W_])"


def _iterate_members(value: Any) -> Iterator[tuple[str, str]]:
    """Yield every member of the objects in a body, with a pattern of its value."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield str(name), _build_value_pattern(item)
            yield from _iterate_members(item)
    elif isinstance(value, list | tuple):
        yield from chain.from_iterable(map(_iterate_members, value))


def _build_value_pattern(value: Any) -> str:
    """Return a pattern of the beginning of a quoted value, which suffices to recognize it."""
    if isinstance(value, bool | None):
        return r"(?:true|false|null|True|False|None)\b"
    if isinstance(value, int | float):
        return rf"{re.escape(str(value))}\b"
    if isinstance(value, str):
        return f"'?{''.join(takewhile(str.isalnum, value))}"
    return r"[\[{(]"


def _build_member_pattern(name: str, begin: str) -> str:
    """Return a pattern of a member `name: value`, whose value begins with the pattern `begin`."""
    return rf"'?\b{re.escape(name)}'? ?[:=] ?{begin}"


_BASES: Final = {"octal": 8, "number": 10}
_SAME_AS: Final = {"unseen": "", "join": "", "quote": "'", "space": " "}
_TO_URL_SAFE: Final = str.maketrans("+/", "-_")
_FROM_URL_SAFE: Final = str.maketrans("-_", "+/")
_COMMON_PARTS: Final = frozenset(
    part
    for common_text in _COMMON
    for part in (
        *_slice_parts(f" {common_text.lower()} "),
        *_slice_separated_parts(common_text.lower()),
    )
)

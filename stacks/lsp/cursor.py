"""What is at the cursor: in which entry, whether a key, a value or an expression is written."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gpuform.stacks.lsp.outline import KEY

_TYPED: Final = re.compile(r"[\w.-]*$")
_SIGN: Final = re.compile(r"""\"[^"]*"?|'[^']*'?|[{}\[\],:]|[^{}\[\],:"']+""")
_OPENED: Final = re.compile(r"\s*(?:-\s+)*(?=\{)")
_IS: Final = re.compile(r"\bis(?:\s+not)?$")
_PATH: Final = re.compile(r"[\w.\-\[\]\"']*$")


@dataclass(frozen=True, slots=True)
class Cursor:
    """`path` are the keys that lead here; of a value the last one is its own key.

    `prefix` is what is typed of the word. `siblings` are the keys beside it. At `nothing`, a
    comment or a text of an expression, a person writes what they like.
    """

    kind: Literal["key", "value", "expression", "nothing"]
    path: tuple[str, ...]
    prefix: str
    siblings: tuple[str, ...] = ()
    after: Literal["", "|", "is"] = ""

    @classmethod
    def at(cls, lines: Sequence[str], line: int, column: int) -> "Cursor":
        """That at a place of a text, which may be no YAML yet."""
        text = lines[line] if line < len(lines) else ""
        before = text[:column]
        if _in_comment(before):
            return cls("nothing", (), "")
        outer = _outer(lines, line, _indent(before if before.strip() else text))
        found = KEY.match(before)
        own = (*outer, found["key"]) if found else outer
        if before.rfind("{{") > before.rfind("}}"):
            return _in_expression(own, before[before.rfind("{{") + 2 :])
        rest = before[found.end() :] if found else ""
        if found and "{" in rest:
            return _in_flow(own, rest)
        opened = _OPENED.match(before)
        if opened:
            return _in_flow(outer, before[opened.end() :])
        if found:
            return cls("value", own, rest.strip().lstrip("\"'"))
        typed = _TYPED.search(before)
        beside = _beside(lines, line, _indent(text))
        return cls("key", outer, typed[0] if typed else "", beside)


def _in_expression(path: tuple[str, ...], text: str) -> Cursor:
    typed = _PATH.search(text)
    prefix = typed[0] if typed else ""
    before = text[: len(text) - len(prefix)].rstrip()
    if _is_open(before) or prefix[:1] in ("'", '"'):
        return Cursor("nothing", path, prefix)
    if before.endswith("|"):
        return Cursor("expression", path, prefix, after="|")
    return Cursor("expression", path, prefix, after="is" if _IS.search(before) else "")


def _is_open(text: str) -> bool:
    """Whether a quote is open at its end."""
    return bool(_quote_at_end(text))


def _in_comment(text: str) -> bool:
    """Whether the end of a line's beginning is in a comment."""
    starts = (found.start() for found in re.finditer(r"(?:^|(?<=\s))#", text))
    return any(not _quote_at_end(text[:start]) for start in starts)


def _quote_at_end(text: str) -> str:
    quote = ""
    for sign in text:
        if sign in "\"'" and quote in ("", sign):
            quote = "" if quote else sign
    return quote


def _in_flow(path: tuple[str, ...], text: str) -> Cursor:
    """Inside of `{...}` in one line: `data: {platform: together, vol`."""
    keys: list[list[str] | None] = []
    """Those of each mapping that is open; None for a list."""
    word, in_value = "", False
    for sign in _SIGN.findall(text):
        if sign in "{[":
            keys.append([] if sign == "{" else None)
            word, in_value = "", sign == "["
        elif sign in "}]":
            if keys:
                keys.pop()
            word, in_value = "", True
        elif sign == ",":
            word, in_value = "", bool(keys) and keys[-1] is None
        elif sign == ":" and keys and keys[-1] is not None:
            keys[-1].append(word.strip().strip("\"'"))
            word, in_value = "", True
        else:
            word += sign
    while keys and keys[-1] is None:  # an item of a list
        keys.pop()
    inner = tuple(each[-1] for each in keys[:-1] if each)
    last = (keys[-1] if keys else None) or []
    prefix = word.strip().lstrip("\"'")
    if in_value and last:
        return Cursor("value", (*path, *inner, last[-1]), prefix, tuple(last))
    return Cursor("key", (*path, *inner), prefix, tuple(last))


def _outer(lines: Sequence[str], line: int, indent: int) -> tuple[str, ...]:
    """The keys of lines above with less indentation, the outermost first."""
    found: list[str] = []
    for above in range(line - 1, -1, -1):
        match = KEY.match(lines[above])
        if match is None or lines[above].lstrip().startswith("#"):
            continue
        own = len(match["indent"])
        if own < indent:
            found.append(match["key"])
            indent = own
        if own == 0:
            break
    return tuple(reversed(found))


def _beside(lines: Sequence[str], line: int, indent: int) -> tuple[str, ...]:
    """The keys of the same mapping, above and below."""
    found: list[str] = []
    for numbers in (range(line - 1, -1, -1), range(line + 1, len(lines))):
        for number in numbers:
            text = lines[number]
            if not text.strip() or text.lstrip().startswith("#"):
                continue
            if _indent(text) < indent:
                break
            match = KEY.match(text)
            if match and len(match["indent"]) == indent:
                found.append(match["key"])
    return tuple(found)


def _indent(text: str) -> int:
    """The column where the words of a line begin; a dash of a list is none."""
    return len(text) - len(re.sub(r"^\s*(?:-\s+)*", "", text))

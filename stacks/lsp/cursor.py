"""Find what is at the cursor of a topology file, and outline the file, also while its text is no
valid YAML.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from gpuform.schemas.topology import SECTIONS

NAMED: Final = (*SECTIONS, "config", "inputs", "stack_references", "outputs")
"""The sections whose entries have names."""
KEY: Final = re.compile(
    r"""^(?P<indent>\s*(?:-\s+)*)(?P<quote>["']?)(?P<key>[\w.-]+)(?P=quote)\s*:(?=\s|$)"""
)
_EXPRESSION: Final = re.compile(r"\{\{(.*?)(?:\}\}|$)")
_WORD: Final = re.compile(r"(?<![\w.'\"])([A-Za-z_]\w*)((?:\s*\.\s*[A-Za-z_]\w*|\s*\[[^\]\[]*\])*)")
_STEP: Final = re.compile(r"""\.\s*(?P<name>[A-Za-z_]\w*)|\[(?P<key>[^\]]*)\]""")
_TEXT: Final = re.compile(r"""(["'])(?:\\.|(?!\1).)*\1""", re.DOTALL)
_SUBSCRIPT: Final = re.compile(r"[\w\])]\s*\[\s*$")


class Span(NamedTuple):
    """Part of a line; both count from 0, in characters."""

    line: int
    begin: int
    end: int

    def holds(self, line: int, column: int) -> bool:
        """Whether the cursor is in it, or right behind it."""
        return self.line == line and self.begin <= column <= self.end


@dataclass(frozen=True, slots=True)
class Named:
    """A declaration: `section` and `name`, where its key is, and its last line."""

    section: str
    name: str
    span: Span
    end: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A dotted path in an expression: `clusters.train.id`, with the place of each step."""

    steps: tuple[str, ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """A text's lines, its declarations by section and name, and the references in it."""

    lines: Sequence[str]
    declared: Mapping[tuple[str, str], Named] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> "Outline":
        lines = text.splitlines()
        return cls(lines, {(each.section, each.name): each for each in _declared(lines)})

    def names(self, section: str) -> list[str]:
        """The names in a section, in their order."""
        return [name for own, name in self.declared if own == section]

    def references(self) -> Iterator[Reference]:
        """All that expressions name, in the order of the text."""
        for number, line in enumerate(self.lines):
            for found in _EXPRESSION.finditer(line):
                start = found.start(1)
                yield from references_in(found[1], lambda at, s=start, n=number: (n, s + at))  # type: ignore[misc]

    def reference_at(self, line: int, column: int) -> tuple[Reference, int] | None:
        """The reference under the cursor, and which of its steps that is."""
        for reference in self.references():
            for at, span in enumerate(reference.spans):
                if span.holds(line, column):
                    return reference, at
        return None

    def declaration_at(self, line: int, column: int) -> Named | None:
        """The declaration whose name is under the cursor."""
        found = (each for each in self.declared.values() if each.span.holds(line, column))
        return next(found, None)

    def value_of(self, named: Named, key: str) -> str | None:
        """What stands behind a key of a declaration, as far as it is plain text in one line."""
        pattern = re.compile(rf"""(?:^\s*|[{{,]\s*){re.escape(key)}\s*:\s*["']?([\w./-]+)""")
        lines = [self.lines[named.span.line][named.span.end :]]
        lines += self.lines[named.span.line + 1 : named.end + 1]
        return next((found[1] for line in lines if (found := pattern.search(line))), None)


def _declared(lines: Sequence[str]) -> Iterator[Named]:
    section, depth = "", 0
    begun: list[tuple[str, str, Span]] = []
    for number, line in enumerate(lines):
        found = KEY.match(line)
        if found is None or line.lstrip().startswith("#"):
            continue
        indent = len(found["indent"])
        if indent == 0:
            section, depth = found["key"], 0
            begun.append(("", "", Span(number, 0, 0)))
        elif section in NAMED and (depth == 0 or indent <= depth):
            depth = indent
            span = Span(number, found.start("key"), found.end("key"))
            begun.append((section, found["key"], span))
    if not begun:
        return
    ends = [each[2].line - 1 for each in begun[1:]] + [len(lines) - 1]
    for (own, name, span), end in zip(begun, ends, strict=True):
        if own:
            yield Named(own, name, span, end)


def references_in(text: str, place: Callable[[int], tuple[int, int]]) -> Iterator[Reference]:
    """The references in an expression; `place` gives line and column of a character of it."""
    plain = _without_texts(text)
    for found in _WORD.finditer(plain):
        steps = [found[1]]
        spans = [_span(place, found.start(1), found.end(1))]
        for step in _STEP.finditer(plain, found.start(2), found.end(2)):
            which = "name" if step["name"] is not None else "key"
            name = step[which].strip().strip("\"'").strip()
            if which == "key" and name == step[which].strip():  # an expression in brackets
                begin = step.start("key")
                yield from references_in(step["key"], lambda at, b=begin: place(b + at))  # type: ignore[misc]
            begin = step.start(which) + step[which].find(name)
            steps.append(name)
            spans.append(_span(place, begin, begin + len(name)))
        yield Reference(tuple(steps), tuple(spans))


def _span(place: Callable[[int], tuple[int, int]], begin: int, end: int) -> Span:
    line, column = place(begin)
    return Span(line, column, column + end - begin)


def _without_texts(expression: str) -> str:
    """The expression with the texts in it blanked, but for those in brackets, which are keys."""

    def blank(found: re.Match[str]) -> str:
        is_key = _SUBSCRIPT.search(expression, 0, found.start())
        return found[0] if is_key else " " * len(found[0])

    return _TEXT.sub(blank, expression)


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

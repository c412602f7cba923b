"""Find what is at the cursor of a topology, and outline the file, by lines instead of by YAML.

The text need not be valid YAML: a person is typing it. `topology_text` calls this module.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from gpuform.schemas.topology import SECTIONS

NAMED_SECTIONS: Final = (*SECTIONS, "config", "inputs", "stack_references", "outputs")
"""The sections whose entries have names."""
KEY_PATTERN: Final = re.compile(
    r"""^(?P<indent>\s*(?:-\s+)*)(?P<quote>["']?)(?P<key>[\w.-]+)(?P=quote)\s*:(?=\s|$)"""
)
# The end of an expression is missing while a person types it.
_EXPRESSION: Final = re.compile(r"\{\{(.*?)(?:\}\}|$)")
_WORD: Final = re.compile(r"(?<![\w.'\"])([A-Za-z_]\w*)((?:\s*\.\s*[A-Za-z_]\w*|\s*\[[^\]\[]*\])*)")
_STEP: Final = re.compile(r"""\.\s*(?P<name>[A-Za-z_]\w*)|\[(?P<key>[^\]]*)\]""")
_TEXT: Final = re.compile(r"""(["'])(?:\\.|(?!\1).)*\1""", re.DOTALL)
_SUBSCRIPT: Final = re.compile(r"[\w\])]\s*\[\s*$")


class Span(NamedTuple):
    """A part of a line; line and columns count from 0, in characters."""

    line: int
    begin: int
    end: int

    def contains(self, line: int, column: int) -> bool:
        """Return whether the cursor is inside, or right behind the end."""
        return self.line == line and self.begin <= column <= self.end


@dataclass(frozen=True, slots=True)
class NamedEntry:
    """An entry of a section, with the span of its key and its last line."""

    section: str
    name: str
    span: Span
    last_line: int


@dataclass(frozen=True, slots=True)
class ExpressionPath:
    """A dotted path in an expression, such as `clusters.train.id`, with the span of each step."""

    steps: tuple[str, ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """The lines of a text and its entries, by section and name."""

    lines: Sequence[str]
    entries: Mapping[tuple[str, str], NamedEntry] = field(default_factory=dict)

    @classmethod
    def from_text(cls, text: str) -> "Outline":
        """Build the outline of a text: the lines, and the entries of the sections with names."""
        lines = text.splitlines()
        return cls(lines, {(entry.section, entry.name): entry for entry in _list_entries(lines)})

    def list_names(self, section: str) -> list[str]:
        """Return the names in a section, in the order of the text."""
        return [name for entry_section, name in self.entries if entry_section == section]

    def list_references(self) -> Iterator[ExpressionPath]:
        """Yield the references in all expressions, in the order of the text.

        Comments are searched as well; an expression over several lines is not.
        """
        for number, line in enumerate(self.lines):
            for expression in _EXPRESSION.finditer(line):
                start = expression.start(1)
                yield from find_references(expression[1], lambda at, s=start, n=number: (n, s + at))  # type: ignore[misc]

    def find_reference_at(self, line: int, column: int) -> tuple[ExpressionPath, int] | None:
        """Return the reference under the cursor and the index of the step there, or None."""
        for reference in self.list_references():
            for step_index, span in enumerate(reference.spans):
                if span.contains(line, column):
                    return reference, step_index
        return None

    def find_entry_at(self, line: int, column: int) -> NamedEntry | None:
        """Return the entry whose name is under the cursor, or None."""
        entries = (entry for entry in self.entries.values() if entry.span.contains(line, column))
        return next(entries, None)

    def find_value(self, entry: NamedEntry, key: str) -> str | None:
        """Return the value of an entry's key, or None without a plain text in one line.

        The first key of this name counts, even inside of another key.
        """
        pattern = re.compile(rf"""(?:^\s*|[{{,]\s*){re.escape(key)}\s*:\s*["']?([\w./-]+)""")
        lines = [self.lines[entry.span.line][entry.span.end :]]
        lines += self.lines[entry.span.line + 1 : entry.last_line + 1]
        return next((match[1] for line in lines if (match := pattern.search(line))), None)


def _list_entries(lines: Sequence[str]) -> Iterator[NamedEntry]:
    """Yield the entries of the sections with names, in the order of the lines."""
    section, depth = "", 0
    starts: list[tuple[str, str, Span]] = []
    for number, line in enumerate(lines):
        key_match = KEY_PATTERN.match(line)
        if key_match is None or line.lstrip().startswith("#"):
            continue
        indent = len(key_match["indent"])
        if indent == 0:
            section, depth = key_match["key"], 0
            # A section's line ends the entry before it, but is not an entry itself.
            starts.append(("", "", Span(number, 0, 0)))
        elif section in NAMED_SECTIONS and (depth == 0 or indent <= depth):
            depth = indent
            span = Span(number, key_match.start("key"), key_match.end("key"))
            starts.append((section, key_match["key"], span))
    if not starts:
        return
    ends = [start[2].line - 1 for start in starts[1:]] + [len(lines) - 1]
    for (section_name, name, span), end in zip(starts, ends, strict=True):
        if section_name:
            yield NamedEntry(section_name, name, span, end)


def find_references(
    expression: str, get_position: Callable[[int], tuple[int, int]]
) -> Iterator[ExpressionPath]:
    """Yield the references in an expression, also inside brackets.

    Any word outside of quotes counts, also a filter or an operator. `get_position` returns line and
    column of a character of the expression in the file.
    """
    unquoted = _blank_quoted_texts(expression)
    for path_match in _WORD.finditer(unquoted):
        steps = [path_match[1]]
        spans = [_build_span(get_position, path_match.start(1), path_match.end(1))]
        for step in _STEP.finditer(unquoted, path_match.start(2), path_match.end(2)):
            group = "name" if step["name"] is not None else "key"
            # A key in brackets may be quoted; an expression there is searched for references.
            name = step[group].strip().strip("\"'").strip()
            if group == "key" and name == step[group].strip():  # an expression in brackets
                begin = step.start("key")
                yield from find_references(step["key"], lambda at, b=begin: get_position(b + at))  # type: ignore[misc]
            begin = step.start(group) + step[group].find(name)
            steps.append(name)
            spans.append(_build_span(get_position, begin, begin + len(name)))
        yield ExpressionPath(tuple(steps), tuple(spans))


def _build_span(get_position: Callable[[int], tuple[int, int]], begin: int, end: int) -> Span:
    line, column = get_position(begin)
    return Span(line, column, column + end - begin)


def _blank_quoted_texts(expression: str) -> str:
    """Return the expression with quoted texts replaced by blanks, except for keys in brackets."""

    def blank(quoted: re.Match[str]) -> str:
        is_key = _SUBSCRIPT.search(expression, 0, quoted.start())
        return quoted[0] if is_key else " " * len(quoted[0])

    return _TEXT.sub(blank, expression)


_TYPED: Final = re.compile(r"[\w.-]*$")
_SIGN: Final = re.compile(r"""\"[^"]*"?|'[^']*'?|[{}\[\],:]|[^{}\[\],:"']+""")
_OPENED: Final = re.compile(r"\s*(?:-\s+)*(?=\{)")
_IS: Final = re.compile(r"\bis(?:\s+not)?$")
_PATH: Final = re.compile(r"[\w.\-\[\]\"']*$")


@dataclass(frozen=True, slots=True)
class Cursor:
    """The place of the cursor in a topology.

    `path` are the keys that lead to it; for a value the last one is the value's own key. `prefix`
    is the part of the word typed so far. `siblings` are the other keys of the same mapping. At
    `nothing`, a comment or a quoted text of an expression, no completion makes sense. `operator` is
    what comes before the word in an expression.
    """

    kind: Literal["key", "value", "expression", "nothing"]
    path: tuple[str, ...]
    prefix: str
    siblings: tuple[str, ...] = ()
    operator: Literal["", "|", "is"] = ""

    @classmethod
    def locate(cls, lines: Sequence[str], line: int, column: int) -> "Cursor":
        """Return the kind of text possible at a line and column, and the path of keys there."""
        line_text = lines[line] if line < len(lines) else ""
        # Only what is before the cursor counts: the rest is not typed over yet.
        before = line_text[:column]
        if _is_in_comment(before):
            return cls("nothing", (), "")
        # On an empty line the cursor's own indentation says which mapping the new key belongs to.
        outer_keys = _find_outer_keys(
            lines, line, _get_indent(before if before.strip() else line_text)
        )
        key_match = KEY_PATTERN.match(before)
        own_path = (*outer_keys, key_match["key"]) if key_match else outer_keys
        if before.rfind("{{") > before.rfind("}}"):
            return _build_expression_cursor(own_path, before[before.rfind("{{") + 2 :])
        rest = before[key_match.end() :] if key_match else ""
        if key_match and "{" in rest:
            return _build_flow_cursor(own_path, rest)
        flow_match = _OPENED.match(before)
        if flow_match:
            return _build_flow_cursor(outer_keys, before[flow_match.end() :])
        if key_match:
            return cls("value", own_path, rest.strip().lstrip("\"'"))
        typed_match = _TYPED.search(before)
        siblings = _find_sibling_keys(lines, line, _get_indent(line_text))
        return cls("key", outer_keys, typed_match[0] if typed_match else "", siblings)


def _build_expression_cursor(path: tuple[str, ...], text: str) -> Cursor:
    """Return the cursor behind the `text` of an open expression."""
    typed_match = _PATH.search(text)
    prefix = typed_match[0] if typed_match else ""
    before = text[: len(text) - len(prefix)].rstrip()
    if _get_open_quote(before) or prefix[:1] in ("'", '"'):
        return Cursor("nothing", path, prefix)
    if before.endswith("|"):
        return Cursor("expression", path, prefix, operator="|")
    return Cursor("expression", path, prefix, operator="is" if _IS.search(before) else "")


def _is_in_comment(text: str) -> bool:
    """Return whether the end of the text, the beginning of a line, is in a comment."""
    starts = (match.start() for match in re.finditer(r"(?:^|(?<=\s))#", text))
    return any(not _get_open_quote(text[:start]) for start in starts)


def _get_open_quote(text: str) -> str:
    """Return the quote still open at the end of the text, or an empty text."""
    quote = ""
    for character in text:
        if character in "\"'" and quote in ("", character):
            quote = "" if quote else character
    return quote


def _build_flow_cursor(path: tuple[str, ...], text: str) -> Cursor:
    """Return the cursor inside a flow mapping in one line: `data: {platform: together, vol`."""
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
    # The cursor is in a list: its path is that of the mapping around the list.
    while keys and keys[-1] is None:  # an item of a list
        keys.pop()
    inner = tuple(mapping_keys[-1] for mapping_keys in keys[:-1] if mapping_keys)
    last = (keys[-1] if keys else None) or []
    prefix = word.strip().lstrip("\"'")
    if in_value and last:
        return Cursor("value", (*path, *inner, last[-1]), prefix, tuple(last))
    return Cursor("key", (*path, *inner), prefix, tuple(last))


def _find_outer_keys(lines: Sequence[str], line: int, indent: int) -> tuple[str, ...]:
    """Return the keys of the lines above with less and less indentation, the outermost first."""
    outer_keys: list[str] = []
    for above in range(line - 1, -1, -1):
        match = KEY_PATTERN.match(lines[above])
        if match is None or lines[above].lstrip().startswith("#"):
            continue
        key_indent = len(match["indent"])
        if key_indent < indent:
            outer_keys.append(match["key"])
            # Only keys further to the left than the last one found are around the line.
            indent = key_indent
        # A top-level key ends the search: nothing is around it.
        if key_indent == 0:
            break
    return tuple(reversed(outer_keys))


def _find_sibling_keys(lines: Sequence[str], line: int, indent: int) -> tuple[str, ...]:
    """Return the keys of the mapping around the line, above and below the line."""
    sibling_keys: list[str] = []
    for numbers in (range(line - 1, -1, -1), range(line + 1, len(lines))):
        for number in numbers:
            line_text = lines[number]
            if not line_text.strip() or line_text.lstrip().startswith("#"):
                continue
            if _get_indent(line_text) < indent:
                break
            match = KEY_PATTERN.match(line_text)
            if match and len(match["indent"]) == indent:
                sibling_keys.append(match["key"])
    return tuple(sibling_keys)


def _get_indent(text: str) -> int:
    """Return the column where a line's words begin; the dashes of lists count as indentation."""
    return len(text) - len(re.sub(r"^\s*(?:-\s+)*", "", text))

"""Lay out YAML text: change white space only, and copy everything else as written.

The positions of tokens come from PyYAML's scanner, which also reads topologies.
"""

import itertools
import re
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from yaml import YAMLError, tokens

from gpuform.stacks.document.syntax_errors import LOADER
from gpuform.stacks.yaml_meaning import (
    FormattingError,
    build_yaml_error,
    find_difference,
    get_position,
    read_facts,
    replace_tabs,
)

_STEP: Final = 2
OPENERS: Final = (tokens.FlowMappingStartToken, tokens.FlowSequenceStartToken)
CLOSERS: Final = (tokens.FlowMappingEndToken, tokens.FlowSequenceEndToken)
_OUTSIDE: Final = (tokens.DocumentStartToken, tokens.DocumentEndToken, tokens.DirectiveToken)
_STREAM: Final = (tokens.StreamStartToken, tokens.StreamEndToken)
NAMES: Final = (tokens.AliasToken, tokens.AnchorToken, tokens.TagToken)


@dataclass(frozen=True, slots=True)
class _Block:
    """A block collection, with the columns of its entries before and after formatting."""

    old_column: int
    new_column: int
    is_list: bool = False
    is_at_parent_column: bool = False  # a list as far to the left as the key that it belongs to


def scan_tokens(text: str) -> list[Any]:
    """Return PyYAML's tokens of a text.

    Raises:
        yaml.YAMLError: the text is not YAML.
    """
    return list(yaml.scan(text, LOADER))


def lay_out(text: str) -> str:
    """Return the text with indentation by two, and single spaces between the parts of a line.

    Line breaks stay, except that several empty lines become one. The text must have Unix line
    breaks.
    """
    return _Layout(text).run()


class _Layout:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._lines: list[str] = []
        self._blocks: list[_Block] = []
        self._depth = 0  # of flow collections
        self._base = 0  # indentation of the line with the outermost one
        self._previous: Any = None  # the token before, None at the beginning of a line

    def run(self) -> str:
        """Return the text of a YAML file in the standard layout."""
        empty_tokens: list[Any] = []
        for token in scan_tokens(self._text):
            # Tokens without text, such as the start of a block, belong to the next token's line.
            if token.start_mark.index == token.end_mark.index and not isinstance(token, _STREAM):
                empty_tokens.append(token)
            elif not isinstance(token, _STREAM):
                self._add_token(token, empty_tokens)
                empty_tokens = []
        end = len(self._lines)
        self._add_gap(self._text[self._position :], self._blocks, _Block(0, 0))
        while len(self._lines) > end and not self._lines[-1]:
            self._lines.pop()
        return "".join(f"{line}\n" for line in self._lines)

    def _add_token(self, token: Any, empty_tokens: list[Any]) -> None:
        """Add a token with text, after the preceding tokens without text."""
        start = token.start_mark.index
        gap = self._text[self._position : start]
        is_first = not self._lines or "\n" in gap
        # Comments in the gap may belong to blocks that this token ends.
        outer_blocks = list(self._blocks)
        for empty_token in empty_tokens:
            self._update_blocks(empty_token, is_first=is_first)
        self._update_blocks(token, is_first=is_first)
        is_key = bool(empty_tokens) and isinstance(empty_tokens[-1], tokens.KeyToken)
        indent = self._get_indent(token, is_key=is_key)
        self._add_gap(gap, outer_blocks, _Block(token.start_mark.column, indent))
        if is_first:
            self._lines.append(" " * indent)
            self._previous = None
        elif self._needs_space(token):
            self._lines[-1] += " "
        self._update_flow_depth(token, indent if is_first else None)
        self._position = token.end_mark.index
        self._add_text(token, self._text[start : self._position])
        self._previous = token

    def _update_blocks(self, token: Any, *, is_first: bool) -> None:
        """Open or close block collections for a token."""
        # Inside brackets, indentation opens and closes no blocks.
        if self._depth:
            return
        current_block = self._blocks[-1] if self._blocks else None
        column = token.start_mark.column
        if isinstance(token, tokens.BlockMappingStartToken | tokens.BlockSequenceStartToken):
            is_list = isinstance(token, tokens.BlockSequenceStartToken)
            entry_column = current_block.new_column + _STEP if current_block else 0
            self._blocks.append(
                _Block(column, entry_column if is_first else self._get_next_column(), is_list)
            )
        elif isinstance(token, tokens.BlockEntryToken):
            if current_block and not current_block.is_list:
                entry_column = (
                    current_block.new_column + _STEP if is_first else self._get_next_column()
                )
                self._blocks.append(
                    _Block(column, entry_column, is_list=True, is_at_parent_column=True)
                )
        elif isinstance(token, tokens.BlockEndToken | tokens.KeyToken | tokens.ValueToken):
            if current_block and current_block.is_at_parent_column:
                self._blocks.pop()
            if isinstance(token, tokens.BlockEndToken) and self._blocks:
                self._blocks.pop()

    def _get_next_column(self) -> int:
        """Return the column, from 0, where a token after a space begins on the present line."""
        return len(self._lines[-1]) + 1

    def _get_value_indent(self) -> int:
        """Return the column of a value on the lines after the key or dash."""
        return self._blocks[-1].new_column + _STEP if self._blocks else 0

    def _get_indent(self, token: Any, *, is_key: bool) -> int:
        """Return the indentation of a token at the beginning of a line."""
        if self._depth:
            return self._base + _STEP * (self._depth - isinstance(token, CLOSERS))
        if isinstance(token, _OUTSIDE) or not self._blocks:
            return 0
        marks = (tokens.BlockEntryToken, tokens.KeyToken, tokens.ValueToken)
        if is_key or isinstance(token, marks):
            return self._blocks[-1].new_column
        return self._get_value_indent()

    def _update_flow_depth(self, token: Any, indent: int | None) -> None:
        """Count open flow collections, and store the indentation of the outermost line."""
        if isinstance(token, OPENERS):
            if self._depth == 0:
                current_block = self._blocks[-1] if self._blocks else _Block(0, 0)
                block_indent = current_block.new_column + _STEP * current_block.is_list
                self._base = block_indent if indent is None else indent
            self._depth += 1
        elif isinstance(token, CLOSERS):
            self._depth -= 1

    def _needs_space(self, token: Any) -> bool:
        """Return whether a space stands between the line's previous token and `token`."""
        if isinstance(self._previous, OPENERS):
            return False
        # A comma right after a tag would become part of the tag.
        if isinstance(token, (*CLOSERS, tokens.FlowEntryToken)):
            return isinstance(self._previous, tokens.TagToken)
        if isinstance(token, tokens.ValueToken):
            marks = (tokens.FlowEntryToken, tokens.BlockEntryToken, tokens.KeyToken)
            return isinstance(self._previous, (*NAMES, *marks))
        return True

    def _add_text(self, token: Any, source: str) -> None:
        """Add the text of a token at the current position, with any further lines indented to fit.

        The lines of a block scalar keep their indentation relative to each other.
        """
        # A block scalar is moved as a whole: its relative indentation is part of the value.
        if isinstance(token, tokens.ScalarToken) and token.style in ("|", ">"):
            current_block = self._blocks[-1] if self._blocks else _Block(-1, 0)
            length, (header, *lines) = _move_block_scalar(
                source, current_block.old_column, current_block.new_column
            )
            self._position = token.start_mark.index + length
            self._lines[-1] += header
            self._lines += lines
            return
        first_line, *further_lines = source.split("\n")
        indent = self._base + _STEP * self._depth if self._depth else self._get_value_indent()
        self._lines[-1] += _strip_end(first_line) if further_lines else first_line
        for number, line in enumerate(further_lines, start=1):
            words = line.lstrip(" \t")
            words = words if number == len(further_lines) else _strip_end(words)
            self._lines.append(" " * indent + words if words else "")

    def _add_gap(self, gap: str, outer_blocks: list[_Block], next_block: _Block) -> None:
        """Add the comments and empty lines between two tokens."""
        gap_lines = gap.split("\n")
        if self._lines:
            rest_of_line = gap_lines.pop(0)
            if "#" in rest_of_line:
                blank, comment = rest_of_line.split("#", 1)
                space = " " if not blank or "\t" in blank else blank
                self._lines[-1] += f"{space}#{comment.rstrip()}"
        is_end = self._position + len(gap) == len(self._text)
        for gap_line in gap_lines if is_end else gap_lines[:-1]:
            self._add_gap_line(gap_line, outer_blocks, next_block)

    def _add_gap_line(self, gap_line: str, outer_blocks: list[_Block], next_block: _Block) -> None:
        """Add a comment line, indented like its block, or an empty line after a full line."""
        blank, mark, comment = gap_line.partition("#")
        if not mark:
            if self._lines and self._lines[-1]:
                self._lines.append("")
            return
        column = len(blank)
        if self._depth:
            indent = self._base + _STEP * self._depth
        # A comment belongs to the innermost block that it is indented to.
        elif column <= next_block.old_column:
            indent = next_block.new_column
        else:
            enclosing_blocks = [
                block
                for block in (next_block, *reversed(outer_blocks))
                if block.old_column <= column
            ]
            indent = max(enclosing_blocks, key=lambda block: block.old_column).new_column
        self._lines.append(f"{' ' * indent}#{comment.rstrip()}")


def _strip_end(line: str) -> str:
    r"""Return the line without spaces at the end, except for an escaped one: `\ `."""
    return re.sub(r"(?<!\\)[ \t]+$", "", line)


_HEADER: Final = re.compile(r"[|>][+-]?(?P<step>[1-9]?)[+-]?")


def _move_block_scalar(
    source: str, parent_column: int, new_parent_column: int
) -> tuple[int, list[str]]:
    """Return a block scalar's length in the source, and the lines at the new indentation.

    `parent_column` is the column of the scalar's key or dash, -1 without one. Empty lines at the
    end belong to the scalar only after a `+`.
    """
    header, *lines = source.split("\n")
    header_match = _HEADER.match(header)
    if header_match and header_match["step"]:
        old_indent = max(parent_column + 1, 1) + int(header_match["step"]) - 1
        new_indent = (
            new_parent_column + int(header_match["step"]) if parent_column >= 0 else old_indent
        )
    else:
        old_indent = next(
            (len(line) - len(line.lstrip(" ")) for line in lines if line.strip(" ")), 0
        )
        new_indent = new_parent_column + 2
    if lines and not lines[-1].strip(" "):
        lines.pop()  # what follows its last line break
    while (
        lines
        and "+" not in (header_match[0] if header_match else "")
        and not lines[-1][old_indent:]
    ):
        lines.pop()
    moved_lines = [
        " " * new_indent + line[old_indent:] if line[old_indent:] else "" for line in lines
    ]
    return len("\n".join([header, *lines])), [header.rstrip(), *moved_lines]


@dataclass(slots=True)
class _Flow:
    """An open flow collection, with the positions of possible line breaks."""

    line: int
    is_key: bool
    break_positions: list[int]
    inner_positions: list[int] = field(default_factory=list)


def break_long_flows(text: str, max_width: int) -> str:
    """Return the text with line breaks in the outermost flow collections of long lines.

    One call breaks one level, and does not indent the new lines. Flow collections in keys stay,
    because YAML allows keys on one line only.
    """
    scanned_tokens = scan_tokens(text)
    line_ends = {token.end_mark.line: token.end_mark.column for token in scanned_tokens}
    break_positions: list[int] = []
    open_flows: list[_Flow] = []
    previous: Any = None
    for token in scanned_tokens:
        start, end = token.start_mark, token.end_mark
        if isinstance(token, OPENERS):
            is_key = isinstance(previous, tokens.KeyToken)
            open_flows.append(_Flow(start.line, is_key, [end.index]))
        elif isinstance(token, tokens.FlowEntryToken):
            open_flows[-1].break_positions.append(end.index)
        elif isinstance(token, CLOSERS):
            flow = open_flows.pop()
            flow.break_positions.append(start.index)
            outer_positions = open_flows[-1].inner_positions if open_flows else break_positions
            # A person has broken this collection already: only inner ones may still be too long.
            if flow.line != end.line:
                outer_positions += flow.inner_positions
            # In YAML a key must be on one line.
            elif line_ends[end.line] > max_width and not flow.is_key:
                outer_positions += _select_useful_breaks(text, flow.break_positions)
        if not isinstance(token, NAMES):
            previous = token
    # From the end to the beginning: a break does not move earlier positions.
    for break_position in sorted(break_positions, reverse=True):
        text = f"{text[:break_position]}\n{text[break_position:]}"
    return text


def _select_useful_breaks(text: str, positions: list[int]) -> list[int]:
    """Return the positions with text before the next one; none for an empty collection."""
    pairs = itertools.pairwise(positions)
    useful_positions = [
        position for position, following in pairs if text[position:following].strip()
    ]
    return [*useful_positions, positions[-1]] if useful_positions else []


_WIDTH: Final = 100


def format_topology(data: bytes, file_name: str) -> bytes:
    """Return the formatted text of a file, the same data if nothing changes.

    Comments, order, quotes and the text of every value stay as written. Line breaks become Unix
    ones, and a byte order mark is dropped. `file_name` is for messages.

    Raises:
        FormattingError: the file is not UTF-8 or not YAML, or the formatted text would not mean
            exactly the same.
    """
    yaml_source = _decode(data, file_name)
    facts = read_facts(yaml_source, file_name)
    formatted_data = _lay_out(replace_tabs(yaml_source, file_name), file_name).encode()
    # The check protects files against faults of the layout: only an equal meaning is written.
    difference_position = find_difference(
        facts, read_facts(_decode(formatted_data, file_name), file_name)
    )
    if difference_position and not yaml_source.endswith("\n"):
        formatted_data = formatted_data.removesuffix(
            b"\n"
        )  # a `|` at the very end has no line break in its value
        difference_position = find_difference(
            facts, read_facts(_decode(formatted_data, file_name), file_name)
        )
    if difference_position:
        raise FormattingError(
            file_name,
            difference_position,
            "formatting would change the meaning from here on: the file stays unchanged",
            hint="write this part in a simpler way",
        )
    return formatted_data


def _decode(data: bytes, file_name: str) -> str:
    """Return the text with Unix line breaks, without a byte order mark at the beginning.

    Raises:
        FormattingError: the data is not UTF-8, or has another byte order mark.
    """
    try:
        yaml_source = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        valid_text = data[: error.start].decode()
        position = get_position(valid_text, len(valid_text))
        raise FormattingError(file_name, position, "the file is not UTF-8") from None
    yaml_source = yaml_source.replace("\r\n", "\n").replace("\r", "\n")
    mark_index = yaml_source.find("\ufeff")
    if mark_index >= 0:  # some parsers read it, some do not
        position = get_position(yaml_source, mark_index)
        raise FormattingError(file_name, position, "invisible byte order mark", "remove it")
    return yaml_source


def _lay_out(text: str, file_name: str) -> str:
    """Return the text in the standard layout, with long flow collections broken into lines.

    Raises:
        FormattingError: the text is not YAML.
    """
    try:
        laid_out_text = lay_out(text)
        # Breaking one flow collection may leave an inner one that is still too long.
        while (broken_text := break_long_flows(laid_out_text, _WIDTH)) != laid_out_text:
            laid_out_text = lay_out(broken_text)
    except (YAMLError, ValueError, OverflowError) as error:
        raise build_yaml_error(error, file_name) from None
    return laid_out_text

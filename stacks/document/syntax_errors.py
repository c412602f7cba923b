"""Describe the syntax errors of PyYAML in the words of people who write YAML.

`reading` calls `describe_syntax_error`. The texts of libyaml name tokens of its grammar, and its
positions are often those of the line after the mistake.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import yaml

from gpuform.stacks.document.diagnostics import SourcePosition

DEEPEST: Final = 64
"""Lists and objects inside each other."""
TOO_DEEP: Final = f"more than {DEEPEST} levels of nested lists and objects"
LINE_BREAK: Final = re.compile(r"\r\n|[\n\r]")
LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The fast parser, where PyYAML is built with libyaml."""
_BARE_EXPRESSION = re.compile(r"[:-] *\{\{")
QUOTE_IT: Final = 'put an expression in quotes: "{{ ... }}"'
_CLOSE_QUOTE: Final = "close the quote, or remove it"
_KEY: Final = re.compile(r"\s*(?:- +)*([^\s#:{}\[\],][^#:]*):(?:\s|$)")
_MOST_PARENTS: Final = 4
"""How many indentations a message offers, the deepest first."""

SyntaxProblem = tuple[SourcePosition, str, str, str]
"""Position, rule, message and hint."""


def describe_syntax_error(
    error: yaml.MarkedYAMLError, lines: Sequence[str], start: SourcePosition
) -> SyntaxProblem:
    """Return the position, rule, message and hint for a syntax error of PyYAML.

    `lines` is the text that was read, `start` gives the file of the position.
    """
    return _SyntaxErrorReader(error, lines, start).describe()


class _SyntaxErrorReader:
    def __init__(
        self, error: yaml.MarkedYAMLError, lines: Sequence[str], start: SourcePosition
    ) -> None:
        self.error, self.lines, self.start = error, lines, start
        self.problem, self.context = error.problem or "", error.context or ""
        mark = error.problem_mark or error.context_mark
        # PyYAML reports the end of the text on a line that does not exist.
        is_past_end = mark is not None and mark.line >= len(lines)
        self.row = len(lines) - 1 if is_past_end else mark.line if mark else 0
        """The index of the line with the error."""
        self.column = len(lines[-1]) if is_past_end else mark.column if mark else 0

    def describe(self) -> SyntaxProblem:
        """Return the description of the first cause that fits, else libyaml's own words."""
        line = self.lines[self.row]
        unclosed_quote = self.find_unclosed_quote()
        if unclosed_quote is not None:
            return unclosed_quote
        if "nesting depth" in self.problem:  # PyYAML's own limit, from 6.0.4 on
            return self.at(self.row, self.column), "limit", TOO_DEEP, ""
        # Without quotes, YAML reads `{{` as a mapping inside a mapping.
        if _BARE_EXPRESSION.search(line):
            return self.report("an expression stands without quotes", QUOTE_IT)
        return (
            self.describe_character(line)
            or self.describe_open_bracket()
            or self.describe_missing_colon()
            or self.describe_second_colon(line)
            or self.describe_indentation(line)
            or self.report(f"{self.problem}{f' {self.context}' if self.context else ''}", "")
        )

    def at(self, row: int, column: int) -> SourcePosition:
        """Return the position of a line and a column, both counted from 0."""
        return self.start._replace(line=row + 1, column=column + 1)

    def report(
        self, message: str, hint: str, row: int | None = None, column: int | None = None
    ) -> SyntaxProblem:
        """Return a problem, at the error's own position unless another one is given."""
        position = self.at(
            self.row if row is None else row, self.column if column is None else column
        )
        return position, "syntax", f"this is not YAML: {message}", hint

    def describe_character(self, line: str) -> SyntaxProblem | None:
        """Describe a character with which no value can begin, such as a tab or `@`."""
        if "cannot start any token" not in self.problem:
            return None
        character = line[self.column : self.column + 1]
        if character == "\t":
            return self.report("a tab indents this line", "indent with spaces, not tabs")
        value = line[self.column :].strip().replace('"', "'")
        return self.report(
            f"a value cannot begin with {character}", f'put the value in quotes: "{value}"'
        )

    def describe_open_bracket(self) -> SyntaxProblem | None:
        """Describe a list or an object in brackets that is not closed, or has no comma."""
        mark = self.error.context_mark
        if "flow" not in self.context or mark is None:
            return None
        # The parser does not say where the bracket is: the mark may be after the end of the file.
        if "flow node" in self.context:
            return self.report(
                "a value or a closing bracket is missing here", "close [ with ], and { with }"
            )
        opening, closing = ("[", "]") if "sequence" in self.context else ("{", "}")
        # A line break before the error: people close brackets in the line that opens them.
        if mark.line != self.row:
            return self.report(
                f"the {opening} that opens here is not closed",
                f"close it with {closing}, and put a comma between the items",
                mark.line,
                mark.column,
            )
        return self.report(
            f"a comma or {closing} is missing before this",
            f"put a comma between the items, and {closing} after the last one",
        )

    def describe_missing_colon(self) -> SyntaxProblem | None:
        """Describe a text without a colon where a key must stand."""
        mark = self.error.context_mark
        # The text without a colon begins at the mark, and may reach over several lines.
        if "could not find expected ':'" in self.problem and mark is not None:
            return self.describe_line_without_key(min(mark.line, len(self.lines) - 1))
        return None

    def describe_line_without_key(self, row: int) -> SyntaxProblem:
        """Describe a line without `: ` among keys, or `-item` without a space."""
        line, column = self.lines[row].strip(), _count_indent(self.lines[row])
        if re.match(r"-[^\s-]", line):
            hint = f"write `- {line[1:]}`"
            return self.report("a space is missing after the hyphen", hint, row, column)
        if re.match(r"[^\s:]+:[^\s]", line):
            hint = f"write `{line.replace(':', ': ', 1)}`"
            return self.report("a space is missing after the colon", hint, row, column)
        key, _, value = line.partition(" ")
        hint = f"write `{key}: {value or 'VALUE'}`"
        return self.report("this line has no colon after the key", hint, row, column)

    def describe_second_colon(self, line: str) -> SyntaxProblem | None:
        """Describe a second `: ` in a line: a value with a colon, or a key indented too deep."""
        if "mapping values are not allowed" not in self.problem:
            return None
        before = line[: self.column]
        first = _KEY.match(line)
        if first and first.end(1) < self.column:
            value = line[first.end() :].strip().replace('"', "'")
            return self.report(
                "this line has a second colon", f'put the value in quotes: "{value}"'
            )
        parent = next(self.list_parents(), None)
        if parent is None:
            return None
        row, indent, key = parent
        # YAML joins a line without a key to the value before, and reports the line after.
        if row < self.row - 1 and self.lines[self.row - 1].strip():
            return self.describe_line_without_key(self.row - 1)
        return self.report(
            f"this line is indented by {_count_indent(before)} spaces, below a key that has a "
            "value already",
            f"indent it by {indent} spaces, as {key} in line {row + 1}",
            column=_count_indent(before),
        )

    def describe_indentation(self, line: str) -> SyntaxProblem | None:
        """Describe a line whose indentation is that of no key above."""
        if "block" not in self.context:
            return None
        indent, parents = _count_indent(line), list(self.list_parents())
        if not parents or not line.strip():
            return None
        is_item = line.strip().startswith("- ")
        same = next((parent for parent in parents if parent[1] == indent), None)
        if same is not None and is_item:
            row, _, key = same
            return self.report(
                f"an item of a list is beside the key {key} of line {row + 1}",
                "indent the item below the key whose list it belongs to, or remove the hyphen",
                column=indent,
            )
        if same is not None:
            return None
        choices = ", or by ".join(
            f"{parent_indent} as {key} in line {row + 1}"
            for row, parent_indent, key in parents[:_MOST_PARENTS]
        )
        return self.report(
            f"this line is indented by {indent} spaces, as no key above it",
            f"indent it by {choices}",
            column=indent,
        )

    def list_parents(self) -> Iterator[tuple[int, int, str]]:
        """Yield line, indentation and name of the nearest key above for each lesser indentation."""
        indent_of_last = None
        for row in range(self.row - 1, -1, -1):
            match = _KEY.match(self.lines[row])
            if match is None:
                continue
            indent = match.start(1)
            if indent_of_last is None or indent < indent_of_last:
                indent_of_last = indent
                yield row, indent, match[1].strip()

    def find_unclosed_quote(self) -> SyntaxProblem | None:
        """Describe an unclosed quote, at the position of the quote.

        Returns None if the syntax error has another cause. A quote that a later line's quote closes
        by accident is recognized by the error right after the closing quote.
        """
        context_mark, problem_mark = self.error.context_mark, self.error.problem_mark
        if "quoted scalar" in self.context and "unexpected" in self.problem and context_mark:
            message = "the quote that opens here is not closed"
            return self.report(message, _CLOSE_QUOTE, context_mark.line, context_mark.column)
        last_token = self.find_last_quoted_token(problem_mark) if problem_mark else None
        if (
            problem_mark is None
            or last_token is None
            or last_token.end_mark.line == last_token.start_mark.line
        ):
            return None
        # An error further down has another cause.
        if problem_mark.line > last_token.end_mark.line + 1:
            return None
        end_line = last_token.end_mark.line + 1
        ending = f"is closed only in line {end_line}, by a quote that probably opens another string"
        opening = last_token.start_mark
        message = f"the quote that opens here {ending}"
        return self.report(message, _CLOSE_QUOTE, opening.line, opening.column)

    def find_last_quoted_token(self, mark: Any) -> Any:
        """Return the last token in quotes before `mark`, or None."""
        last_token = None
        try:
            for token in yaml.scan("\n".join(self.lines), Loader=LOADER):
                if (token.end_mark.line, token.end_mark.column) > (mark.line, mark.column):
                    break
                if isinstance(token, yaml.ScalarToken) and token.style in ("'", '"'):
                    last_token = token
        except yaml.YAMLError:
            pass  # that is the one
        return last_token


def _count_indent(line: str) -> int:
    """Return the number of spaces with which a line begins."""
    return len(line) - len(line.lstrip(" "))

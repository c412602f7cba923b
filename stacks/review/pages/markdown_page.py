"""Write a review in Markdown. Text of others cannot format, link, mention or end a block.

All of it stands in code, where forges look for no mentions, references and links; only plain words
may stand as they are.
"""

import re
from typing import Final

from markupsafe import Markup, escape

from gpuform.schemas.plan import PropertyChange, ResourceChange
from gpuform.schemas.safe_text import escape_invisible, truncate
from gpuform.stacks.review.dangers import shown_properties
from gpuform.stacks.review.differences import Row, change_rows
from gpuform.stacks.review.facts import Review
from gpuform.stacks.review.pages.document import FACTS, Filters, Form, document
from gpuform.stacks.review.summary_text import leaving_lines

LONGEST_NAME: Final = 200
_LONGEST_LINE: Final = 1_000
_MOST_LINES: Final = 200

_WORDS: Final = re.compile(r"[A-Za-z0-9 ,.;:()'+-]*")
_SPECIAL: Final = re.compile(
    r":(?! |$)|\bwww\.|\b[0-9a-f]{7,}\b|\bGH-|^\s|\s$|\s\s|^[-+]|^\d+[.)]", re.IGNORECASE
)


def code(text: str, longest: int = LONGEST_NAME) -> str:
    """A code span that shows the text, on one line."""
    text = truncate(escape_invisible(text), longest)
    if not text.strip(" "):
        return "`(empty)`"
    fence = _fence(text, 1)
    pad = " " if text.startswith(("`", " ")) or text.endswith(("`", " ")) else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def cell(text: str) -> str:
    """The same in a table, where a bar would end the cell even in code."""
    return code(text).replace("|", "\\|")


def words(text: str) -> str:
    """A phrase: as it is when it is nothing but words, else in code."""
    is_plain = _WORDS.fullmatch(text) and not _SPECIAL.search(text) and len(text) <= LONGEST_NAME
    return text if is_plain else code(text)


def block(text: str, language: str = "text") -> str:
    """A fenced block that shows the lines of the text."""
    lines = [truncate(escape_invisible(line), _LONGEST_LINE) for line in text.split("\n")]
    if len(lines) > _MOST_LINES:
        more = len(lines) - _MOST_LINES
        lines = [*lines[:_MOST_LINES], f"... {more} more lines"]
    content = "\n".join(lines)
    fence = _fence(content, 3)
    return f"{fence}{language}\n{content}\n{fence}"


def tag(text: str) -> Markup:
    """Code as HTML that stands within Markdown, on one line."""
    return Markup("<code>{}</code>").format(truncate(escape_invisible(text), LONGEST_NAME))


def phrase(text: str) -> Markup:
    """`words` as HTML that stands within Markdown."""
    return escape(text) if words(text) == text else tag(text)


def _fence(text: str, least: int) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * (longest + 1 if longest >= least else least)


LIMIT: Final = 65_536
"""GitHub's limit of a comment. GitLab's is larger; nobody reads that much."""

_MARKS: Final = {"~": "!"}
"""Forges colour lines of a diff that begin with + - and !"""


def markdown(review: Review, *, folded: bool, limit: int = LIMIT) -> str:
    """The document, not longer than `limit` if there is room for its counts at all.

    `folded` uses HTML's details, which GitHub and GitLab show.
    """
    filters: Filters = {
        **FACTS,
        "code": code,
        "cell": cell,
        "words": words,
        "block": block,
        "tag": tag,
        "phrase": phrase,
        "diff": diff,
        "diff_of_output": diff_of_output,
    }
    text = document(review, Form("md", limit, filters, {"folded": folded}))
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def diff(change: ResourceChange) -> str:
    """The property changes and the nodes that go as the lines of a diff; empty without any."""
    rows = map(_line, change_rows(shown_properties(change), change.type))
    return "\n".join(
        [*rows, *(f"- {escape_invisible(text)}" for text in leaving_lines(change.leaving))]
    )


def diff_of_output(change: PropertyChange, stack: str) -> str:
    """An output's change as lines of a diff, with its stack's name where there are several."""
    lines = [_line(row) for row in change_rows([change], "")]
    return "\n".join([f"  {stack}:", *lines] if stack else lines)


def _line(row: Row) -> str:
    return f"{_MARKS.get(row.mark, row.mark)} {'    ' * row.depth}{row.text}"

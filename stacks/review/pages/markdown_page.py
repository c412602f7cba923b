"""Render a review in Markdown that foreign text cannot format, link or break.

Names and values stand in code, where GitHub and GitLab resolve no mentions, references and links;
only plain words stand outside of code. Called by `gpuform review` and its comments.
"""

import re
from typing import Final

from markupsafe import Markup, escape

from gpuform.schemas.plan import PropertyChange, ResourceChange
from gpuform.schemas.safe_text import escape_invisible, truncate
from gpuform.stacks.review.dangers import select_visible_changes
from gpuform.stacks.review.differences import Row, build_change_rows
from gpuform.stacks.review.facts import Review
from gpuform.stacks.review.pages.document import FACTS, Filters, PageFormat, render_document
from gpuform.stacks.review.summary_text import render_removed_nodes

MAX_NAME_LENGTH: Final = 200
_MAX_LINE_LENGTH: Final = 1_000
_MAX_LINES: Final = 200

_WORDS: Final = re.compile(r"[A-Za-z0-9 ,.;:()'+-]*")
_SPECIAL: Final = re.compile(
    r":(?! |$)|\bwww\.|\b[0-9a-f]{7,}\b|\bGH-|^\s|\s$|\s\s|^[-+]|^\d+[.)]", re.IGNORECASE
)


def format_code(value: str, longest: int = MAX_NAME_LENGTH) -> str:
    """Return a one-line code span of `value`, cut after `longest` characters.

    A blank value becomes `(empty)`.
    """
    value = truncate(escape_invisible(value), longest)
    if not value.strip(" "):
        return "`(empty)`"
    fence = _choose_fence(value, 1)
    # Markdown strips one space on each side, and a backtick must not touch the fence.
    pad = " " if value.startswith(("`", " ")) or value.endswith(("`", " ")) else ""
    return f"{fence}{pad}{value}{pad}{fence}"


def format_cell(text: str) -> str:
    """Return a code span for a table cell, where a bar ends the cell even inside code."""
    return format_code(text).replace("|", "\\|")


def format_words(text: str) -> str:
    """Return `text` unchanged if all of its words are plain, else as a code span.

    Plain are short ASCII words that Markdown neither links nor formats.
    """
    # Markdown formats, links or mentions anything else.
    is_plain = _WORDS.fullmatch(text) and not _SPECIAL.search(text) and len(text) <= MAX_NAME_LENGTH
    return text if is_plain else format_code(text)


def format_block(text: str, language: str = "text") -> str:
    """Return a fenced block with the lines of `text`; long lines and long texts are cut."""
    lines = [truncate(escape_invisible(line), _MAX_LINE_LENGTH) for line in text.split("\n")]
    if len(lines) > _MAX_LINES:
        more = len(lines) - _MAX_LINES
        lines = [*lines[:_MAX_LINES], f"... {more} more lines"]
    content = "\n".join(lines)
    fence = _choose_fence(content, 3)
    return f"{fence}{language}\n{content}\n{fence}"


def format_html_code(text: str) -> Markup:
    """Return `text` as HTML code for use within Markdown, on one line."""
    return Markup("<code>{}</code>").format(truncate(escape_invisible(text), MAX_NAME_LENGTH))


def format_html_words(text: str) -> Markup:
    """Return the HTML form of `format_words` for use within Markdown."""
    return escape(text) if format_words(text) == text else format_html_code(text)


def _choose_fence(text: str, least: int) -> str:
    """Return a fence longer than any run of backticks in the text, at least `least` long."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    # A fence must be longer than any run of backticks inside.
    return "`" * (longest + 1 if longest >= least else least)


LIMIT: Final = 65_536
"""GitHub's limit of a comment, in characters. GitLab allows more, but nobody reads that much."""

_MARKS: Final = {"~": "!"}
"""GitHub and GitLab color diff lines that begin with + - and !"""


def render_markdown(review: Review, *, folded: bool, limit: int = LIMIT) -> str:
    """Render the review in Markdown, at most `limit` characters long if the counts fit.

    `folded` uses the HTML element `details`, which GitHub and GitLab render.
    """
    filters: Filters = {
        **FACTS,
        "code": format_code,
        "cell": format_cell,
        "words": format_words,
        "block": format_block,
        "tag": format_html_code,
        "phrase": format_html_words,
        "diff": render_diff,
        "diff_of_output": render_output_diff,
    }
    page = render_document(review, PageFormat("md", limit, filters, {"folded": folded}))
    return re.sub(r"\n{3,}", "\n\n", page).strip() + "\n"


def render_diff(change: ResourceChange) -> str:
    """Render property changes and removed nodes as diff lines; empty without any."""
    rows = map(_format_row, build_change_rows(select_visible_changes(change), change.type))
    return "\n".join(
        [*rows, *(f"- {escape_invisible(line)}" for line in render_removed_nodes(change.leaving))]
    )


def render_output_diff(change: PropertyChange, stack: str) -> str:
    """Render an output's change as diff lines, below the stack's name if `stack` is not empty."""
    lines = [_format_row(row) for row in build_change_rows([change], "")]
    return "\n".join([f"  {stack}:", *lines] if stack else lines)


def _format_row(row: Row) -> str:
    """Format a row as a line of a `diff` block: the mark, the indentation, the text."""
    return f"{_MARKS.get(row.mark, row.mark)} {'    ' * row.depth}{row.text}"

"""A review in Markdown: for any reader of CommonMark, or folded for GitHub's and GitLab's pages."""

import re
from typing import Final

from gpuform.schemas.plan import PropertyChange, ResourceChange
from gpuform.schemas.visible import visible
from gpuform.stacks.review.facts import Review
from gpuform.stacks.review.leaving_text import leaving_lines
from gpuform.stacks.review.pages.document import FACTS, Filters, Form, document
from gpuform.stacks.review.pages.escaping import block, cell, code, phrase, tag, words
from gpuform.stacks.review.reasons import shown_properties
from gpuform.stacks.review.rows import Row, change_rows

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
    return "\n".join([*rows, *(f"- {visible(text)}" for text in leaving_lines(change.leaving))])


def diff_of_output(change: PropertyChange, stack: str) -> str:
    """An output's change as lines of a diff, with its stack's name where there are several."""
    lines = [_line(row) for row in change_rows([change], "")]
    return "\n".join([f"  {stack}:", *lines] if stack else lines)


def _line(row: Row) -> str:
    return f"{_MARKS.get(row.mark, row.mark)} {'    ' * row.depth}{row.text}"

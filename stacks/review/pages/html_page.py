"""Render a review as one accessible HTML page without scripts or external resources.

Called by `gpuform review --format html`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup, escape

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PropertyChange, ResourceChange
from gpuform.schemas.safe_text import escape_invisible, truncate
from gpuform.stacks.review.dangers import select_visible_changes
from gpuform.stacks.review.differences import get_note, get_plan_values, list_differences
from gpuform.stacks.review.facts import Review
from gpuform.stacks.review.pages.document import FACTS, Filters, PageFormat, render_document
from gpuform.stacks.review.summary_text import render_removed_nodes
from gpuform.stacks.review.value_text import format_multiline


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """Hold the cells of one table row; a missing value is empty."""

    path: str
    action: Action
    before: str
    after: str
    note: str = ""
    forces: bool = False


def build_change_rows(changes: Iterable[PropertyChange], type_: str) -> Iterator[ChangeRow]:
    """Yield a row for each changed property, or for each changed location inside.

    Long values are cut, and invisible characters escaped; the template escapes HTML.
    """
    for change in changes:
        path, note, forces = (
            change.path,
            escape_invisible(get_note(change)),
            change.forces_replacement,
        )
        inner = list_differences(change, type_)
        for difference in inner:
            suffix = difference.path if difference.path.startswith("[") else f".{difference.path}"
            before, after = _format_value(difference.before), _format_value(difference.after)
            before = "" if difference.action is Action.ADD else before
            after = "" if difference.action is Action.DELETE else after
            yield ChangeRow(
                escape_invisible(path + suffix), difference.action, before, after, note, forces
            )
        if not inner:
            old, new = get_plan_values(change)
            before = "" if change.action is Action.ADD else _format_value(old)
            after = "" if change.action is Action.DELETE else _format_value(new)
            yield ChangeRow(escape_invisible(path), change.action, before, after, note, forces)


def _format_value(value: Any) -> str:
    """Format a value as text with invisible characters escaped, cut to `_LONGEST_VALUE`."""
    # Each line is escaped alone, so that line breaks stay.
    lines = format_multiline(value).split("\n")
    return truncate("\n".join(map(escape_invisible, lines)), _LONGEST_VALUE)


LIMIT: Final = 1_500_000
"""Characters of a page: browsers render longer ones slowly, and nobody reads them."""

_LONGEST_LINE: Final = 1_000


def render_html(review: Review) -> str:
    """Render the review as an HTML page."""
    filters: Filters = {
        **FACTS,
        "line": format_line,
        "lines": format_lines,
        "ticked": format_ticked,
        "cells": list_property_rows,
        "leaving_lines": render_removed_nodes,
        "output_cells": list_output_rows,
    }
    page = render_document(review, PageFormat("html", LIMIT, filters, {}))
    # Templates leave empty lines where a part is missing.
    return re.sub(r"\n{2,}", "\n", page).strip() + "\n"


def format_line(text: str) -> str:
    """Return `text` on one line, with invisible characters escaped, cut after 1,000 characters."""
    return truncate(escape_invisible(text), _LONGEST_LINE)


def format_lines(text: str) -> Markup:
    """Return `text` with line breaks as HTML, escaped, and each line cut after 1,000 characters."""
    return Markup("<br>").join(format_line(item) for item in text.split("\n"))


def format_ticked(text: str) -> Markup:
    """Return gpuform's own text as HTML, with the parts between backticks as code."""
    return Markup(re.sub(r"`(.*?)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped


def list_property_rows(change: ResourceChange) -> list[ChangeRow]:
    """List the table rows of a resource's property changes."""
    return list(build_change_rows(select_visible_changes(change), change.type))


def list_output_rows(change: PropertyChange) -> list[ChangeRow]:
    """List the table rows of an output's change."""
    return list(build_change_rows([change], ""))


_LONGEST_VALUE: Final = 4_000

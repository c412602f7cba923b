"""A review as one page of HTML: nothing to load, no script, readable by everyone."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup, escape

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PropertyChange, ResourceChange
from gpuform.schemas.safe_text import escape_invisible, truncate
from gpuform.stacks.review.dangers import shown_properties
from gpuform.stacks.review.differences import differences, note_of, values_of
from gpuform.stacks.review.facts import Review
from gpuform.stacks.review.pages.document import FACTS, Filters, Form, document
from gpuform.stacks.review.summary_text import leaving_lines
from gpuform.stacks.review.value_text import multiline


@dataclass(frozen=True, slots=True)
class Cells:
    """One line of the table; a value that is not there is empty."""

    path: str
    action: Action
    before: str
    after: str
    note: str = ""
    forces: bool = False


def change_cells(changes: Iterable[PropertyChange], type_: str) -> Iterator[Cells]:
    """A line for each property, or for each place inside it that changes."""
    for change in changes:
        path, note, forces = (
            change.path,
            escape_invisible(note_of(change)),
            change.forces_replacement,
        )
        inner = differences(change, type_)
        for each in inner:
            where = each.path if each.path.startswith("[") else f".{each.path}"
            before, after = _value(each.before), _value(each.after)
            before = "" if each.action is Action.ADD else before
            after = "" if each.action is Action.DELETE else after
            yield Cells(escape_invisible(path + where), each.action, before, after, note, forces)
        if not inner:
            old, new = values_of(change)
            before = "" if change.action is Action.ADD else _value(old)
            after = "" if change.action is Action.DELETE else _value(new)
            yield Cells(escape_invisible(path), change.action, before, after, note, forces)


def _value(value: Any) -> str:
    lines = multiline(value).split("\n")
    return truncate("\n".join(map(escape_invisible, lines)), _LONGEST_VALUE)


LIMIT: Final = 1_500_000
"""More than that a browser shows slowly, and nobody reads."""

_LONGEST_LINE: Final = 1_000


def html(review: Review) -> str:
    """The page."""
    filters: Filters = {
        **FACTS,
        "line": line,
        "lines": lines,
        "ticked": ticked,
        "cells": cells,
        "leaving_lines": leaving_lines,
        "output_cells": output_cells,
    }
    text = document(review, Form("html", LIMIT, filters, {}))
    return re.sub(r"\n{2,}", "\n", text).strip() + "\n"


def line(text: str) -> str:
    """Text on one line, in which nothing is hidden."""
    return truncate(escape_invisible(text), _LONGEST_LINE)


def lines(text: str) -> Markup:
    """Text on its own lines."""
    return Markup("<br>").join(line(each) for each in text.split("\n"))


def ticked(text: str) -> Markup:
    """Our own text, with what stands between backticks as code."""
    return Markup(re.sub(r"`(.*?)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped


def cells(change: ResourceChange) -> list[Cells]:
    """A resource's property changes."""
    return list(change_cells(shown_properties(change), change.type))


def output_cells(change: PropertyChange) -> list[Cells]:
    """An output's change."""
    return list(change_cells([change], ""))


_LONGEST_VALUE: Final = 4_000

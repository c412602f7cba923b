"""A review as one page of HTML: nothing to load, no script, readable by everyone."""

import re
from typing import Final

from markupsafe import Markup, escape

from gpuform.schemas.plan import PropertyChange, ResourceChange
from gpuform.schemas.visible import shortened, visible
from gpuform.stacks.review.facts import Review
from gpuform.stacks.review.leaving_text import leaving_lines
from gpuform.stacks.review.pages.cells import Cells, change_cells
from gpuform.stacks.review.pages.document import FACTS, Filters, Form, document
from gpuform.stacks.review.reasons import shown_properties

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
    return shortened(visible(text), _LONGEST_LINE)


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

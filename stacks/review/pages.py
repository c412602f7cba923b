"""Render a review as a page: Markdown for pull requests, HTML, or JSON; called by `gpuform review`.

Foreign text cannot format, link or break Markdown: names and values stand in code, where GitHub and
GitLab resolve no mentions, references and links; only plain words stand outside of code. The HTML
page is accessible, without scripts or external resources. The JSON has the facts of every stack,
and each complete plan.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup, escape

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PropertyChange, ResourceChange
from gpuform.schemas.safe_text import escape_invisible, truncate
from gpuform.stacks.review.dangers import Risk, list_forcing_paths, select_visible_changes
from gpuform.stacks.review.differences import (
    Row,
    build_change_rows,
    get_note,
    get_plan_values,
    list_differences,
)
from gpuform.stacks.review.document import FACTS, Filters, PageFormat, render_document
from gpuform.stacks.review.facts import GpuCount, Review, RiskyChange, StackFacts
from gpuform.stacks.review.summary_text import render_removals
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


def build_html_rows(changes: Iterable[PropertyChange], type_: str) -> Iterator[ChangeRow]:
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


HTML_LIMIT: Final = 1_500_000
"""Characters of a page: browsers render longer ones slowly, and nobody reads them."""

_LONGEST_LINE: Final = 1_000


def render_html(review: Review) -> str:
    """Render the review of plans as an HTML page."""
    filters: Filters = {
        **FACTS,
        "line": format_line,
        "lines": format_lines,
        "ticked": format_ticked,
        "cells": list_property_rows,
        "leaving_lines": render_removals,
        "output_cells": list_output_rows,
    }
    page = render_document(review, PageFormat("html", HTML_LIMIT, filters, {}))
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
    return list(build_html_rows(select_visible_changes(change), change.type))


def list_output_rows(change: PropertyChange) -> list[ChangeRow]:
    """List the HTML table rows for the change of an output."""
    return list(build_html_rows([change], ""))


_LONGEST_VALUE: Final = 4_000


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
    """Return `text` unchanged if every word is plain, else as a code span.

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
    return "\n".join([*rows, *(f"- {escape_invisible(line)}" for line in render_removals(change))])


def render_output_diff(change: PropertyChange, stack: str) -> str:
    """Render an output's change as diff lines, below the stack's name if `stack` is not empty."""
    lines = [_format_row(row) for row in build_change_rows([change], "")]
    return "\n".join([f"  {stack}:", *lines] if stack else lines)


def _format_row(row: Row) -> str:
    """Format a row as a line of a `diff` block: the mark, the indentation, the text."""
    return f"{_MARKS.get(row.mark, row.mark)} {'    ' * row.depth}{row.text}"


FORMAT_VERSION: Final = "1"
"""Grows when a reader of the old format would misread the new one."""


def build_review_document(review: Review) -> dict[str, Any]:
    """Build the JSON document of a review. The results of gates over all stacks are left out.

    `rehearsal` is the one of all stacks together.
    """
    rehearsal = review.combined.rehearsal if review.combined is not None else None
    return {
        "format_version": FORMAT_VERSION,
        "digest": review.digest,
        "failed": review.has_failed,
        **_totals_to_json(review),
        "unchecked": review.unchecked,
        "dangers": [
            _weakened_gate_to_json(weakening)
            for stack, weakening in review.weakened_gates
            if stack is None
        ],
        "rehearsal": rehearsal.model_dump() if rehearsal is not None else None,
        "stacks": [_stack_to_json(stack) for stack in review.stacks],
    }


def _stack_to_json(stack: StackFacts) -> dict[str, Any]:
    """Return the facts and the complete plan of a stack as JSON."""
    return {
        "project": stack.plan.project,
        "stack": stack.plan.stack,
        "operation": stack.plan.operation,
        "errors": [*stack.plan.errors],
        **_totals_to_json(stack),
        "dangers": [
            *map(_weakened_gate_to_json, stack.plan.weakened_gates),
            *(_danger_to_json(subject) for subject in stack.subjects if subject.danger),
        ],
        "stopped_by": [gate.name for gate in stack.plan.gates or () if gate.is_blocking],
        "command": stack.command,
        "plan": stack.plan.model_dump(),
    }


def _totals_to_json(facts: StackFacts | Review) -> dict[str, Any]:
    """Return the counts by action, and the removed and added GPUs, as JSON."""
    return {
        "counts": {str(action): count for action, count in facts.counts.items()},
        "gpus_removed": _gpus_to_json(facts.gpus_removed),
        "gpus_added": _gpus_to_json(facts.gpus_added),
    }


def _gpus_to_json(gpu_count: GpuCount) -> dict[str, Any]:
    """Return a count of GPUs as JSON; `exact` is false if a part of the number is unknown."""
    return {"count": gpu_count.known, "exact": gpu_count.exact}


def _weakened_gate_to_json(text: str) -> dict[str, Any]:
    """Return a weakened gate in the form of a dangerous change, without a resource."""
    return {
        "urn": "",
        "action": "",
        "risk": str(Risk.WEAKENS_GATES),
        "text": text,
        "forced_by": [],
        "gpus_removed": 0,
    }


def _danger_to_json(subject: RiskyChange) -> dict[str, Any]:
    """Return a change with the danger as JSON; `risk` and `text` are empty without a danger."""
    change, danger = subject.change, subject.danger
    return {
        "urn": change.urn,
        "action": str(change.action),
        "risk": str(danger.risk) if danger else "",
        "text": danger.text if danger else "",
        "forced_by": [*list_forcing_paths(change)],
        "gpus_removed": change.gpus_removed,
    }

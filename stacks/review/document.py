"""Render a review as one document that fits a length limit, the dangerous changes first.

Each format has two templates: the pieces (each item in brief and in full) and the page around them.
The page keeps its counts and says how many items it leaves out. `markdown_page` and `html_page`
call `render_document`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined

from gpuform.schemas.rehearsal import Rehearsal
from gpuform.schemas.safe_text import truncate
from gpuform.stacks.review.dangers import list_causes
from gpuform.stacks.review.facts import (
    FAILED_NEXT_STEP,
    Review,
    describe_validity,
    format_gate_counts,
    format_gpu_changes,
    format_planned_counts,
    format_weakened_gates,
    to_property_change,
)
from gpuform.stacks.review.rehearsal_text import format_outcomes, format_verdict
from gpuform.stacks.review.summary_text import (
    format_gate,
    format_notice,
    format_plan_cost,
    format_repairs,
    format_unchecked_warning,
    list_cost_details,
)
from gpuform.stacks.review.value_text import counted, short_type

_MAX_MISSES: Final = 20
"""After so many items in a row that are too long, the search for one that fits ends."""


@dataclass(frozen=True, slots=True)
class Item:
    """Hold one item: a line in `brief`, everything in `full`; rendered when needed."""

    brief: Callable[[], str]
    full: Callable[[], str] | None = None


@dataclass(slots=True)
class Part:
    """Hold the items under one heading.

    A share is the fraction of the document that may be filled after items of this form are added,
    so that later parts keep some room.
    """

    items: Sequence[Item]
    brief_share: float = 1.0
    full_share: float = 1.0
    texts: dict[int, str] = field(default_factory=dict)
    in_brief: set[int] = field(default_factory=set)

    @property
    def shown(self) -> list[tuple[str, bool]]:
        """Return the chosen items in order, each with True for the brief form."""
        return [(self.texts[index], index in self.in_brief) for index in sorted(self.texts)]

    @property
    def left_out(self) -> int:
        """Count the items left out of the document for lack of space."""
        return len(self.items) - len(self.texts)

    @property
    def without_detail(self) -> int:
        """Count the review's items shown in brief though a longer form exists."""
        return sum(self.items[index].full is not None for index in self.in_brief)


def count_characters(text: str) -> int:
    """Count characters as code hosts do: one outside of Unicode's first plane counts twice."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def choose_item_forms(parts: Sequence[Part], limit: int) -> None:
    """Choose the form of every item, with at most `limit` characters for all together.

    Fills `texts` and `in_brief` of the parts; an item without room is left out. The first round
    keeps to the shares; the second one gives away the remaining room.
    """
    used = 0
    for ignores_shares in (False, True):
        for part in parts:
            share = 1.0 if ignores_shares else part.brief_share
            used = _add_brief(part, used, int(limit * share))
            share = 1.0 if ignores_shares else part.full_share
            used = _add_full_items(part, used, int(limit * share))


def _add_brief(part: Part, used: int, limit: int) -> int:
    """Add brief forms of further items up to the limit; return the characters used in all.

    Ends at the first item that does not fit.
    """
    for index in range(len(part.texts), len(part.items)):
        brief = part.items[index].brief()
        size = count_characters(brief) + 2
        if used + size > limit:
            break
        part.texts[index] = brief
        part.in_brief.add(index)
        used += size
    return used


def _add_full_items(part: Part, used: int, limit: int) -> int:
    """Replace brief forms by full forms while there is space; return the total of characters used.

    Gives up after `_MAX_MISSES` items in a row that do not fit.
    """
    misses = 0
    # One long item must not hide the shorter ones after it.
    for index in sorted(part.in_brief):
        make = part.items[index].full
        if make is None:
            continue
        full_text = make()
        more = count_characters(full_text) - count_characters(part.texts[index])
        if used + more > limit:
            misses += 1
            if misses == _MAX_MISSES:
                break
            continue
        misses = 0
        part.texts[index] = full_text
        part.in_brief.discard(index)
        used += more
    return used


_MAX_BRIEF_LENGTH: Final = 200
"""Characters of an error in brief."""

_NOTES_RESERVE: Final = 400
"""Characters reserved for the notes that say what is in brief or left out."""


_SHARES: Final = {
    "errors": (0.12, 0.12),
    "stacks": (0.15, 0.15),
    "costs": (0.2, 0.2),
    "repairs": (0.22, 0.22),
    "notices": (0.25, 0.25),
    "gates": (0.3, 0.3),
    "hazards": (0.33, 0.33),
    "commands": (0.35, 0.35),
    "unchecked": (0.4, 0.4),
    "dangerous": (0.6, 0.8),
    "others": (0.9, 0.95),
    "outputs": (1.0, 1.0),
}
"""The parts of a document and the fractions it may be filled to: in brief, and in full."""

Filters: TypeAlias = dict[str, Callable[..., Any]]

FACTS: Final[Filters] = {
    "causes": list_causes,
    "gates_counted": format_gate_counts,
    "gpus": lambda number: counted(number, "GPU"),
    "gpus_text": format_gpu_changes,
    "planned_text": format_planned_counts,
    "short_type": short_type,
    "unchecked_line": format_unchecked_warning,
    "weakened_text": format_weakened_gates,
    "validity": lambda review: FAILED_NEXT_STEP if review.has_failed else describe_validity(review),
}
"""Template filters that all formats share, so that they use the same words."""


@dataclass(frozen=True, slots=True)
class PageFormat:
    """Describe a format: `kind` names its templates, `options` are passed to them."""

    kind: str
    limit: int
    filters: Filters
    options: dict[str, Any]


def render_document(review: Review, form: PageFormat) -> str:
    """Render the review, at most as long as the format's limit if the page without items fits."""
    environment = _create_environment(form)
    page = environment.get_template(f"page.{form.kind}.j2")
    pieces: Any = environment.get_template(f"pieces.{form.kind}.j2").make_module(form.options)

    def render_page(parts: dict[str, Part]) -> str:
        return page.render(review=review, **form.options, **parts)

    items = _build_items(review, pieces)
    # The page without items shows the length of everything around them.
    available = form.limit - count_characters(render_page(_build_parts(items))) - _NOTES_RESERVE
    while True:
        parts = _build_parts(items)
        choose_item_forms(list(parts.values()), max(available, 0))
        rendered = render_page(parts)
        excess = count_characters(rendered) - form.limit
        if excess <= 0 or available <= 0:
            return rendered
        # Escaping and notes make the page longer than its items: try again with less room.
        available -= excess + _NOTES_RESERVE


def _create_environment(form: PageFormat) -> Environment:
    """Create the Jinja environment of a format: only HTML is escaped, unknown names are errors."""
    environment = Environment(
        loader=PackageLoader("gpuform.stacks.review"),
        autoescape=form.kind == "html",  # noqa: S701 - Markdown has escapes of its own
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(form.filters)
    return environment


def _build_parts(items: dict[str, list[Item]]) -> dict[str, Part]:
    """Build the parts in the order in which room is given away."""
    return {name: Part(items[name], brief, full) for name, (brief, full) in _SHARES.items()}


def _build_items(review: Review, pieces: Any) -> dict[str, list[Item]]:
    """Build every item of the review, by the part of the document."""
    is_multi_stack = len(review.stacks) > 1
    items: dict[str, list[Item]] = {name: [] for name in _SHARES}
    _add_combined_items(review, pieces, items)
    for weakened_stack, weakening in review.weakened_gates:
        is_named = is_multi_stack and weakened_stack is not None
        items["dangerous"].append(
            Item(partial(_render_piece, pieces.weakened, weakened_stack, weakening, is_named))
        )
    for stack, subject in review.subjects:
        facts = (stack, subject, is_multi_stack)
        item = Item(
            partial(_render_piece, pieces.brief, *facts),
            partial(_render_piece, pieces.whole, *facts),
        )
        items["others" if subject.danger is None else "dangerous"].append(item)
    for stack in review.stacks:
        # A table of one stack would repeat the heading.
        if is_multi_stack:
            items["stacks"].append(Item(partial(_render_piece, pieces.stack, stack)))
        if stack.plan.cost is not None:
            for line in (format_plan_cost(stack.plan.cost), *list_cost_details(stack.plan.cost)):
                items["costs"].append(
                    Item(partial(_render_piece, pieces.line, stack, line, is_multi_stack))
                )
        for error in stack.plan.errors:
            short_error = truncate(error.split("\n")[0], _MAX_BRIEF_LENGTH)
            brief = partial(_render_piece, pieces.line, stack, short_error, is_multi_stack)
            items["errors"].append(
                Item(brief, partial(_render_piece, pieces.line, stack, error, is_multi_stack))
            )
        lines = {
            "repairs": format_repairs(stack.plan),
            "notices": map(format_notice, stack.plan.notices),
            "gates": map(format_gate, stack.plan.gates or ()),
            "hazards": _list_hazard_lines(stack.plan.rehearsal),
            "unchecked": stack.plan.unchecked,
        }
        for part, texts in lines.items():
            items[part] += [
                Item(partial(_render_piece, pieces.line, stack, line, is_multi_stack))
                for line in texts
            ]
        for output in map(to_property_change, stack.plan.outputs):
            items["outputs"].append(
                Item(partial(_render_piece, pieces.output, stack, output, is_multi_stack))
            )
    return items


def _list_hazard_lines(rehearsal: Rehearsal | None) -> list[str]:
    """List the verdict and the outcomes of a rehearsal; empty for None."""
    if rehearsal is None:
        return []
    return [f"{format_verdict(rehearsal)}:", *format_outcomes(rehearsal)]


def _add_combined_items(review: Review, pieces: Any, items: dict[str, list[Item]]) -> None:
    """Add the apply commands, and the results of the gates over all stacks."""
    is_multi_stack = len(review.stacks) > 1 and review.combined is None
    for stack, command in review.commands:
        items["commands"].append(
            Item(partial(_render_piece, pieces.command, stack, command, is_multi_stack))
        )
    for gate in review.combined.gates if review.combined is not None else ():
        line = f"all stacks: {format_gate(gate)}"
        items["gates"].append(Item(partial(_render_piece, pieces.line, None, line, False)))
    rehearsal = review.combined.rehearsal if review.combined is not None else None
    for number, line in enumerate(_list_hazard_lines(rehearsal)):
        text = line if number else f"all stacks together: {line}"
        items["hazards"].append(Item(partial(_render_piece, pieces.line, None, text, False)))


def _render_piece(piece: Callable[..., Any], *facts: Any) -> str:
    """Render an item by a macro of the template, without line breaks at the ends."""
    return str(piece(*facts)).strip("\n")

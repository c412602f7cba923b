"""Build a review as one document that is never too long: what is dangerous in full, the rest as it
fits.

A form has two templates: the pieces (each item whole and in brief), and the page around them. The
page has its counts whatever is left out, and says how much that is.

It knows nothing of what it fits: items come in two forms, in the order of their importance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined

from gpuform.schemas.safe_text import truncate
from gpuform.stacks.review.dangers import causes
from gpuform.stacks.review.facts import (
    FAILED,
    Review,
    as_property,
    gates_counted,
    gpus_text,
    planned_text,
    validity,
)
from gpuform.stacks.review.summary_text import (
    cost_facts,
    gate_text,
    notice_text,
    plan_cost_text,
    repair_texts,
    unchecked_line,
)
from gpuform.stacks.review.value_text import counted, short_type

_MISSES: Final = 20
"""So many items in a row that are too long end the search for one that fits."""


@dataclass(frozen=True, slots=True)
class Item:
    """`brief` is a line, `whole` all there is to tell; both are made when they are needed."""

    brief: Callable[[], str]
    whole: Callable[[], str] | None = None


@dataclass(slots=True)
class Part:
    """Items under one heading.

    The shares are how far the document may be filled when the form in question is added: what
    comes later in importance is so sure of some room.
    """

    items: Sequence[Item]
    brief_share: float = 1.0
    whole_share: float = 1.0
    texts: dict[int, str] = field(default_factory=dict)
    in_brief: set[int] = field(default_factory=set)

    @property
    def shown(self) -> list[tuple[str, bool]]:
        """The items chosen, in their order, and whether each is in brief."""
        return [(self.texts[at], at in self.in_brief) for at in sorted(self.texts)]

    @property
    def left_out(self) -> int:
        return len(self.items) - len(self.texts)

    @property
    def without_detail(self) -> int:
        """How many are in brief though there is more to tell of them."""
        return sum(self.items[at].whole is not None for at in self.in_brief)


def length(text: str) -> int:
    """Characters as forges count them: one outside of Unicode's first plane counts twice."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def fit(parts: Sequence[Part], limit: int) -> None:
    """Chooses the form of every item, so that all of them together are not longer than `limit`.

    In two rounds: one that keeps to the shares, and one that gives away what is left.
    """
    used = 0
    for bound in (False, True):
        for part in parts:
            share = 1.0 if bound else part.brief_share
            used = _add_brief(part, used, int(limit * share))
            share = 1.0 if bound else part.whole_share
            used = _add_whole_items(part, used, int(limit * share))


def _add_brief(part: Part, used: int, limit: int) -> int:
    for at in range(len(part.texts), len(part.items)):
        text = part.items[at].brief()
        size = length(text) + 2
        if used + size > limit:
            break
        part.texts[at] = text
        part.in_brief.add(at)
        used += size
    return used


def _add_whole_items(part: Part, used: int, limit: int) -> int:
    misses = 0
    for at in sorted(part.in_brief):
        make = part.items[at].whole
        if make is None:
            continue
        text = make()
        more = length(text) - length(part.texts[at])
        if used + more > limit:
            misses += 1
            if misses == _MISSES:
                break
            continue
        misses = 0
        part.texts[at] = text
        part.in_brief.discard(at)
        used += more
    return used


_LONGEST_BRIEF: Final = 200
"""Characters of an error in brief."""

_SPARE: Final = 400
"""Room for the sentences that tell what is in brief."""


_SHARES: Final = {
    "errors": (0.12, 0.12),
    "stacks": (0.15, 0.15),
    "costs": (0.2, 0.2),
    "repairs": (0.22, 0.22),
    "notices": (0.25, 0.25),
    "gates": (0.3, 0.3),
    "commands": (0.35, 0.35),
    "unchecked": (0.4, 0.4),
    "dangerous": (0.6, 0.8),
    "others": (0.9, 0.95),
    "outputs": (1.0, 1.0),
}
"""The parts of a document, and how far it may be filled by each: in brief, and whole."""

Filters: TypeAlias = dict[str, Callable[..., Any]]

FACTS: Final[Filters] = {
    "causes": causes,
    "gates_counted": gates_counted,
    "gpus": lambda number: counted(number, "GPU"),
    "gpus_text": gpus_text,
    "planned_text": planned_text,
    "short_type": short_type,
    "unchecked_line": unchecked_line,
    "validity": lambda review: FAILED if review.has_failed else validity(review),
}
"""What all forms say in the same words."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a review is written: `kind` names the templates; `options` are theirs alone."""

    kind: str
    limit: int
    filters: Filters
    options: dict[str, Any]


def document(review: Review, form: Form) -> str:
    """The review in this form, not longer than the form's limit."""
    environment = _environment(form)
    page = environment.get_template(f"page.{form.kind}.j2")
    pieces: Any = environment.get_template(f"pieces.{form.kind}.j2").make_module(form.options)

    def written(parts: dict[str, Part]) -> str:
        return page.render(review=review, **form.options, **parts)

    items = _items(review, pieces)
    room = form.limit - length(written(_parts(items))) - _SPARE
    while True:
        parts = _parts(items)
        fit(list(parts.values()), max(room, 0))
        text = written(parts)
        over = length(text) - form.limit
        if over <= 0 or room <= 0:
            return text
        room -= over + _SPARE


def _environment(form: Form) -> Environment:
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


def _parts(items: dict[str, list[Item]]) -> dict[str, Part]:
    """In the order in which room is given away."""
    return {name: Part(items[name], brief, whole) for name, (brief, whole) in _SHARES.items()}


def _items(review: Review, pieces: Any) -> dict[str, list[Item]]:
    """Everything that there is to tell, by its part of the document."""
    several = len(review.stacks) > 1
    made: dict[str, list[Item]] = {name: [] for name in _SHARES}
    _add_whole(review, pieces, made)
    for stack, subject in review.subjects:
        facts = (stack, subject, several)
        item = Item(partial(_text, pieces.brief, *facts), partial(_text, pieces.whole, *facts))
        made["others" if subject.danger is None else "dangerous"].append(item)
    for stack in review.stacks:
        if several:
            made["stacks"].append(Item(partial(_text, pieces.stack, stack)))
        if stack.plan.cost is not None:
            for text in (plan_cost_text(stack.plan.cost), *cost_facts(stack.plan.cost)):
                made["costs"].append(Item(partial(_text, pieces.line, stack, text, several)))
        for error in stack.plan.errors:
            first = truncate(error.split("\n")[0], _LONGEST_BRIEF)
            brief = partial(_text, pieces.line, stack, first, several)
            made["errors"].append(Item(brief, partial(_text, pieces.line, stack, error, several)))
        lines = {
            "repairs": repair_texts(stack.plan),
            "notices": map(notice_text, stack.plan.notices),
            "gates": map(gate_text, stack.plan.gates or ()),
            "unchecked": stack.plan.unchecked,
        }
        for part, texts in lines.items():
            made[part] += [
                Item(partial(_text, pieces.line, stack, text, several)) for text in texts
            ]
        for output in map(as_property, stack.plan.outputs):
            made["outputs"].append(Item(partial(_text, pieces.output, stack, output, several)))
    return made


def _add_whole(review: Review, pieces: Any, made: dict[str, list[Item]]) -> None:
    """What applies the plans, and what the gates over all of them say."""
    several = len(review.stacks) > 1 and review.whole is None
    for stack, command in review.commands:
        made["commands"].append(Item(partial(_text, pieces.command, stack, command, several)))
    for gate in review.whole.gates if review.whole is not None else ():
        text = f"all stacks: {gate_text(gate)}"
        made["gates"].append(Item(partial(_text, pieces.line, None, text, False)))


def _text(piece: Callable[..., Any], *facts: Any) -> str:
    return str(piece(*facts)).strip("\n")

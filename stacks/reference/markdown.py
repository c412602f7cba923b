"""Pieces of pages in Markdown: the head, tables, links and anchors."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

MARK: Final = "<!-- Generated: python -m gpuform.stacks.generated -->"
"""Stands in each generated page, for whoever wants to change it."""


def page(title: str, lead: str, parts: Iterable[str]) -> str:
    """A whole page. `lead` says first what the reader gets from it."""
    texts = [f"# {title}", MARK, lead, *parts]
    return "\n\n".join(text.strip("\n") for text in texts if text.strip()) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells may hold any text. Nothing where there is no row."""
    lines = [[_cell(cell) for cell in row] for row in rows]
    if not lines:
        return ""
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *lines])


def link_to(title: str) -> str:
    """The address of a heading of the same page."""
    words = re.sub(r"[^\w\s-]", "", title).strip().lower()
    return "#" + re.sub(r"[-\s]+", "-", words)


def listed(names: Iterable[str]) -> str:
    """Names as code, with commas between them."""
    return ", ".join(f"`{name}`" for name in names)


def kebab(name: str) -> str:
    """`NodePool` as `node-pool`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def plain(text: str) -> str:
    """Prose in which nothing is taken for marks or HTML: `<name>` becomes code where it is none."""
    return _outside_code(_outside_code(text, _with_names_as_code), _escaped)


def _outside_code(text: str, changed: Callable[[str], str]) -> str:
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(each if each.startswith("`") else changed(each) for each in pieces)


def _with_names_as_code(text: str) -> str:
    return re.sub(r"(?:<[^<>]*>)+", r"`\g<0>`", text)


def _escaped(text: str) -> str:
    marks = re.sub(r"(\*|(?<!\w)_+|_+(?!\w))", lambda found: re.sub("(.)", r"\\\1", found[1]), text)
    return marks.replace("<", "&lt;")


def _cell(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text).replace("|", "\\|")

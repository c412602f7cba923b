"""Find and read the pages of the installed documentation, for `gpuform help` and the MCP server.

A page's name is its path below docs/ without `.md`.
"""

import posixpath
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Final

from gpuform.schemas.errors import EngineError

PACKAGE: Final = "gpuform.docs"
"""The package with the pages, in a clone and in an installed wheel."""

TOPICS: Final = {
    **dict.fromkeys(
        ("gate", "gates", "cost", "policy", "policies", "waiver", "waive", "rego", "opa"),
        "guides/gates-and-cost",
    ),
    **dict.fromkeys(("split", "move"), "guides/split-a-stack"),
    **dict.fromkeys(("compare", "dstack", "skypilot", "opentofu"), "concepts/beside"),
    **dict.fromkeys(("words", "terms"), "concepts/glossary"),
    **dict.fromkeys(("drain", "drains", "cordon", "eviction", "shrink"), "concepts/taking-nodes"),
    **dict.fromkeys(("workspace", "workspaces", "tfstate"), "concepts/stack"),
    **dict.fromkeys(("environment", "variables", "keys"), "reference/configuration"),
    **dict.fromkeys(("backend", "backends", "lock", "locks"), "guides/state-for-a-team"),
    **dict.fromkeys(
        ("context", "fleet", "locals", "moved", "namespace", "partition", "terms", "words"),
        "concepts/glossary",
    ),
    **dict.fromkeys(("existing", "adoption"), "guides/adopt"),
    **dict.fromkeys(("ttl", "idle", "schedule"), "guides/drift-and-expiry"),
    **dict.fromkeys(("exit", "codes"), "reference/exit-codes"),
    **dict.fromkeys(("module",), "guides/modules"),
    **dict.fromkeys(("secret",), "guides/secrets"),
}
"""Words that people search for, and the page about each. No page is named like them."""

_COMMENT: Final = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_FENCED: Final = re.compile(r"(?ms)^( *)(`{3,})[^\n`]*\n.*?^ *\2`*[ \t]*$")
_IMAGE: Final = re.compile(r"!\[[^\]]*\]\([^)]*\)(?:\{[^}]*\})?")
_LINK: Final = re.compile(r"\]\((?=[^)])(?P<page>[^)\s#:]+\.md)?(?P<anchor>#[^)\s]+)?\)")
_HEADING: Final = re.compile(r"(?m)^(?P<level>#{1,6}) +(?P<text>.+?) *$")


class UnknownPage(EngineError):
    """Raised for an unknown page or section; the hint has the nearest ones."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page in Markdown, without comments and pictures; links are names of pages."""

    name: str
    text: str

    @property
    def title(self) -> str:
        """Return the page's first heading, or the page's name."""
        heading = _HEADING.search(self.text)
        return heading["text"] if heading else self.name

    def get_section(self, anchor: str) -> str:
        """Return the section with this anchor, up to the next heading of the level or above.

        Raises:
            UnknownPage: no heading has this anchor.
        """
        headings = list(_find_headings(self.text))
        for index, (begin, level, slug) in enumerate(headings):
            if slug == anchor:
                ends = (
                    start for start, next_level, _ in headings[index + 1 :] if next_level <= level
                )
                return self.text[begin : next(ends, len(self.text))].rstrip() + "\n"
        raise UnknownPage(
            f"the page {self.name} has no section {anchor}",
            hint=_suggest_names(
                f"{self.name}#{anchor}", [f"{self.name}#{slug}" for *_, slug in headings]
            )
            or f"complete page: gpuform help {self.name}",
        )


def list_page_names() -> list[str]:
    """Return all names, sorted; the index page of a folder comes first in the folder."""
    names = {
        file.relative_to(folder).with_suffix("").as_posix()
        for folder in find_page_folders()
        for file in folder.rglob("*.md")
    }
    # The index page sorts as the folder itself.
    return sorted(names, key=lambda name: name.removesuffix("index").split("/"))


def read_page(name: str) -> Page:
    """Return the page with a name of `list_page_names`."""
    file = next(path for folder in find_page_folders() if (path := folder / f"{name}.md").exists())
    return Page(name, _clean_markdown(file.read_text(encoding="utf-8"), name))


def find_page(query: str) -> str:
    """Return the name of the page with this name, or with this end of a name.

    Raises:
        UnknownPage: no page matches, or several do.
    """
    names = list_page_names()
    page_name = query.strip("/").removesuffix(".md")
    exact_matches = [name for name in (page_name, f"{page_name}/index") if name in names]
    matches = exact_matches or [name for name in names if _ends_with(name, page_name)]
    if not matches and page_name.lower() in TOPICS:
        return TOPICS[page_name.lower()]
    if not matches:
        hint = _suggest_names(page_name, names)
        raise UnknownPage(f"unknown page {query}", hint=hint or "all pages: gpuform help")
    if len(matches) > 1 and not exact_matches:
        choice = "\n".join(f"gpuform help {name}" for name in matches)
        raise UnknownPage(f"several pages are named {query}", hint=choice)
    return matches[0]


def find_page_folders() -> list[Path]:
    """Return the folders with pages.

    The package `gpuform.docs` has no modules, and `importlib.resources` does not find it in a
    clone.
    """
    return [path for path in map(Path, import_module(PACKAGE).__path__) if path.is_dir()]


def _ends_with(name: str, suffix: str) -> bool:
    """Return True if `suffix` is the last parts of a page's name, without a final `/index`."""
    return f"/{name}".removesuffix("/index").endswith(f"/{suffix}")


def _suggest_names(query: str, names: list[str]) -> str | None:
    """Return a hint with names similar to the query or to the query's end, or None."""
    names_by_last_part = {name.rpartition("/")[2]: name for name in names}
    similar_names = get_close_matches(query, names, n=3) or [
        names_by_last_part[last_part]
        for last_part in get_close_matches(query.rpartition("/")[2], names_by_last_part, n=3)
    ]
    return f"did you mean {' or '.join(similar_names)}?" if similar_names else None


def _clean_markdown(markdown: str, name: str) -> str:
    """Return a page without comments and pictures; fenced blocks stay unchanged."""
    parts = (
        part if is_fenced else _clean_prose(part, name)
        for is_fenced, part in _split_fenced_blocks(markdown)
    )
    return "".join(parts).strip() + "\n"


def _split_fenced_blocks(markdown: str) -> Iterator[tuple[bool, str]]:
    """Yield (is_fenced, part) for the fenced blocks of a page and the parts between."""
    end = 0
    for fenced in _FENCED.finditer(markdown):
        yield False, markdown[end : fenced.start()]
        yield True, fenced[0]
        end = fenced.end()
    yield False, markdown[end:]


def _clean_prose(markdown: str, name: str) -> str:
    """Return Markdown without comments and pictures, with the page names in place of linked files.

    `name` is the page of the Markdown: links are relative to its folder.
    """

    def rewrite_link(link: re.Match[str]) -> str:
        page = name
        if link["page"]:
            folder = posixpath.dirname(name)
            page = posixpath.normpath(posixpath.join(folder, link["page"].removesuffix(".md")))
        return f"]({page}{link['anchor'] or ''})"

    markdown = _IMAGE.sub("", _COMMENT.sub("", markdown))
    return re.sub(r"\n{3,}", "\n\n", _LINK.sub(rewrite_link, markdown))


def _find_headings(markdown: str) -> Iterator[tuple[int, int, str]]:
    """Yield the offset, the level and the anchor of each heading; anchors are the site's."""
    begin = 0
    used_anchors: set[str] = set()
    for is_fenced, part in _split_fenced_blocks(markdown):
        # A `#` in a code block begins a comment, not a heading.
        for heading in () if is_fenced else _HEADING.finditer(part):
            slug = _build_anchor(heading["text"])
            number = 0
            # Python-Markdown numbers equal anchors in the same way.
            while (unique := f"{slug}_{number}" if number else slug) in used_anchors:
                number += 1
            used_anchors.add(unique)
            yield begin + heading.start(), len(heading["level"]), unique
        begin += len(part)


def _build_anchor(heading: str) -> str:
    """Return a heading's anchor in Python-Markdown's form."""
    title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    ascii_title = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_title).strip().lower())


__all__ = ["Page", "UnknownPage", "find_page", "list_page_names", "read_page"]

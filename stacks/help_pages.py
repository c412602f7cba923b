"""Find and read the pages of the documentation that is installed with gpuform.

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

from gpuform.stacks.engine.errors import EngineError

PACKAGE: Final = "gpuform.docs"
"""Where the pages are, of a clone and of an installed wheel."""

_COMMENT: Final = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_FENCED: Final = re.compile(r"(?ms)^( *)(`{3,})[^\n`]*\n.*?^ *\2`*[ \t]*$")
_IMAGE: Final = re.compile(r"!\[[^\]]*\]\([^)]*\)(?:\{[^}]*\})?")
_LINK: Final = re.compile(r"\]\((?=[^)])(?P<page>[^)\s#:]+\.md)?(?P<anchor>#[^)\s]+)?\)")
_HEADING: Final = re.compile(r"(?m)^(?P<level>#{1,6}) +(?P<text>.+?) *$")


class NoSuchPage(EngineError):
    """No page, or no part of one, has that name; the hint has the nearest ones."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page as Markdown, without comments and pictures; its links are names of pages."""

    name: str
    text: str

    @property
    def title(self) -> str:
        """Its first heading."""
        found = _HEADING.search(self.text)
        return found["text"] if found else self.name

    def section(self, anchor: str) -> str:
        """The part below the heading with this anchor. Raises NoSuchPage."""
        headings = list(_headings(self.text))
        for at, (begin, level, slug) in enumerate(headings):
            if slug == anchor:
                ends = (start for start, other, _ in headings[at + 1 :] if other <= level)
                return self.text[begin : next(ends, len(self.text))].rstrip() + "\n"
        raise NoSuchPage(
            f"the page {self.name} has no part {anchor}",
            hint=_nearest(f"{self.name}#{anchor}", [f"{self.name}#{slug}" for *_, slug in headings])
            or f"the whole page: gpuform help {self.name}",
        )


def page_names() -> list[str]:
    """All names, sorted; the first page of a folder stands before the others."""
    found = {
        file.relative_to(folder).with_suffix("").as_posix()
        for folder in page_folders()
        for file in folder.rglob("*.md")
    }
    return sorted(found, key=lambda name: name.removesuffix("index").split("/"))


def read_page(name: str) -> Page:
    """The page of a name of `page_names`."""
    file = next(path for folder in page_folders() if (path := folder / f"{name}.md").exists())
    return Page(name, _readable(file.read_text(encoding="utf-8"), name))


def find_page(given: str) -> str:
    """The name of the page that somebody means by a name, or by the end of one.

    Raises NoSuchPage.
    """
    names = page_names()
    wanted = given.strip("/").removesuffix(".md")
    exact = [name for name in (wanted, f"{wanted}/index") if name in names]
    found = exact or [name for name in names if _ends(name, wanted)]
    if not found:
        hint = _nearest(wanted, names)
        raise NoSuchPage(f"there is no page {given}", hint=hint or "all pages: gpuform help")
    if len(found) > 1 and not exact:
        choice = "\n".join(f"gpuform help {name}" for name in found)
        raise NoSuchPage(f"several pages are called {given}", hint=choice)
    return found[0]


def page_folders() -> list[Path]:
    """Return the folders of the pages.

    Their package has no modules, and `importlib.resources` does not find it in a clone.
    """
    return [path for path in map(Path, import_module(PACKAGE).__path__) if path.is_dir()]


def _ends(name: str, wanted: str) -> bool:
    return f"/{name}".removesuffix("/index").endswith(f"/{wanted}")


def _nearest(wanted: str, names: list[str]) -> str | None:
    """By the whole name, else by its last part."""
    last = {name.rpartition("/")[2]: name for name in names}
    near = get_close_matches(wanted, names, n=3) or [
        last[each] for each in get_close_matches(wanted.rpartition("/")[2], last, n=3)
    ]
    return f"did you mean {' or '.join(near)}?" if near else None


def _readable(text: str, name: str) -> str:
    """What stands in fenced blocks stays as it is."""
    parts = (part if is_fenced else _prose(part, name) for is_fenced, part in _split(text))
    return "".join(parts).strip() + "\n"


def _split(text: str) -> Iterator[tuple[bool, str]]:
    """The parts of a page in order, and whether each is a fenced block."""
    end = 0
    for fenced in _FENCED.finditer(text):
        yield False, text[end : fenced.start()]
        yield True, fenced[0]
        end = fenced.end()
    yield False, text[end:]


def _prose(text: str, name: str) -> str:
    def target(link: re.Match[str]) -> str:
        page = name
        if link["page"]:
            folder = posixpath.dirname(name)
            page = posixpath.normpath(posixpath.join(folder, link["page"].removesuffix(".md")))
        return f"]({page}{link['anchor'] or ''})"

    text = _IMAGE.sub("", _COMMENT.sub("", text))
    return re.sub(r"\n{3,}", "\n\n", _LINK.sub(target, text))


def _headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Where each heading begins, its level, and its anchor as the site has it."""
    begin = 0
    seen: set[str] = set()
    for is_fenced, part in _split(text):
        for found in () if is_fenced else _HEADING.finditer(part):
            slug = _slug(found["text"])
            number = 0
            while (unique := f"{slug}_{number}" if number else slug) in seen:
                number += 1
            seen.add(unique)
            yield begin + found.start(), len(found["level"]), unique
        begin += len(part)


def _slug(heading: str) -> str:
    """As Python-Markdown makes it."""
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    plain = unicodedata.normalize("NFKD", shown).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


__all__ = ["NoSuchPage", "Page", "find_page", "page_names", "read_page"]

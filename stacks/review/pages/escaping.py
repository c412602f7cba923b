"""Text of others in Markdown: nothing in it can format, link, mention or end a block.

All of it stands in code, where forges look for no mentions, references and links; only plain words
may stand as they are.
"""

import re
from typing import Final

from markupsafe import Markup, escape

from gpuform.schemas.visible import shortened, visible

LONGEST_NAME: Final = 200
_LONGEST_LINE: Final = 1_000
_MOST_LINES: Final = 200

_WORDS: Final = re.compile(r"[A-Za-z0-9 ,.;:()'+-]*")
_SPECIAL: Final = re.compile(
    r":(?! |$)|\bwww\.|\b[0-9a-f]{7,}\b|\bGH-|^\s|\s$|\s\s|^[-+]|^\d+[.)]", re.IGNORECASE
)


def code(text: str, longest: int = LONGEST_NAME) -> str:
    """A code span that shows the text, on one line."""
    text = shortened(visible(text), longest)
    if not text.strip(" "):
        return "`(empty)`"
    fence = _fence(text, 1)
    pad = " " if text.startswith(("`", " ")) or text.endswith(("`", " ")) else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def cell(text: str) -> str:
    """The same in a table, where a bar would end the cell even in code."""
    return code(text).replace("|", "\\|")


def words(text: str) -> str:
    """A phrase: as it is when it is nothing but words, else in code."""
    is_plain = _WORDS.fullmatch(text) and not _SPECIAL.search(text) and len(text) <= LONGEST_NAME
    return text if is_plain else code(text)


def block(text: str, language: str = "text") -> str:
    """A fenced block that shows the lines of the text."""
    lines = [shortened(visible(line), _LONGEST_LINE) for line in text.split("\n")]
    if len(lines) > _MOST_LINES:
        more = len(lines) - _MOST_LINES
        lines = [*lines[:_MOST_LINES], f"... {more} more lines"]
    content = "\n".join(lines)
    fence = _fence(content, 3)
    return f"{fence}{language}\n{content}\n{fence}"


def tag(text: str) -> Markup:
    """Code as HTML that stands within Markdown, on one line."""
    return Markup("<code>{}</code>").format(shortened(visible(text), LONGEST_NAME))


def phrase(text: str) -> Markup:
    """`words` as HTML that stands within Markdown."""
    return escape(text) if words(text) == text else tag(text)


def _fence(text: str, least: int) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * (longest + 1 if longest >= least else least)

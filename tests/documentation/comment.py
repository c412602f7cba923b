"""A review's comment as a forge shows it, drawn as SVG: headings, lists, folds, code."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

WIDTH: Final = 900
_COLUMNS: Final = 110


@dataclass(frozen=True)
class Colours:
    """The colours of a page."""

    text: str
    dim: str
    back: str
    panel: str
    line: str
    add: str
    change: str
    remove: str


LIGHT: Final = Colours(
    text="#1f2328",
    dim="#57606a",
    back="#ffffff",
    panel="#f6f8fa",
    line="#d0d7de",
    add="#116329",
    change="#7d4e00",
    remove="#a40e26",
)
DARK: Final = Colours(
    text="#e6edf3",
    dim="#9da7b3",
    back="#0d1117",
    panel="#161b22",
    line="#3d444d",
    add="#56d364",
    change="#e3b341",
    remove="#ff9492",
)


def draw_comment(markdown: str, colours: Colours) -> str:
    """The comment as a picture of its own; the first fold is open, the others are closed."""
    sheet = _Sheet(colours)
    for line in _lines(markdown):
        sheet.add(line)
    return sheet.drawn()


@dataclass(frozen=True)
class _Line:
    """One line: `kind` says how it looks, `text` has `<b>` and `<code>` as its only marks."""

    kind: str
    text: str


_KINDS: Final = {"list_item_open": "item", "heading_close": "text", "list_item_close": "text"}


def _lines(markdown: str) -> Iterator[_Line]:
    folds = 0
    is_hidden = False
    kind = "text"
    for token in MarkdownIt().parse(markdown):
        kind = token.tag if token.type == "heading_open" else _KINDS.get(token.type, kind)
        if "</details>" in token.content:
            is_hidden = False
        elif found := re.search(r"<summary>(.*?)</summary>", token.content):
            folds += 1
            is_hidden = folds > 1
            yield from _wrapped("fold" if is_hidden else "open fold", found[1])
        elif token.type == "inline" and not is_hidden:
            yield from _wrapped(kind, "".join(_marked(token)))
        elif token.type == "fence" and not is_hidden:
            yield _Line("begin code", "")
            yield from (_Line("code", escape(line)) for line in token.content.splitlines())
            yield _Line("end code", "")


def _marked(token: Token) -> Iterator[str]:
    for each in token.children or ():
        match each.type:
            case "code_inline":
                yield f"<code>{escape(each.content)}</code>"
            case "strong_open":
                yield "<b>"
            case "strong_close":
                yield "</b>"
            case "softbreak" | "hardbreak":
                yield " "
            case _:
                yield escape(each.content)


def _wrapped(kind: str, text: str) -> Iterator[_Line]:
    """The lines of a text; a mark that is open where one ends goes on in the next."""
    marks: list[str] = []

    def hidden(mark: re.Match[str]) -> str:
        marks.append(mark[0])
        return "\x00"

    plain = re.sub(r"</?(?:b|code)>", hidden, text)
    carried = ""
    for number, part in enumerate(_filled(plain)):
        line = carried + re.sub("\x00", lambda _: marks.pop(0), part)
        opened = re.findall(r"<(/?)(b|code)>", line)
        left = opened[-1][1] if opened and not opened[-1][0] else ""
        yield _Line("more" if number else kind, line + (f"</{left}>" if left else ""))
        carried = f"<{left}>" if left else ""


def _filled(text: str) -> Iterator[str]:
    """The words of a text in lines; what stands for a mark takes no room."""
    line = ""
    for word in text.split(" "):
        if line and len(f"{line} {word}".replace("\x00", "")) > _COLUMNS:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


class _Sheet:
    """Lines from top to bottom, and how far down they have come."""

    def __init__(self, colours: Colours) -> None:
        self.colours = colours
        self.parts: list[str] = []
        self.down = 62
        self.code_began = 0

    def add(self, line: _Line) -> None:
        """Draws a line below the others."""
        match line.kind:
            case "h1":
                self._text(line, size=24, above=14, below=16, is_ruled=True)
            case "h2":
                self._text(line, size=19, above=18, below=12, is_ruled=True)
            case "begin code":
                self.down += 6
                self.code_began = self.down
                self.parts.append("")  # the box, once its height is known
                self.box = len(self.parts) - 1
                self.down += 8
            case "end code":
                self.down += 10
                height = self.down - self.code_began
                self.parts[self.box] = self._box(self.code_began, height)
                self.down += 10
            case "code":
                self._code(line)
            case "fold":
                self._text(line, lead="▸ ", above=4, below=4)
            case "open fold":
                self._text(line, lead="▾ ", above=4, below=2)
            case "item":
                self._text(line, lead="• ", above=0, below=4)
            case "more":
                self._text(line, lead="   ", above=0, below=4)
            case _:
                self._text(line, above=2, below=8)

    def _text(
        self,
        line: _Line,
        *,
        size: int = 14,
        lead: str = "",
        above: int,
        below: int,
        is_ruled: bool = False,
    ) -> None:
        self.down += above + size
        weight = ' font-weight="600"' if is_ruled else ""
        place = f'x="32" y="{self.down}" font-size="{size}"{weight}'
        self.parts.append(f"<text {place}>{lead}{_spans(line.text)}</text>")
        self.down += below
        if is_ruled:
            self.parts.append(
                f'<path d="M32 {self.down - 4}H{WIDTH - 32}" stroke="{self.colours.line}"/>'
            )
            self.down += 6

    def _code(self, line: _Line) -> None:
        self.down += 17
        shades = {"!": self.colours.change, "+": self.colours.add, "-": self.colours.remove}
        colour = shades.get(line.text[:1], self.colours.text)
        place = f'x="46" y="{self.down}" class="code" xml:space="preserve" fill="{colour}"'
        self.parts.append(f"<text {place}>{line.text}</text>")

    def _box(self, top: int, height: int) -> str:
        return (
            f'<rect x="32" y="{top}" width="{WIDTH - 64}" height="{height}" rx="6" '
            f'fill="{self.colours.panel}"/>'
        )

    def drawn(self) -> str:
        """The picture: a comment's frame with the lines in it."""
        colours, height = self.colours, self.down + 24
        frame = (
            f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="8" '
            f'fill="{colours.back}" stroke="{colours.line}"/>\n'
            f'<path d="M1 42V9a8 8 0 0 1 8-8H{WIDTH - 9}a8 8 0 0 1 8 8V42z" '
            f'fill="{colours.panel}" stroke="{colours.line}"/>\n'
            '<text x="32" y="27" font-size="14"><tspan font-weight="600">gpuform</tspan>'
            f'<tspan fill="{colours.dim}"> commented on the pull request</tspan></text>'
        )
        inside = "\n".join(self.parts)
        return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" \
viewBox="0 0 {WIDTH} {height}">
<style>
text {{ font-family: system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; }}
.code {{ font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: 12.5px; }}
svg {{ fill: {colours.text}; }}
</style>
{frame}
{inside}
</svg>
"""


def _spans(text: str) -> str:
    """`<b>` and `<code>` as SVG has them."""
    for mark, attribute in (("b", 'font-weight="600"'), ("code", 'class="code"')):
        text = text.replace(f"<{mark}>", f"<tspan {attribute}>").replace(f"</{mark}>", "</tspan>")
    return text

"""Draw a review's comment as a code host shows it, as SVG: headings, lists, folds, code."""

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
class Colors:
    """The colours of a page."""

    text: str
    dim: str
    back: str
    panel: str
    line: str
    add: str
    change: str
    remove: str


LIGHT: Final = Colors(
    text="#1f2328",
    dim="#57606a",
    back="#ffffff",
    panel="#f6f8fa",
    line="#d0d7de",
    add="#116329",
    change="#7d4e00",
    remove="#a40e26",
)
DARK: Final = Colors(
    text="#e6edf3",
    dim="#9da7b3",
    back="#0d1117",
    panel="#161b22",
    line="#3d444d",
    add="#56d364",
    change="#e3b341",
    remove="#ff9492",
)


def draw_comment(markdown: str, colors: Colors) -> str:
    """Return the comment as an SVG picture; the first fold is open, the others are closed."""
    sheet = _Sheet(colors)
    for line in _split_lines(markdown):
        sheet.add(line)
    return sheet.render()


@dataclass(frozen=True)
class _Line:
    """One line: `kind` selects the style, `text` has only the marks `<b>` and `<code>`."""

    kind: str
    text: str


_KINDS: Final = {"list_item_open": "item", "heading_close": "text", "list_item_close": "text"}


def _split_lines(markdown: str) -> Iterator[_Line]:
    folds = 0
    is_hidden = False
    kind = "text"
    for token in MarkdownIt().parse(markdown):
        kind = token.tag if token.type == "heading_open" else _KINDS.get(token.type, kind)
        if "</details>" in token.content:
            is_hidden = False
        elif summary := re.search(r"<summary>(.*?)</summary>", token.content):
            folds += 1
            is_hidden = folds > 1
            yield from _wrap("fold" if is_hidden else "open fold", summary[1])
        elif token.type == "inline" and not is_hidden:
            yield from _wrap(kind, "".join(_mark_up(token)))
        elif token.type == "fence" and not is_hidden:
            yield _Line("begin code", "")
            yield from (_Line("code", escape(line)) for line in token.content.splitlines())
            yield _Line("end code", "")


def _mark_up(token: Token) -> Iterator[str]:
    for child in token.children or ():
        match child.type:
            case "code_inline":
                yield f"<code>{escape(child.content)}</code>"
            case "strong_open":
                yield "<b>"
            case "strong_close":
                yield "</b>"
            case "softbreak" | "hardbreak":
                yield " "
            case _:
                yield escape(child.content)


def _wrap(kind: str, text: str) -> Iterator[_Line]:
    """Yield the lines of a text; a mark open at the end of a line is opened again in the next."""
    marks: list[str] = []

    def hide_mark(mark: re.Match[str]) -> str:
        marks.append(mark[0])
        return "\x00"

    plain = re.sub(r"</?(?:b|code)>", hide_mark, text)
    carried = ""
    for number, part in enumerate(_fill_lines(plain)):
        line = carried + re.sub("\x00", lambda _: marks.pop(0), part)
        opened = re.findall(r"<(/?)(b|code)>", line)
        open_mark = opened[-1][1] if opened and not opened[-1][0] else ""
        yield _Line("more" if number else kind, line + (f"</{open_mark}>" if open_mark else ""))
        carried = f"<{open_mark}>" if open_mark else ""


def _fill_lines(text: str) -> Iterator[str]:
    """Yield the words of a text in lines; placeholders of marks have no width."""
    line = ""
    for word in text.split(" "):
        if line and len(f"{line} {word}".replace("\x00", "")) > _COLUMNS:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


class _Sheet:
    """The lines of a picture from top to bottom; `y` is the bottom of the last one."""

    def __init__(self, colours: Colors) -> None:
        self.colours = colours
        self.parts: list[str] = []
        self.y = 62
        self.code_top = 0

    def add(self, line: _Line) -> None:
        """Draw a line below the others."""
        match line.kind:
            case "h1":
                self._add_text(line, size=24, above=14, below=16, is_ruled=True)
            case "h2":
                self._add_text(line, size=19, above=18, below=12, is_ruled=True)
            case "begin code":
                self.y += 6
                self.code_top = self.y
                self.parts.append("")  # the box, once its height is known
                self.box = len(self.parts) - 1
                self.y += 8
            case "end code":
                self.y += 10
                height = self.y - self.code_top
                self.parts[self.box] = self._render_box(self.code_top, height)
                self.y += 10
            case "code":
                self._add_code(line)
            case "fold":
                self._add_text(line, lead="▸ ", above=4, below=4)
            case "open fold":
                self._add_text(line, lead="▾ ", above=4, below=2)
            case "item":
                self._add_text(line, lead="• ", above=0, below=4)
            case "more":
                self._add_text(line, lead="   ", above=0, below=4)
            case _:
                self._add_text(line, above=2, below=8)

    def _add_text(
        self,
        line: _Line,
        *,
        size: int = 14,
        lead: str = "",
        above: int,
        below: int,
        is_ruled: bool = False,
    ) -> None:
        self.y += above + size
        weight = ' font-weight="600"' if is_ruled else ""
        attributes = f'x="32" y="{self.y}" font-size="{size}"{weight}'
        self.parts.append(f"<text {attributes}>{lead}{_convert_to_spans(line.text)}</text>")
        self.y += below
        if is_ruled:
            self.parts.append(
                f'<path d="M32 {self.y - 4}H{WIDTH - 32}" stroke="{self.colours.line}"/>'
            )
            self.y += 6

    def _add_code(self, line: _Line) -> None:
        self.y += 17
        shades = {"!": self.colours.change, "+": self.colours.add, "-": self.colours.remove}
        colour = shades.get(line.text[:1], self.colours.text)
        attributes = f'x="46" y="{self.y}" class="code" xml:space="preserve" fill="{colour}"'
        self.parts.append(f"<text {attributes}>{line.text}</text>")

    def _render_box(self, top: int, height: int) -> str:
        return (
            f'<rect x="32" y="{top}" width="{WIDTH - 64}" height="{height}" rx="6" '
            f'fill="{self.colours.panel}"/>'
        )

    def render(self) -> str:
        """Return the picture: the frame of a comment with the lines in it."""
        colours, height = self.colours, self.y + 24
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


def _convert_to_spans(marked_text: str) -> str:
    """Return the text with `<b>` and `<code>` as SVG's `tspan`."""
    for mark, attribute in (("b", 'font-weight="600"'), ("code", 'class="code"')):
        marked_text = marked_text.replace(f"<{mark}>", f"<tspan {attribute}>").replace(
            f"</{mark}>", "</tspan>"
        )
    return marked_text

"""Read the documents of a review as their readers do: Markdown, HTML and JSON."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from gpuform.stacks.review.facts import Review
from gpuform.stacks.review.pages import build_review_document, render_html, render_markdown
from gpuform.stacks.review.plan_text import render_review

RENDERERS: dict[str, Callable[[Review], str]] = {
    "text": render_review,
    "markdown": lambda review: render_markdown(review, folded=False),
    "github": lambda review: render_markdown(review, folded=True),
    "html": render_html,
    "json": lambda review: json.dumps(build_review_document(review)),
}
MAX_COMMENT_LENGTH = 65_536
VOID_TAGS = {"meta", "link", "br"}


@dataclass
class Document:
    """The tokens of a Markdown text as CommonMark reads it, with GitHub's tables."""

    tokens: list[Token]

    @property
    def headings(self) -> list[str]:
        return self._list_texts_after("heading_open")

    @property
    def paragraphs(self) -> list[str]:
        return self._list_texts_after("paragraph_open")

    @property
    def fences(self) -> list[tuple[str, str]]:
        return [(token.info, token.content) for token in self.tokens if token.type == "fence"]

    @property
    def rows(self) -> list[list[str]]:
        rows: list[list[str]] = []
        for token, following in zip(self.tokens, self.tokens[1:], strict=False):
            if token.type == "tr_open":
                rows.append([])
            elif token.type in ("td_open", "th_open"):
                rows[-1].append(following.content)
        return rows

    @property
    def html(self) -> str:
        return "".join(token.content for token in self.tokens if token.type == "html_block")

    @property
    def inline_types(self) -> set[str]:
        children = (token.children or [] for token in self.tokens if token.type == "inline")
        return {child.type for inline in children for child in inline}

    def _list_texts_after(self, opening: str) -> list[str]:
        pairs = zip(self.tokens, self.tokens[1:], strict=False)
        return [following.content for token, following in pairs if token.type == opening]


def parse_markdown(text: str) -> Document:
    return Document(MarkdownIt("commonmark").enable("table").parse(text))


class TagReader(HTMLParser):
    """Reads an HTML page, asserts that tags close in order, and keeps tags, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID_TAGS:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parse_html(text: str) -> TagReader:
    """Parse a page, all of whose tags must be closed."""
    reader = TagReader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader

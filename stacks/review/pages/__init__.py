"""Render reviews as documents: Markdown for pull requests, HTML, and JSON."""

from gpuform.stacks.review.pages.document import count_characters
from gpuform.stacks.review.pages.html_page import render_html
from gpuform.stacks.review.pages.markdown_page import LIMIT, format_code, render_markdown
from gpuform.stacks.review.pages.review_json import build_review_document

__all__ = [
    "LIMIT",
    "build_review_document",
    "count_characters",
    "format_code",
    "render_html",
    "render_markdown",
]

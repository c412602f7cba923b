"""Reviews as documents: Markdown for a pull request, HTML and JSON."""

from gpuform.stacks.review.pages.document import length
from gpuform.stacks.review.pages.html_page import html
from gpuform.stacks.review.pages.markdown_page import LIMIT, code, markdown
from gpuform.stacks.review.pages.review_json import review_document

__all__ = ["LIMIT", "code", "html", "length", "markdown", "review_document"]

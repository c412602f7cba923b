"""Text of others in Markdown is shown as it is, and does nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.readers.review_documents import parse_html, parse_markdown
from support.strategies.plan_strategies import ODD_TEXTS

from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.review.pages import (
    format_block,
    format_cell,
    format_code,
    format_html_code,
    format_html_words,
    format_words,
)

TEXTS = st.sampled_from(ODD_TEXTS) | st.text(max_size=30) | st.text("`|\\ \n*_", max_size=12)


def list_inline_tokens(inline: str) -> list[tuple[str, str]]:
    (paragraph,) = (t for t in parse_markdown(f"x {inline} y").tokens if t.type == "inline")
    return [(child.type, child.content) for child in paragraph.children or []]


@given(TEXTS)
def test_any_text_is_one_code_span(text: str) -> None:
    children = list_inline_tokens(format_code(text, 10_000))
    assert [kind for kind, _ in children] == ["text", "code_inline", "text"]
    assert children[1][1].strip() == (escape_invisible(text).strip() or "(empty)")


@given(TEXTS, TEXTS)
def test_any_text_is_one_table_cell(one: str, other: str) -> None:
    document = parse_markdown(
        f"| a | b |\n|---|---|\n| {format_cell(one)} | {format_cell(other)} |\n"
    )
    assert len(document.rows) == 2
    assert [len(row) for row in document.rows] == [2, 2]


@given(TEXTS, st.sampled_from(["text", "diff"]))
def test_any_text_is_one_code_block(text: str, language: str) -> None:
    tokens = parse_markdown(f"before\n\n{format_block(text, language)}\n\nafter").tokens
    (fence,) = (token for token in tokens if token.type == "fence")
    assert fence.info == language
    if len(text) <= 1000:
        assert fence.content == "\n".join(map(escape_invisible, text.split("\n"))) + "\n"
    assert tokens[-2].content == "after"


@given(TEXTS)
def test_any_text_is_plain_text_in_html(text: str) -> None:
    for made in (str(format_html_code(text)), str(format_html_words(text))):
        read = parse_html(f"<summary>{made}</summary>")
        assert {name for name, _ in read.tags} <= {"summary", "code"}
        assert "\n" not in made


@pytest.mark.parametrize(
    "text", ["cannot be changed in place", "no longer declared: back to it", "GPUs (16), 24 + 8"]
)
def test_plain_words_stay_unchanged(text: str) -> None:
    assert format_words(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *("@everyone", "see #12", "GH-12", "www.evil.example", "http://evil.example", ":tada:"),
        *("a_b_c", "*bold*", "<b>", "0123456789abcdef", "- item", "1. item", "a!12", "~label"),
        *("two  spaces", " first", "last ", "$1", "%2", "&amp;", "x" * 201, "[a](b)", "`"),
    ],
)
def test_other_text_becomes_a_code_span(text: str) -> None:
    assert format_words(text) == format_code(text)
    assert str(format_html_words(text)).startswith("<code>")


def test_long_texts_are_cut() -> None:
    assert len(format_code("x" * 5000)) <= 202
    many = format_block("\n".join(["y" * 5000] * 300))
    assert "... 100 more lines" in many
    assert max(map(len, many.split("\n"))) <= 1000

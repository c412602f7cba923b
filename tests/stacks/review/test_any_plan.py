"""Test that every document of any plan is sound, short enough, and counts everything."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.readers.review_documents import (
    MAX_COMMENT_LENGTH,
    RENDERERS,
    parse_html,
    parse_markdown,
)
from support.strategies.plan_strategies import plans

from gpuform.schemas.plan import Plan
from gpuform.stacks.review.document import count_characters
from gpuform.stacks.review.facts import Review, StackFacts, format_gate_counts
from gpuform.stacks.review.summary_text import format_planned_operations

pytestmark = pytest.mark.slow

reviews = st.lists(plans(), min_size=1, max_size=3).map(
    lambda drawn_plans: Review([StackFacts(plan, "plan.json") for plan in drawn_plans])
)
EXPECTED_TOKENS = {
    "text",
    "code_inline",
    "strong_open",
    "strong_close",
    "em_open",
    "em_close",
    "softbreak",
}


@settings(max_examples=40)
@given(reviews)
def test_markdown_of_any_plan_has_one_section_per_change_and_no_active_content(
    review: Review,
) -> None:
    dangers = sum(stack.dangers for stack in review.stacks)
    others = sum(len(stack.subjects) for stack in review.stacks) - dangers
    outputs = sum(len(stack.plan.outputs) for stack in review.stacks)
    unchecked = sum(len(stack.plan.unchecked) for stack in review.stacks)
    for form in ("markdown", "github"):
        rendered = RENDERERS[form](review)
        assert count_characters(rendered) <= MAX_COMMENT_LENGTH
        assert rendered.encode(), "it can be written"
        document = parse_markdown(rendered)
        assert f"**{format_planned_operations(review.counts)}**" in document.paragraphs
        expected = [
            *(["Stacks"] if len(review.stacks) > 1 else []),
            *(["Cost"] if any(stack.plan.cost for stack in review.stacks) else []),
            *([f"Gates: {counted}"] if (counted := format_gate_counts(review)) else []),
            f"Dangerous changes: {dangers or 'none'}",
            *([f"Other changes: {others}"] if others else []),
            *([f"Outputs: {outputs}"] if outputs else []),
            *([f"Not checked: {unchecked}"] if unchecked else []),
            "Next",
        ]
        own = [rendered for rendered in document.headings if not rendered.startswith("`")][1:]
        assert own == expected
        assert document.inline_types <= EXPECTED_TOKENS
        if form == "markdown":
            assert document.html == ""
        else:
            assert {tag for tag, _ in parse_html(document.html).tags} <= {
                "details",
                "summary",
                "b",
                "code",
            }
            assert document.html.count("<details>") == dangers + others
        if len(review.stacks) > 1:
            assert {len(row) for row in document.rows} == {5}
            assert len(document.rows) == len(review.stacks) + 1
        else:
            assert document.rows == []


@settings(max_examples=40)
@given(reviews)
def test_html_is_well_formed_and_loads_nothing(review: Review) -> None:
    page = parse_html(RENDERERS["html"](review))
    names = [tag for tag, _ in page.tags]
    assert names[0] == "html"
    assert page.tags[0][1] == {"lang": "en"}
    assert not {"script", "img", "a", "link", "iframe", "form"} & set(names)
    assert not any(
        key.startswith("on") or key in ("src", "href") for _, a in page.tags for key in a
    )
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")
    assert names.count("details") == sum(len(stack.subjects) for stack in review.stacks)
    assert format_planned_operations(review.counts) in page.text


@settings(max_examples=40)
@given(reviews)
def test_text_and_json_of_any_plan_are_complete(review: Review) -> None:
    rendered = RENDERERS["text"](review)
    assert rendered.encode()
    assert format_planned_operations(review.counts) in rendered
    assert "\x1b" not in rendered
    document = json.loads(RENDERERS["json"](review))
    for stack, stack_document in zip(review.stacks, document["stacks"], strict=True):
        assert len(stack_document["dangers"]) == stack.dangers
        assert len(stack_document["plan"]["changes"]) == len(stack.plan.changes)


@pytest.mark.parametrize("form", RENDERERS)
def test_a_plan_without_changes_says_nothing_to_do(form: str) -> None:
    rendered = RENDERERS[form](Review([StackFacts(Plan.from_changes("demo", "dev", []))]))
    assert "nothing to do" in rendered or form == "json"
    assert "gpuform up" not in rendered

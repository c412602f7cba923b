"""Test that documents stay below the code host's limit, and report omissions."""

import re
from collections.abc import Iterator

import pytest
from support.readers.review_documents import (
    MAX_COMMENT_LENGTH,
    RENDERERS,
    parse_html,
    parse_markdown,
)

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import Plan, PlanAction, PlanReason, PropertyChange, ResourceChange
from gpuform.stacks.review.document import Item, Part, choose_item_forms, count_characters
from gpuform.stacks.review.facts import Review, StackFacts

pytestmark = pytest.mark.slow

CLUSTER = "pulumi-python:dynamic/gpuform.together:Cluster"


def build_changes(stack: str, count: int, replaced: int) -> Iterator[ResourceChange]:
    for number in range(count):
        is_replaced = number >= count - replaced
        forced = PropertyChange(
            path="region",
            action=Action.UPDATE,
            before="us-central-8",
            after="eu-west-1",
            forces_replacement=is_replaced,
            because="cannot be changed in place" if is_replaced else "",
        )
        yield ResourceChange(
            urn=f"urn:pulumi:{stack}::demo::{CLUSTER}::train-{number}",
            type=CLUSTER,
            name=f"train-{number}",
            action=PlanAction.REPLACE if is_replaced else PlanAction.UPDATE,
            reason=PlanReason.FIELD_FORCES_REPLACEMENT if is_replaced else PlanReason.CHANGED,
            changes=(forced,),
            gpus_added=16 if is_replaced else 0,
            gpus_removed=16 if is_replaced else 0,
        )


def build_review(number: int, count: int, replaced: int) -> Review:
    names = [f"stack-{at}" for at in range(number)]
    return Review(
        [
            StackFacts(
                Plan.from_changes("demo", name, build_changes(name, count, replaced)),
                f"{name}.json",
            )
            for name in names
        ]
    )


@pytest.fixture(scope="module")
def large_review() -> Review:
    return build_review(30, 2000, 3)


@pytest.mark.parametrize("form", ["markdown", "github"])
def test_markdown_of_60000_changes_fills_the_limit(large_review: Review, form: str) -> None:
    rendered = RENDERERS[form](large_review)
    assert MAX_COMMENT_LENGTH * 0.9 < count_characters(rendered) <= MAX_COMMENT_LENGTH
    document = parse_markdown(rendered)
    assert document.headings[0] == "gpuform plan: 30 stacks"
    assert document.paragraphs[:2] == [
        "**59,910 to update, 90 to replace**",
        "**GPUs: 1,440 destroyed, 1,440 added**",
    ]
    assert len(document.rows) == 31
    assert "Dangerous changes: 90" in document.headings
    assert rendered.count("destroys 16 GPUs") == 90, "each danger is named"
    assert rendered.count("`region` cannot") + rendered.count("<code>region</code> cannot") == 90
    left_out = re.search(r"\*\*\*([\d,]+) more omitted here", rendered)
    assert left_out
    shown_count = len(re.findall(r"\*\*update\*\*|<b>update</b>", rendered))
    assert shown_count + int(left_out[1].replace(",", "")) == 59_910
    assert rendered.count("gpuform up --stack stack-") == 30


def test_the_html_of_60000_changes_counts_all(large_review: Review) -> None:
    page = RENDERERS["html"](large_review)
    assert len(page) <= 1_500_000
    rendered = parse_html(page).text
    assert "59,910 to update, 90 to replace" in rendered
    assert "more omitted here" in rendered


def test_the_text_lists_every_change() -> None:
    assert RENDERERS["text"](build_review(3, 200, 2)).count("together:Cluster") == 600


def test_all_dangerous_changes_are_named_before_any_is_described() -> None:
    rendered = RENDERERS["github"](build_review(1, 2000, 2000))
    assert count_characters(rendered) <= MAX_COMMENT_LENGTH
    assert rendered.count("<details>") > 20
    assert rendered.count("**replace**") > 200
    assert "**GPUs: 32,000 destroyed, 32,000 added**" in rendered


def test_a_huge_value_leaves_space_for_other_changes() -> None:
    long = [
        PropertyChange(path=f"p{at}", action=Action.ADD, after={"k": ["漢😀" * 2000]})
        for at in range(100)
    ]
    first, second = build_changes("dev", 2, 2)
    first = first.model_copy(update={"changes": (*first.changes, *long), "gpus_removed": 99})
    rendered = RENDERERS["github"](
        Review([StackFacts(Plan.from_changes("demo", "dev", [first, second]))])
    )
    assert count_characters(rendered) <= MAX_COMMENT_LENGTH
    assert "1 of them without details" in rendered
    assert rendered.index("destroys 99 GPUs") < rendered.index("destroys 16 GPUs")
    assert '! region: "us-central-8" => "eu-west-1"' in rendered


def test_thousands_of_stacks_and_skipped_checks_fit_the_limit() -> None:
    plans = [
        Plan.from_changes("demo", f"stack-{at}", [], unchecked=[f"check {at} " + "x" * 3000])
        for at in range(3000)
    ]
    rendered = RENDERERS["markdown"](Review([StackFacts(plan) for plan in plans]))
    assert count_characters(rendered) <= MAX_COMMENT_LENGTH
    assert "# gpuform plan: 3000 stacks" in rendered
    assert "## Not checked: 3,000" in rendered
    assert len(re.findall("more omitted here", rendered)) == 2


def test_the_most_important_parts_are_shown_in_full() -> None:
    def items(count: int) -> list[Item]:
        return [Item(lambda: "b" * 8, lambda: "w" * 98) for _ in range(count)]

    first, second = Part(items(3), 0.5, 0.8), Part(items(3))
    choose_item_forms([first, second], 10_000)
    assert [in_brief for _, in_brief in (*first.shown, *second.shown)] == [False] * 6
    first, second = Part(items(3), 0.5, 1.0), Part(items(3))
    choose_item_forms([first, second], 330)
    assert [in_brief for _, in_brief in first.shown] == [False] * 3
    assert [in_brief for _, in_brief in second.shown] == [True] * 3
    first, second = Part(items(3), 1.0, 1.0), Part(items(3))
    choose_item_forms([first, second], 45)
    assert (first.left_out, second.left_out) == (0, 2)
    assert (first.without_detail, second.without_detail) == (3, 1)
    first = Part(items(3))
    choose_item_forms([first], 0)
    assert first.left_out == 3

"""The section `If something goes wrong` in every form of a review."""

import json
from typing import Any

import pytest
from support.stacks.hand_made_rehearsals import TRAIN, build_outcome, build_rehearsal

from gpuform.schemas.plan import Plan, PlanAction, PlanReason
from gpuform.schemas.rehearsal import Advice, HazardKind, Rehearsal, UnplayedHazard
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.pages import build_review_document, render_html, render_markdown
from gpuform.stacks.review.plan_text import render_plan, render_review
from gpuform.stacks.review.rehearsal_text import format_verdict, render_rehearsal

QUIET = build_rehearsal(
    build_outcome(HazardKind.NO_CAPACITY),
    build_outcome(HazardKind.KILLED),
    not_played=(UnplayedHazard(kind=HazardKind.JOB_STARTS, reason="no scheduler"),),
)
HARMFUL = build_rehearsal(
    build_outcome(
        HazardKind.NO_CAPACITY,
        "no capacity for cluster train after its deletion",
        ending="failed",
        lost_gpus=16,
        lost_for_s=None,
        gpu_hours_without_work=384.0,
        data_lost=("volume data, 5 TiB",),
        half_done=("cluster train is deleted",),
        mended_by="gpuform up",
        advice=(
            Advice(
                urn=TRAIN,
                declaration="rollout: {strategy: replace_cluster}",
                lost_gpus=0,
                gpu_hours_without_work=0,
            ),
        ),
    ),
    build_outcome(
        HazardKind.JOB_STARTS,
        "a job starts on training-worker-1",
        jobs_ended=("tune",),
        is_mended=False,
        extra_cost={"USD": 2.5},
    ),
    build_outcome(HazardKind.KILLED),
)


def build_review(resource: Any, rehearsal: Rehearsal | None) -> Review:
    change = resource("train", PlanAction.UPDATE, PlanReason.CHANGED)
    plan = Plan.from_changes("demo", "dev", [change])
    return Review([StackFacts(plan.model_copy(update={"rehearsal": rehearsal}))])


def test_a_harmless_rehearsal_has_three_lines() -> None:
    assert list(render_rehearsal(QUIET)) == [
        "If something goes wrong: nothing is lost",
        "    harmless: no-capacity, killed",
        (
            "    played on the emulator: the real platform may differ; not played: job-starts: no "
            "scheduler"
        ),
    ]


def test_the_verdict_of_a_plan_that_deletes_excepts_what_it_deletes() -> None:
    rehearsal = build_rehearsal(build_outcome(HazardKind.KILLED), actions={TRAIN: "delete"})
    assert format_verdict(rehearsal) == "nothing is lost but what the plan deletes"


def test_the_verdict_of_another_plan_than_the_rehearsed_one_is_unknown() -> None:
    difference = "clusters.train: the plan says update, the emulator plans replace"
    rehearsal = build_rehearsal(build_outcome(HazardKind.KILLED), differences=(difference,))
    title, reason, *_ = render_rehearsal(rehearsal)
    assert title == "If something goes wrong: unknown: the emulator plans something else"
    assert reason == f"    the rehearsal differs from the plan: {difference}"


def test_a_plan_that_is_not_completed_without_any_hazard_is_not_quiet() -> None:
    usual = build_outcome(
        HazardKind.NONE, is_mended=False, half_done=("clusters.train: still to update",)
    )
    title, reason, *_ = render_rehearsal(build_rehearsal(usual, build_outcome(HazardKind.KILLED)))
    assert title == "If something goes wrong: the plan is not completed even if nothing goes wrong"
    assert reason == "    without any hazard left half done: clusters.train: still to update"


def test_harm_is_listed_with_its_remedy_the_worst_first() -> None:
    assert list(render_rehearsal(HARMFUL)) == [
        "If something goes wrong: 2 of 3 hazards do harm",
        (
            "    no capacity for cluster train after its deletion: 16 GPUs without work until the "
            "cause has ended; 384.0 GPU-hours without work; data lost: volume data, 5 TiB"
        ),
        "        left half done: cluster train is deleted",
        "        mended by: gpuform up",
        (
            "        avoid it: declare rollout: {strategy: replace_cluster} of train: a rehearsal "
            "with it lost no GPU"
        ),
        "    a job starts on training-worker-1: 1 job ended: tune; costs 2.50 USD more",
        "        no command was found that mends it",
        "    harmless: killed",
        "    played on the emulator: the real platform may differ",
    ]


def test_advice_names_its_condition_its_commands_and_what_is_still_lost() -> None:
    declared = Advice(
        urn=TRAIN,
        declaration="on_no_capacity: {alternatives: [{region: us-east-2}]}",
        condition="only H100_SXM in us-central-8 is out of stock",
        lost_gpus=16,
        gpu_hours_without_work=6.13,
    )
    commands = ("gpuform up --target extra", "gpuform up")
    split = Advice(urn=TRAIN, commands=commands, lost_gpus=0, gpu_hours_without_work=0)
    outcome = build_outcome(HazardKind.NO_CAPACITY, lost_gpus=16, advice=(declared, split))
    lines = list(render_rehearsal(build_rehearsal(outcome)))
    assert [line.strip() for line in lines if "avoid it" in line] == [
        (
            "avoid it if only H100_SXM in us-central-8 is out of stock: declare on_no_capacity: "
            "{alternatives: [{region: us-east-2}]} of train: a rehearsal with it lost 6.1 "
            "GPU-hours"
        ),
        (
            "avoid it: run gpuform up --target extra, and then gpuform up: a rehearsal with it "
            "lost no GPU"
        ),
    ]


def test_the_hint_of_the_error_stands_where_no_command_mends() -> None:
    error = (
        "data: an interrupted create may have created one of these, or none: 3f9a\n"
        "  nothing was created or adopted. To adopt one,\n  add `--adopt 3f9a`"
    )
    outcome = build_outcome(HazardKind.KILLED, is_mended=False, errors=("lost", error))
    (line,) = (line for line in render_rehearsal(build_rehearsal(outcome)) if "no command" in line)
    assert line == (
        "        no command was found that mends it; its error says: nothing was created or "
        "adopted. To adopt one, add `--adopt ID`"
    )


def test_a_run_that_fails_without_a_hazard_is_the_verdict() -> None:
    usual = build_outcome(
        HazardKind.NONE, "nothing goes wrong", ending="failed", errors=("volume data is attached",)
    )
    lines = list(render_rehearsal(build_rehearsal(usual)))
    assert lines[0] == "If something goes wrong: the run fails even if nothing goes wrong"
    assert lines[1] == "    without any hazard the run ends as failed: volume data is attached"


def test_only_the_worst_hazards_are_listed() -> None:
    outcomes = [
        build_outcome(HazardKind.KILLED, f"killed at step {step}", lost_gpus=20 - step)
        for step in range(8)
    ]
    lines = list(render_rehearsal(build_rehearsal(*outcomes)))
    assert sum("killed at step" in line for line in lines) == 5
    assert "    3 other hazards: killed (3)" in lines


def test_every_form_of_a_review_has_the_section(resource: Any) -> None:
    review = build_review(resource, HARMFUL)
    plan = review.stacks[0].plan

    assert "If something goes wrong: 2 of 3 hazards do harm" in render_plan(plan)
    assert "If something goes wrong: 2 of 3 hazards do harm" in render_review(review)
    for folded in (True, False):
        markdown = render_markdown(review, folded=folded)
        assert "## If something goes wrong\n\n```text\n2 of 3 hazards do harm:\n" in markdown
        assert "avoid it: declare rollout: {strategy: replace_cluster} of train" in markdown
    page = render_html(review)
    assert '<section id="hazards"><h2>If something goes wrong</h2>' in page
    assert "no capacity for cluster train after its deletion" in page
    (stack,) = json.loads(json.dumps(build_review_document(review)))["stacks"]
    assert Rehearsal.model_validate(stack["plan"]["rehearsal"]) == HARMFUL


@pytest.mark.parametrize("render", [render_review, render_html])
def test_a_plan_that_was_not_rehearsed_has_no_section(resource: Any, render: Any) -> None:
    assert "goes wrong" not in render(build_review(resource, None))


def test_texts_of_the_platform_cannot_break_a_review(resource: Any) -> None:
    nasty = "train\x1b[31m\n```\n# Approved <script>"
    outcome = build_outcome(HazardKind.NO_CAPACITY, nasty, lost_gpus=8)
    review = build_review(resource, build_rehearsal(outcome))

    assert "\x1b" not in render_review(review)
    assert "\n# Approved" not in render_review(review)
    assert "````text" in render_markdown(review, folded=True)  # longer than the fence inside
    assert "<script>" not in render_html(review)
